//! The daemon: waits for orders, requests, results of checks and sweeps, and deadlines. [`Balancer`] makes the
//! decisions, and the daemon writes the tables.

mod changing;
mod requests;
mod start;
mod state;
#[cfg(test)]
mod tests;
mod watch;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fs::File,
    net::IpAddr,
    path::PathBuf,
    sync::mpsc::{Receiver, RecvTimeoutError, Sender},
    time::{Duration, Instant},
};

use clock::monotonic_ns;
use tracing::{error, info, warn};
use undo::{Journal, Pins};

use changing::Changing;
use requests::FileRead;
pub use start::Options;

use crate::{
    Config, Device, Error, Instance, Program, Settings, Table,
    addresses::Addresses,
    balancer::{Balancer, Operation},
    checker::{Checker, Event, Target},
    control::{Answer, PendingRequest, Request},
    layout::mac_text,
    probe::Fault,
    sweeps::{SweepFor, Sweeper, Sweeps, Swept},
    table::WRITERS,
};

/// Interval between checks of the servers with thresholds, between sweeps.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Sweeps are frequent until this time has passed since the counts were last read.
const READER_STAYS: Duration = Duration::from_secs(3);
/// Number of rings that are made before the daemon handles other events: as many as can be written at the same time.
const RINGS_AT_ONCE: usize = WRITERS;
/// Maximum time that events are collected before the tables are written, because events often come in bursts.
const SETTLE_WITHIN: Duration = Duration::from_millis(50);
/// Time after a failure until everything is written again.
const RETRY: Duration = Duration::from_secs(1);

/// A running balancer. Dropping it without [`Self::run`] undoes its changes to this host.
pub struct Daemon {
    instance: Instance,
    device: Device,
    /// The configuration of the file, including the changes of commands.
    config: Config,
    file: PathBuf,
    /// The text of the file at the time it was read.
    text: String,
    balancer: Balancer,
    table: Table,
    program: Program,
    addresses: Addresses,
    /// The addresses that this host was last given.
    assigned_addresses: Vec<IpAddr>,
    /// Addresses of this host that have not been announced to neighbours yet.
    unannounced: BTreeSet<IpAddr>,
    /// Time of the next check of the device, and the problem that the last check found.
    next_look: Instant,
    device_trouble: Option<String>,
    checker: Checker,
    targets: Vec<Target>,
    sweeps: Sweeps,
    sweeper: Sweeper,
    swept: Swept,
    /// For each server with a threshold, its count of established flows at the beginning of the last sweep.
    established: BTreeMap<u16, u64>,
    messages: Receiver<Message>,
    sender: Sender<Message>,
    /// The state on disk.
    saved_bytes: Vec<u8>,
    started: Instant,
    /// Time of the last request for the counts.
    last_read: Instant,
    /// The error of the last write, if the write failed.
    failure: Option<String>,
    /// Time after a failure at which everything is written again.
    retry_at: Option<Instant>,
    /// Arrival of the first event that has not affected the tables yet.
    unsettled: Option<Instant>,
    /// The change of the configuration in progress, and the requests that wait for its end.
    changing: Option<Changing>,
    waiting: VecDeque<(PendingRequest, Option<FileRead>)>,
    /// This field is dropped before the journal, whose end removes the pins.
    pins: Pins,
    journal: Journal,
    _lock: File,
}

/// The order that a signal gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// End and undo all changes of this host.
    Stop,
    /// End and leave everything for the next start.
    Keep,
    /// Read the file again.
    Reload,
}

/// A handle that gives orders to a daemon.
#[derive(Debug, Clone)]
pub struct Handle(Sender<Message>);

/// A message to the daemon.
#[derive(Debug)]
pub(crate) enum Message {
    Order(Order),
    Asked(PendingRequest),
    /// The file, which was read again for this request.
    Read(PendingRequest, FileRead),
    Health(Event),
    Swept(Result<Swept, Error>),
}

impl Handle {
    /// Gives an order. Returns false if the daemon has ended.
    pub fn order(&self, order: Order) -> bool {
        self.0.send(Message::Order(order)).is_ok()
    }
}

impl Daemon {
    /// A handle that gives orders to this daemon.
    pub fn handle(&self) -> Handle {
        Handle(self.sender.clone())
    }

    /// A description of the VIPs and the device, in one line.
    pub fn description(&self) -> String {
        let vips: Vec<String> = self.config.vips.iter().map(crate::Vip::name).collect();
        let servers: usize = self.config.vips.iter().map(|vip| vip.servers.len()).sum();
        format!(
            "balancing {} over {servers} servers on {} ({})",
            vips.join(", "),
            self.device.name,
            self.program.hook.name()
        )
    }

