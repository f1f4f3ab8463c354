//! Worker processes on this machine: copies of this program, one JSON message a line on their standard
//! input and output.
//!
//! A worker never outlives its parent: the kernel kills it when the parent ends, however that ends, and a
//! closed standard input tells it to stop.

use std::{
    io::{self, BufRead, BufReader, Write},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Serialize, de::DeserializeOwned};

/// A group of worker processes.
#[derive(Debug)]
pub struct Processes<Answer> {
    members: Vec<Member>,
    answers: mpsc::Receiver<(usize, Heard<Answer>)>,
}

/// What is heard of a worker.
#[derive(Debug)]
pub enum Heard<Answer> {
    /// A message.
    Message(Answer),
    /// Its output ended; nothing more will come.
    Ended,
}

#[derive(Debug)]
struct Member {
    child: Child,
    input: Option<ChildStdin>,
}

impl<Answer: DeserializeOwned + Send + 'static> Processes<Answer> {
    /// Starts copies of this program, one with each of these arguments.
    ///
    /// # Errors
    /// When one cannot be started; those already started are ended.
    pub fn start<'a>(arguments: impl IntoIterator<Item = &'a [String]>) -> io::Result<Self> {
        let program = std::env::current_exe()?;
        let (sender, answers) = mpsc::channel();
        let mut group = Self { members: Vec::new(), answers };
        for (index, arguments) in arguments.into_iter().enumerate() {
            let mut child = {
                use std::os::unix::process::CommandExt;
                Command::new(&program)
                    .args(arguments)
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    // Ctrl-C is for the parent, which then asks its workers to stop.
                    .process_group(0)
                    .spawn()?
            };
            let input = child.stdin.take();
            let output = child.stdout.take();
            group.members.push(Member { child, input });
            let sender = sender.clone();
            // Not by thread::spawn, which panics where no thread can be had.
            thread::Builder::new().spawn(move || {
                let lines = output.into_iter().flat_map(|output| BufReader::new(output).lines());
                for line in lines.map_while(Result::ok) {
                    // Anything else than a message means that the worker is not to be trusted any more.
                    let Ok(message) = serde_json::from_str(&line) else { break };
                    if sender.send((index, Heard::Message(message))).is_err() {
                        return;
                    }
                }
                let _ = sender.send((index, Heard::Ended));
            })?;
        }
        Ok(group)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.members.len()
    }

    /// Sends a message to one worker.
    ///
    /// # Errors
    /// When it does not take it: it has ended.
    pub fn tell(&mut self, index: usize, message: &impl Serialize) -> io::Result<()> {
        let input = self.members[index].input.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        send_line(input, message)
    }

    /// Sends a message to all; those that have ended are passed over.
    pub fn tell_all(&mut self, message: &impl Serialize) {
        for index in 0..self.members.len() {
            // What ended is heard of by its output.
            let _ = self.tell(index, message);
        }
    }

    /// Tells all to stop: nothing more will be said to them.
    pub fn stop_all(&mut self) {
        self.members.iter_mut().for_each(|member| member.input = None);
    }

    /// The next thing heard of any worker, `None` if nothing is for `patience`.
    pub fn hear(&self, patience: Duration) -> Option<(usize, Heard<Answer>)> {
        self.answers.recv_timeout(patience).ok()
    }
}

impl<Answer> Drop for Processes<Answer> {
    /// Whatever still runs is ended and waited for: nothing is left behind.
    fn drop(&mut self) {
        for member in &mut self.members {
            member.input = None;
        }
        for member in &mut self.members {
            // A child not yet waited for keeps its process id: this cannot hit another process.
            let _ = member.child.kill();
            let _ = member.child.wait();
        }
    }
}

/// The worker's side: makes this process die with its parent, and gives what the parent orders. `stop` is set when the
/// parent says nothing more, or is gone.
///
/// # Errors
/// When no thread can be had.
pub fn attend<Order>(stop: Arc<AtomicBool>) -> io::Result<mpsc::Receiver<Order>>
where
    Order: DeserializeOwned + Send + 'static,
{
    // Refused nowhere on Linux; the closed input below is the second line.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let (sender, orders) = mpsc::channel();
    thread::Builder::new().spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            // Also where nobody waits for an order any more, the end of the input is waited for.
            match serde_json::from_str(&line) {
                Ok(order) => drop(sender.send(order)),
                Err(_) => break,
            }
        }
        stop.store(true, Ordering::Relaxed);
    })?;
    Ok(orders)
}

/// The worker's side: sends a message to the parent.
///
/// # Errors
/// When the parent is gone.
pub fn report(message: &impl Serialize) -> io::Result<()> {
    send_line(&mut io::stdout().lock(), message)
}

fn send_line(output: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    output.write_all(&line)?;
    output.flush()
}
