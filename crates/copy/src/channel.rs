//! One SFTP channel. It sends requests and receives their answers in any order.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    io,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use rustix::{
    pipe::fcntl_setpipe_size,
    process::{Pid, Signal, kill_process},
};
use sftp::{Extension, Frames, Limits, Reply, Request, Server, write_header, write_init};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::{Child, ChildStdin, ChildStdout, Command},
    sync::{Notify, OnceCell, Semaphore, mpsc, oneshot},
    task::spawn_local,
    time::timeout,
};

use crate::{
    error::{Error, Result},
    governor::{Bounds, Governor},
    handle::Handle,
    pending::{InFlight, OnTheWay, Pending, PendingReplies},
    processes::with_descendants,
    reply::{LastWords, OwnedReply, Take, not_sftp, owned},
};

/// Size of one read from the pipe of `ssh`, in bytes.
const READ_BYTES: usize = 256 << 10;
/// Capacity of the pipes to and from `ssh`, in bytes: room for a request of any size.
const PIPE_BYTES: usize = 256 << 10;
/// Maximum size of a READ or WRITE for a server that reports no limit, in bytes. Every server accepts this size.
const USUAL_BYTES: usize = 32 << 10;
/// Maximum size of a READ or WRITE, in bytes. OpenSSH accepts no more.
const MAX_BYTES: usize = 255 << 10;

/// Number of chunks that a channel sends concurrently: it sends others while it opens the file of one.
const TURNS: usize = 3;

/// A channel to a server.
#[derive(Debug)]
pub(crate) struct Channel {
    outgoing: mpsc::UnboundedSender<Vec<u8>>,
    pub(crate) waiting: Rc<RefCell<PendingReplies>>,
    window: Rc<Governor>,
    /// Permits to send chunks; there are [`TURNS`].
    pub(crate) turns: Arc<Semaphore>,
    ended: Rc<Notify>,
    is_retired: Cell<bool>,
    next_id: Rc<Cell<u32>>,
    handles: RefCell<HashMap<u64, Rc<OnceCell<Rc<Handle>>>>>,
    has_limits: bool,
    pub(crate) has_fsync: bool,
    pub(crate) has_posix_rename: bool,
    /// Whether the server can set attributes of a path without following a link.
    pub(crate) has_lsetstat: Cell<bool>,
    /// Maximum size of a READ, in bytes.
    pub(crate) read_bytes: Cell<usize>,
    /// Maximum size of a WRITE, in bytes.
    pub(crate) write_bytes: Cell<usize>,
}