    /// Runs until an order or a request ends it. After [`Order::Keep`], the tables, the program and the addresses stay
    /// in use without the daemon.
    ///
    /// # Errors
    /// The changes that could not be undone.
    pub fn run(mut self) -> Result<(), Vec<Error>> {
        loop {
            let wait = self.deadline().saturating_duration_since(Instant::now());
            let (is_kept, asked) = match self.messages.recv_timeout(wait) {
                Ok(Message::Order(Order::Stop)) => (false, None),
                Ok(Message::Order(Order::Keep)) => (true, None),
                Ok(Message::Asked(asked)) if asked.is_given_up() => continue,
                Ok(Message::Asked(asked @ PendingRequest { request: Request::Stop { keep }, .. })) => {
                    (keep, Some(asked))
                }
                Ok(message) => {
                    self.handle_message(message);
                    if self.unsettled.is_some_and(|since| since.elapsed() > SETTLE_WITHIN) {
                        self.settle_or_retry();
                    }
                    continue;
                }
                Err(RecvTimeoutError::Timeout) => {
                    let is_due = self.balancer.next_step_ns().is_some_and(|at| at <= monotonic_ns());
                    if is_due || self.retry_at.is_some() || self.unsettled.is_some() {
                        self.settle_or_retry();
                    }
                    self.go_on_changing();
                    self.look_if_due();
                    self.sweep_if_due();
                    continue;
                }
                // This never happens, because the daemon itself has a sender.
                Err(RecvTimeoutError::Disconnected) => (true, None),
            };
            let ended = self.end(is_kept);
            if let Some(asked) = asked {
                asked.answer_at_the_end(end_of(is_kept, &ended));
            }
            return ended;
        }
    }

    fn end(self, is_kept: bool) -> Result<(), Vec<Error>> {
        drop((self.checker, self.pins));
        if is_kept {
            info!("stopped; the tables, the program and the addresses stay for the next start");
            self.journal.keep();
            return Ok(());
        }
        self.journal.finish().map_err(|failures| failures.into_iter().map(Error::from).collect())
    }

    fn handle_message(&mut self, message: Message) {
        match message {
            Message::Order(_) => return self.take_request(PendingRequest::of_signal(Request::Reload)),
            Message::Asked(asked) => return self.take_request(asked),
            Message::Read(asked, read) => return self.waiting.push_back((asked, Some(read))),
            Message::Health(event) => self.take_event(event),
            Message::Swept(swept) => match swept {
                Ok(swept) => {
                    self.sweeper.ended(swept.took);
                    self.balancer.apply_sweep(&swept);
                    if swept.is_whole {
                        self.swept = swept;
                    }
                }
                Err(error) => {
                    self.sweeper.ended(RETRY);
                    error!("{error}");
                }
            },
        }
        self.unsettled.get_or_insert_with(Instant::now);
    }

    fn take_event(&mut self, event: Event) {
        let (id, health) = match event {
            Event::Mac { server, mac } => {
                match mac {
                    Some(mac) => info!("{server} has the MAC address {}", mac_text(&mac)),
                    None => warn!("{server} no longer answers ARP or neighbour discovery"),
                }
                return self.balancer.set_neighbour(server, mac);
            }
            Event::Health { id, health } => (id, health),
        };
        let Some((vip, server)) = self.balancer.set_health(id, health.clone()) else { return };
        match health {
            Ok(()) => info!("{vip}: {server} is up"),
            Err(Fault { why, is_silent, .. }) => {
                let kept = if is_silent { "" } else { "; it answers, so it keeps its connections" };
                warn!("{vip}: {server} is down: {why}{kept}");
            }
        }
    }

    fn write_settings(&mut self) -> Result<(), Error> {
        let settings = Settings {
            mac: self.device.mac,
            inserts_per_second: self.config.remember_per_second,
            sweep: self.sweeps.mark(),
            handshake: self.config.handshake,
            seed: self.config.seed,
        };
        self.table.set_settings(&settings)
    }

    fn settle_or_retry(&mut self) {
        if self.retry_at.is_some_and(|retry| Instant::now() < retry) {
            return;
        }
        (self.retry_at, self.unsettled) = (None, None);
        let failure = self.settle().err().map(|error| error.to_string());
        if let Some(error) = &failure {
            if self.failure != failure {
                error!("{error}; trying again");
            }
            self.retry_at = Some(Instant::now() + RETRY);
        }
        self.failure = failure;
    }

    /// Carries out the changes of the tables that are due.
    fn settle_tables(&mut self) -> Result<(), Error> {
        // Numbers are saved before they are in a table, and services stay saved until they are in no table. The states
        // of known servers are written even if saving fails.
        let saved = self.save();
        let operations = match &saved {
            Ok(()) => self.balancer.step(monotonic_ns(), RINGS_AT_ONCE),
            Err(_) => self.balancer.step_of_known_servers(),
        };
        let is_ring = |operation: &Operation| matches!(operation, Operation::SetRing { .. });
        for operations in operations.chunk_by(|one, other| is_ring(one) && is_ring(other)) {
            if let Err(error) = write(&mut self.table, operations) {
                self.balancer.distrust_tables();
                return Err(error);
            }
        }
        // After an unfinished step, the next call saves the changes of both.
        saved.and_then(|()| if self.balancer.is_unfinished() { Ok(()) } else { self.save() })
    }

