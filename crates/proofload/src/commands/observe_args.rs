//! The option that names remote hosts to observe, shared by the commands that run trials.

use clap::Args;
use study::Destination;

/// Remote hosts to observe.
#[derive(Debug, Args)]
pub(crate) struct ObserveArgs {
    /// Read the kernel of a remote machine, such as the target's, over ssh; nothing is installed there; can be repeated
    #[arg(long, value_name = "[NAME=]USER@HOST[:PORT]", help_heading = "Machine")]
    pub observe: Vec<Destination>,
}