impl Channel {
    /// Starts `ssh` and waits for the server's version and extensions.
    pub(crate) async fn open(mut command: Command) -> Result<Rc<Self>> {
        let mut child = command.spawn().map_err(|error| {
            Error::Lost(format!("cannot run ssh: {error}; is it installed (Debian: openssh-client)?"))
        })?;
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(Error::Lost("ssh has no pipes".to_owned()));
        };
        // Larger pipes need fewer system calls. If the kernel refuses them to this user, the default size works too.
        let _ = fcntl_setpipe_size(&stdin, PIPE_BYTES);
        let _ = fcntl_setpipe_size(&stdout, PIPE_BYTES);
        let waiting = Rc::new(RefCell::new(PendingReplies::new()));
        let ended = Rc::new(Notify::new());
        let (outgoing, packets) = mpsc::unbounded_channel();
        let (told, version) = oneshot::channel();
        spawn_local(send(stdin, packets));
        spawn_local(receive(
            stdout,
            child,
            LastWords::of(stderr),
            Rc::clone(&waiting),
            (told, Rc::clone(&ended)),
        ));
        let mut init = Vec::new();
        write_init(&mut init);
        let _ = outgoing.send(init);
        let mut channel = Self {
            outgoing,
            waiting,
            ended,
            is_retired: Cell::new(false),
            window: Governor::new(Bounds::CHANNEL, None, true),
            turns: Arc::new(Semaphore::new(TURNS)),
            next_id: Rc::default(),
            handles: RefCell::default(),
            has_limits: false,
            has_fsync: false,
            has_posix_rename: false,
            has_lsetstat: Cell::new(false),
            read_bytes: Cell::new(USUAL_BYTES),
            write_bytes: Cell::new(USUAL_BYTES),
        };
        let told = version.await.unwrap_or_else(|_| Err(channel.loss()))?;
        let has = |extension| told.has(extension);
        channel.has_fsync = has(Extension::Fsync);
        channel.has_posix_rename = has(Extension::PosixRename);
        channel.has_limits = has(Extension::Limits);
        channel.has_lsetstat.set(has(Extension::Lsetstat));
        Ok(Rc::new(channel))
    }

    /// Requests the server's size limits if it supports this. Returns the round-trip time of a request.
    ///
    /// # Errors
    /// If the channel is lost.
    pub(crate) async fn ask_limits(&self) -> Result<Duration> {
        let asked = Instant::now();
        let request = if self.has_limits { Request::Limits } else { Request::Realpath(b".") };
        match self.ask(&request).await {
            Ok(OwnedReply::Extended(limits)) => {
                if let Ok(limits) = Limits::read(&limits) {
                    let within = |limit: u64| {
                        if limit == 0 { USUAL_BYTES } else { (limit as usize).clamp(1_024, MAX_BYTES) }
                    };
                    self.read_bytes.set(within(limits.read_bytes));
                    self.write_bytes.set(within(limits.write_bytes));
                }
            }
            Err(error @ Error::Lost(_)) => return Err(error),
            _ => {}
        }
        Ok(asked.elapsed())
    }

    /// Size of the next READ, in bytes.
    pub(crate) fn next_read_bytes(&self, path: &Governor) -> usize {
        self.read_bytes.get().min(self.window.request_bytes()).min(path.request_bytes())
    }

    /// Size of the next WRITE, in bytes.
    pub(crate) fn next_write_bytes(&self, path: &Governor) -> usize {
        self.write_bytes.get().min(self.window.request_bytes()).min(path.request_bytes())
    }

    /// The current limit on the bytes in flight.
    pub(crate) fn bound_bytes(&self) -> usize {
        self.window.bound_bytes()
    }

    /// Whether the bytes in flight have nearly reached their limit.
    pub(crate) fn is_full(&self) -> bool {
        self.window.is_full()
    }

    /// Makes the channel accept no new work.
    pub(crate) fn retire(&self) {
        self.is_retired.set(true);
        self.ended.notify_waiters();
    }

    /// Waits for `what`. Returns none as soon as the channel is lost or retired.
    pub(crate) async fn unless_lost<T>(&self, what: impl Future<Output = Option<T>>) -> Option<T> {
        let ended = self.ended.notified();
        if self.is_retired.get() || self.waiting.borrow().lost.is_some() {
            return None;
        }
        tokio::select! {
            biased;
            () = ended => None,
            come = what => come,
        }
    }

    /// Waits until the channel is lost.
    pub(crate) async fn lost(&self) {
        loop {
            let ended = self.ended.notified();
            if self.waiting.borrow().lost.is_some() {
                return;
            }
            ended.await;
        }
    }

    /// The error with which the channel was lost.
    pub(crate) fn loss(&self) -> Error {
        let lost = self.waiting.borrow().lost.clone();
        Error::Lost(lost.unwrap_or_else(|| "the connection was closed".to_owned()))
    }

    fn expect(&self, on_the_way: Option<OnTheWay>, take: Option<Take>) -> Result<(u32, Pending)> {
        let mut waiting = self.waiting.borrow_mut();
        if let Some(why) = &waiting.lost {
            return Err(Error::Lost(why.clone()));
        }
        if waiting.asked.is_empty() {
            waiting.since = Instant::now();
        }
        let id = self.next_id.replace(self.next_id.get().wrapping_add(1));
        let (answer, pending) = oneshot::channel();
        waiting.asked.insert(id, InFlight { answer, take, on_the_way });
        Ok((id, Pending(pending)))
    }

    /// Sends a request and waits for its answer.
    pub(crate) async fn ask(&self, request: &Request<'_>) -> Result<OwnedReply> {
        self.begin(request)?.answer().await
    }

    /// Sends a request.
    pub(crate) fn begin(&self, request: &Request<'_>) -> Result<Pending> {
        let (id, pending) = self.expect(None, None)?;
        let mut packet = Vec::new();
        request.write(id, &mut packet);
        let _ = self.outgoing.send(packet);
        Ok(pending)
    }

    /// Waits until `bytes` more bytes may be in flight.
    pub(crate) async fn room(&self, bytes: usize, governor: &Rc<Governor>) -> OnTheWay {
        let permits = (self.window.permit(bytes).await, governor.permit(bytes).await);
        let governors = [Rc::clone(&self.window), Rc::clone(governor)];
        OnTheWay { bytes, sent: Instant::now(), governors, _permits: permits }
    }

    /// Sends a WRITE whose data `fill` provides.
    pub(crate) fn begin_write(
        &self,
        room: OnTheWay,
        (handle, offset, bytes): (&[u8], u64, usize),
        fill: impl FnOnce(&mut [u8]) -> io::Result<()>,
    ) -> Result<Pending> {
        let mut packet = Vec::with_capacity(bytes + 64 + handle.len());
        let (id, pending) = self.expect(Some(room.for_bytes(bytes)), None)?;
        write_header(&mut packet, id, handle, offset, bytes as u32);
        let begin = packet.len();
        packet.resize(begin + bytes, 0);
        if let Err(error) = fill(&mut packet[begin..]) {
            self.waiting.borrow_mut().asked.remove(&id);
            return Err(Error::local("read the source", &error));
        }
        let _ = self.outgoing.send(packet);
        Ok(pending)
    }

    /// Sends a READ. `take` gets the received data: at least one byte, and at most the requested number.
    pub(crate) fn begin_read(
        &self,
        room: OnTheWay,
        (handle, offset, bytes): (&[u8], u64, usize),
        take: impl FnOnce(&[u8]) -> Result + 'static,
    ) -> Result<Pending> {
        let take: Take = Box::new(move |data| match data.len() {
            0 => Err(Error::unexpected("READ")),
            length if length > bytes => Err(Error::unexpected("READ")),
            _ => take(data),
        });
        let (id, pending) = self.expect(Some(room.for_bytes(bytes)), Some(take))?;
        let mut packet = Vec::new();
        Request::Read { handle, offset, length: bytes as u32 }.write(id, &mut packet);
        let _ = self.outgoing.send(packet);
        Ok(pending)
    }

    /// Returns the handle of a file. The first call opens the file.
    pub(crate) async fn handle(&self, file: u64, open: &Request<'_>) -> Result<Rc<Handle>> {
        let cell = Rc::clone(self.handles.borrow_mut().entry(file).or_default());
        let opened = async { self.opened(self.ask(open).await?).map(Rc::new) };
        cell.get_or_try_init(|| opened).await.cloned()
    }

    /// The handle in the answer to an OPEN.
    pub(crate) fn opened(&self, reply: OwnedReply) -> Result<Handle> {
        let OwnedReply::Handle(bytes) = reply else { return Err(Error::unexpected("OPEN")) };
        Ok(Handle::new(bytes, self.outgoing.clone(), Rc::clone(&self.next_id)))
    }

    /// Drops the handle of a file. If nothing else uses it, sends the CLOSE at once and returns the pending answer.
    /// Otherwise the handle is closed after its last use.
    pub(crate) fn close(&self, file: u64) -> Result<Option<Pending>> {
        let cell = self.handles.borrow_mut().remove(&file);
        let handle = cell.and_then(Rc::into_inner).and_then(OnceCell::into_inner).and_then(Rc::into_inner);
        handle.map(|handle| self.begin(&Request::Close(&handle.into_bytes()))).transpose()
    }
}

