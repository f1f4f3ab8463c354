//! `proofload balance --config FILE`: runs the balancer in the foreground.

use std::{path::PathBuf, thread};

use balance::{Daemon, Device, Handle, Instance, Options, Order};
use clap::Args;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR2},
    iterator::Signals,
};
use tracing::{error, info, level_filters::LevelFilter, warn};
use undo::Folder;

use crate::{
    commands::logs::{self, LogFormat},
    exit::{Exit, Refusal},
    output::standard,
};

#[derive(Debug, Args)]
pub(super) struct RunArgs {
    /// Configuration file
    #[arg(short, long, value_name = "FILE", required_unless_present = "import")]
    config: Option<PathBuf>,
    /// Name of this balancer [default: its device]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Only read the file, and look at the device
    #[arg(long)]
    check: bool,
    /// Leave the program, tables and addresses at the end, for the next start
    #[arg(long)]
    keep: bool,
    /// Write the log as lines of JSON
    #[arg(long)]
    json_log: bool,
}

/// Runs until a signal or `proofload balance stop`.
pub(super) fn run(arguments: &RunArgs) -> Result<Exit, Refusal> {
    // Unreachable: clap requires --config.
    let path = arguments
        .config
        .as_ref()
        .ok_or_else(|| Refusal::one("--config is missing: give the configuration file"))?;
    let (config, text) = super::read(path)?;
    let journals = Folder::of_this_user().map_err(Refusal::one)?;
    let name = arguments.name.as_deref().unwrap_or(&config.device);
    let instance = Instance::named(name, &journals).map_err(Refusal::one)?;
    Device::find(&config.device).map_err(Refusal::one)?;
    if arguments.check {
        let (vips, device) = (config.vips.len(), &config.device);
        standard::print_wrapped(&format!("the file is valid: {vips} VIP(s) on {device}\n"))?;
        return Ok(Exit::GoalsMet);
    }
    // Must precede this process's private mount namespace, so that the file system outlives the process.
    let short_lived = instance.ensure_bpf_file_system().map_err(Refusal::one)?;
    lab::ensure_own_proc().map_err(Refusal::one)?;
    let format = if arguments.json_log { LogFormat::Json } else { LogFormat::Text };
    logs::start(format, LevelFilter::INFO);
    short_lived.into_iter().for_each(|why| warn!("{why}"));
    // Registered before any change, so that a signal cannot end the process in the middle of one.
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP, SIGUSR2]);
    let signals = signals.map_err(|error| Refusal::one(format_args!("cannot handle signals: {error}")))?;
    let options = Options { instance, config, file: path.clone(), text };
    let ended = Daemon::start(options).map_err(Refusal::one).and_then(|daemon| {
        forward_signals(signals, daemon.handle(), arguments.keep);
        info!("ready: {}", daemon.description());
        daemon.run().map_err(Refusal::all)
    });
    logs::flush();
    ended.map(|()| Exit::GoalsMet)
}

fn forward_signals(mut signals: Signals, handle: Handle, keeps: bool) {
    // No handle is kept: the thread runs until the process ends.
    thread::spawn(move || {
        for signal in signals.forever() {
            let order = match signal {
                SIGHUP => Order::Reload,
                SIGUSR2 => Order::Keep,
                _ if keeps => Order::Keep,
                _ => Order::Stop,
            };
            if !handle.order(order) {
                error!("the balancer is ending already");
                return;
            }
        }
    });
}
