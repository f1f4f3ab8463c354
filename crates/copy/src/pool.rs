//! Connections to the other machine and their channels.

use std::{
    cell::{Cell, RefCell},
    fs,
    path::PathBuf,
    rc::Rc,
    time::{Duration, Instant},
};

use tokio::{task::spawn_local, time::sleep};

use crate::{
    carrier::Carrier,
    channel::Channel,
    error::{Error, Result},
    host_sampler::HostSampler,
    passwordless::PasswordlessLogins,
    pool_size::{LONG_ROUND_TRIP, MAX_CHANNELS, PoolSize, USUAL_CHANNELS},
    sockets::Folder,
    ssh::Login,
};

/// Number of further attempts of the first connection if sshd refuses it, and the pause before each.
const MAX_REFUSALS: u32 = 5;
const REFUSAL_PAUSE: Duration = Duration::from_secs(1);
/// Maximum number of concurrent logins. sshd refuses some beyond ten (`MaxStartups`).
const LOGINS_AT_ONCE: usize = 8;
/// Maximum number of shells that compute checksums. A connection has at most one.
const MAX_HASHERS: u32 = 2;
/// Number of chunks that a channel handles concurrently. While it sends one, it opens the file of the next, waits for
/// the answers to earlier ones and renames complete files.
const CHUNK_LANES: usize = 8;
/// Number of small files that a channel carries concurrently.
const SMALL_LANES: usize = 32;
/// Maximum number of consecutive attempts to connect without any progress. After that, the connection is given up.
const MAX_ATTEMPTS: u32 = 6;
/// Wait before the second attempt. It doubles before each further attempt.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// A login of at least this duration shows that the path is long: it needs a dozen round trips, and even on a busy
/// machine it takes less without them.
const LONG_LOGIN: Duration = Duration::from_secs(1);
/// Interval between checks whether the first login has succeeded.
const LOGIN_TICK: Duration = Duration::from_millis(10);
/// Number of logins that begin together with the first one if the last login needed no prompt. Even if all fail, a
/// server that counts failures sees fewer than five.
const EARLY_LOGINS: u32 = 3;

/// The connections and their channels.
#[derive(Debug)]
pub(crate) struct Pool {
    login: Login,
    passwordless: PasswordlessLogins,
    folder: Folder,
    carrier: Rc<Carrier>,
    sampler: Rc<HostSampler>,
    /// Whether the first login had to prompt the user. If so, there is only one connection.
    is_interactive: Cell<bool>,
    /// Whether all connections have been begun.
    is_begun: Cell<bool>,
    /// Whether all files are in the queue.
    is_planned: Cell<bool>,
    /// Number of channels of each connection once all connections are open.
    usual_channels: Cell<u32>,
    /// Number of connections that have been begun.
    slots: Cell<u32>,
    /// Channels beyond the usual number, with their numbers within their connection: the first connection has more
    /// channels until the others are open.
    spare: RefCell<Vec<(u32, Rc<Channel>)>>,
    /// Number of connections that have been begun and not given up.
    alive: Cell<usize>,
    most_channels: Cell<u32>,
    most_connections: Cell<u32>,
    connections: Cell<u32>,
    logins: Rc<tokio::sync::Semaphore>,
    /// Maximum sizes of a READ and a WRITE, in bytes, as reported by the server over the first channel.
    limits: Cell<Option<(usize, usize)>>,
    why: RefCell<Option<Error>>,
}

impl Pool {
    pub(crate) fn new(
        login: Login,
        passwordless: PasswordlessLogins,
        carrier: Rc<Carrier>,
        sampler: Rc<HostSampler>,
    ) -> std::io::Result<Rc<Self>> {
        let folder = Folder::new()?;
        Ok(Rc::new(Self {
            login,
            passwordless,
            folder,
            carrier,
            sampler,
            is_interactive: Cell::new(false),
            is_begun: Cell::new(false),
            is_planned: Cell::new(false),
            usual_channels: Cell::new(MAX_CHANNELS),
            slots: Cell::new(0),
            spare: RefCell::default(),
            alive: Cell::new(0),
            most_channels: Cell::new(0),
            most_connections: Cell::new(0),
            connections: Cell::new(0),
            logins: Rc::new(tokio::sync::Semaphore::new(LOGINS_AT_ONCE)),
            limits: Cell::new(None),
            why: RefCell::new(None),
        }))
    }

