//! Starts a daemon, on tables of its own or on those that an earlier one has left.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::mpsc::{self, Receiver, Sender},
    thread,
    time::Instant,
};

use tracing::{info, warn};
use undo::{Change, Entry, Journal};

use super::{Daemon, Message, now_ns, state::State};
use crate::{
    Config, Device, Error, Hook, Instance, Program, Table,
    addresses::Addresses,
    balancer::{Balancer, nanoseconds},
    checker::Checker,
    control::{self, Answer, Request},
    metrics, statistics,
    sweeps::{Sweeper, Sweeps, Swept, newest_mark},
    unpin,
};

/// Kind of the journals.
const KIND: &str = "balance";

/// What a daemon starts with.
#[derive(Debug)]
pub struct Options {
    /// Its name. The BPF file system must be there.
    pub instance: Instance,
    /// What it balances.
    pub config: Config,
    /// The file of the configuration, which is read again when that is asked for.
    pub file: PathBuf,
    /// What the file says.
    pub text: String,
}

impl Daemon {
    /// Starts. If an earlier daemon of this name was killed or has left its tables, this one goes on with them.
    ///
    /// # Errors
    /// When another one of this name runs, or this user, this kernel or this device cannot. What was not there before is undone then.
    pub fn start(options: Options) -> Result<Self, Error> {
        let lock = options.instance.lock()?;
        let (journal, changes) = Journal::resume(options.instance.journals(), KIND, &options.instance.label)?;
        let is_resumed = !changes.is_empty();
        // What an earlier daemon has left goes on, if this one fails.
        let keep_old = |journal: Journal| {
            if is_resumed {
                journal.keep()
            }
        };
        let made = Parts::make(&options, &journal, &changes);
        let Parts {
            device,
            config,
            hook,
            program,
            table,
            balancer,
            sweeps,
            sweeper,
            checker,
            messages,
            sender,
        } = match made {
            Ok(parts) => parts,
            Err(error) => {
                keep_old(journal);
                return Err(error);
            }
        };
        let mut daemon = Self {
            instance: options.instance,
            device,
            hook,
            config,
            file: options.file,
            text: options.text,
            balancer,
            table,
            program,
            addresses: Addresses::taken_over(&changes),
            given: Vec::new(),
            checker,
            targets: Vec::new(),
            sweeps,
            sweeper,
            swept: Swept::default(),
            established: BTreeMap::new(),
            messages,
            sender,
            saved: Vec::new(),
            started: Instant::now(),
            retry: None,
            journal,
            _lock: lock,
        };
        if let Err(error) = daemon.go() {
            keep_old(daemon.journal);
            return Err(error);
        }
        Ok(daemon)
    }
}

/// What a daemon is made of, as far as it may fail before anything is attached.
struct Parts {
    device: Device,
    config: Config,
    hook: Hook,
    program: Program,
    table: Table,
    balancer: Balancer,
    sweeps: Sweeps,
    sweeper: Sweeper,
    checker: Checker,
    messages: Receiver<Message>,
    sender: Sender<Message>,
}

impl Parts {
    fn make(options: &Options, journal: &Journal, changes: &[(Entry, Change)]) -> Result<Self, Error> {
        let instance = &options.instance;
        let device = Device::find(&options.config.device)?;
        let pins = instance.pins();
        let is_there =
            |change: &Change| matches!(change, Change::Balancer { pins: there, .. } if *there == pins);
        if !changes.iter().any(|(_, change)| is_there(change)) {
            let (folder, network) = (instance.folder.clone(), instance.network);
            journal.record(Change::Balancer { pins: pins.clone(), folder, network })?;
        }
        let state = State::read(instance);
        if state.is_none() && pins.exists() {
            warn!("the tables in {} have no state beside them, and are removed", pins.display());
            unpin(&pins)?;
        }
        let state = state.filter(|_| pins.join("rings").exists());
        let config = state.as_ref().and_then(|state| state.config_of(&options.text));
        let mut config = config.unwrap_or_else(|| options.config.clone());
        // What these are about is not in the tables.
        (config.metrics, config.sizes) = (options.config.metrics, options.config.sizes.clone());
        let hook = config.hook.unwrap_or_else(|| Hook::for_device(&device));
        let (program, table) = Program::load(hook, &config.sizes, Some(&pins))?;
        let mut balancer = match state {
            Some(state) => {
                info!("going on with the tables in {}", pins.display());
                Balancer::taken_over(state.tables, |vip| table.ring(vip))?
            }
            None => Balancer::new(),
        };
        balancer.configure(&config)?;
        let mut sweeps = Sweeps::new(newest_mark(&pins)?, now_ns());
        sweeps.set_timeouts(nanoseconds(config.idle_timeout), nanoseconds(config.closing_timeout));
        let (sender, messages) = mpsc::channel();
        let swept = sender.clone();
        let sweeper = Sweeper::start(&pins, move |result| swept.send(Message::Swept(result)).is_ok())?;
        let (events, checked) = mpsc::channel();
        let checker = Checker::start(&device, events)?;
        let health = sender.clone();
        let forward = move || checked.into_iter().all(|event| health.send(Message::Health(event)).is_ok());
        let started = thread::Builder::new().name("checks".to_owned()).spawn(forward);
        started.map_err(|error| Error::new("start a thread", &error))?;
        Ok(Self {
            device,
            config,
            hook,
            program,
            table,
            balancer,
            sweeps,
            sweeper,
            checker,
            messages,
            sender,
        })
    }
}

impl Daemon {
    /// Writes the tables, attaches the program, gives the addresses, and listens.
    fn go(&mut self) -> Result<(), Error> {
        self.write_settings()?;
        self.settle_tables()?;
        self.attach()?;
        self.settle()?;
        let asked = self.sender.clone();
        control::listen(&self.instance, move |question| asked.send(Message::Asked(question)).is_ok())?;
        if let Some(address) = self.config.metrics {
            let asked = self.sender.clone();
            metrics::listen(address, move || statistics_text(&asked))?;
        }
        Ok(())
    }

    /// Where the file does not say how, and the driver cannot take the program, the kernel does.
    fn attach(&mut self) -> Result<(), Error> {
        let (pins, device) = (self.instance.pins(), self.device.name.clone());
        match self.program.attach(&device, Some(&pins)) {
            Err(error) if self.config.hook.is_none() && self.hook == Hook::Xdp => {
                warn!("{error}; using cls instead of xdp");
                let (program, table) = Program::load(Hook::Cls, &self.config.sizes, Some(&pins))?;
                (self.program, self.table, self.hook) = (program, table, Hook::Cls);
                self.program.attach(&device, Some(&pins))
            }
            attached => attached,
        }
    }
}

fn statistics_text(asked: &Sender<Message>) -> Option<String> {
    let (sender, answers) = mpsc::channel();
    asked.send(Message::Asked((Request::Statistics, sender))).ok()?;
    match answers.recv_timeout(metrics::TIMEOUT).ok()? {
        Answer::Statistics(statistics) => Some(statistics::open_metrics(&statistics)),
        _ => None,
    }
}
