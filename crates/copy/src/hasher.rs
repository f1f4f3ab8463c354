//! Runs shells on the other machine that compute checksums of files there.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::Rc,
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncWriteExt, BufReader},
    process::Command,
    sync::{Notify, oneshot},
    task::spawn_local,
    time::{sleep, timeout},
};

use crate::{
    hash::{BLOCK_BYTES, Sum},
    location::{below, shown},
    pending::ANSWER_WAIT,
    shell::{next_line, quoted},
};

/// The shell prints this line if it finds all programs that it needs.
const READY: &str = "proofload: ready";
/// The shell prints this line for a file that it cannot read.
const UNREADABLE: &str = "-";
/// Maximum wait for a shell's first answer. After that, the shell counts as missing.
const START_WAIT: Duration = Duration::from_secs(15);
/// Minimum wait for a shell's first answer if the data could be read back instead.
const LEAST_WAIT: Duration = Duration::from_secs(1);
/// Interval at which the maximum wait is computed again.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// Maximum wait for a lost shell to return: the time that all attempts to log in again take.
const RETURN_WAIT: Duration = Duration::from_secs(60);
/// Time that a chunk waits for further chunks, so that one command computes all checksums: starting programs takes
/// longer than the checksum of 4 MiB.
const LINGER: Duration = Duration::from_millis(50);
/// Maximum number of chunks per command.
const MAX_TOGETHER: usize = 16;

/// The sender of the answer to a request for a checksum.
type PendingHash = oneshot::Sender<Option<String>>;

/// A shell on the other machine that computes one checksum after the other.
#[derive(Debug)]
struct Hasher {
    commands: tokio::sync::mpsc::UnboundedSender<Vec<u8>>,
    /// The pending requests for checksums, in order. None once the shell has stopped answering.
    waiting: Rc<RefCell<Option<VecDeque<PendingHash>>>>,
}