async fn send(mut stdin: ChildStdin, mut packets: mpsc::UnboundedReceiver<Vec<u8>>) {
    while let Some(packet) = packets.recv().await {
        if stdin.write_all(&packet).await.is_err() {
            // The receive loop notices the loss when the answers end.
            return;
        }
    }
}

/// A running `ssh`. After the login, it ends when its standard input is closed. If it is dropped before that, it is
/// terminated together with all its descendants.
#[derive(Debug)]
struct Ssh {
    child: Child,
    is_let_in: bool,
}

impl Drop for Ssh {
    fn drop(&mut self) {
        // A child that has ended and was reaped has no id.
        for pid in self.child.id().filter(|_| !self.is_let_in).map(with_descendants).into_iter().flatten() {
            let _ = Pid::from_raw(pid as i32).map(|pid| kill_process(pid, Signal::TERM));
        }
    }
}

async fn receive(
    mut stdout: ChildStdout,
    child: Child,
    words: LastWords,
    waiting: Rc<RefCell<PendingReplies>>,
    (told, ended): (oneshot::Sender<Result<Server>>, Rc<Notify>),
) {
    let mut ssh = Ssh { child, is_let_in: false };
    let mut told = Some(told);
    let mut frames = Frames::new();
    let why = loop {
        let wait = waiting.borrow().answer_wait;
        match timeout(wait, stdout.read(&mut frames.space(READ_BYTES)[..])).await {
            Ok(Ok(0)) => break None,
            Ok(Ok(read)) => frames.filled(read),
            Ok(Err(error)) => break Some(error.to_string()),
            Err(_) if waiting.borrow().is_late() || told.is_some() => {
                break Some(format!("the server has sent no answer for {} s", wait.as_secs()));
            }
            Err(_) => continue,
        }
        waiting.borrow_mut().since = Instant::now();
        if let Err(error) = dispatch(&mut frames, &waiting, &mut told) {
            break Some(not_sftp(&error, frames.unread()));
        }
        ssh.is_let_in = told.is_none();
    };
    let words = words.end(&mut ssh.child).await;
    let why = match (words.is_empty(), why) {
        (false, _) => words,
        (true, Some(why)) => why,
        // ssh prints only errors here. It ends without a message if the server has missed three checks of
        // ServerAliveInterval.
        (true, None) => {
            "ssh ended without a message: the server does not respond, or it ended the session; see sshd's log on the server"
                .to_owned()
        }
    };
    let mut waiting = waiting.borrow_mut();
    waiting.lost = Some(why.clone());
    ended.notify_waiters();
    for (_, asked) in waiting.asked.drain() {
        let _ = asked.answer.send(Err(Error::Lost(why.clone())));
    }
    if let Some(told) = told {
        let _ = told.send(Err(Error::Lost(why)));
    }
}

fn dispatch(
    frames: &mut Frames,
    waiting: &RefCell<PendingReplies>,
    told: &mut Option<oneshot::Sender<Result<Server>>>,
) -> Result<(), sftp::Error> {
    while let Some(reply) = frames.next_reply()? {
        match reply {
            Reply::Version(version) => {
                if let Some(told) = told.take() {
                    let _ = told.send(Ok(version.server()));
                }
            }
            Reply::Answer(id, answer) => {
                let Some(asked) = waiting.borrow_mut().asked.remove(&id) else { continue };
                if let Some(OnTheWay { bytes, sent, governors: [channel, path], .. }) = &asked.on_the_way {
                    // Data that is read back only for verification does not count as copied.
                    if asked.take.is_some() == path.counts_reads {
                        path.arrived(*bytes, sent.elapsed());
                    }
                    // The channel's limit uses the round-trip time of the path: any additional time in the channel is
                    // time in a queue.
                    channel.arrived(*bytes, path.round_trip());
                    channel.tick(Instant::now(), path.spare_bytes());
                }
                let _ = asked.answer.send(owned(answer, asked.take));
            }
        }
    }
    Ok(())
}