    fn control(&self, slot: u32) -> PathBuf {
        self.folder.control(slot)
    }

    /// Logs in for the first time, without a prompt if possible. If this takes at least [`LONG_LOGIN`], the path is
    /// long, and the other connections begin as soon as it succeeds. If the last login over this path needed no prompt,
    /// some of them begin together with it.
    ///
    /// # Errors
    /// If the login fails.
    pub(crate) async fn first(self: &Rc<Self>, connections: Option<u32>) -> Result<Rc<Channel>> {
        let early = connections.unwrap_or(u32::MAX).min(EARLY_LOGINS + 1);
        for slot in 1..if self.passwordless.is_known() { early } else { 0 } {
            self.start_slot(slot, None, MAX_CHANNELS);
        }
        let (pool, began) = (Rc::clone(self), Instant::now());
        let let_in = spawn_local(async move {
            while !pool.control(0).exists() {
                sleep(LOGIN_TICK).await;
            }
            if began.elapsed() >= LONG_LOGIN {
                pool.start_others(connections);
            }
        });
        let mut refusals = 0..MAX_REFUSALS;
        loop {
            match Channel::open(self.login.connection(&self.control(0), true)).await {
                Err(Error::Lost(why)) if may_ask(&why) => {
                    let_in.abort();
                    self.is_interactive.set(true);
                    self.passwordless.learn(false);
                    return Channel::open(self.login.connection(&self.control(0), false)).await;
                }
                Err(Error::Lost(why)) if is_refused(&why) && refusals.next().is_some() => {
                    sleep(REFUSAL_PAUSE).await;
                }
                opened => return opened,
            }
        }
    }

    /// Whether a connection has a shell for checksums. They are needed to verify files and to resume files of an
    /// earlier run.
    fn has_hasher(&self, slot: u32) -> bool {
        slot < MAX_HASHERS && (self.carrier.options.verify || self.carrier.options.journals.is_some())
    }

    fn start_hasher(&self, slot: u32) {
        if self.has_hasher(slot) {
            let (command, carrier) = (self.login.shell(&self.control(slot)), Rc::clone(&self.carrier));
            spawn_local(async move { carrier.hashers.start(command).await });
        }
    }

    /// Starts to carry files over the first channel and further channels, up to the number in [`PoolSize`]. The first
    /// connection has more channels than the others, because it carries alone until they have logged in.
    pub(crate) fn start(self: &Rc<Self>, first: Rc<Channel>, connections: Option<u32>) {
        let size = self.size(connections);
        self.limits.set(Some((first.read_bytes.get(), first.write_bytes.get())));
        let of_first = if size.connections > 1 { MAX_CHANNELS } else { size.channels };
        self.start_slot(0, Some(first), of_first);
        self.start_others(connections);
        if !self.is_interactive.get() && self.carrier.governor.round_trip() >= LONG_ROUND_TRIP {
            self.passwordless.learn(true);
        }
        self.is_planned.set(true);
    }

    fn size(&self, connections: Option<u32>) -> PoolSize {
        let connections = if self.is_interactive.get() { Some(1) } else { connections };
        PoolSize::of(self.carrier.governor.round_trip(), connections)
    }

    /// Begins the connections that have not been begun yet.
    pub(crate) fn start_others(self: &Rc<Self>, connections: Option<u32>) {
        if self.is_begun.replace(true) {
            return;
        }
        let size = self.size(connections);
        self.usual_channels.set(size.channels);
        for slot in self.slots.get().max(1)..size.connections {
            self.start_slot(slot, None, size.channels);
        }
    }

