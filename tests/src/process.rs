//! Starts programs, waits for them for a bounded time, and never leaves them behind.

use std::{
    fs::{self, File},
    io::{Seek, Write},
    os::{fd::OwnedFd, unix::fs::FileExt, unix::process::ExitStatusExt},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use nix::sys::resource::{UsageWho, getrusage};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{MemfdFlags, memfd_create},
    process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open},
};
use testing::PATIENCE;

/// A program to start, with its arguments and environment.
#[derive(Debug, Clone, Default)]
pub struct Launch {
    words: Vec<String>,
    environment: Vec<(String, Option<String>)>,
    core: Option<u32>,
    descriptors: Option<u64>,
    input: Option<Vec<u8>>,
}

impl Launch {
    /// Starts with a program, given by its path or by a name on the search path.
    pub fn new(program: impl Into<String>) -> Self {
        Self { words: vec![program.into()], ..Self::default() }
    }

    /// Replaces the program, but keeps the arguments.
    pub fn program(mut self, program: impl Into<String>) -> Self {
        self.words[0] = program.into();
        self
    }

    /// Adds an argument.
    pub fn arg(mut self, argument: impl Into<String>) -> Self {
        self.words.push(argument.into());
        self
    }

    /// Adds arguments.
    pub fn args<T: Into<String>>(mut self, arguments: impl IntoIterator<Item = T>) -> Self {
        self.words.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Adds arguments from a text, separated by white space.
    pub fn words(self, text: &str) -> Self {
        self.args(text.split_whitespace())
    }

    /// Starts the program through another command with these words, which must replace itself by the program (exec).
    pub fn under<'a>(mut self, words: impl IntoIterator<Item = &'a str>) -> Self {
        self.words.splice(0..0, words.into_iter().map(str::to_owned));
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), Some(value.to_owned())));
        self
    }

    /// Removes an environment variable that this process has.
    pub fn without_env(mut self, name: &str) -> Self {
        self.environment.push((name.to_owned(), None));
        self
    }

    /// Limits the program to this processor.
    pub fn on_core(mut self, core: u32) -> Self {
        self.core = Some(core);
        self
    }

    /// Sets the soft and the hard limit of open files.
    pub fn descriptors(mut self, limit: u64) -> Self {
        self.descriptors = Some(limit);
        self
    }

    /// Sets the standard input, which is empty by default.
    pub fn input(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.input = Some(bytes.into());
        self
    }

    /// Whether this argument is among the words.
    pub fn has(&self, argument: &str) -> bool {
        self.words.iter().any(|word| word == argument)
    }

    /// The command line as a user would type it.
    pub fn shown(&self) -> String {
        let mut line = match self.core {
            Some(core) => format!("taskset -c {core} "),
            None => String::new(),
        };
        let quoted = self.words.iter().map(|word| {
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
            if !word.is_empty() && word.chars().all(plain) { word.clone() } else { format!("'{word}'") }
        });
        line += &quoted.collect::<Vec<_>>().join(" ");
        line
    }

    /// Starts the program.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(&self) -> Result<Process> {
        let (stdout, stderr) = (memory_file("stdout")?, memory_file("stderr")?);
        let mut stdin = Stdio::null();
        if let Some(bytes) = &self.input {
            let mut file = memory_file("stdin")?;
            file.write_all(bytes)?;
            file.rewind()?;
            stdin = file.into();
        }
        let words = self.wrapped();
        let mut command = Command::new(&words[0]);
        for (name, value) in &self.environment {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let child = command
            .args(&words[1..])
            .stdin(stdin)
            .stdout(stdout.try_clone()?)
            .stderr(stderr.try_clone()?)
            .spawn()
            .with_context(|| format!("cannot start {}; is it installed?", words[0]))?;
        Ok(Process { line: self.shown(), child, status: None, stdout, stderr, started: Instant::now() })
    }

    /// Runs the program until it ends.
    ///
    /// # Errors
    /// If it cannot be started, or does not end within `timeout`. In the latter case, this kills it.
    pub fn run(&self, timeout: Duration) -> Result<Finished> {
        self.start()?.finish(timeout)
    }

    /// The words with util-linux's helpers in front, which replace themselves by the program. The program then dies with this process, runs
    /// on the requested processor, and has the requested limit.
    fn wrapped(&self) -> Vec<String> {
        let mut words: Vec<String> = ["setpriv", "--pdeathsig", "TERM"].map(str::to_owned).into();
        if let Some(limit) = self.descriptors {
            words.extend(["prlimit".to_owned(), format!("--nofile={limit}:{limit}")]);
        }
        if let Some(core) = self.core {
            words.extend(["taskset".to_owned(), "-c".to_owned(), core.to_string()]);
        }
        words.extend(self.words.iter().cloned());
        words
    }
}

