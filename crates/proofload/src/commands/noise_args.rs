//! The option that sets the reaction to noise on this machine, shared by the commands that run trials.

use clap::Args;
use record::OnNoise;

/// What is done about noise.
#[derive(Debug, Args)]
pub(crate) struct NoiseArgs {
    /// What to do where other programs or a hypervisor disturb this machine: widen figures to intervals, void trials with such
    /// figures, or wait up to 10s for a quieter machine before the first trial [default: widen, or the study's]
    #[arg(long, value_name = "widen|void|wait", help_heading = "Machine")]
    pub on_noise: Option<OnNoise>,
}
