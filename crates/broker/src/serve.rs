//! An agent that runs a command for each session.

use std::{
    collections::VecDeque,
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use crate::{
    address::Access,
    broker::Broker,
    event::Event,
    keys::{Key, PublicKey},
    line::ConnectFailure,
    listener::{Accepted, Arrival},
    names,
    session::{Ending, Input, Output, Session},
};

/// How often an agent checks whether it has to end.
const POLL: Duration = Duration::from_millis(100);
/// Maximum wait for the broker before the agent checks again whether it has to end.
const CONNECT_WAIT: Duration = Duration::from_secs(2);
/// How long a command may take to end after its input has ended with its session.
const GRACE: Duration = Duration::from_secs(5);
/// How long the controller may take to receive the last bytes of a session.
const LAST_BYTES: Duration = Duration::from_secs(30);
/// Maximum number of lines of a command's standard error that the controller is told.
const MAX_LINES: usize = 5;
/// Maximum length of such a line, in bytes.
const MAX_LINE: u64 = 500;

/// The properties of an agent.
#[derive(Debug)]
pub struct ServeOptions {
    /// How it reaches the broker.
    pub access: Access,
    /// Its name in the pool.
    pub name: String,
    /// Its key.
    pub key: Key,
    /// The controllers that it obeys.
    pub controllers: Vec<PublicKey>,
}

/// Runs an agent until `stop` is set, or a controller asks it to end. For each session, `command` is run in a process group
/// of its own, with the session as its standard input and output. Its input ends with the session; if the command does not
/// end within 5 s after that, its group is killed. The last lines of its standard error are the session's last words.
///
/// The command should ask the kernel to be killed with its parent, which is the calling thread.
///
/// # Errors
/// When a file cannot be used, the broker refuses the login, or a machine cannot have the name. While the broker is not
/// reachable, the agent keeps trying.
pub fn serve(
    options: &ServeOptions,
    command: impl Fn() -> Command,
    stop: &AtomicBool,
    mut on_event: impl FnMut(Event),
) -> Result<(), String> {
    names::check_name(&options.name)?;
    let (sender, events) = channel();
    let Some(broker) = connect(options, &sender, stop, &mut on_event)? else { return Ok(()) };
    let listener = broker.listen(&options.name, &options.key, &options.controllers)?;
    while !stop.load(Ordering::Relaxed) {
        events.try_iter().for_each(&mut on_event);
        match listener.accept(POLL) {
            Arrival::Session(accepted) => {
                on_event(Event::SessionBegan(accepted.controller));
                on_event(Event::SessionEnded(run(*accepted, command(), stop)));
            }
            Arrival::Nothing => {}
            Arrival::Drained => {
                on_event(Event::Drained);
                break;
            }
        }
    }
    Ok(())
}

/// Connects to the broker; `None` if the agent has to end before that.
fn connect(
    options: &ServeOptions,
    events: &Sender<Event>,
    stop: &AtomicBool,
    on_event: &mut impl FnMut(Event),
) -> Result<Option<Broker>, String> {
    let mut told = None;
    while !stop.load(Ordering::Relaxed) {
        let events = events.clone();
        let tell = Box::new(move |event| {
            let _ = events.send(event);
        });
        match Broker::connect_and_tell(&options.access, CONNECT_WAIT, tell) {
            Ok(broker) => return Ok(Some(broker)),
            Err(ConnectFailure::Refused(why)) => return Err(why),
            Err(ConnectFailure::Unreachable(why)) => {
                if told.as_ref() != Some(&why) {
                    on_event(Event::Unreachable(why.clone()));
                }
                told = Some(why);
            }
        }
    }
    Ok(None)
}

/// Runs a session's command; returns the session's last words.
fn run(accepted: Accepted, mut command: Command, stop: &AtomicBool) -> String {
    let Accepted { session: Session { input, output, ending }, busy, .. } = accepted;
    // Ctrl-C must reach the agent only, which then ends the command's input.
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let words = match command.spawn() {
        Ok(child) => Running::start(child, input, output).map(|running| running.finish(&ending, stop)),
        Err(error) => {
            ending.say_last(&format!("its command cannot be started: {error}"));
            drop((input, output));
            Err(error)
        }
    };
    let words = words.unwrap_or_else(|error| format!("its command cannot be started: {error}"));
    ending.wait(LAST_BYTES);
    ending.abandon("the other side does not end the session");
    drop(busy);
    words
}

/// A command with the threads that move its bytes.
struct Running {
    child: Child,
    /// Gives the session's input back when the command's output has ended.
    output_ended: Receiver<Input>,
    last_lines: Arc<Mutex<VecDeque<String>>>,
}

impl Running {
    fn start(mut child: Child, mut input: Input, mut output: Output) -> io::Result<Self> {
        let (sender, output_ended) = channel();
        let last_lines = Arc::<Mutex<VecDeque<String>>>::default();
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        // From here on, dropping this kills the command, for example if a thread cannot be started.
        let running = Self { child, output_ended, last_lines: last_lines.clone() };
        if let (Some(mut stdin), Some(mut stdout), Some(stderr)) = (stdin, stdout, stderr) {
            let spawn = |work: Box<dyn FnOnce() + Send>| thread::Builder::new().spawn(work);
            spawn(Box::new(move || drop(copy(&mut output, &mut stdin))))?;
            spawn(Box::new(move || {
                let _ = copy(&mut stdout, &mut input);
                let _ = sender.send(input);
            }))?;
            spawn(Box::new(move || keep_last_lines(stderr, &last_lines)))?;
        }
        Ok(running)
    }

    /// Waits for the end of the command; ends it if the session breaks. Returns the last words, which it also sends to
    /// the controller.
    fn finish(mut self, ending: &Ending, stop: &AtomicBool) -> String {
        let (mut input, mut should_end) = (None, None);
        loop {
            match self.output_ended.recv_timeout(POLL) {
                Ok(ended) => input = Some(ended),
                Err(RecvTimeoutError::Disconnected) => thread::sleep(POLL / 10),
                Err(RecvTimeoutError::Timeout) => {}
            }
            let has_exited = self.has_exited();
            if has_exited && input.is_some() {
                break;
            }
            if stop.load(Ordering::Relaxed) {
                ending.abandon("the agent was told to end");
            }
            if has_exited || ending.broken().is_some() {
                let since = *should_end.get_or_insert_with(Instant::now);
                if since.elapsed() > GRACE {
                    self.kill();
                }
            }
        }
        let words = ending.broken().unwrap_or_else(|| self.words());
        ending.say_last(&words);
        words
    }

    fn words(&mut self) -> String {
        // What the command has left behind must end before its number can be given to another process.
        self.kill();
        let lines = self.last_lines.lock().unwrap_or_else(PoisonError::into_inner);
        let said = lines.iter().map(String::as_str).collect::<Vec<_>>().join("; ");
        match self.child.wait() {
            Ok(status) if !status.success() && said.is_empty() => format!("its command ended with {status}"),
            Ok(status) if !status.success() => format!("its command ended with {status}: {said}"),
            _ => said,
        }
    }

    /// Whether the command has ended. It keeps its process number until `wait`.
    fn has_exited(&self) -> bool {
        let Some(id) = self.id() else { return true };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        waitid(WaitId::Pid(id), options).map_or(true, |status| status.is_some())
    }

    fn kill(&self) {
        if let Some(id) = self.id() {
            let _ = kill_process_group(id, Signal::KILL);
        }
    }

    fn id(&self) -> Option<Pid> {
        Pid::from_raw(self.child.id().cast_signed())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // After `wait`, the number may be another process's; `try_wait` takes care of that.
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            self.kill();
            let _ = self.child.wait();
        }
    }
}

/// Copies until either side ends. Each piece is passed on at once.
fn copy(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 16];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => to.write_all(&buffer[..count])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn keep_last_lines(from: impl Read, last_lines: &Mutex<VecDeque<String>>) {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    // A line without an end is cut into pieces, so that its memory is bounded.
    while matches!(from.by_ref().take(MAX_LINE).read_until(b'\n', &mut line), Ok(1..)) {
        let text: String =
            String::from_utf8_lossy(&line).trim().chars().filter(|char| !char.is_control()).collect();
        line.clear();
        if !text.is_empty() {
            let mut lines = last_lines.lock().unwrap_or_else(PoisonError::into_inner);
            lines.push_back(text);
            if lines.len() > MAX_LINES {
                lines.pop_front();
            }
        }
    }
}
