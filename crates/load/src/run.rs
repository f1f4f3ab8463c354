//! The threads of one process: start together, run, merge.

use std::{
    num::NonZeroU64,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
};

use nix::sys::resource::{UsageWho, getrusage};
use record::{CpuUse, Histogram, HttpPlan};
use rustix::{
    io::Errno,
    thread::{CpuSet, sched_setaffinity, set_current_timer_slack},
    time::{ClockId, clock_gettime},
};

use crate::{
    book::Book,
    events::{ReceiptFile, open_receipts, refuse_used_receipts},
    part::Part,
    preflight,
    share::Share,
    tick::{Gather, Tick},
    wire::{Wire, kernel::KernelWire},
    worker::{Finished, Worker},
};

/// Why a trial could not be run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A worker thread could not be set up.
    #[error("cannot set up a worker thread: {0}; see `ulimit -n` and `ulimit -u`")]
    Setup(std::io::Error),
    /// A thread could not be pinned.
    #[error("cannot pin a worker thread to processor {cpu}: {source}; choose from those of `taskset -p $$`")]
    Pin {
        /// The processor asked for.
        cpu: u32,
        /// The kernel's reason.
        source: std::io::Error,
    },
    /// Receipts of events could not be written.
    #[error("{0}")]
    Receipts(std::io::Error),
    /// A worker thread panicked.
    #[error("a worker thread panicked; this is a bug in proofload, please report it with its message above")]
    Panicked,
    /// The common start was called off.
    #[error("the start was called off")]
    CalledOff,
}

