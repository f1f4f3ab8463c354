//! `proofload agent`: makes load for a controller on another machine.

use clap::Args;
use load::raise_descriptors;

use crate::exit::{Exit, Refusal, Result};

#[derive(Debug, Args)]
pub(crate) struct AgentArgs {
    /// Take orders from standard input
    #[arg(long, required_unless_present = "check")]
    stdio: bool,
    /// End at once: shows that the program can run here
    #[arg(long, conflicts_with = "stdio")]
    check: bool,
}

/// Runs an agent until its standard input ends.
pub(crate) fn run(arguments: &AgentArgs) -> Result<Exit> {
    if arguments.check {
        return Ok(Exit::GoalsMet);
    }
    debug_assert!(arguments.stdio, "clap requires one of both");
    raise_descriptors();
    fleet::run_agent(&["worker".to_owned()]).map(|()| Exit::GoalsMet).map_err(Refusal::one)
}
