//! The worker threads of one process: start them together, run them, merge their results.

mod usage;

use std::{
    io,
    num::NonZeroU64,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
};

use record::{CpuUse, Histogram, HttpPlan};
use rustix::{
    io::Errno,
    net::SocketAddrUnix,
    thread::{CpuSet, sched_setaffinity, set_current_timer_slack},
};
use script::Script;

use crate::{
    events::{ReceiptFile, check_receipt_folder, open_receipts},
    exchange::{Exchange, Fixed, Numbered, RunningScript, Scripted},
    lease::Lease,
    preflight,
    recorder::Recorder,
    request_log::{self, LogWriter},
    share::Share,
    tick::{Tick, TickMerger},
    tls_config::TlsConfig,
    wire::{
        connect_options::ConnectOptions,
        kernel::KernelWire,
        layer::{Layer, Plain},
        preface::Preface,
        secure::Secure,
    },
    worker::{Finished, Worker},
    worker_result::WorkerResult,
};

use usage::{ProcessUse, ThreadTime};

/// Why a trial could not be run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A worker thread could not be set up.
    #[error("cannot set up a worker thread: {0}; see `ulimit -n` and `ulimit -u`")]
    Setup(io::Error),
    /// A thread could not be pinned.
    #[error(
        "cannot pin a worker thread to processor {cpu}: {source}; choose from the processors of `taskset -p $$`"
    )]
    Pin {
        /// The requested processor.
        cpu: u32,
        /// The kernel's reason.
        source: io::Error,
    },
    /// TLS could not be set up.
    #[error("cannot set up TLS: {0}")]
    Tls(String),
    /// The script's files could no longer be read.
    #[error("{0}")]
    Script(String),
    /// Receipts of events could not be written.
    #[error("{0}")]
    Receipts(io::Error),
    /// A worker thread panicked.
    #[error("a worker thread panicked; this is a bug in proofload, please report it with its message above")]
    Panicked,
    /// The common start was cancelled.
    #[error("the start was cancelled")]
    Cancelled,
}