/// Runs a share of a plan in this process, on `plan.threads` threads.
///
/// `start` is called when every connection that the plan wants beforehand has been made; it gives the time
/// (nanoseconds of CLOCK_MONOTONIC) at which all workers of the trial start, or `None` to call it off.
/// `on_tick` gets every whole second. Setting `stop` ends the trial early with what there is.
///
/// # Errors
/// When the threads cannot be set up, or `start` calls it off.
pub fn run(
    plan: &Arc<HttpPlan>,
    share: Share,
    stop: &Arc<AtomicBool>,
    start: impl FnOnce() -> Option<u64>,
    mut on_tick: impl FnMut(Tick),
) -> Result<Part, RunError> {
    if let Some(events) = &plan.events {
        refuse_used_receipts(events, share).map_err(RunError::Receipts)?;
    }
    let threads = plan.threads.max(1);
    let used_before = ProcessUse::now();
    let (ready_sender, ready) = mpsc::channel();
    let (tick_sender, ticks) = mpsc::channel();
    let mut response_time = Histogram::default();
    let mut called_off = false;
    let part = thread::scope(|scope| {
        let mut starters = Vec::new();
        let mut spares = Vec::new();
        let mut workers = Vec::new();
        for index in 0..threads {
            let (start_sender, started) = mpsc::channel();
            let (spare_sender, spare) = mpsc::channel();
            starters.push(start_sender);
            spares.push(spare_sender);
            let seat = Seat {
                plan: Arc::clone(plan),
                share: share.split(u64::from(index), u64::from(threads)),
                stop: Arc::clone(stop),
                index,
                ready: ready_sender.clone(),
                started,
                book: Book::new(index, tick_sender.clone(), spare, plan),
            };
            let worker = thread::Builder::new()
                .name(format!("load-{index}"))
                .spawn_scoped(scope, || seat.work())
                .map_err(RunError::Setup);
            match worker {
                Ok(worker) => workers.push(worker),
                Err(error) => {
                    // Those that wait for the start see their channel close, and end.
                    called_off = !stop.swap(true, Ordering::Relaxed);
                    return Err(error);
                }
            }
        }
        drop((ready_sender, tick_sender));
        // Ends early when a thread fails: it drops its sender without having sent.
        let all_ready = (0..threads).all(|_| ready.recv() == Ok(()));
        if all_ready && let Some(t0_ns) = start() {
            for starter in &starters {
                // A thread that is gone is heard of when it is joined.
                let _ = starter.send(t0_ns);
            }
        } else {
            // A thread still opening connections must not go on for nothing.
            called_off = !stop.swap(true, Ordering::Relaxed);
        }
        drop(starters);
        let mut gather = Gather::new(threads as usize);
        for mut tick in ticks {
            response_time.merge(&tick.response_time);
            gather.push(&tick).into_iter().for_each(&mut on_tick);
            tick.response_time.clear();
            let _ = spares[tick.worker as usize].send(tick.response_time);
        }
        (0..threads).flat_map(|_| gather.end_one()).for_each(&mut on_tick);
        let mut whole: Option<Part> = None;
        let mut failed = None;
        for worker in workers {
            match worker.join().map_err(|_| RunError::Panicked).flatten() {
                Ok(part) => match &mut whole {
                    Some(whole) => whole.merge(&part),
                    None => whole = Some(part),
                },
                // A thread that could not be set up calls off the start of all others: its reason is the one to tell.
                Err(error) if matches!(failed, None | Some(RunError::CalledOff)) => failed = Some(error),
                Err(_) => {}
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        let mut part = whole.unwrap_or_default();
        part.http.response_time.observed = response_time;
        let used = ProcessUse::now();
        part.http.cpu.user_s = used.user_s - used_before.user_s;
        part.http.cpu.system_s = used.system_s - used_before.system_s;
        part.http.cpu.max_resident_bytes = used.max_resident_bytes;
        Ok(part)
    });
    if called_off {
        // Nobody wished for an end: what comes after this trial is to go on.
        stop.store(false, Ordering::Relaxed);
    }
    part
}

/// What a worker thread takes with it.
struct Seat {
    plan: Arc<HttpPlan>,
    share: Share,
    stop: Arc<AtomicBool>,
    index: u32,
    ready: mpsc::Sender<()>,
    started: mpsc::Receiver<u64>,
    book: Book,
}

impl Seat {
    fn work(self) -> Result<Part, RunError> {
        // Sleeps are otherwise up to 50 µs longer than asked, to save wake-ups.
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        self.pin()?;
        let nodelay = wants_nodelay(&self.plan);
        let spin_ns = self.plan.spin_ns;
        let mut worker = Worker::new(Arc::clone(&self.plan), self.share, self.book, self.stop, |slots| {
            KernelWire::new(slots, nodelay, spin_ns)
        })
        .map_err(|errno: Errno| RunError::Setup(errno.into()))?;
        // Before anything is sent: a folder that cannot be written to must not cost a trial.
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
            return Err(RunError::CalledOff);
        };
        let before = ThreadTime::of(worker.wire());
        let Finished { mut part, ledger, wire } = worker.run(t0_ns);
        if preflight::wants_ports_back(&self.plan, part.http.counts.connections_opened * self.share.of) {
            wire.reset_connections();
        }
        let used = ThreadTime::of(&wire).since(&before);
        let elapsed_ns = part.elapsed_ns.max(1);
        part.http.cpu = CpuUse {
            spin_s: used.spun_ns as f64 / 1e9,
            busiest_thread_ratio: used.cpu_ns.saturating_sub(used.spun_ns) as f64 / elapsed_ns as f64,
            busiest_loop_ratio: 1.0 - used.waited_ns.min(elapsed_ns) as f64 / elapsed_ns as f64,
            runqueue_wait_s: used.runqueue_ns.map(|ns| ns as f64 / 1e9),
            threads: 1,
            ..CpuUse::default()
        };
        if let (Some(file), Some(ledger)) = (receipts, ledger) {
            // The trial is as good as it was; the audit will say that it knows nothing of these events.
            part.lost_receipts.extend(file.finish(&ledger).err().map(|error| error.to_string()));
        }
        Ok(part)
    }

    fn pin(&self) -> Result<(), RunError> {
        if self.plan.cpus.is_empty() {
            return Ok(());
        }
        // Threads of all processes take the processors in turn.
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

/// Whether what is sent must leave at once, also behind something unanswered: bodies of events, which are made only by
/// those who send them, among it.
fn wants_nodelay(plan: &HttpPlan) -> bool {
    let body_bytes = plan.events.as_ref().map_or(plan.request.body.len(), |events| {
        events.numbering().event_bytes().saturating_mul(events.per_request as usize)
    });
    plan.keepalive || plan.pipeline > 1 || body_bytes > 1_000
}

/// What a worker thread has used so far.
struct ThreadTime {
    cpu_ns: u64,
    waited_ns: u64,
    spun_ns: u64,
    runqueue_ns: Option<u64>,
}

impl ThreadTime {
    fn of(wire: &impl Wire) -> Self {
        let cpu = clock_gettime(ClockId::ThreadCPUTime);
        Self {
            cpu_ns: cpu.tv_sec as u64 * 1_000_000_000 + cpu.tv_nsec as u64,
            waited_ns: wire.waited_ns(),
            spun_ns: wire.spun_ns(),
            runqueue_ns: kernel::waited_for_processor_ns(),
        }
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            cpu_ns: self.cpu_ns - before.cpu_ns,
            waited_ns: self.waited_ns - before.waited_ns,
            spun_ns: self.spun_ns - before.spun_ns,
            runqueue_ns: self.runqueue_ns.zip(before.runqueue_ns).map(|(after, before)| after - before),
        }
    }
}

struct ProcessUse {
    user_s: f64,
    system_s: f64,
    max_resident_bytes: u64,
}

impl ProcessUse {
    fn now() -> Self {
        match getrusage(UsageWho::RUSAGE_SELF) {
            Ok(usage) => Self {
                user_s: seconds(usage.user_time()),
                system_s: seconds(usage.system_time()),
                max_resident_bytes: usage.max_rss() as u64 * 1024,
            },
            // Documented to fail for bad arguments only.
            Err(_) => Self { user_s: 0.0, system_s: 0.0, max_resident_bytes: 0 },
        }
    }
}

fn seconds(time: nix::sys::time::TimeVal) -> f64 {
    time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use std::{fs, path::PathBuf};

    use record::{EventPlan, ReceiptPlan};

    use super::*;
    use crate::testing;

    fn plan(folder: &str) -> (PathBuf, Arc<HttpPlan>) {
        let folder = std::env::temp_dir().join(format!("proofload-run-{folder}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let events = EventPlan { receipts: Some(ReceiptPlan::new(&folder)), ..testing::events() };
        (folder, Arc::new(HttpPlan { events: Some(events), threads: 2, ..testing::closed(2) }))
    }

    fn run_called_off(plan: &Arc<HttpPlan>) -> RunError {
        let stop = Arc::new(AtomicBool::new(false));
        run(plan, Share::WHOLE, &stop, || None, |_| ()).unwrap_err()
    }

    #[test]
    fn a_start_that_was_called_off_leaves_no_receipts() {
        let (folder, plan) = plan("off");
        assert!(matches!(run_called_off(&plan), RunError::CalledOff));
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn receipts_of_a_run_with_more_workers_are_not_added_to() {
        let (folder, plan) = plan("used");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("receipts-9.jsonl"), "").unwrap();
        let error = run_called_off(&plan);
        assert!(
            matches!(&error, RunError::Receipts(why) if why.to_string().contains("another run")),
            "{error}"
        );
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_body_of_events_is_one_as_well() {
        let long = |per_request| {
            let events = EventPlan { per_request, ..testing::events() };
            wants_nodelay(&HttpPlan { keepalive: false, events: Some(events), ..testing::closed(1) })
        };
        assert!(long(100) && !long(1));
    }
}
