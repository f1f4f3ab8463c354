//! The thread that probes servers and keeps their MAC addresses up to date.

use std::{
    io,
    net::IpAddr,
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use etherparse::EtherType;
use kernel::netlink::{Neighbour, NeighbourChanges, Netlink};
use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll},
    io::Errno,
};

pub(crate) use crate::prober::{Event, Target};
use crate::{
    Device, Error,
    prober::{Actions, Prober},
    wire::{ProbeSocket, SNAP_BYTES},
};

/// Interval between requests to the kernel to resolve unknown MAC addresses of servers.
const RESOLVE_INTERVAL: Duration = Duration::from_secs(1);
/// Number of these intervals after which the kernel is also asked to check the MAC addresses that it knows.
const REFRESH_STEPS: u32 = 10;

const OUT_OF_MEMORY_PAUSE: Duration = Duration::from_millis(100);

/// Probes servers until it is dropped.
#[derive(Debug)]
pub(crate) struct Checker {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    targets: Mutex<Option<Vec<Target>>>,
    addresses: Mutex<Option<Vec<(IpAddr, u8)>>>,
    is_ending: AtomicBool,
    /// Wakes the thread (an eventfd).
    bell: OwnedFd,
}

/// The state of the thread.
struct Worker {
    shared: Arc<Shared>,
    index: u32,
    events: mpsc::Sender<Event>,
    netlink: Netlink,
    changes: NeighbourChanges,
    v4: ProbeSocket,
    v6: ProbeSocket,
    prober: Prober,
}

impl Checker {
    /// Starts the thread in the network namespace of the calling thread.
    ///
    /// # Errors
    /// If this user's rights or this kernel do not allow it.
    pub(crate) fn start(device: &Device, events: mpsc::Sender<Event>) -> Result<Self, Error> {
        let failed = |error: io::Error| Error::new(format!("probe servers on {}", device.name), &error);
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let bell = bell.map_err(|error| failed(error.into()))?;
        let (targets, addresses) = (Mutex::new(None), Mutex::new(None));
        let shared = Shared { targets, addresses, is_ending: AtomicBool::new(false), bell };
        let shared = Arc::new(shared);
        let worker = Worker {
            shared: Arc::clone(&shared),
            index: device.index,
            events,
            netlink: Netlink::open().map_err(failed)?,
            changes: NeighbourChanges::open().map_err(failed)?,
            v4: ProbeSocket::open(device, EtherType::IPV4).map_err(failed)?,
            v6: ProbeSocket::open(device, EtherType::IPV6).map_err(failed)?,
            prober: Prober::new(device.addresses.clone(), rand::random()),
        };
        let thread = thread::Builder::new().name("checker".to_owned()).spawn(move || worker.run());
        Ok(Self { shared, thread: Some(thread.map_err(failed)?) })
    }

    /// Replaces the targets. Unchanged targets keep their state.
    pub(crate) fn set_targets(&self, targets: Vec<Target>) {
        *self.shared.targets.lock().unwrap_or_else(PoisonError::into_inner) = Some(targets);
        self.shared.ring();
    }

    /// Replaces the addresses of the device. Probes have one of them as their source.
    pub(crate) fn set_addresses(&self, addresses: Vec<(IpAddr, u8)>) {
        *self.shared.addresses.lock().unwrap_or_else(PoisonError::into_inner) = Some(addresses);
        self.shared.ring();
    }
}

