//! Worker processes on this machine.

use std::{
    io,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use load::{Lease, RunError, Share};
use processes::{Processes, receive_from_parent, send_to_parent};

use crate::{
    drive::{Output, Transport},
    error::FleetError,
    files_of_plan::{Files, parts_of, take_part},
    protocol::{FromMember, Order, ToMember},
};

/// What was written is sent in parts of about this size, in bytes: a slow connection carries one within a second.
const PART_BYTES: usize = 64 << 10;

/// The worker processes of one trial.
pub(crate) struct WorkerProcesses {
    processes: Processes<FromMember>,
    /// The lease that this machine has, and its end as the workers know it.
    lease: Option<(Arc<Lease>, u64)>,
}

impl WorkerProcesses {
    /// Starts a process for each list of arguments, and tells each to prepare its share of the order.
    ///
    /// # Errors
    /// If a process cannot be started.
    pub(crate) fn start<'a>(
        arguments: impl IntoIterator<Item = &'a [String]>,
        order: &Order,
        lease: Option<Arc<Lease>>,
        files: &Files,
    ) -> Result<Self, FleetError> {
        let mut processes = Processes::start(arguments).map_err(FleetError::Start)?;
        for number in 0..processes.count() {
            let first = Share { index: order.first.index + number as u64, ..order.first };
            // Sending fails only if the worker has ended; then its output ends, too.
            for (name, bytes) in files {
                for part in parts_of(bytes) {
                    let _ = processes.send(number, &ToMember::FilePart { name: name.clone(), part });
                }
            }
            // It may have been extended meanwhile.
            let lease_until_ns = lease.as_ref().map(|lease| lease.until_ns());
            let order = Order { first, processes: 1, lease_until_ns, ..order.clone() };
            let _ = processes.send(number, &ToMember::Prepare(Box::new(order)));
        }
        Ok(Self { processes, lease: lease.map(|lease| (lease, order.lease_until_ns.unwrap_or(0))) })
    }

    fn extend_lease(&mut self) {
        if let Some((lease, known_ns)) = &mut self.lease
            && lease.until_ns() > *known_ns
        {
            *known_ns = lease.until_ns();
            self.processes.send_all(&ToMember::Lease { until_ns: *known_ns });
        }
    }
}

impl Transport for WorkerProcesses {
    fn start(&mut self, t0_ns: u64) {
        self.extend_lease();
        self.processes.send_all(&ToMember::Start { t0_ns });
    }

    fn stop(&mut self) {
        self.processes.stop_all();
    }

    fn receive(&mut self, wait: Duration) -> Option<(usize, Output)> {
        self.extend_lease();
        let (number, output) = self.processes.receive(wait)?;
        Some((
            number,
            match output {
                processes::Output::Message(message) => Output::Message(message),
                processes::Output::Ended => {
                    Output::Ended(format!("worker {} ended without a message", number + 1))
                }
            },
        ))
    }
}

/// The main function of a worker process.
///
/// # Errors
/// When the parent has ended, or its first message is not the order to prepare.
pub fn run_worker() -> io::Result<()> {
    let stop = files::stop();
    let mut sent = Files::new();
    let prepared = receive_from_parent(Arc::clone(&stop)).and_then(|messages| {
        let order = loop {
            match messages.recv() {
                Ok(ToMember::FilePart { name, part }) => take_part(&mut sent, name, &part)?,
                Ok(ToMember::Prepare(order)) => break order,
                _ => return Ok(None),
            }
        };
        let lease = order.lease_until_ns.map(|until_ns| Arc::new(Lease::new(until_ns)));
        Ok(Some((order, lease.clone(), starts(messages, lease)?)))
    });
    let (order, lease, starts) = match prepared {
        Ok(Some(prepared)) => prepared,
        Ok(None) => {
            return Err(io::Error::other("a worker process is started by proofload itself, not by hand"));
        }
        Err(error) => {
            return send_to_parent(&FromMember::OutOfResources(RunError::Setup(error).to_string()));
        }
    };
    order.secrets.iter().for_each(|(text, shown)| secrets::mask::learn_text(text, shown));
    if order.elsewhere {
        files::are_elsewhere(sent.into_iter().map(|(name, bytes)| (name.into(), bytes)).collect());
    }
    let start = || {
        send_to_parent(&FromMember::Ready).ok()?;
        starts.recv().ok()
    };
    let outcome = load::run(&Arc::new(order.plan), order.first, &stop, lease.as_ref(), start, |tick| {
        // A failed send means that the parent has ended. The end of standard input then stops the trial.
        let _ = send_to_parent(&FromMember::Tick(tick));
    });
    send_to_parent(&match outcome {
        Ok(result) => match send_written() {
            Ok(()) => FromMember::Done(Box::new(result)),
            Err(error) => FromMember::Failed(format!("cannot send what the load has written: {error}")),
        },
        Err(error @ RunError::Setup(_)) => FromMember::OutOfResources(error.to_string()),
        Err(error) => FromMember::Failed(error.to_string()),
    })
}

/// Sends what was written to files of the controller's machine, in parts of whole lines.
fn send_written() -> io::Result<()> {
    for (path, bytes) in files::written_elsewhere()? {
        // What follows the last line was cut off by the limit of such a file.
        let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        let mut rest = &bytes[..end];
        while !rest.is_empty() {
            let most = &rest[..rest.len().min(PART_BYTES)];
            let end = most.iter().rposition(|byte| *byte == b'\n').map(|last| last + 1);
            let end = end.unwrap_or_else(|| {
                rest.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |at| at + 1)
            });
            let lines = String::from_utf8_lossy(&rest[..end]).into_owned();
            send_to_parent(&FromMember::Written { path: path.clone(), lines })?;
            rest = &rest[end..];
        }
    }
    Ok(())
}

/// Extends the lease by the parent's messages in a thread of its own, which passes on the time of the start.
fn starts(messages: mpsc::Receiver<ToMember>, lease: Option<Arc<Lease>>) -> io::Result<mpsc::Receiver<u64>> {
    let (sender, starts) = mpsc::channel();
    thread::Builder::new().spawn(move || {
        for message in messages {
            match (message, &lease) {
                (ToMember::Lease { until_ns }, Some(lease)) => lease.extend(until_ns),
                (ToMember::Start { t0_ns }, _) => drop(sender.send(t0_ns)),
                _ => {}
            }
        }
    })?;
    Ok(starts)
}