/// A started program. Dropping it ends the program: with SIGTERM first, then with SIGKILL.
#[derive(Debug)]
pub struct Process {
    line: String,
    child: Child,
    status: Option<ExitStatus>,
    stdout: File,
    stderr: File,
    started: Instant,
}

/// A program that has ended.
#[derive(Debug)]
pub struct Finished {
    /// Its exit status; none if a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it; none if it exited by itself.
    pub signal: Option<i32>,
    /// Everything that it wrote to standard output.
    pub stdout: String,
    /// Everything that it wrote to standard error.
    pub stderr: String,
    /// Time from its start until this process noticed its end.
    pub wall: Duration,
}

impl Process {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it is still running.
    pub fn is_running(&mut self) -> bool {
        self.wait(Duration::ZERO).is_ok_and(|status| status.is_none())
    }

    /// Its standard output so far.
    pub fn stdout(&self) -> String {
        contents(&self.stdout)
    }

    /// Its standard error so far.
    pub fn stderr(&self) -> String {
        contents(&self.stderr)
    }

    /// Its output so far, for a message.
    pub fn said(&self) -> String {
        format!("standard output:\n{}\nstandard error:\n{}", self.stdout(), self.stderr())
    }

    /// Calls `look` until it finds something.
    ///
    /// # Errors
    /// If the program ends first, or the time runs out. The error has the program's output.
    pub fn find<T>(
        &mut self,
        what: &str,
        within: Duration,
        mut look: impl FnMut(&Self) -> Option<T>,
    ) -> Result<T> {
        let found = testing::find(within, || {
            // Check for the end first, so that `look` still sees what the program did just before it.
            let has_ended = !self.is_running();
            look(self).map(Some).or(has_ended.then_some(None))
        });
        let described = || format!("`{}`: not within {within:?}: {what}; {}", self.line, self.said());
        found.flatten().with_context(described)
    }

