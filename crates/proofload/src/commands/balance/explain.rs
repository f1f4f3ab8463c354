//! `proofload balance explain`: lists what a balancer would lack on this host.

use std::{net::IpAddr, path::PathBuf};

use balance::{Config, Finding, Verdict, explain_balancer, explain_server};
use clap::Args;

use crate::{
    exit::{Exit, Refusal},
    output::standard,
};

const EXIT_STATUS: &str = "Exit status: 0 nothing is missing, 1 something is, 2 wrong use.";

/// Say what is missing on this host for a balancer, or on a web host for a server of VIPs.
///
/// Each line is a fact: ok, a note, or missing, with the next step. Nothing is changed, but the kernel is asked to find the servers.
#[derive(Debug, Args)]
#[command(after_help = EXIT_STATUS)]
pub(super) struct ExplainArgs {
    /// Configuration file of a balancer
    #[arg(short, long, value_name = "FILE", required_unless_present_any = ["device", "server"])]
    config: Option<PathBuf>,
    /// A device for a balancer, without a file
    #[arg(long, value_name = "DEVICE", conflicts_with = "config")]
    device: Option<String>,
    /// A VIP, on a host that is to be one of its servers; repeatable
    #[arg(long, value_name = "VIP", conflicts_with_all = ["config", "device"])]
    server: Vec<IpAddr>,
}

/// Prints which requirements this host meets.
pub(super) fn run(arguments: &ExplainArgs) -> Result<Exit, Refusal> {
    lab::ensure_own_proc().map_err(Refusal::one)?;
    let findings = match (&arguments.config, &arguments.device) {
        (Some(path), _) => explain_balancer(&super::read(path)?.0),
        (None, Some(device)) => explain_balancer(&Config::new(device.as_str())),
        (None, None) => explain_server(&arguments.server),
    };
    let findings = findings.map_err(Refusal::one)?;
    standard::print_wrapped(&findings.iter().map(|finding| format!("{finding}\n")).collect::<String>())?;
    let is_missing = |finding: &Finding| finding.verdict == Verdict::Missing;
    Ok(if findings.iter().any(is_missing) { Exit::GoalsNotMet } else { Exit::GoalsMet })
}
