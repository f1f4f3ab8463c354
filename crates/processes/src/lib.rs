//! Worker processes on this machine: copies of this program that exchange JSON messages with it, one per line, over
//! standard input and output.
//!
//! A worker never outlives its parent: the kernel kills it when the parent ends in any way. Closing a worker's standard
//! input asks it to stop.

use std::{
    io::{self, BufRead, BufReader, Write},
    os::unix::process::CommandExt,
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

/// A group of worker processes that send messages of type `M`.
#[derive(Debug)]
pub struct Processes<M> {
    workers: Vec<WorkerProcess>,
    outputs: mpsc::Receiver<(usize, Output<M>)>,
}

/// An event on the output of a worker process.
#[derive(Debug)]
pub enum Output<M> {
    /// A message.
    Message(M),
    /// The end of the output, or a line that is not a message: the worker is lost.
    Ended,
}

#[derive(Debug)]
struct WorkerProcess {
    child: Child,
    input: Option<ChildStdin>,
}

impl<M: DeserializeOwned + Send + 'static> Processes<M> {
    /// Starts one copy of this program for each list of arguments.
    ///
    /// # Errors
    /// When a process cannot be started. The processes already started are killed.
    pub fn start<'a>(arguments: impl IntoIterator<Item = &'a [String]>) -> io::Result<Self> {
        let program = std::env::current_exe()?;
        Self::start_commands(arguments.into_iter().map(|arguments| {
            let mut command = Command::new(&program);
            command.args(arguments);
            command
        }))
    }

    /// Starts a process for each command.
    ///
    /// # Errors
    /// Those of [`Processes::start`].
    pub fn start_commands(commands: impl IntoIterator<Item = Command>) -> io::Result<Self> {
        let (sender, outputs) = mpsc::channel();
        let mut group = Self { workers: Vec::new(), outputs };
        for (index, mut command) in commands.into_iter().enumerate() {
            // Ctrl-C must reach the parent only, which then asks its workers to stop.
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
            let mut child = command.spawn()?;
            let input = child.stdin.take();
            let output = child.stdout.take();
            group.workers.push(WorkerProcess { child, input });
            let sender = sender.clone();
            // `Builder::spawn` returns an error if no thread can be started; `thread::spawn` would panic.
            thread::Builder::new().spawn(move || {
                let lines = output.into_iter().flat_map(|output| BufReader::new(output).lines());
                for line in lines.map_while(Result::ok) {
                    let Ok(message) = serde_json::from_str(&line) else { break };
                    if sender.send((index, Output::Message(message))).is_err() {
                        return;
                    }
                }
                let _ = sender.send((index, Output::Ended));
            })?;
        }
        Ok(group)
    }

    /// One of the worker processes.
    pub fn child(&self, index: usize) -> &Child {
        &self.workers[index].child
    }

    /// Number of worker processes.
    pub fn count(&self) -> usize {
        self.workers.len()
    }

    /// Sends a message to one worker.
    ///
    /// # Errors
    /// When the worker has ended.
    pub fn send(&mut self, index: usize, message: &impl Serialize) -> io::Result<()> {
        let input = self.workers[index].input.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        input.write_all(&line_of(message)?)?;
        input.flush()
    }

    /// Sends a message to all workers. Those that have ended are skipped.
    pub fn send_all(&mut self, message: &impl Serialize) {
        for index in 0..self.workers.len() {
            // `receive` reports a worker that has ended.
            let _ = self.send(index, message);
        }
    }

    /// Asks all workers to stop, by closing their input.
    pub fn stop_all(&mut self) {
        self.workers.iter_mut().for_each(|worker| worker.input = None);
    }

    /// The next output of any worker, with the worker's index; `None` after `timeout`.
    pub fn receive(&self, timeout: Duration) -> Option<(usize, Output<M>)> {
        self.outputs.recv_timeout(timeout).ok()
    }
}

impl<M> Drop for Processes<M> {
    /// Kills all workers before it waits for any of them. The kernel closes a killed worker's connections before the worker
    /// is gone; workers that still ran would take processor time from it.
    fn drop(&mut self) {
        for worker in &mut self.workers {
            worker.input = None;
            // Until `wait`, a child keeps its process ID, so this cannot kill another process.
            let _ = worker.child.kill();
        }
        for worker in &mut self.workers {
            let _ = worker.child.wait();
        }
    }
}

/// In a worker: makes this process die with its parent, and returns the parent's messages. `stop` is set when the parent
/// closes the input or ends.
///
/// # Errors
/// When no thread can be started.
pub fn receive_from_parent<M>(stop: Arc<AtomicBool>) -> io::Result<mpsc::Receiver<M>>
where
    M: DeserializeOwned + Send + 'static,
{
    // Linux never refuses this; if it did, the closed input below would stop the worker.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let (sender, messages) = mpsc::channel();
    thread::Builder::new().spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            // Keeps reading even if the receiver was dropped, to detect the end of the input.
            match serde_json::from_str(&line) {
                Ok(message) => drop(sender.send(message)),
                Err(_) => break,
            }
        }
        stop.store(true, Ordering::Relaxed);
    })?;
    Ok(messages)
}

/// In a worker: sends a message to the parent, from any thread.
///
/// # Errors
/// When the parent is gone.
pub fn send_to_parent(message: &impl Serialize) -> io::Result<()> {
    let line = line_of(message)?;
    let mut output = io::stdout().lock();
    output.write_all(&line)?;
    output.flush()
}

/// A message as a line, with its end.
///
/// # Errors
/// When the message cannot be JSON.
pub fn line_of(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}