    fn start_slot(self: &Rc<Self>, slot: u32, first: Option<Rc<Channel>>, channels: u32) {
        self.slots.set(self.slots.get().max(slot + 1));
        self.alive.set(self.alive.get() + 1);
        if self.has_hasher(slot) {
            self.carrier.hashers.connection_begins();
        }
        spawn_local(Rc::clone(self).slot(slot, first, channels));
    }

    /// Keeps one connection open: connects again when it is lost.
    async fn slot(self: Rc<Self>, slot: u32, first: Option<Rc<Channel>>, channels: u32) {
        let mut first = first;
        let mut attempt = 0;
        while attempt < MAX_ATTEMPTS && !self.is_done() {
            let opened = match first.take() {
                Some(channel) => Ok(channel),
                None => {
                    let _turn = self.logins.acquire().await;
                    if self.is_done() {
                        break;
                    }
                    let _ = fs::remove_file(self.control(slot));
                    let is_quiet = !self.is_interactive.get() || slot > 0;
                    match Channel::open(self.login.connection(&self.control(slot), is_quiet)).await {
                        Ok(channel) => self.tell_limits(&channel).await.map(|()| channel),
                        lost => lost,
                    }
                }
            };
            match opened {
                Ok(channel) => {
                    let before = self.carrier.done_bytes.get();
                    self.connections.set(self.connections.get() + 1);
                    self.most_connections.set(self.most_connections.get().max(self.connections.get()));
                    self.retire_spare();
                    self.carry(slot, Rc::clone(&channel), channels).await;
                    self.connections.set(self.connections.get() - 1);
                    if !self.is_done() {
                        *self.why.borrow_mut() = Some(channel.loss());
                    }
                    // After a connection has completed chunks or files, its attempts count from 0 again. Arrived bytes
                    // are not enough, because a server may fail at the same byte each time.
                    if self.carrier.done_bytes.get() > before {
                        attempt = 0;
                    }
                }
                Err(error) => {
                    let is_final = matches!(&error, Error::Lost(why) if may_ask(why));
                    *self.why.borrow_mut() = Some(error);
                    if is_final {
                        break;
                    }
                }
            }
            attempt += 1;
            if attempt < MAX_ATTEMPTS && !self.is_done() {
                sleep(FIRST_WAIT * 2_u32.pow(attempt.min(6) - 1)).await;
            }
        }
        self.alive.set(self.alive.get() - 1);
        if self.has_hasher(slot) {
            self.carrier.hashers.connection_ends();
        }
        self.retire_spare();
        // Until all files are in the queue, the first login may still succeed.
        if self.alive.get() == 0 && self.is_planned.get() {
            self.carrier.queue.close();
        }
    }

    fn is_done(&self) -> bool {
        (self.is_planned.get() && self.carrier.queue.unfinished() == 0) || self.carrier.queue.is_closed()
    }

    /// Sets a channel's size limits to those of the first channel, because another request would take a round trip.
    async fn tell_limits(&self, channel: &Channel) -> Result {
        match self.limits.get() {
            Some((read_bytes, write_bytes)) => {
                channel.read_bytes.set(read_bytes);
                channel.write_bytes.set(write_bytes);
                Ok(())
            }
            None => channel.ask_limits().await.map(drop),
        }
    }

    /// Carries files over a connection until all are done or the connection is lost.
    async fn carry(self: &Rc<Self>, slot: u32, first: Rc<Channel>, channels: u32) {
        // The hasher starts before the channels, because the server may not allow enough sessions for all of them.
        self.start_hasher(slot);
        let mut all = vec![spawn_local(Rc::clone(self).carry_over(first))];
        for number in 2..=channels {
            let (pool, command) = (Rc::clone(self), self.login.channel(&self.control(slot)));
            all.push(spawn_local(async move {
                // If the server allows no more sessions, the open channels do the work.
                if let Ok(channel) = Channel::open(command).await
                    && pool.tell_limits(&channel).await.is_ok()
                {
                    if number > USUAL_CHANNELS {
                        pool.spare.borrow_mut().push((number, Rc::clone(&channel)));
                    }
                    pool.retire_spare();
                    pool.carry_over(channel).await;
                }
            }));
        }
        if slot == 0 {
            let sampler = Rc::clone(&self.sampler);
            spawn_local(sampler.watch_there(self.login.shell(&self.control(slot))));
        }
        for channel in all {
            let _ = channel.await;
        }
    }

