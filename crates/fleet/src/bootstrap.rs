//! Brings this program onto another machine and starts its agent there, over a single login.
//!
//! `ssh` runs `sh` there, which is given `bootstrap.sh`: the shell looks for a copy with this program's checksum in
//! folders that belong to the login alone, receives one if there is none, and becomes the agent. Nothing is sent to the
//! agent before the shell says so, because `head` may read more than the copy.
//!
//! Errors do not name the machine: the caller knows its name.

use std::{
    borrow::Cow,
    env,
    ffi::OsString,
    fs::File,
    io::{self, BufRead, BufReader, Read, Write},
    os::{fd::AsFd, unix::process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use kernel::remote::LastWords;
use kernel::ssh::Login;
use record::units::show_bytes;
use ring::digest::{Context, SHA256};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    system::uname,
};

use crate::{
    machine::{Machine, Way},
    started::{Peer, Started},
};

/// Defines the functions `start` and `remove` of the shell.
const SCRIPT: &str = include_str!("bootstrap.sh");
/// Options of `ssh` that the user's arguments override. They end `ssh` 15 s after the connection was lost.
const LATE_OPTIONS: [&str; 3] = ["ConnectTimeout=10", "ServerAliveInterval=5", "ServerAliveCountMax=3"];
/// Maximum wait for a login, the copy of the program and the agent's first message.
pub(crate) const LOGIN_WAIT: Duration = Duration::from_secs(120);
/// Number of logins at the same time: sshd refuses some beyond 10 (`MaxStartups`), and so does a jump host.
pub(crate) const LOGINS_AT_ONCE: usize = 8;
/// Maximum wait for each answer while copies are removed. The first includes the login.
const REMOVE_WAIT: Duration = Duration::from_secs(60);
/// A stop flag that is never set: nobody stops a removal.
static NEVER: AtomicBool = AtomicBool::new(false);
/// How often a wait checks whether it was stopped.
const LOOK_AGAIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// Number of bytes that a pipe takes at once if it takes any (`PIPE_BUF` in pipe(7)).
const PIECE_BYTES: usize = 4_096;
/// Number of bytes that are kept of a line.
const LINE_BYTES: usize = 4_096;
/// Maximum number of copies that a machine is sent: one for each place.
const MAX_COPIES: u32 = 4;

/// This program as it is copied to machines.
#[derive(Debug)]
pub(crate) struct Program {
    path: PathBuf,
    /// In hexadecimal.
    sha256: String,
    pub(crate) size_bytes: u64,
}

impl Program {
    /// The program of this process, even if its file has been replaced since its start.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(crate) fn own() -> io::Result<Self> {
        Self::read(Path::new("/proc/self/exe"))
    }

    fn read(path: &Path) -> io::Result<Self> {
        let (mut file, mut digest) = (File::open(path)?, Context::new(&SHA256));
        let (mut piece, mut size_bytes) = (vec![0; 64 << 10], 0);
        while let length @ 1.. = file.read(&mut piece)? {
            digest.update(&piece[..length]);
            size_bytes += length as u64;
        }
        let sha256 = digest.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { path: path.to_owned(), sha256, size_bytes })
    }
}

/// Where the program is put on machines.
#[derive(Debug, Default)]
pub(crate) struct Placement<'a> {
    /// The only folder to use, in place of the usual ones.
    pub(crate) remote_path: Option<&'a str>,
}

/// Starts the agent on a machine. `wait`: maximum wait for the login, and for each sign of progress after it.
///
/// # Errors
/// The reason, with the next step.
pub(crate) fn start(
    machine: &Machine,
    placement: &Placement<'_>,
    program: &Program,
    wait: Duration,
    stop: &AtomicBool,
) -> Result<Started, String> {
    let user = machine.become_user.as_deref();
    match &machine.way {
        Way::Here => {
            let own = env::current_exe().map_err(unreadable)?;
            let mut command = Command::new(if user.is_some() { Path::new("sudo") } else { own.as_path() });
            if let Some(user) = user {
                command.args(["-n", "-u", user, "--"]).arg(&own);
            }
            command.args(["agent", "--stdio"]);
            Ok(Shell::open(command, String::new(), wait, stop)?.into_started(false))
        }
        Way::Pool(pool) => pool.start(&machine.name),
        Way::Ssh { login, arguments } => {
            let place = checked(placement.remote_path)?;
            Shell::log_in(login, arguments, wait, stop)?.into_agent(program, user.unwrap_or_default(), place)
        }
    }
}

