//! Measures by how much this machine delays a program that must act on time.

use std::{
    collections::BTreeMap,
    io,
    thread::{self, ScopedJoinHandle},
    time::{Duration, Instant},
};

use record::{Noise, nearest_rank};
use rustix::{
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
    time::{ClockId, clock_gettime},
};

use crate::{counters::processors, read, waited_for_processor_ns};

/// Length of a sleep.
const SLEEP: Duration = Duration::from_millis(1);

/// Measures the delay on these processors, or on all that this process may use if `cpus` is empty. A thread on each
/// processor repeatedly sleeps for one millisecond, for `length` in total but at least once.
///
/// # Errors
/// If the kernel does not report the processors' times, or a thread cannot be started.
pub fn look(length: Duration, cpus: &[u32]) -> io::Result<Noise> {
    let allowed = if cpus.is_empty() { allowed_cpus()? } else { cpus.to_vec() };
    let before = Account::read(&allowed)?;
    let seen = thread::scope(|scope| {
        let start = |cpu: &u32| {
            let cpu = *cpu as usize;
            thread::Builder::new().name("look".to_owned()).spawn_scoped(scope, move || watch(cpu, length))
        };
        let threads: io::Result<Vec<ScopedJoinHandle<'_, Seen>>> = allowed.iter().map(start).collect();
        let joined = threads?.into_iter().map(ScopedJoinHandle::join);
        joined.collect::<Result<Vec<_>, _>>().map_err(|_| io::Error::other("a look panicked"))
    })?;
    Ok(noise_of(&before, &Account::read(&allowed)?, seen))
}

/// The processors that this thread may use, in ascending order.
///
/// # Errors
/// If the kernel does not report them.
pub fn allowed_cpus() -> io::Result<Vec<u32>> {
    let allowed = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).map(|cpu| cpu as u32).collect())
}

/// The measurements of one thread.
struct Seen {
    late_us: Vec<f64>,
    runqueue_wait_s: Option<f64>,
}

fn watch(cpu: usize, length: Duration) -> Seen {
    let mut only = CpuSet::new();
    only.set(cpu);
    // If this processor has just been removed, the thread runs on another one.
    let _ = sched_setaffinity(None, &only);
    let began = Instant::now();
    let mut late_us = Vec::new();
    let waited_before_ns = waited_for_processor_ns();
    while late_us.is_empty() || began.elapsed() < length {
        let before = Instant::now();
        thread::sleep(SLEEP);
        late_us.push(before.elapsed().saturating_sub(SLEEP).as_secs_f64() * 1e6);
    }
    let waited_ns = waited_for_processor_ns().zip(waited_before_ns);
    Seen { late_us, runqueue_wait_s: waited_ns.map(|(now, before)| now.saturating_sub(before) as f64 / 1e9) }
}

/// The use of some processors' time, in seconds since an arbitrary moment.
#[derive(Debug, Default)]
struct Account {
    passed_s: f64,
    processors: f64,
    idle_s: f64,
    stolen_s: f64,
    /// Time used by this process.
    own_s: f64,
}

impl Account {
    fn read(cpus: &[u32]) -> io::Result<Self> {
        let mut values = BTreeMap::new();
        let known = processors(&read("/proc/stat")?, &mut values);
        known.ok_or_else(|| io::Error::other("the format of /proc/stat is unknown"))?;
        let sum = |field: &str| {
            let of = |cpu: &u32| values.get(&format!("cpu{cpu}.{field}_ms")).copied().unwrap_or(0);
            cpus.iter().map(of).sum::<u64>() as f64 / 1e3
        };
        let used = clock_gettime(ClockId::ProcessCPUTime);
        Ok(Self {
            passed_s: clock::monotonic_s(),
            processors: cpus.len() as f64,
            idle_s: sum("idle"),
            stolen_s: sum("steal"),
            own_s: used.tv_sec as f64 + used.tv_nsec as f64 / 1e9,
        })
    }
}

fn noise_of(before: &Account, after: &Account, seen: Vec<Seen>) -> Noise {
    let looked_s = after.passed_s - before.passed_s;
    let share = |s: f64| (s / (looked_s * after.processors).max(1e-9)).clamp(0.0, 1.0);
    let (stolen_s, idle_s) = (after.stolen_s - before.stolen_s, after.idle_s - before.idle_s);
    // Busy time is computed from idle time, because the kernel counts idle time exactly but only samples busy time.
    let busy_s = looked_s * after.processors - idle_s - stolen_s;
    let waits: Option<Vec<f64>> = seen.iter().map(|seen| seen.runqueue_wait_s).collect();
    let mut late_us: Vec<f64> = seen.into_iter().flat_map(|seen| seen.late_us).collect();
    late_us.sort_by(f64::total_cmp);
    let late = |quantile: f64| nearest_rank(&late_us, quantile).unwrap_or(0.0);
    Noise {
        looked_s,
        late_p50_us: late(0.5),
        late_p99_us: late(0.99),
        longest_stall_us: late(1.0),
        stolen_ratio: share(stolen_s),
        others_ratio: share(busy_s - (after.own_s - before.own_s)),
        runqueue_wait_ratio: waits.map(|waits| share(waits.iter().sum())),
        waited_s: 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_neither_idle_nor_stolen_nor_own_is_of_others() {
        let at = |passed_s, idle_s, stolen_s, own_s| Account {
            passed_s,
            processors: 2.0,
            idle_s,
            stolen_s,
            own_s,
        };
        let seen = |late_us: &[f64], runqueue_wait_s| Seen { late_us: late_us.to_vec(), runqueue_wait_s };
        let seen_all = vec![seen(&[50.0, 9_000.0], Some(0.01)), seen(&[70.0, 60.0], Some(0.03))];
        let noise = noise_of(&at(10.0, 5.0, 1.0, 0.5), &at(11.0, 6.4, 1.1, 0.6), seen_all);
        let ratios = [noise.stolen_ratio, noise.others_ratio, noise.runqueue_wait_ratio.unwrap()];
        assert_eq!(ratios.map(|ratio| (ratio * 1e3).round()), [50.0, 200.0, 20.0]);
        assert_eq!([noise.late_p50_us, noise.late_p99_us, noise.longest_stall_us], [60.0, 9_000.0, 9_000.0]);
        // Idle time is counted in ticks, so it may exceed the elapsed time.
        let idle = noise_of(&at(0.0, 0.0, 0.0, 0.0), &at(1.0, 2.02, 0.0, 0.1), vec![seen(&[], None)]);
        assert_eq!((idle.others_ratio, idle.runqueue_wait_ratio, idle.is_noisy()), (0.0, None, false));
    }

    #[test]
    fn this_machine_is_looked_at_for_as_long_as_asked_and_on_the_processors_asked_for() {
        let all = allowed_cpus().unwrap();
        let noise = look(Duration::from_millis(20), &all[..1]).unwrap();
        assert!(noise.looked_s >= 0.02 && noise.late_p50_us <= noise.longest_stall_us, "{noise:?}");
        assert!(look(Duration::ZERO, &[]).unwrap().looked_s >= 0.001);
    }
}
