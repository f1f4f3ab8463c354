//! Records the changes of counters during a trial, step by step.

use std::{collections::BTreeMap, mem, time::Instant};

use record::{Counters, counters::Series};

use crate::counters::{change, is_level, since};

/// Maximum number of steps of a series. At this number, the steps are joined in pairs, so that the record of a trial of
/// any length has a bounded size.
const MAX_STEPS: usize = 300;

/// Compares the counters of a host or a machine with those at the start of a trial and with those of the previous
/// sample.
#[derive(Debug)]
pub(crate) struct Recorder {
    began: Instant,
    first: Counters,
    /// The last values of the counters that have changed since the start. A counter that is missing in a sample has not
    /// changed.
    last: BTreeMap<String, u64>,
    series: Series,
    samples: usize,
    samples_per_step: usize,
}

impl Recorder {
    pub(crate) fn begin(first: Counters) -> Self {
        Self {
            began: Instant::now(),
            first,
            last: BTreeMap::new(),
            series: Series::default(),
            samples: 0,
            samples_per_step: 1,
        }
    }

    pub(crate) fn sample(&mut self, now: &Counters) {
        if self.samples.is_multiple_of(self.samples_per_step) {
            self.begin_step();
        }
        self.samples += 1;
        let ends_ms = &mut self.series.ends_ms;
        *ends_ms.last_mut().expect("a step has begun") = self.began.elapsed().as_millis() as u64;
        for (name, &now) in now.values.iter().filter(|(name, _)| is_shown(name)) {
            let was = self.last.get(name).copied().or_else(|| self.first.get(name));
            if was == Some(now) {
                continue;
            }
            let rests_at = was.filter(|_| is_level(name)).unwrap_or(0);
            let steps = self.series.values.entry(name.clone());
            let steps = steps.or_insert_with(|| vec![rests_at; ends_ms.len()]);
            let step = steps.last_mut().expect("a step has begun");
            *step = change(name, was, now) + if is_level(name) { 0 } else { *step };
            self.last.insert(name.clone(), now);
        }
    }

    fn begin_step(&mut self) {
        if self.series.ends_ms.len() == MAX_STEPS {
            self.samples_per_step *= 2;
            join(&mut self.series.ends_ms, |_, later| later);
            for (name, steps) in &mut self.series.values {
                join(steps, if is_level(name) { |_, later| later } else { |earlier, later| earlier + later });
            }
        }
        self.series.ends_ms.push(0);
        for (name, steps) in &mut self.series.values {
            steps.push(steps.last().copied().filter(|_| is_level(name)).unwrap_or(0));
        }
    }

    /// Records the last sample. Returns the changes since the start and their series.
    pub(crate) fn end(&mut self, now: Counters) -> Counters {
        self.sample(&now);
        // A series with a single step would only repeat the changes.
        let series = Some(mem::take(&mut self.series)).filter(|series| series.ends_ms.len() > 1);
        Counters { series, ..since(now, &self.first) }
    }
}

/// Joins the steps in pairs.
fn join(steps: &mut Vec<u64>, joined: fn(u64, u64) -> u64) {
    *steps = steps.chunks(2).filter_map(|pair| pair.iter().copied().reduce(joined)).collect();
}

/// Of each processor's counters, only those that verdicts need are kept, because there may be hundreds of processors.
fn is_shown(name: &str) -> bool {
    !name.starts_with("cpu") || [".idle_ms", ".softirq_ms", ".steal_ms"].iter().any(|end| name.ends_with(end))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(values: &[(&str, u64)]) -> Counters {
        let values = values.iter().map(|&(name, value)| (name.to_owned(), value)).collect();
        Counters { values, ..Counters::default() }
    }

    #[test]
    fn each_step_has_what_moved_in_it() {
        let values = |segments, established| {
            at(&[("Tcp.InSegs", segments), ("Tcp.CurrEstab", established), ("Tcp.InErrs", 4)])
        };
        let mut recorder = Recorder::begin(values(5, 9));
        recorder.sample(&values(8, 9));
        recorder.sample(&Counters::default());
        recorder.sample(&values(8, 7));
        let seen = recorder.end(at(&[("Tcp.InSegs", 20), ("Tcp.CurrEstab", 7), ("cpu0.user_ms", 3)]));
        let series = seen.series.unwrap();
        let moved: Vec<(&str, &[u64])> =
            series.values.iter().map(|(name, steps)| (name.as_str(), &steps[..])).collect();
        assert_eq!(moved, [("Tcp.CurrEstab", &[9, 9, 7, 7][..]), ("Tcp.InSegs", &[3, 0, 0, 12])]);
        assert!(series.ends_ms.len() == 4 && series.ends_ms.is_sorted());
        assert_eq!(seen.values["Tcp.InSegs"], 15);
        assert_eq!(Recorder::begin(values(5, 9)).end(values(8, 9)).series, None, "one step");
    }

    proptest! {
        #[test]
        fn steps_add_up_in_trials_of_any_length(changes in prop::collection::vec(0..9_u64, 2..1_500)) {
            let values = |sum, level| at(&[("Tcp.InSegs", sum), ("Tcp.CurrEstab", level)]);
            let mut recorder = Recorder::begin(values(3, 10));
            let mut sum = 3;
            for change in &changes[1..] {
                sum += change;
                recorder.sample(&values(sum, *change));
            }
            let seen = recorder.end(values(sum + changes[0], changes[0]));
            let series = seen.series.unwrap();
            let empty = Vec::new();
            let of = |name: &str| series.values.get(name).unwrap_or(&empty);
            prop_assert_eq!(of("Tcp.InSegs").iter().sum::<u64>(), seen.values["Tcp.InSegs"]);
            prop_assert_eq!(of("Tcp.CurrEstab").last(), Some(&changes[0]));
            let steps = series.ends_ms.len();
            prop_assert!(steps <= MAX_STEPS && steps >= changes.len().min(MAX_STEPS / 2), "{} steps", steps);
            prop_assert!(series.values.values().all(|row| row.len() == steps));
        }
    }
}