    /// Waits until its output contains a text.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub fn says(&mut self, text: &str, within: Duration) -> Result<()> {
        let says = |process: &Self| process.stdout().contains(text) || process.stderr().contains(text);
        self.find(&format!("it says '{text}'"), within, |process| says(process).then_some(()))
    }

    /// Sends a signal, unless the program has ended.
    pub fn signal(&mut self, signal: Signal) {
        // The process has not been waited for yet, so no other process can have its id.
        if self.status.is_none()
            && let Some(pid) = Pid::from_raw(self.child.id() as i32)
        {
            let _ = kill_process(pid, signal);
        }
    }

    /// Waits until the program ends; none if it is still running after `timeout`.
    ///
    /// # Errors
    /// If the kernel refuses to watch it.
    pub fn wait(&mut self, timeout: Duration) -> Result<Option<ExitStatus>> {
        if self.status.is_none() && self.ends_within(timeout)? {
            self.status = self.child.try_wait()?;
        }
        Ok(self.status)
    }

    /// Waits until the program ends, and returns its results.
    ///
    /// # Errors
    /// If it does not end within `timeout`. This then kills it, and the error has its output.
    pub fn finish(mut self, timeout: Duration) -> Result<Finished> {
        let status = self.wait(timeout)?;
        let wall = self.started.elapsed();
        let Some(status) = status else {
            self.end();
            bail!("`{}` did not end within {timeout:?}; {}", self.line, self.said());
        };
        Ok(Finished {
            code: status.code(),
            signal: status.signal(),
            stdout: self.stdout(),
            stderr: self.stderr(),
            wall,
        })
    }

    fn ends_within(&self, timeout: Duration) -> Result<bool> {
        let pid = Pid::from_child(&self.child);
        let watch = pidfd_open(pid, PidfdFlags::empty()).context("cannot watch a process")?;
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
            match poll(&mut [PollFd::new(&watch, PollFlags::IN)], Some(&left)) {
                Ok(ready) => return Ok(ready > 0),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error).context("cannot wait for a process"),
            }
        }
    }

    fn end(&mut self) {
        for signal in [Signal::TERM, Signal::KILL] {
            self.signal(signal);
            if !matches!(self.wait(PATIENCE), Ok(None)) {
                return;
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.is_running() {
            self.end();
        }
    }
}

/// The children of a process, whichever of its threads started them. Empty if the process has ended.
pub fn children_of(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let of_thread =
        |thread: fs::DirEntry| fs::read_to_string(thread.path().join("children")).unwrap_or_default();
    let numbers = |list: String| list.split_whitespace().flat_map(str::parse).collect::<Vec<_>>();
    threads.map(of_thread).flat_map(numbers).collect()
}

/// The first child of a process whose command line has this word.
pub fn child_with(word: &str, pid: u32) -> Option<u32> {
    let has_word = |child: &u32| {
        fs::read(format!("/proc/{child}/cmdline"))
            .is_ok_and(|line| line.split(|&byte| byte == 0).any(|own| own == word.as_bytes()))
    };
    children_of(pid).into_iter().find(has_word)
}

/// Processor time, user and system, of all children that have been waited for, in seconds. The difference around one child's life is the
/// time of this child and of its own children.
///
/// # Errors
/// If the kernel does not report it.
pub fn cpu_of_ended_children_s() -> Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).context("cannot read the children's processor time")?;
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    Ok(seconds(usage.user_time()) + seconds(usage.system_time()))
}

/// A file in memory for output. Unlike a pipe, nobody has to read it, and a grandchild that keeps it open delays nobody.
fn memory_file(name: &str) -> Result<File> {
    let file: OwnedFd = memfd_create(name, MemfdFlags::CLOEXEC).context("cannot make a file in memory")?;
    Ok(file.into())
}

fn contents(file: &File) -> String {
    // Read at a position, because the child shares the file's offset.
    let mut bytes = vec![0; file.metadata().map_or(0, |metadata| metadata.len() as usize)];
    let length = file.read_at(&mut bytes, 0).unwrap_or(0);
    bytes.truncate(length);
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_output_and_status_arrive() {
        let finished =
            Launch::new("sh").args(["-c", "cat; echo err >&2; exit 3"]).input("hello").run(PATIENCE).unwrap();
        assert_eq!(
            (finished.code, finished.stdout.as_str(), finished.stderr.as_str()),
            (Some(3), "hello", "err\n")
        );
    }

    #[test]
    fn what_does_not_end_is_ended() {
        let refused = Launch::new("sleep").arg("60").run(Duration::from_millis(100)).unwrap_err().to_string();
        assert!(refused.contains("`sleep 60` did not end within 100ms"), "{refused}");
    }

    #[test]
    fn a_dropped_process_is_gone() {
        let process = Launch::new("sleep").arg("60").start().unwrap();
        let path = format!("/proc/{}", process.pid());
        assert!(fs::exists(&path).unwrap());
        drop(process);
        assert!(!fs::exists(&path).unwrap());
    }

    #[test]
    fn limits_and_processors_are_as_told() {
        let core = crate::machine::Cores::of_this_process().unwrap().server;
        let launch = Launch::new("sh").args(["-c", "ulimit -Hn; nproc"]).descriptors(256).on_core(core);
        assert_eq!(launch.run(PATIENCE).unwrap().stdout, "256\n1\n");
        assert_eq!(
            Launch::new("ab").words("-c 1").arg("a b").on_core(1).shown(),
            "taskset -c 1 ab -c 1 'a b'"
        );
    }
}
