//! Starts a daemon, with new tables or with those of an earlier daemon.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fs,
    net::TcpListener,
    path::PathBuf,
    sync::mpsc::{self, Sender},
    thread,
    time::Instant,
};

use clock::monotonic_ns;
use tracing::{info, warn};
use undo::{Change, Journal, Pins};

use super::{Daemon, Message, state::State};
use crate::{
    Config, Device, Error, Hook, Instance, Program,
    addresses::Addresses,
    balancer::Balancer,
    checker::Checker,
    control::{self, Answer, PendingRequest, Request},
    error::Cause,
    explain::{XDP_ON_VETH, rival_fact, rivals},
    layout::nanoseconds,
    loader::other_sizes,
    metrics, statistics,
    sweeps::{Sweeper, Sweeps, Swept, newest_mark},
};

/// Kind of the balancers' journals.
const KIND: &str = "balance";

/// Options for starting a daemon.
#[derive(Debug)]
pub struct Options {
    /// Its name. A BPF file system must already be mounted.
    pub instance: Instance,
    /// The configuration of the file.
    pub config: Config,
    /// Path of the configuration file, for reloads.
    pub file: PathBuf,
    /// Text of the file.
    pub text: String,
}

impl Daemon {
    /// Starts a daemon. If an earlier daemon of this name was killed or kept its tables, the new one continues to use
    /// them.
    ///
    /// # Errors
    /// If a daemon of this name runs, another daemon has one of the VIPs, or the user's rights, the kernel or the
    /// device do not suffice. The changes of this start have then been undone.
    pub fn start(options: Options) -> Result<Self, Error> {
        let Options { instance, config, file, text } = options;
        let lock = instance.lock()?;
        let (mut journal, changes) = Journal::resume(instance.journals(), KIND, &instance.label)?;
        // If this start fails, the tables and the program of an earlier daemon must stay in use.
        journal.set_kept(!changes.is_empty());
        let pins = instance.pins();
        let is_there =
            |change: &Change| matches!(change, Change::Balancer { pins: there, .. } if *there == pins);
        let mut there = instance.take_pins(Pins::there).inspect_err(|_| {
            if changes.is_empty() {
                // The folder contains only the lock, so it is removed.
                let _ = fs::remove_dir_all(&instance.folder);
                instance.folder.parent().map(fs::remove_dir);
            }
        })?;
        if !changes.iter().any(|(_, change)| is_there(change)) {
            let (folder, network) = (instance.folder.clone(), instance.network);
            journal.record(Change::Balancer { pins: pins.clone(), folder, network })?;
        }
        refuse_taken(&instance, &config)?;
        let device = Device::find(&config.device)?;
        let listener = config.metrics.map(metrics::bind).transpose()?;
        let state = State::read(&instance);
        if let Some(without_state) = there.take_if(|_| state.is_none()) {
            warn!("the tables in {} are removed, because their saved state is missing", pins.display());
            let failed = |error: Cause| Error::new(format!("remove {}", pins.display()), &*error);
            without_state.remove().map_err(failed)?;
        }
        let held = there.map_or_else(|| instance.take_pins(Pins::make), Ok)?;
        let state = state.filter(|_| pins.join("rings").exists());
        let changed = state.as_ref().and_then(|state| state.config_of(&text));
        // These two settings do not affect the contents of the tables, so the file always decides them.
        let (metrics, sizes) = (config.metrics, config.sizes.clone());
        let config = Config { metrics, sizes, ..changed.unwrap_or(config) };
        let load = |hook| Program::load(hook, &config.sizes, Some(&pins));
        let (program, table) = load_for(config.hook, Hook::for_device(&device), load)?;
        for other in other_sizes(&pins, &config.sizes) {
            warn!(
                "the table {other}: to change its size, run `proofload balance stop` without --keep, which ends its connections, then start \
                 the balancer"
            );
        }
        let mut balancer = match state {
            Some(state) => {
                info!("continuing with the tables in {}", pins.display());
                Balancer::taken_over(state.tables, |vip| table.ring(vip))?
            }
            None => Balancer::new(),
        };
        balancer.configure(&config)?;
        let mut sweeps = Sweeps::new(newest_mark(&pins)?, monotonic_ns());
        sweeps.set_timeouts(nanoseconds(config.idle_timeout), nanoseconds(config.closing_timeout));
        let (sender, messages) = mpsc::channel();
        let swept = sender.clone();
        let sweeper = Sweeper::start(&pins, move |result| swept.send(Message::Swept(result)).is_ok())?;
        let mut daemon = Self {
            checker: start_checker(&device, &sender)?,
            instance,
            device,
            config,
            file,
            text,
            balancer,
            table,
            program,
            addresses: Addresses::taken_over(&changes),
            assigned_addresses: Vec::new(),
            unannounced: BTreeSet::new(),
            next_look: Instant::now(),
            device_trouble: None,
            targets: Vec::new(),
            sweeps,
            sweeper,
            swept: Swept::default(),
            established: BTreeMap::new(),
            messages,
            sender,
            saved_bytes: Vec::new(),
            started: Instant::now(),
            last_read: Instant::now(),
            failure: None,
            retry_at: None,
            unsettled: None,
            changing: None,
            waiting: VecDeque::new(),
            pins: held,
            journal,
            _lock: lock,
        };
        // Other hosts that answer for the VIPs cause only a warning, so errors of this check are ignored.
        for (vip, mac) in rivals(&daemon.device.link, &daemon.config).unwrap_or_default() {
            let fact = rival_fact(vip, mac, &daemon.device.name);
            warn!("{fact}: choose another VIP, or remove it from that host");
        }
        daemon.bring_up(listener)?;
        daemon.journal.set_kept(false);
        Ok(daemon)
    }