/// Starts the agents of some machines at the same time, at most [`LOGINS_AT_ONCE`]; one result for each, in their order.
pub(crate) fn start_together(
    machines: &[&Machine],
    placement: &Placement<'_>,
    program: &Program,
    stop: &AtomicBool,
) -> Vec<Result<Started, String>> {
    thread::scope(|scope| {
        let logins: Vec<_> = machines
            .iter()
            .map(|&machine| scope.spawn(move || start(machine, placement, program, LOGIN_WAIT, stop)))
            .collect();
        let join = |login: thread::ScopedJoinHandle<'_, _>| {
            login.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        logins.into_iter().map(join).collect()
    })
}

/// Lets the copies of this program, of any version, in the login's own folders on a machine undo what killed runs left there,
/// and removes them. Returns what was removed.
///
/// # Errors
/// The reason, with the next step.
pub fn remove(machine: &Machine, remote_path: Option<&str>) -> Result<Vec<String>, String> {
    let Way::Ssh { login, arguments } = &machine.way else { return Ok(Vec::new()) };
    let place = checked(remote_path)?;
    let mut shell = Shell::log_in(login, arguments, REMOVE_WAIT, &NEVER)?;
    let removed = shell.remove_copies(machine.become_user.as_deref().unwrap_or_default(), place);
    shell.end();
    removed
}

/// The folder that was given, as the script expects it; empty if none was given.
fn checked(remote_path: Option<&str>) -> Result<&str, String> {
    let Some(given) = remote_path else { return Ok("") };
    let path = given.trim_end_matches('/');
    if !path.starts_with('/') || path.contains(char::is_control) {
        let given = given.escape_debug();
        return Err(format!(
            "--remote-path: '{given}' is not an absolute path; give one such as /opt/proofload"
        ));
    }
    Ok(path)
}

/// A shell on another machine that runs [`SCRIPT`], or an agent on this machine.
#[derive(Debug)]
struct Shell<'a> {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    last_words: LastWords,
    script: Cow<'static, str>,
    /// Beginning of the script's lines. No other program knows it.
    mark: String,
    has_answered: bool,
    /// The last line of another program, which may say why there is no shell.
    noise: Option<String>,
    /// The arguments with which a user calls `ssh`.
    login: String,
    /// Maximum wait for each answer.
    wait: Duration,
    stop: &'a AtomicBool,
}

impl<'a> Shell<'a> {
    fn log_in(
        login: &Login,
        arguments: &[OsString],
        wait: Duration,
        stop: &'a AtomicBool,
    ) -> Result<Self, String> {
        let options = [OsString::from("BatchMode=yes")];
        let command = login.command(&[], &options, (arguments, &LATE_OPTIONS), "exec sh");
        let words = arguments.iter().map(|word| word.to_string_lossy().into_owned());
        let words: Vec<_> = words.chain([login.to_string()]).collect();
        Self::open(command, words.join(" "), wait, stop)
    }

    fn open(
        mut command: Command,
        login: String,
        wait: Duration,
        stop: &'a AtomicBool,
    ) -> Result<Self, String> {
        let mark = kernel::random_hex().map_err(|error| format!("cannot get random numbers: {error}"))?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Ctrl-C must not end `ssh` before the agent has told what it measured.
        let mut child = command.process_group(0).spawn().map_err(|error| {
            let program = command.get_program().display();
            format!("cannot run {program}: {error}; is it installed (Debian: openssh-client, sudo)?")
        })?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let pipes = || Some((stdin?, BufReader::new(stdout?), LastWords::of(stderr?).ok()?));
        let Some((input, output, last_words)) = pipes() else {
            let _ = child.kill().and_then(|()| child.wait());
            return Err("cannot start a thread; see `ulimit -u`".to_owned());
        };
        Ok(Self {
            child,
            input,
            output,
            last_words,
            script: SCRIPT.into(),
            mark,
            has_answered: false,
            noise: None,
            login,
            wait,
            stop,
        })
    }

