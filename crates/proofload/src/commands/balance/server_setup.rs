//! `proofload balance server-setup`: prepares a web host to receive traffic for VIPs, until it is stopped.

use std::net::IpAddr;

use balance::ServerSetup;
use clap::Args;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};
use undo::Folder;

use crate::{
    exit::{Exit, Refusal},
    output::standard,
};

const EXIT_STATUS: &str = "Exit status: 0 stopped, and everything is undone, 2 wrong use, or it is not safe, or it could not be undone.";

/// Make this host a server of VIPs until Ctrl-C or SIGTERM: addresses on lo, and no answer for them in ARP.
///
/// First arp_ignore = 1 and arp_announce = 2, for all devices and those that are named, then each VIP on lo. All of it is undone in the
/// reverse order. After kill -9, `proofload clean` does that, and the same command goes on with what is there.
#[derive(Debug, Args)]
#[command(after_help = EXIT_STATUS)]
pub(crate) struct ServerSetupArgs {
    /// Addresses that the balancer has, such as 192.168.16.100
    #[arg(required = true, value_name = "VIP")]
    vips: Vec<IpAddr>,
    /// A device on the balancer's segment, such as eth0: it stays silent even if somebody changes the setting for all; repeatable
    #[arg(long, value_name = "DEVICE")]
    device: Vec<String>,
}

/// Sets up the host, waits for a signal, and undoes the setup.
pub(crate) fn run(arguments: &ServerSetupArgs) -> Result<Exit, Refusal> {
    let folder = Folder::of_this_user().map_err(Refusal::one)?;
    lab::ensure_own_proc().map_err(Refusal::one)?;
    // Registered before any change, so that a signal cannot end the process in the middle of one.
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP]);
    let mut signals =
        signals.map_err(|error| Refusal::one(format_args!("cannot handle signals: {error}")))?;
    let setup = ServerSetup::start(&arguments.vips, &arguments.device, &folder).map_err(Refusal::new)?;
    let lines: String = setup.lines().iter().map(|line| format!("{line}\n")).collect();
    let shown = standard::print_wrapped(&format!("{lines}ready; Ctrl-C or SIGTERM undoes it\n"));
    if shown.is_ok() {
        signals.forever().next();
    }
    setup.end().map_err(Refusal::new)?;
    shown.map(|()| Exit::GoalsMet)
}
