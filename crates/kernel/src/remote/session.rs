//! A shell on a remote host that executes commands and frames their output.

use std::{
    ffi::OsString,
    io::{self, Read, Write},
    os::{fd::AsRawFd, unix::process::CommandExt},
    process::{Child, ChildStdin, Stdio},
    sync::{
        Arc, Mutex,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::{ANSWER_WAIT, Destination, lock};
use crate::{source::OwnConnection, ssh::ends};

/// Functions that the shell first defines. `e` ends a part of an answer; `f` prints files below `/proc`; `b` prints
/// them with a single program; `n` prints the counters of network cards; `s` the output of `ss`; `t` the threads of
/// processes, whether one of them waits for a device, and their descriptors.
const PRELUDE: &str = r#"LC_ALL=C PATH=$PATH:/usr/sbin:/sbin; export LC_ALL PATH
e() { printf '\n%s %s %s\n' "$m" "$1" "$2"; }
f() { for n; do cat "/proc/$n" 2>&1; e $? "$n"; done; }
b() { cd /proc; tail -n +1 "$@" 2>/dev/null; e 0 "at once"; }
n() { for d in /sys/class/net/*/device; do [ -e "$d" ] || continue; d=${d%/device}; d=${d##*/}
ethtool -S "$d" 2>&1; e $? "ethtool $d"; done; }
s() { n=$1; shift; ss "$@" 2>&1; e $? "$n"; }
t() { for p; do f "$p/stat" "$p/limits"
for d in /proc/$p/task/*; do read -r l <$d/schedstat && echo "${d##*/} $l"; done 2>/dev/null; e 0 "$p/threads"
grep -qs ') D ' /proc/$p/task/*/stat; e $? "$p/blocked"
set -- /proc/$p/fd/*; [ -L "$1" ] && echo $#; e $? "$p/fd"; done; }
"#;
/// The name of the part in the answer of `b`.
pub(super) const AT_ONCE: &str = "at once";
/// Prefix of the names of the parts in the answer of `n`; the interface's name follows.
pub(super) const DRIVER: &str = "ethtool ";
/// The name of the last part of an answer.
const END: &str = "end";
/// Maximum size of an answer. A longer one does not come from our shell.
const MAX_ANSWER_BYTES: usize = 32 << 20;
/// Size of one read, in bytes.
const PIECE_BYTES: usize = 64 << 10;
/// Maximum number of pieces that wait to be processed. A host that sends more than was requested is then blocked.
const MAX_PIECES: usize = 64;
/// Maximum number of bytes that are kept from the end of the standard error of `ssh`.
const WORDS_BYTES: usize = 4_096;
/// Maximum wait for the end of the standard error of `ssh`.
const LAST_WORDS_WAIT: Duration = Duration::from_secs(1);

/// A login on a remote host.
#[derive(Debug)]
pub(super) struct Session {
    child: Child,
    input: ChildStdin,
    output: mpsc::Receiver<Vec<u8>>,
    said: LastWords,
    /// Beginning of the line that ends a part. No other program knows it.
    mark: String,
    pub(super) own: OwnConnection,
    pub(super) has_ss: bool,
    pub(super) mounts: String,
}

/// A part of an answer: a file or the output of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) name: String,
    /// Exit status of the command; 0 means success.
    pub(super) status: u8,
    pub(super) text: String,
}

impl Session {
    /// Logs in and waits for the first answer.
    pub(super) fn open(destination: &Destination, wait: Duration) -> Result<Self, String> {
        let options = ["BatchMode=yes", "ConnectTimeout=5", "ServerAliveInterval=5"].map(OsString::from);
        let mut child = destination
            .login
            .command(&[], &options, (&[], &[]), "exec sh")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C must not end `ssh` before the last counters are read.
            .process_group(0)
            .spawn()
            .map_err(|error| format!("cannot run ssh: {error}; is it installed (Debian: openssh-client)?"))?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let started = || Some((stdin?, received(stdout?).ok()?, LastWords::of(stderr?).ok()?));
        let Some((input, output, said)) = started() else {
            let _ = child.kill().and_then(|()| child.wait());
            return Err("cannot start a thread".to_owned());
        };
        let mark = crate::random_hex().map_err(|error| error.to_string())?;
        let process_group = shown_id(&child).unwrap_or_else(|| child.id());
        let looking = OwnConnection { process_group, connection: None };
        let mut session =
            Self { child, input, output, said, mark, own: looking, has_ss: false, mounts: String::new() };
        session.greet(wait).map_err(|error| error.to_string())?;
        Ok(session)
    }

    fn greet(&mut self, wait: Duration) -> io::Result<()> {
        // The first part contains the output of the user's start-up files and is ignored.
        let greeting = format!(
            "m={}\n{PRELUDE}e 0 noise\nprintf %s \"$SSH_CONNECTION\"; e 0 connection\n\
             command -v ss; e $? ss\nf sys/kernel/osrelease self/mountinfo\n",
            self.mark
        );
        for part in self.asked(&greeting, wait)? {
            match (part.name.as_str(), part.status) {
                ("connection", _) => self.own.connection = ends(&part.text),
                ("ss", status) => self.has_ss = status == 0,
                ("self/mountinfo", 0) => self.mounts = part.text,
                ("sys/kernel/osrelease", 1..) => {
                    return Err(io::Error::other(format!(
                        "that machine does not run Linux ({})",
                        part.text.trim()
                    )));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Executes commands and returns the parts of their answer.
    pub(super) fn ask(&mut self, commands: &str) -> io::Result<Vec<Part>> {
        self.asked(commands, ANSWER_WAIT)
    }

    fn asked(&mut self, commands: &str, wait: Duration) -> io::Result<Vec<Part>> {
        // Each answer is awaited before the next write, so a silent host cannot fill the pipe. If `ssh` has ended, the
        // error below contains its last message.
        let _ = self.input.write_all(format!("{commands}\ne 0 {END}\n").as_bytes());
        let (mut answer, until) = (Vec::new(), Instant::now() + wait);
        let end = format!("\n{} 0 {END}\n", self.mark);
        while !answer.ends_with(end.as_bytes()) {
            let left = until.saturating_duration_since(Instant::now());
            match self.output.recv_timeout(left) {
                Ok(bytes) if answer.len() <= MAX_ANSWER_BYTES => answer.extend(bytes),
                Ok(_) => {
                    return Err(io::Error::other("the shell there sent an unexpected or too long answer"));
                }
                Err(RecvTimeoutError::Timeout) => {
                    return Err(io::Error::other(format!("no answer for {} s", wait.as_secs())));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let last = self.said.last().unwrap_or_else(|| "ssh has ended".to_owned());
                    return Err(io::Error::other(last));
                }
            }
        }
        let unknown = || io::Error::other("the shell there does not answer in the expected form");
        parts(&String::from_utf8_lossy(&answer), &self.mark).ok_or_else(unknown)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // The remote shell ends with the connection.
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

/// Splits an answer at the lines `MARK STATUS NAME`. Each of them ends a part.
fn parts(answer: &str, mark: &str) -> Option<Vec<Part>> {
    let lead = format!("\n{mark} ");
    let (mut parts, mut rest) = (Vec::new(), answer);
    while let Some((text, after)) = rest.split_once(&lead) {
        let (line, next) = after.split_once('\n')?;
        let (status, name) = line.split_once(' ')?;
        parts.push(Part { name: name.to_owned(), status: status.parse().ok()?, text: text.to_owned() });
        rest = next;
    }
    Some(parts)
}

/// The id of a child in `/proc`, which may show other ids than those of this process's PID namespace (pidfd_open(2)).
fn shown_id(child: &Child) -> Option<u32> {
    let child = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).ok()?;
    let info = crate::read(format!("/proc/self/fdinfo/{}", child.as_raw_fd())).ok()?;
    crate::number(&info, "Pid:")?.try_into().ok()
}

/// Receives the output of `ssh` until its end. If nobody takes pieces, the full channel stops the reading.
fn received(mut from: impl Read + Send + 'static) -> io::Result<mpsc::Receiver<Vec<u8>>> {
    let (sender, receiver) = mpsc::sync_channel(MAX_PIECES);
    let work = move || {
        let mut buffer = vec![0; PIECE_BYTES];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            if sender.send(buffer[..length].to_vec()).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("ssh output".to_owned()).spawn(work)?;
    Ok(receiver)
}

/// The last line on the standard error of `ssh`.
#[derive(Debug)]
pub struct LastWords {
    words: Arc<Mutex<Vec<u8>>>,
    /// Disconnected when the standard error has ended.
    ended: mpsc::Receiver<()>,
}

impl LastWords {
    /// Reads the standard error in a thread until it ends.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn of(mut stderr: impl Read + Send + 'static) -> io::Result<Self> {
        let (sender, ended) = mpsc::channel();
        let words = Arc::new(Mutex::new(Vec::new()));
        let kept = words.clone();
        let work = move || {
            let _sender: mpsc::Sender<()> = sender;
            let mut piece = [0; 1_024];
            while let Ok(length @ 1..) = stderr.read(&mut piece) {
                let mut kept = lock(&kept);
                kept.extend_from_slice(&piece[..length]);
                let surplus = kept.len().saturating_sub(WORDS_BYTES);
                kept.drain(..surplus);
            }
        };
        thread::Builder::new().name("ssh errors".to_owned()).spawn(work)?;
        Ok(Self { words, ended })
    }

    /// The last line that is not empty; none if nothing was written. Waits at most a second for the end.
    pub fn last(&self) -> Option<String> {
        // A connection that other logins share may keep the standard error open.
        let _ = self.ended.recv_timeout(LAST_WORDS_WAIT);
        let words = String::from_utf8_lossy(&lock(&self.words)).into_owned();
        let mut lines = words.lines().map(|line| line.replace(|c: char| c.is_control(), ""));
        let last: String =
            lines.rfind(|line| !line.is_empty()).unwrap_or_default().chars().take(300).collect();
        Some(last.trim_end_matches('.').to_owned()).filter(|line| !line.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use std::{
        process::Command,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use proptest::prelude::*;

    use super::*;

    /// Returns this many bytes to readers and counts the bytes that were read.
    struct Talker(usize, Arc<AtomicUsize>);

    impl Read for Talker {
        fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
            let said = space.len().min(self.0 - self.1.load(Ordering::SeqCst));
            space[..said].fill(b'x');
            self.1.fetch_add(said, Ordering::SeqCst);
            Ok(said)
        }
    }

    #[test]
    fn a_machine_that_says_much_waits_until_it_is_read() {
        let (all, read) = (4 * MAX_PIECES * PIECE_BYTES, Arc::new(AtomicUsize::new(0)));
        let output = received(Talker(all, Arc::clone(&read))).unwrap();
        testing::until("it waits", || read.load(Ordering::SeqCst) >= MAX_PIECES * PIECE_BYTES);
        let mut taken = 0;
        while let Ok(piece) = output.recv() {
            taken += piece.len();
            // In addition to the waiting pieces, one has been read and one has been passed on.
            let ahead = read.load(Ordering::SeqCst) - taken;
            assert!(ahead <= (MAX_PIECES + 2) * PIECE_BYTES, "{ahead} bytes wait");
        }
        assert_eq!(taken, all);
    }

    #[test]
    fn of_many_words_the_last_are_kept() {
        let long = Talker(100 << 20, Arc::default());
        let said = LastWords::of(long.chain(&b"\nssh: no\n\n"[..])).unwrap();
        let _ = said.ended.recv();
        assert_eq!(said.last().as_deref(), Some("ssh: no"));
        assert!(lock(&said.words).len() <= WORDS_BYTES);
        let endless = LastWords::of(Talker(100 << 20, Arc::default())).unwrap();
        let _ = endless.ended.recv();
        assert_eq!(endless.last().map(|line| line.len()), Some(300));
    }

    const MARK: &str = "0123456789abcdef0123456789abcdef";

    /// Executes the commands in a shell of this machine, without `ssh`.
    fn here(commands: &str) -> Vec<Part> {
        told(PRELUDE, commands)
    }

    fn told(prelude: &str, commands: &str) -> Vec<Part> {
        let mut shell = Command::new("sh")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let text = format!("m={MARK}\n{prelude}\n{commands}\n");
        // The shell ends when its input is closed.
        shell.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let output = shell.wait_with_output().unwrap();
        assert!(output.stderr.is_empty(), "{output:?}");
        parts(std::str::from_utf8(&output.stdout).unwrap(), MARK).unwrap()
    }

    #[test]
    fn a_shell_answers_in_parts_and_ends_with_its_input() {
        let pid = std::process::id();
        let all = here(&format!("f sys/kernel/osrelease none\nt {pid}\nt 4194999"));
        let names: Vec<(&str, u8)> = all.iter().map(|part| (part.name.as_str(), part.status)).collect();
        let of = |pid: u32, name: &str| format!("{pid}/{name}");
        let (stat, limits) = (of(pid, "stat"), of(pid, "limits"));
        assert_eq!(names[..4], [("sys/kernel/osrelease", 0), ("none", 1), (&*stat, 0), (&*limits, 0)]);
        assert_eq!((all[0].text.trim(), all[1].text.contains("No such file")), (&*crate::release(), true));
        let (threads, descriptors) = (&all[4], &all[6]);
        // Status 0: a thread of another test waits for a disk. 1: no thread does. 2: in addition, a thread has ended
        // meanwhile.
        assert!(all[5].name == of(pid, "blocked") && all[5].status <= 2, "{all:?}");
        let thread = threads.text.lines().find(|line| line.starts_with(&format!("{pid} "))).unwrap();
        assert_eq!((thread.split(' ').count(), threads.name.clone()), (4, of(pid, "threads")));
        assert!(descriptors.text.trim().parse::<u64>().unwrap() >= 3, "{descriptors:?}");
        assert_eq!((all[7].status, all[11].status, all[11].text.as_str()), (1, 1, ""), "no such process");
    }

    #[test]
    fn a_thread_that_waits_for_a_device_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        for (thread, stat) in [(7, "7 (a) S 1"), (8, "8 (a) b) D 1"), (9, "9 (a D) R 1")] {
            let task = folder.path().join(format!("{}/task/{thread}", if thread == 9 { 9 } else { 7 }));
            std::fs::create_dir_all(&task).unwrap();
            std::fs::write(task.join("stat"), stat).unwrap();
        }
        let prelude = PRELUDE.replace("/proc", folder.path().to_str().unwrap());
        let all = told(&prelude, "t 7 9");
        let blocked: Vec<u8> =
            all.iter().filter(|part| part.name.ends_with("/blocked")).map(|part| part.status).collect();
        assert_eq!(blocked, [0, 1]);
    }

    proptest! {
        #[test]
        fn any_texts_come_back(texts in prop::collection::vec(("[^\n]{0,9}", any::<u8>(), "(.|\n){0,40}"), 0..5)) {
            let all = texts.iter().map(|(name, status, text)| Part {
                name: name.clone(), status: *status, text: text.clone(),
            });
            let all: Vec<Part> = all.collect();
            let answer: String =
                all.iter().map(|part| format!("{}\n{MARK} {} {}\n", part.text, part.status, part.name)).collect();
            prop_assert_eq!(parts(&answer, MARK), Some(all));
        }

        #[test]
        fn no_answer_makes_the_parser_fail(answer in "(.|\n|\nm |\nm 0 a\n|\nm 999 b\n){0,20}") {
            let _ = parts(&answer, "m");
        }
    }
}