    fn end(mut self) {
        // The shell there ends with the connection.
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }

    fn into_started(self, has_copied: bool) -> Started {
        let Self { child, input, output, last_words, .. } = self;
        let peer = Peer::Child(child, last_words);
        Started { peer, input: Box::new(input), output: Box::new(output), has_copied }
    }

    fn into_agent(mut self, program: &Program, user: &str, place: &str) -> Result<Started, String> {
        match self.start_agent(program, user, place) {
            Ok(has_copied) => Ok(self.into_started(has_copied)),
            Err(why) => {
                self.end();
                Err(why)
            }
        }
    }

    /// Makes the shell become the agent. Returns whether the program was copied.
    fn start_agent(&mut self, program: &Program, user: &str, place: &str) -> Result<bool, String> {
        let size = program.size_bytes.to_string();
        self.call("start", &[&program.sha256, &size, &own_system(), user, place])?;
        let (mut copies, mut unfit) = (0, Vec::new());
        loop {
            let answer = self.answer()?;
            let (word, detail) = answer.split_once(' ').unwrap_or((&answer, ""));
            match word {
                "have" => return Ok(copies > 0),
                "need" if copies < MAX_COPIES => {
                    copies += 1;
                    let began = Instant::now();
                    let file = File::open(&program.path).map_err(unreadable)?;
                    self.send(BufReader::new(file.take(program.size_bytes)))?;
                    // What is still on its way takes no longer than what was sent before.
                    self.wait += began.elapsed();
                }
                "unfit" => unfit.push(unfit_place(detail)),
                "refused" => return Err(refusal(detail, program, user, &unfit)),
                _ => return Err(unexpected(&answer)),
            }
        }
    }

    fn remove_copies(&mut self, user: &str, place: &str) -> Result<Vec<String>, String> {
        self.call("remove", &[user, place])?;
        let (mut removed, mut unclean) = (Vec::new(), Vec::new());
        loop {
            let answer = self.answer()?;
            match answer.split_once(' ').unwrap_or((&answer, "")) {
                ("removed", folder) => removed.push(folder.to_owned()),
                ("unclean", words) => unclean.push(words.to_owned()),
                ("done", _) if unclean.is_empty() => return Ok(removed),
                ("done", _) => {
                    return Err(format!(
                        "what killed runs left there could not be undone, so its copy of this program stays: {}",
                        unclean.join("; ")
                    ));
                }
                _ => return Err(unexpected(&answer)),
            }
        }
    }

    /// Calls a function of the script.
    fn call(&mut self, function: &str, arguments: &[&str]) -> Result<(), String> {
        let quoted = arguments.iter().map(|word| format!(" '{}'", word.replace('\'', r"'\''")));
        let words: String = quoted.collect();
        // A call that arrives incomplete lacks its last brace, and does nothing.
        let text = format!("{}\n{{ {function} {}{words}; }}\n", self.script, self.mark);
        self.send(text.as_bytes())
    }

    /// Writes into the shell's input. If the shell has ended, the missing answer shows that.
    fn send(&mut self, mut from: impl BufRead) -> Result<(), String> {
        loop {
            let piece = from.fill_buf().map_err(unreadable)?;
            let length = piece.len().min(PIECE_BYTES);
            if length == 0 {
                return Ok(());
            }
            self.await_pipe(&self.input, PollFlags::OUT, Instant::now() + self.wait)?;
            if self.input.write_all(&piece[..length]).is_err() {
                return Ok(());
            }
            from.consume(length);
        }
    }