    /// Brings tables, addresses and targets of checks up to date. If one of them fails, the others are still updated.
    fn settle(&mut self) -> Result<(), Error> {
        let written = self.settle_tables();
        let mut wanted = self.balancer.addresses();
        if written.is_err() {
            // After a failed write, addresses that the tables may lack are not added, because clients must not reach
            // them yet.
            wanted.retain(|address| self.assigned_addresses.contains(address));
        }
        let given = if wanted == self.assigned_addresses { Ok(()) } else { self.give(wanted) };
        let targets = self.balancer.targets();
        // The health of the targets is not compared, because it comes from the checker.
        let is_known = targets.len() == self.targets.len()
            && targets.iter().zip(&self.targets).all(|(target, known)| target.is_asked_like(known));
        if !is_known {
            self.checker.set_targets(targets.clone());
            self.targets = targets;
        }
        written.and(given)
    }

    /// Time of the next action if no message arrives.
    fn deadline(&self) -> Instant {
        let now = Instant::now();
        let sweep = self.sweeper.due(self.sweep_for());
        // After a failure, nothing is written until the retry.
        let step = self.balancer.next_step_ns().filter(|_| self.retry_at.is_none());
        let step = step.map(|at| now + Duration::from_nanos(at.saturating_sub(monotonic_ns())));
        let glance = self.balancer.with_thresholds().next().map(|_| now + POLL_INTERVAL);
        let at_once = (self.changing.is_some() || !self.waiting.is_empty()).then_some(now);
        let settle = at_once.or_else(|| self.unsettled.filter(|_| self.retry_at.is_none()).map(|_| now));
        [sweep, step, glance, settle, self.retry_at].into_iter().flatten().fold(self.next_look, Instant::min)
    }

    fn sweep_for(&self) -> SweepFor {
        if self.may_be_full() {
            SweepFor::Threshold
        } else if self.balancer.waits_for_flows() || self.last_read.elapsed() < READER_STAYS {
            SweepFor::Reader
        } else {
            SweepFor::OldFlows
        }
    }

    fn may_be_full(&self) -> bool {
        self.balancer.may_be_full(|number| {
            let before = self.established.get(&number).copied().unwrap_or_default();
            self.table.server_counts(number).map_or(0, |counts| counts.established.saturating_sub(before))
        })
    }

    fn sweep_if_due(&mut self) {
        if self.sweeper.due(self.sweep_for()).is_none_or(|due| Instant::now() < due) {
            return;
        }
        let now_ns = monotonic_ns();
        self.established = self
            .balancer
            .with_thresholds()
            .filter_map(|number| Some((number, self.table.server_counts(number).ok()?.established)))
            .collect();
        self.sweeps.begin(now_ns);
        if let Err(error) = self.write_settings() {
            error!("{error}");
        }
        self.sweeper.begin(&self.sweeps, now_ns);
    }
}

fn end_of(is_kept: bool, ended: &Result<(), Vec<Error>>) -> Answer {
    match ended {
        Ok(()) if is_kept => {
            Answer::Done { what: "the balancer has ended, and left its tables for the next start".to_owned() }
        }
        Ok(()) => Answer::Done { what: "the balancer has ended".to_owned() },
        Err(failures) => Answer::Refused { why: failures.iter().map(ToString::to_string).collect() },
    }
}

/// Writes one operation, or several operations that set rings.
fn write(table: &mut Table, operations: &[Operation]) -> Result<(), Error> {
    operations.iter().filter(|operation| !matches!(operation, Operation::SetRing { .. })).try_for_each(
        |operation| match operation {
            Operation::SetServer { number, entry } => table.set_server(*number, Some(entry)),
            Operation::ClearServerCounts { number } => table.clear_server_counts(*number),
            Operation::FreeServer { number } => table.set_server(*number, None),
            Operation::ClearVipCounts { vip } => table.clear_vip_counts(*vip),
            Operation::SetService { address, port, entry } => table.set_service(*address, *port, entry),
            Operation::SetAddress { address, vip } => table.set_address(*address, *vip),
            Operation::RemoveService { address, port } => table.remove_service(*address, *port),
            Operation::SetRing { .. } => Ok(()),
        },
    )?;
    let rings = operations.iter().filter_map(|operation| match operation {
        Operation::SetRing { vip, ring, former, changed_ns } => Some((*vip, &**ring, &**former, *changed_ns)),
        _ => None,
    });
    table.set_rings(&rings.collect::<Vec<_>>())
}