    /// Writes the tables, attaches the program, adds the addresses and starts to listen.
    fn bring_up(&mut self, listener: Option<TcpListener>) -> Result<(), Error> {
        self.write_settings()?;
        self.settle_tables()?;
        while self.balancer.is_unfinished() {
            self.settle_tables()?;
        }
        self.attach(&self.device.clone())?;
        self.settle()?;
        let asked = self.sender.clone();
        control::listen(&self.instance, move |question| asked.send(Message::Asked(question)).is_ok())?;
        if let Some(listener) = listener {
            let asked = self.sender.clone();
            metrics::answer_on(listener, move || statistics_text(&asked))?;
        }
        Ok(())
    }

    /// If the file does not choose the hook, loads the program again for the best hook of a new device.
    pub(super) fn load_best(&mut self, device: &Device) -> Result<(), Error> {
        let best = Hook::for_device(device);
        if self.config.hook.is_none() && self.program.hook != best {
            let (sizes, pins) = (&self.config.sizes, self.instance.pins());
            let load = |hook| Program::load(hook, sizes, Some(&pins));
            (self.program, self.table) = load_for(None, best, load)?;
        }
        Ok(())
    }

    /// Attaches the program. If the driver cannot run XDP, falls back to cls or generic XDP.
    pub(super) fn attach(&mut self, device: &Device) -> Result<(), Error> {
        let pins = self.instance.pins();
        if !self.pins.is_there() {
            self.pins = self.instance.take_pins(Pins::make)?;
            warn!("another program removed {}: the tables are lost when this process ends", pins.display());
        }
        if self.program.hook == Hook::Xdp && device.link.kind.as_deref() == Some("veth") {
            warn!("{XDP_ON_VETH}: set hook = \"cls\"");
        }
        let Err(error) = self.program.attach(&device.name, Some(&pins)) else { return Ok(()) };
        match self.config.hook {
            None if self.program.hook == Hook::Xdp => {
                warn!("{error}; using cls instead of xdp");
                (self.program, self.table) = Program::load(Hook::Cls, &self.config.sizes, Some(&pins))?;
                self.program.attach(&device.name, Some(&pins))
            }
            Some(Hook::Xdp) => {
                warn!("{error}; using generic XDP, which costs more than hook = \"cls\"");
                self.program.attach_after_driver(&device.name, Some(&pins))
            }
            _ => Err(error),
        }
    }
}

/// Loads the program for the hook in the file, otherwise for the best hook. If the kernel rejects the best hook, loads
/// it for cls.
fn load_for<T>(
    wanted: Option<Hook>,
    best: Hook,
    load: impl Fn(Hook) -> Result<T, Error>,
) -> Result<T, Error> {
    match load(wanted.unwrap_or(best)) {
        Err(error) if wanted.is_none() && best == Hook::Xdp => {
            warn!("{error}; using cls instead of xdp");
            load(Hook::Cls)
        }
        loaded => loaded,
    }
}

/// Refuses VIPs that another balancer has added in this network namespace: the first of the two to end would remove
/// them, although the other still needs them.
pub(super) fn refuse_taken(instance: &Instance, config: &Config) -> Result<(), Error> {
    for run in undo::runs(instance.journals())? {
        if run.kind != KIND || run.title == instance.label {
            continue;
        }
        for change in &run.changes {
            let Change::Address(given) = change else { continue };
            if given.network == instance.network && config.vips.iter().any(|vip| vip.address == given.address)
            {
                let name = run.title.split('@').next().unwrap_or_default();
                return Err(Error::Refused(format!(
                    "the balancer '{name}' (process {}) already has the VIP {}: list all ports of the address in one file, or stop that balancer: \
                     `proofload balance stop --name {name}`",
                    run.owner.pid, given.address
                )));
            }
        }
    }
    Ok(())
}

/// Starts the thread that probes servers from a device.
pub(super) fn start_checker(device: &Device, sender: &Sender<Message>) -> Result<Checker, Error> {
    let (events, checked) = mpsc::channel();
    let checker = Checker::start(device, events)?;
    let health = sender.clone();
    let forward = move || checked.into_iter().all(|event| health.send(Message::Health(event)).is_ok());
    let started = thread::Builder::new().name("checks".to_owned()).spawn(forward);
    started.map_err(|error| Error::new("start a thread", &error))?;
    Ok(checker)
}

fn statistics_text(asked: &Sender<Message>) -> Option<String> {
    let (sender, answers) = mpsc::channel();
    asked.send(Message::Asked(PendingRequest::new(Request::Statistics, sender, None))).ok()?;
    match answers.recv_timeout(metrics::TIMEOUT).ok()? {
        Answer::Statistics(statistics) => Some(statistics::open_metrics(&statistics)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_without_xdp_has_cls_unless_the_file_asks_for_xdp() {
        let refused = || Error::Kernel { what: "load".to_owned(), cause: "unknown helper".to_owned() };
        let load = |hook| if hook == Hook::Xdp { Err(refused()) } else { Ok(hook) };
        assert_eq!(load_for(None, Hook::Xdp, load).unwrap(), Hook::Cls);
        assert_eq!(load_for(Some(Hook::Cls), Hook::Xdp, load).unwrap(), Hook::Cls);
        assert!(load_for(Some(Hook::Xdp), Hook::Xdp, load).is_err());
    }
}