    /// The next line of the script, without its mark. Start-up files of the login may print other lines.
    fn answer(&mut self) -> Result<String, String> {
        let until = Instant::now() + self.wait;
        let mut line = Vec::new();
        loop {
            if self.output.buffer().is_empty() {
                self.await_pipe(self.output.get_ref(), PollFlags::IN, until)?;
            }
            let piece = self.output.fill_buf().unwrap_or_default();
            if piece.is_empty() {
                let noise = self.noise.take().filter(|_| !self.has_answered);
                let why = self.last_words.last().or(noise);
                return Err(self.lost(&why.unwrap_or_else(|| "ssh has ended".to_owned())));
            }
            let end = piece.iter().position(|byte| *byte == b'\n');
            let length = end.unwrap_or(piece.len());
            line.extend_from_slice(&piece[..length]);
            line.truncate(LINE_BYTES);
            self.output.consume(length + usize::from(end.is_some()));
            if end.is_some() {
                let text = String::from_utf8_lossy(&line).replace(char::is_control, " ");
                if let Some(answer) = text.strip_prefix(&self.mark) {
                    self.has_answered = true;
                    return Ok(answer.trim().to_owned());
                }
                let noise = text.trim().trim_end_matches('.');
                if !noise.is_empty() {
                    self.noise = Some(noise.to_owned());
                }
                line.clear();
            }
        }
    }

    /// Waits until a pipe can be read or written, or has lost its other end.
    fn await_pipe(&self, pipe: &impl AsFd, way: PollFlags, until: Instant) -> Result<(), String> {
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err("stopped before its agent was started".to_owned());
            }
            match poll(&mut [PollFd::new(pipe, way)], Some(&LOOK_AGAIN)) {
                Ok(0) | Err(Errno::INTR) if Instant::now() < until => {}
                Ok(0) | Err(Errno::INTR) => {
                    return Err(self.lost(&format!("no answer for {} s", self.wait.as_secs())));
                }
                Ok(_) => return Ok(()),
                Err(error) => return Err(format!("cannot wait for ssh: {error}; try again")),
            }
        }
    }

    fn lost(&self, why: &str) -> String {
        if self.has_answered {
            format!("the connection was lost before its agent was started: {why}; try again")
        } else {
            format!("cannot log in: {why}; `ssh {} true` must work without a password", self.login)
        }
    }
}

/// The kernel and the processor's architecture, such as `Linux x86_64`.
fn own_system() -> String {
    let own = uname();
    format!("{} {}", own.sysname().to_string_lossy(), own.machine().to_string_lossy())
}

fn unreadable(error: io::Error) -> String {
    format!("cannot read this program: {error}")
}

fn unexpected(answer: &str) -> String {
    let shown: String = answer.chars().take(100).collect();
    format!(
        "the shell there gave an unexpected answer: '{}'; is `sh` there a POSIX shell?",
        shown.escape_debug()
    )
}

/// Why a place cannot be used: from the shell's word, the place and perhaps the words of a program.
fn unfit_place(answer: &str) -> String {
    let (word, place) = answer.split_once(' ').unwrap_or((answer, ""));
    let why = match word {
        "absent" => "cannot be made or entered",
        "foreign" => "a link, another user's, or open to others (its mode must be 0700)",
        "noexec" => "files cannot be written and executed in it",
        "full" => "not enough room",
        "fails" => "this program does not run in it",
        _ => "cannot be used",
    };
    format!("{why}: {place}")
}

/// Why the shell refused to become the agent, and the next step.
fn refusal(answer: &str, program: &Program, user: &str, unfit: &[String]) -> String {
    let (word, words) = answer.split_once(' ').unwrap_or((answer, ""));
    match word {
        "system" => {
            format!("the machine is {words}, this program is for {}; use machines of this kind", own_system())
        }
        "sha256sum" => {
            "the machine has no sha256sum to check the copy of this program; install coreutils there"
                .to_owned()
        }
        "sudo" => format!(
            "sudo there does not let the login become {user} without a password ({words}); allow it with NOPASSWD in \
             /etc/sudoers there, or log in as {user}"
        ),
        "user" => format!(
            "{user} cannot execute the copy of this program there, because only the login and root can open its \
             folder; become root, or log in as {user}"
        ),
        "damaged" => "the copy of this program arrived incomplete or damaged; try again".to_owned(),
        "places" => format!(
            "no folder there can take this program ({}): {}; name one with --remote-path, which is made if it is \
             missing",
            show_bytes(program.size_bytes),
            unfit.join("; ")
        ),
        _ => unexpected(answer),
    }
}

#[cfg(test)]
mod tests;