impl Hasher {
    /// Starts the shell. None if the other machine has no shell for this user, or no `cksum`.
    async fn start(mut command: Command) -> Option<Self> {
        let mut child = command.spawn().ok()?;
        let (mut stdin, stdout) = (child.stdin.take()?, child.stdout.take()?);
        // A file may have become a FIFO, so `dd` opens files without blocking if it supports that. Otherwise, a second
        // shell watches the first one and ends the session when the first one has lost its parent, the server of its
        // connection.
        let ask = format!(
            "command -v cksum >/dev/null && command -v dd >/dev/null && echo '{READY}' || exit 1
n=; dd iflag=nonblock count=0 if=/dev/null >/dev/null 2>&1 && n=iflag=nonblock
s() {{ read -r s </proc/$$/stat && set -- ${{s##*) }} && [ \"$3\" = \"$4\" ] && echo $2; }}
[ \"$n\" ] || {{ p=$(s) && while sleep 1; q=$(s); [ \"$q\" = $p ]; do :; done; [ \"$q\" ] && kill 0; }} </dev/null >/dev/null 2>&1 &\n"
        );
        stdin.write_all(ask.as_bytes()).await.ok()?;
        let mut lines = BufReader::new(stdout);
        // A profile may have printed other lines first.
        while next_line(&mut lines).await? != READY {}
        let (commands, mut to_send) = tokio::sync::mpsc::unbounded_channel::<Vec<u8>>();
        let waiting = Rc::new(RefCell::new(Some(VecDeque::<PendingHash>::new())));
        let asked = Rc::clone(&waiting);
        spawn_local(async move {
            while let Some(command) = to_send.recv().await {
                if stdin.write_all(&command).await.is_err() {
                    break;
                }
            }
        });
        spawn_local(async move {
            let _child = child;
            while let Some(line) = next_line(&mut lines).await {
                let is_sum = line.split(' ').all(|word| word.parse::<u64>().is_ok());
                let Some(answer) = asked.borrow_mut().as_mut().and_then(VecDeque::pop_front) else { break };
                let is_known = is_sum || line == UNREADABLE;
                let _ = answer.send(Some(line).filter(|_| is_sum));
                if !is_known {
                    break;
                }
            }
            // The pending requests get no checksum.
            *asked.borrow_mut() = None;
        });
        Some(Self { commands, waiting })
    }

    /// Whether the shell has stopped answering.
    fn is_gone(&self) -> bool {
        self.waiting.borrow().is_none()
    }

    /// The checksum of a file, or of `length` bytes from an offset; `None` if the shell cannot compute it.
    async fn hash(&self, path: &[u8], part: Option<(u64, u64)>) -> Option<String> {
        let path = quoted(path);
        let part = part.map_or(String::new(), |(offset, length)| {
            format!(" skip={} count={}", offset / BLOCK_BYTES, length.div_ceil(BLOCK_BYTES))
        });
        // Opening a FIFO would block, so the file's type is tested first. `cksum` after a pipe would not notice a
        // failure of `dd`.
        let command = [
            &b"[ -f "[..],
            &path,
            b" ] && [ -r ",
            &path,
            b" ] && dd $n if=",
            &path,
            format!(" bs={BLOCK_BYTES}{part} 2>/dev/null | cksum || echo {UNREADABLE}\n").as_bytes(),
        ]
        .concat();
        let (answer, hash) = oneshot::channel();
        self.waiting.borrow_mut().as_mut()?.push_back(answer);
        self.commands.send(command).ok()?;
        match timeout(ANSWER_WAIT, hash).await {
            Ok(hash) => hash.ok().flatten(),
            Err(_) => {
                *self.waiting.borrow_mut() = None;
                None
            }
        }
    }
}

/// A chunk that waits for its checksum.
#[derive(Debug)]
struct Wanted {
    path: Vec<u8>,
    offset: u64,
    /// Its checksum on this machine.
    here: Sum,
    answer: PendingHash,
}

/// The hashers of several connections. They are used in turn.
#[derive(Debug, Default)]
pub(crate) struct Hashers {
    wanted: RefCell<Vec<Wanted>>,
    ready: RefCell<Vec<Rc<Hasher>>>,
    starting: Cell<u32>,
    next: Cell<usize>,
    /// The folder to which SFTP's paths are relative. A shell may start in another folder.
    home: RefCell<Vec<u8>>,
    /// Number of pending checksums, start of the current wait for them, and total duration of earlier waits.
    asked: Cell<u32>,
    since: Cell<Option<Instant>>,
    busy: Cell<Duration>,
    /// Whether a hasher has answered. If so, one may answer again when its connection is back.
    has_worked: Cell<bool>,
    /// Number of connections that are not given up and that have a hasher whenever they are open.
    not_given_up: Cell<u32>,
    changed: Notify,
    /// Start of the wait for a shell's first answer, and number of bytes of the pending checksums.
    first_wait: Cell<Option<Instant>>,
    asked_bytes: Cell<u64>,
    /// Rate (bytes per second) and round-trip time with which written data could be read back; none if it would not be
    /// read back.
    reading_back: Cell<Option<(f64, Duration)>>,
    /// Whether shells are no longer used.
    is_distrusted: Cell<bool>,
    /// Reason why files were not verified by checksums from the other machine.
    why_not: RefCell<Option<String>>,
}

impl Hashers {
    /// Sets the rate, in bytes per second, and the round-trip time with which written data could be read back.
    pub(crate) fn expect(&self, rate: f64, round_trip: Duration) {
        if rate > 0.0 {
            self.reading_back.set(Some((rate, round_trip)));
        }
    }

    /// Stops using shells on the other machine.
    pub(crate) fn distrust(&self, why: String) {
        self.is_distrusted.set(true);
        self.explain(why);
        self.changed.notify_waiters();
    }

    fn explain(&self, why: String) {
        self.why_not.borrow_mut().get_or_insert(why);
    }

    /// Reason why files were not verified by checksums from the other machine.
    pub(crate) fn why_not(&self) -> Option<String> {
        self.why_not.borrow().clone()
    }

    /// Starts another shell. Requests wait until it is ready.
    pub(crate) async fn start(&self, command: Command) {
        self.starting.set(self.starting.get() + 1);
        let started = timeout(START_WAIT, Hasher::start(command)).await;
        let is_late = started.is_err();
        if let Some(hasher) = started.ok().flatten() {
            self.ready.borrow_mut().push(Rc::new(hasher));
        } else if self.ready.borrow().is_empty() {
            self.has_worked.set(false);
            self.explain(if is_late {
                format!("the shell there did not answer within {} s", START_WAIT.as_secs())
            } else {
                "the login there has no shell that can run cksum and dd".to_owned()
            });
        }
        self.starting.set(self.starting.get() - 1);
        self.changed.notify_waiters();
    }

    /// Counts a connection that will have a hasher whenever it is open.
    pub(crate) fn connection_begins(&self) {
        self.not_given_up.set(self.not_given_up.get() + 1);
    }

    /// No longer counts such a connection, because it was given up.
    pub(crate) fn connection_ends(&self) {
        self.not_given_up.set(self.not_given_up.get() - 1);
        self.changed.notify_waiters();
    }

    /// Whether a hasher may answer later, although none does now.
    fn may_come(&self) -> bool {
        self.starting.get() > 0 || self.has_worked.get() && self.not_given_up.get() > 0
    }

    /// Sets the folder to which SFTP's paths are relative.
    pub(crate) fn begin_in(&self, home: Vec<u8>) {
        *self.home.borrow_mut() = home;
    }

    /// Share of the elapsed time in which a checksum was pending.
    pub(crate) fn busy_share(&self, elapsed: Duration) -> f64 {
        self.busy.get().as_secs_f64() / elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// The checksum of a file or of a part of it, with `bytes` bytes; `None` if no shell on the other machine can
    /// compute it.
    pub(crate) async fn hash(&self, path: &[u8], part: Option<(u64, u64)>, bytes: u64) -> Option<String> {
        self.asked_bytes.set(self.asked_bytes.get() + bytes);
        if self.asked.replace(self.asked.get() + 1) == 0 {
            self.since.set(Some(Instant::now()));
        }
        let path = if path.starts_with(b"/") { path.to_vec() } else { below(&self.home.borrow(), path) };
        let hash = self.hash_by_any(&path, part).await;
        self.asked.set(self.asked.get() - 1);
        self.asked_bytes.set(self.asked_bytes.get() - bytes);
        if let (0, Some(since)) = (self.asked.get(), self.since.get()) {
            self.busy.set(self.busy.get() + since.elapsed());
        }
        hash
    }

    async fn hash_by_any(&self, path: &[u8], part: Option<(u64, u64)>) -> Option<String> {
        while !self.is_distrusted.get() {
            let changed = self.changed.notified();
            let next = self.next.replace(self.next.get().wrapping_add(1));
            let hasher = {
                let ready = self.ready.borrow();
                ready.get(next % ready.len().max(1)).map(Rc::clone)
            };
            match hasher {
                Some(hasher) => match hasher.hash(path, part).await {
                    Some(hash) => {
                        self.has_worked.set(true);
                        return Some(hash);
                    }
                    // The connection of this hasher was lost; another hasher may answer.
                    None if hasher.is_gone() => {
                        self.ready.borrow_mut().retain(|other| !Rc::ptr_eq(other, &hasher))
                    }
                    None => {
                        self.explain(format!("the shell there cannot read {}", shown(path)));
                        return None;
                    }
                },
                None if self.has_worked.get() && self.may_come() => {
                    if timeout(RETURN_WAIT, changed).await.is_err() {
                        // The shell ended although its connection was not lost, so it will not return.
                        self.has_worked.set(false);
                    }
                }
                None if self.may_come() => {
                    let since = self.first_wait.get().unwrap_or_else(Instant::now);
                    self.first_wait.set(Some(since));
                    let wait = self.worthy_wait();
                    if since.elapsed() >= wait {
                        self.explain(format!(
                            "the shell there did not answer within {:.1} s, perhaps because of slow start-up files",
                            wait.as_secs_f64()
                        ));
                        return None;
                    }
                    let _ = timeout(LOOK_AGAIN, changed).await;
                }
                None => {
                    self.explain("the connection to the shell there was lost".to_owned());
                    return None;
                }
            }
        }
        None
    }

    /// Maximum wait for a shell's first answer: the time that reading back the waiting data would take.
    fn worthy_wait(&self) -> Duration {
        let Some((rate, round_trip)) = self.reading_back.get() else { return START_WAIT };
        let reading = Duration::try_from_secs_f64(self.asked_bytes.get() as f64 / rate).unwrap_or(START_WAIT);
        (reading + 2 * round_trip).clamp(LEAST_WAIT, START_WAIT)
    }

    /// The checksum of a chunk on the other machine; `here` is the checksum on this machine. None if no shell on the
    /// other machine can compute it.
    pub(crate) async fn hash_chunk(self: &Rc<Self>, path: &[u8], offset: u64, here: Sum) -> Option<String> {
        let (answer, sum) = oneshot::channel();
        self.wanted.borrow_mut().push(Wanted { path: path.to_vec(), offset, here, answer });
        if self.wanted.borrow().len() == 1 {
            sleep(LINGER).await;
            let mut runs: Vec<Vec<Wanted>> = Vec::new();
            let mut wanted = self.wanted.take();
            wanted.sort_by(|a, b| (&a.path, a.offset).cmp(&(&b.path, b.offset)));
            for next in wanted {
                let is_behind = |run: &Vec<Wanted>| {
                    run.len() < MAX_TOGETHER
                        && run.last().is_some_and(|last| {
                            last.path == next.path && last.offset + last.here.bytes == next.offset
                        })
                };
                match runs.last_mut().filter(|run| is_behind(run)) {
                    Some(run) => run.push(next),
                    None => runs.push(vec![next]),
                }
            }
            for run in runs {
                spawn_local(Rc::clone(self).hash_run(run));
            }
        }
        sum.await.ok().flatten()
    }

    async fn hash_run(self: Rc<Self>, run: Vec<Wanted>) {
        let here = run.iter().fold(Sum::default(), |sum, chunk| sum.followed_by(chunk.here));
        let all = Some((run[0].offset, here.bytes));
        let is_same =
            run.len() > 1 && self.hash(&run[0].path, all, here.bytes).await == Some(here.to_string());
        for Wanted { path, offset, here, answer } in run {
            // If the checksum of all chunks differs, each chunk is checked alone to find those that differ.
            let there = if is_same {
                Some(here.to_string())
            } else {
                self.hash(&path, Some((offset, here.bytes)), here.bytes).await
            };
            let _ = answer.send(there);
        }
    }
}

#[cfg(test)]
mod tests;