impl Drop for Checker {
    fn drop(&mut self) {
        self.shared.is_ending.store(true, Ordering::Release);
        self.shared.ring();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has already been printed.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn ring(&self) {
        // The write fails only if a wake-up is already pending.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }
}

impl Worker {
    fn run(mut self) {
        let mut buffer = vec![0; SNAP_BYTES];
        let (mut next_look, mut step) = (Instant::now() + RESOLVE_INTERVAL, 0);
        while !self.shared.is_ending.load(Ordering::Acquire) {
            let wakes = self.prober.wakes().map_or(next_look, |wakes| wakes.min(next_look));
            if self.wait(wakes.saturating_duration_since(Instant::now())).is_err() {
                // `poll` fails only for lack of memory.
                thread::sleep(OUT_OF_MEMORY_PAUSE);
            }
            let addresses = self.shared.addresses.lock().unwrap_or_else(PoisonError::into_inner).take();
            addresses.into_iter().for_each(|addresses| self.prober.set_addresses(addresses));
            let targets = self.shared.targets.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(targets) = targets {
                let actions = self.prober.set_targets(targets, Instant::now());
                self.act(actions);
                self.look_at_neighbours(true);
            }
            match self.changes.take() {
                Ok(changes) => {
                    for change in changes.into_iter().filter(|change| change.index == self.index) {
                        let actions = self.prober.neighbour(change.address, change.now, Instant::now());
                        self.act(actions);
                    }
                }
                // The kernel's queue of changes has overflowed, so all neighbours are read again.
                Err(_) => self.look_at_neighbours(false),
            }
            self.receive(&mut buffer);
            let actions = self.prober.wake(Instant::now());
            self.act(actions);
            if Instant::now() >= next_look {
                next_look = Instant::now() + RESOLVE_INTERVAL;
                step = (step + 1) % REFRESH_STEPS;
                self.look_at_neighbours(step == 0);
            }
        }
    }

    /// Waits at most `time` for packets, neighbour changes or a wake-up.
    fn wait(&self, time: Duration) -> io::Result<()> {
        let mut ready = [
            PollFd::new(&self.shared.bell, PollFlags::IN),
            PollFd::new(&self.changes, PollFlags::IN),
            PollFd::new(&self.v4, PollFlags::IN),
            PollFd::new(&self.v6, PollFlags::IN),
        ];
        let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
        match poll(&mut ready, Some(&time)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut count = [0; 8];
        // The read fails if there is no wake-up to clear.
        let _ = rustix::io::read(&self.shared.bell, &mut count);
        Ok(())
    }

    fn receive(&mut self, buffer: &mut [u8]) {
        for is_v4 in [true, false] {
            loop {
                let socket = if is_v4 { &self.v4 } else { &self.v6 };
                // The socket reports an error once, for example when the device goes down. Probes fail as long as the
                // cause lasts.
                let Ok(Some(packet)) = socket.receive(buffer) else { break };
                let actions = self.prober.receive(packet, Instant::now());
                self.act(actions);
            }
        }
    }

    fn act(&self, actions: Actions) {
        for (packet, mac) in actions.packets {
            let is_v4 = packet.first().is_some_and(|first| first >> 4 == 4);
            let socket = if is_v4 { &self.v4 } else { &self.v6 };
            // The probe of a packet that cannot be sent gets no answer and therefore fails.
            let _ = socket.send(&packet, mac);
        }
        for event in actions.events {
            // The channel is closed only while the balancer ends.
            let _ = self.events.send(event);
        }
    }

    /// Reads the kernel's neighbour entries of the servers. Asks the kernel to resolve the unknown ones, or all of them
    /// with `checks_all`.
    fn look_at_neighbours(&mut self, checks_all: bool) {
        let servers: Vec<IpAddr> = self.prober.servers().map(|(server, _)| server).collect();
        for server in servers {
            let Ok(known) = self.netlink.neighbour(self.index, server) else { continue };
            let is_looked_for = match known {
                Neighbour::Known { is_set, .. } => checks_all && !is_set,
                Neighbour::Unknown | Neighbour::Failed => true,
            };
            if is_looked_for {
                // If the request fails, the server stays unknown.
                let _ = self.netlink.resolve_neighbour(self.index, server);
            }
            let actions = self.prober.neighbour(server, known, Instant::now());
            self.act(actions);
        }
    }
}

#[cfg(test)]
mod tests;