/// Runs a share of a plan in this process, on `plan.threads` threads.
///
/// Calls `start` when every initial connection is open or has failed. `start` returns the time at which all workers of the
/// trial start (nanoseconds of CLOCK_MONOTONIC), or `None` to cancel the trial. Calls `on_tick` with every complete interval.
/// Setting `stop` ends the trial early; the result then covers the time until then. So does the end of `lease`, if there is one.
///
/// # Errors
/// When the threads cannot be set up, receipts cannot be written, or `start` cancels the trial.
pub fn run(
    plan: &Arc<HttpPlan>,
    share: Share,
    stop: &Arc<AtomicBool>,
    lease: Option<&Arc<Lease>>,
    start: impl FnOnce() -> Option<u64>,
    mut on_tick: impl FnMut(Tick),
) -> Result<WorkerResult, RunError> {
    if let Some(events) = &plan.events {
        check_receipt_folder(events, share).map_err(RunError::Receipts)?;
    }
    let tls = plan.tls.as_ref().map(TlsConfig::new).transpose();
    let tls = tls.map_err(|mistake| RunError::Tls(mistake.message))?;
    let (script, log) = compiled(plan)?;
    let threads = plan.threads.max(1);
    let used_before = ProcessUse::now();
    let (ready_sender, ready) = mpsc::channel();
    let (tick_sender, ticks) = mpsc::channel();
    let mut response_time = Histogram::default();
    let mut cancelled = false;
    let result = thread::scope(|scope| {
        let mut starters = Vec::new();
        let mut spares = Vec::new();
        let mut workers = Vec::new();
        for index in 0..threads {
            let (start_sender, started) = mpsc::channel();
            let (spare_sender, spare) = mpsc::channel();
            starters.push(start_sender);
            spares.push(spare_sender);
            let context = ThreadContext {
                plan: Arc::clone(plan),
                tls: tls.clone(),
                script: script.clone(),
                share: share.split(u64::from(index), u64::from(threads)),
                stop: Arc::clone(stop),
                lease: lease.cloned(),
                index,
                ready: ready_sender.clone(),
                started,
                recorder: Recorder::new(index, tick_sender.clone(), spare, plan),
            };
            let worker = thread::Builder::new()
                .name(format!("load-{index}"))
                .spawn_scoped(scope, || context.run())
                .map_err(RunError::Setup);
            match worker {
                Ok(worker) => workers.push(worker),
                Err(error) => {
                    // Threads that wait for the start end when their channel closes.
                    cancelled = !stop.swap(true, Ordering::Relaxed);
                    return Err(error);
                }
            }
        }
        // The log's thread ends when the last sender is dropped.
        drop((ready_sender, tick_sender, script));
        // A thread that fails drops its sender, which ends this wait early.
        let all_ready = (0..threads).all(|_| ready.recv() == Ok(()));
        if all_ready && let Some(t0_ns) = start() {
            for starter in &starters {
                // A thread that has failed returns its error when it is joined.
                let _ = starter.send(t0_ns);
            }
        } else {
            // Stops threads that are still opening connections.
            cancelled = !stop.swap(true, Ordering::Relaxed);
        }
        drop(starters);
        let mut merger = TickMerger::new(threads as usize);
        for mut tick in ticks {
            response_time.merge(&tick.response_time);
            merger.push(&tick).into_iter().for_each(&mut on_tick);
            tick.response_time.clear();
            let _ = spares[tick.worker as usize].send(tick.response_time);
        }
        (0..threads).flat_map(|_| merger.worker_ended()).for_each(&mut on_tick);
        let mut merged: Option<WorkerResult> = None;
        let mut failed = None;
        for worker in workers {
            match worker.join().map_err(|_| RunError::Panicked).flatten() {
                Ok(result) => match &mut merged {
                    Some(merged) => merged.merge(&result),
                    None => merged = Some(result),
                },
                // A thread that cannot be set up cancels all others, so its error takes precedence over theirs.
                Err(error) if matches!(failed, None | Some(RunError::Cancelled)) => failed = Some(error),
                Err(_) => {}
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        let mut result = merged.unwrap_or_default();
        result.http.response_time.observed = response_time;
        if let Some(error) = log.map(LogWriter::finish).and_then(Result::err) {
            // A timeout means that the user interrupted the wait for a reader of the log.
            result.interrupted |= error.kind() == io::ErrorKind::TimedOut;
            result.lost_log = Some(error.to_string());
        }
        let used = ProcessUse::now();
        result.http.cpu.user_s = used.user_s - used_before.user_s;
        result.http.cpu.system_s = used.system_s - used_before.system_s;
        result.http.cpu.max_resident_bytes = used.max_resident_bytes;
        Ok(result)
    });
    if cancelled {
        // The user did not ask for a stop, so later trials must still run.
        stop.store(false, Ordering::Relaxed);
    }
    result
}

/// The plan's script, compiled for all threads, and its log.
fn compiled(plan: &HttpPlan) -> Result<(Option<RunningScript>, Option<LogWriter>), RunError> {
    let Some(written) = &plan.script else { return Ok((None, None)) };
    let mut script = Script::new(written, plan.keepalive, plan.tls.is_some()).map_err(|mistakes| {
        let messages: Vec<String> = mistakes.into_iter().map(|mistake| mistake.message).collect();
        RunError::Script(messages.join("; "))
    })?;
    let steps = script.step_names().map(|name| secrets::mask(name).into_owned()).collect();
    let log = written.log.as_ref().map(|log| request_log::open(log, steps)).transpose();
    let (sender, writer) = log.map_err(|error| RunError::Script(error.to_string()))?.unzip();
    script.hide(secrets::names::is_secret_header);
    Ok((Some(RunningScript { log: sender, ..RunningScript::new(script) }), writer))
}

/// The inputs of a worker thread.
struct ThreadContext {
    plan: Arc<HttpPlan>,
    tls: Option<TlsConfig>,
    script: Option<RunningScript>,
    share: Share,
    stop: Arc<AtomicBool>,
    lease: Option<Arc<Lease>>,
    index: u32,
    ready: mpsc::Sender<()>,
    started: mpsc::Receiver<u64>,
    recorder: Recorder,
}

impl ThreadContext {
    fn run(mut self) -> Result<WorkerResult, RunError> {
        match self.tls.take() {
            None => self.run_on(|_| Plain),
            Some(TlsConfig { client, name, resumes }) => {
                self.run_on(|slots| Secure::new(client, name, resumes, slots))
            }
        }
    }

    fn run_on<L: Layer>(self, layer: impl FnOnce(usize) -> L) -> Result<WorkerResult, RunError> {
        match (&self.plan.events, &self.script) {
            (Some(_), _) => self.run_exchange::<L, Numbered>(layer),
            (None, Some(_)) => self.run_exchange::<L, Scripted>(layer),
            (None, None) => self.run_exchange::<L, Fixed>(layer),
        }
    }

    fn run_exchange<L: Layer, X: Exchange>(
        self,
        layer: impl FnOnce(usize) -> L,
    ) -> Result<WorkerResult, RunError> {
        // The default timer slack lengthens sleeps by up to 50 µs to save wake-ups, which would make requests late.
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        self.pin()?;
        let options = connect_options_of(&self.plan).map_err(RunError::Setup)?;
        let spin_ns = self.plan.spin_ns;
        let wire = |slots| KernelWire::new(layer(slots), slots, options, spin_ns);
        let script = self.script.as_ref();
        let mut worker =
            Worker::<_, X>::new(Arc::clone(&self.plan), self.share, script, self.recorder, self.stop, wire)
                .map_err(|errno: Errno| RunError::Setup(errno.into()))?
                .with_lease(self.lease);
        // The file is created before anything is sent, so that a folder that is not writable does not waste a trial.
        let receipts = match &self.plan.events {
            Some(events) => open_receipts(&self.plan.url, events, self.share, self.plan.connections()),
            None => Ok(None),
        };
        let receipts = receipts.map_err(RunError::Receipts)?;
        worker.prepare();
        let _ = self.ready.send(());
        drop(self.ready);
        let Ok(t0_ns) = self.started.recv() else {
            receipts.into_iter().for_each(ReceiptFile::discard);
            return Err(RunError::Cancelled);
        };
        let before = ThreadTime::of(worker.wire());
        let Finished { mut result, ledger, script, wire } = worker.run(t0_ns);
        result.http.script = script;
        if preflight::must_reset_connections(
            &self.plan,
            result.http.counts.connections_opened * self.share.of,
        ) {
            wire.reset_connections();
        }
        let used = ThreadTime::of(&wire).since(&before);
        let elapsed_ns = result.elapsed_ns.max(1);
        result.http.cpu = CpuUse {
            spin_s: used.spun_ns as f64 / 1e9,
            busiest_thread_ratio: used.cpu_ns.saturating_sub(used.spun_ns) as f64 / elapsed_ns as f64,
            busiest_loop_ratio: 1.0 - used.waited_ns.min(elapsed_ns) as f64 / elapsed_ns as f64,
            // The kernel's count also covers the time before the start, which can exceed a short trial.
            runqueue_wait_s: used.runqueue_ns.map(|ns| ns.min(elapsed_ns) as f64 / 1e9),
            threads: 1,
            ..CpuUse::default()
        };
        if let (Some(file), Some(ledger)) = (receipts, ledger) {
            // The trial stays valid; an audit reports that these events are unknown.
            result.lost_receipts.extend(file.finish(&ledger).err().map(|error| error.to_string()));
        }
        Ok(result)
    }

    fn pin(&self) -> Result<(), RunError> {
        if self.plan.cpus.is_empty() {
            return Ok(());
        }
        // The threads of all processes use the processors round-robin.
        let turn = self.share.index as usize % self.plan.cpus.len();
        let cpu = self.plan.cpus[turn];
        debug_assert!(self.index < self.plan.threads.max(1));
        let fail = |source| RunError::Pin { cpu, source };
        if cpu as usize >= CpuSet::MAX_CPU {
            return Err(fail(Errno::INVAL.into()));
        }
        let mut set = CpuSet::new();
        set.set(cpu as usize);
        sched_setaffinity(None, &set).map_err(|errno| fail(errno.into()))
    }
}

/// The connect options of a plan.
fn connect_options_of(plan: &HttpPlan) -> io::Result<ConnectOptions> {
    let path = plan.connection.unix_socket.as_ref();
    let preface = Preface::of(&plan.connection);
    Ok(ConnectOptions {
        // The end of a preface and the first request are sent separately, so Nagle's algorithm would delay the request.
        nodelay: preface.is_some() || wants_nodelay(plan),
        unix_socket: path.map(SocketAddrUnix::new).transpose()?,
        preface,
    })
}

/// Whether Nagle's algorithm must be off: bytes must leave at once even while earlier ones are unacknowledged. Event bodies
/// are not in the plan's request and are counted from the event plan.
fn wants_nodelay(plan: &HttpPlan) -> bool {
    let body_bytes = plan.events.as_ref().map_or(plan.request.body.len(), |events| {
        events.numbering().event_bytes().saturating_mul(events.per_request as usize)
    });
    // The end of the TLS handshake and the first request are sent separately.
    plan.tls.is_some() || plan.script.is_some() || plan.keepalive || plan.pipeline > 1 || body_bytes > 1_000
}

#[cfg(test)]
mod tests {
    use std::fs;

    use record::{EventPlan, ReceiptPlan};
    use tempfile::TempDir;

    use super::*;
    use crate::testing;

    fn plan() -> (TempDir, Arc<HttpPlan>) {
        let folder = tempfile::tempdir().unwrap();
        let events = EventPlan { receipts: Some(ReceiptPlan::new(folder.path())), ..testing::events() };
        (folder, Arc::new(HttpPlan { events: Some(events), threads: 2, ..testing::closed(2) }))
    }

    fn run_cancelled(plan: &Arc<HttpPlan>) -> RunError {
        let stop = Arc::new(AtomicBool::new(false));
        run(plan, Share::WHOLE, &stop, None, || None, |_| ()).unwrap_err()
    }

    #[test]
    fn a_cancelled_start_leaves_no_receipts() {
        let (folder, plan) = plan();
        assert!(matches!(run_cancelled(&plan), RunError::Cancelled));
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    }

    #[test]
    fn a_folder_with_receipts_of_another_run_is_refused() {
        let (folder, plan) = plan();
        fs::write(folder.path().join("receipts-9.jsonl"), "").unwrap();
        let error = run_cancelled(&plan);
        assert!(
            matches!(&error, RunError::Receipts(why) if why.to_string().contains("another run")),
            "{error}"
        );
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    }

    #[test]
    fn event_bodies_count_as_bodies() {
        let long = |per_request| {
            let events = EventPlan { per_request, ..testing::events() };
            wants_nodelay(&HttpPlan { keepalive: false, events: Some(events), ..testing::closed(1) })
        };
        assert!(long(100) && !long(1));
    }
}