    /// Retires the first connection's surplus channels once all connections are open. Otherwise, the last file would
    /// wait for this connection.
    fn retire_spare(&self) {
        if self.are_all_there() && self.alive.get() > 1 {
            let usual = self.usual_channels.get();
            let mut spare = self.spare.borrow_mut();
            for (_, channel) in spare.extract_if(.., |(number, _)| *number > usual) {
                channel.retire();
            }
        }
    }

    async fn carry_over(self: Rc<Self>, channel: Rc<Channel>) {
        let channels = &self.carrier.governor.channels;
        channels.set(channels.get() + 1);
        self.most_channels.set(self.most_channels.get().max(channels.get()));
        self.carrier.channels.borrow_mut().push(Rc::clone(&channel));
        let carrier = || Rc::clone(&self.carrier);
        if self.carrier.queue.is_endless() {
            carrier().carry_endless(Rc::clone(&channel)).await;
        }
        let chunks = (0..CHUNK_LANES).map(|_| spawn_local(carrier().carry_chunks(Rc::clone(&channel))));
        let small = (0..SMALL_LANES).map(|_| spawn_local(carrier().carry_small(Rc::clone(&channel))));
        let lanes: Vec<_> = chunks.chain(small).collect();
        let all = async {
            for lane in lanes {
                let _ = lane.await;
            }
        };
        // A lane may wait for a checksum from a shell that returns only with the next login.
        tokio::select! {
            () = all => {}
            () = channel.lost() => {}
        }
        self.carrier.channels.borrow_mut().retain(|other| !Rc::ptr_eq(other, &channel));
        channels.set(channels.get() - 1);
    }

    /// A channel in use; none if all are lost.
    pub(crate) fn any(&self) -> Option<Rc<Channel>> {
        self.carrier.channels.borrow().first().cloned()
    }

    /// Whether all connections are open and no surplus channels are left.
    pub(crate) fn is_complete(&self) -> bool {
        let has_spare = self.spare.borrow().iter().any(|(number, _)| *number > self.usual_channels.get());
        self.are_all_there() && (self.alive.get() == 1 || !has_spare)
    }

    /// Whether every connection that was not given up is open.
    fn are_all_there(&self) -> bool {
        let open = self.connections.get() as usize;
        self.is_begun.get() && open > 0 && open >= self.alive.get()
    }

    /// Share of the channels whose bytes in flight have nearly reached their limit.
    pub(crate) fn full_share(&self) -> f64 {
        let live = self.carrier.channels.borrow();
        let full = live.iter().filter(|channel| channel.is_full()).count();
        full as f64 / live.len().max(1) as f64
    }

    /// Number of channels in use.
    pub(crate) fn channels(&self) -> u32 {
        self.carrier.governor.channels.get()
    }

    /// The sum of the channels' current limits on bytes in flight.
    pub(crate) fn bound_bytes(&self) -> usize {
        self.carrier.channels.borrow().iter().map(|channel| channel.bound_bytes()).sum()
    }

    /// Maximum number of concurrent connections and of concurrent channels so far.
    pub(crate) fn most(&self) -> (u32, u32) {
        (self.most_connections.get(), self.most_channels.get())
    }

    /// Reason why the last connection failed.
    pub(crate) fn why(&self) -> Option<Error> {
        self.why.borrow().clone()
    }
}

/// Whether sshd refused a connection. It may do so while many others have not logged in, such as those of an aborted
/// copy (`MaxStartups`).
fn is_refused(why: &str) -> bool {
    why.contains("kex_exchange_identification") && (why.contains("closed by") || why.contains("reset by"))
}

/// Whether a login failed because `ssh` would have to prompt the user.
fn may_ask(why: &str) -> bool {
    ["Permission denied", "Host key verification failed", "Too many authentication failures"]
        .iter()
        .any(|words| why.contains(words))
}
