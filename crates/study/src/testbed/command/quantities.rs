//! Computes the quantities of a trial of programs.

use std::{collections::BTreeMap, fs, path::PathBuf};

use command::number_in;
use record::{CommandTrial, Flow, Warning};

use super::moved::Counters;
use crate::CommandWorkload;

const WALL_TIME: &str = "wall_s";
/// Names of quantities that are unknown if samples are missing.
pub(super) const LAST_RATE: &str = "last_5_s_bit_per_s";
pub(super) const PEAK_MEMORY: &str = "peak_memory_bytes";
/// Length of the final part of a trial that gives its last rate, in seconds; half the trial if that is shorter.
const LAST_RATE_S: f64 = 5.0;
/// Smallest number of intervals of a trial for which the last rate is computed.
const FEWEST_BINS: usize = 9;

/// The quantities that the workload declares, by name.
pub(super) fn quantities(
    workload: &CommandWorkload,
    trial: &CommandTrial,
    counters: &Counters,
    outputs: &[[PathBuf; 2]],
    warnings: &mut Vec<Warning>,
) -> BTreeMap<String, f64> {
    let [sent, received] = Flow::INTERFACE_DIRECTIONS;
    let total = |direction: &str, of: fn(&Flow) -> u64| {
        let flows = trial.flows.iter().filter(|(name, _)| name.rsplit(' ').next() == Some(direction));
        flows.map(|(_, flow)| of(flow)).sum::<u64>() as f64
    };
    let mut quantities = BTreeMap::from([
        ("user_s".to_owned(), trial.user_s),
        ("system_s".to_owned(), trial.system_s),
        ("largest_process_bytes".to_owned(), trial.largest_process_bytes as f64),
    ]);
    if !trial.plan.hosts.is_empty() {
        quantities.extend([
            ("sent_bytes".to_owned(), total(sent, |flow| flow.bytes)),
            ("received_bytes".to_owned(), total(received, |flow| flow.bytes)),
            ("sent_packets".to_owned(), total(sent, |flow| flow.packets)),
            ("received_packets".to_owned(), total(received, |flow| flow.packets)),
        ]);
        let rate = last_rate(counters.larger(&trial.flows).collect(), trial.bin_s);
        quantities.extend(rate.map(|rate| (LAST_RATE.to_owned(), rate)));
    }
    quantities.extend(trial.wall_s.map(|wall_s| (WALL_TIME.to_owned(), wall_s)));
    quantities.extend(trial.peak_memory_bytes.map(|bytes| (PEAK_MEMORY.to_owned(), bytes as f64)));
    if let Some(bytes) = trial.moved_bytes {
        quantities.insert("moved_bytes".to_owned(), bytes as f64);
    }
    for read in &workload.read {
        let number = &read.number;
        let found: Vec<f64> =
            outputs.iter().filter_map(|[path, _]| number_in(&fs::read(path).ok()?, &number.json)).collect();
        if found.len() < outputs.len() && number.optional {
            continue;
        }
        if found.len() < outputs.len() {
            warnings.push(Warning::new(
                "number_not_found",
                format!(
                    "{} of {} copies wrote no number at {} of the JSON on standard output: {} is unknown",
                    outputs.len() - found.len(),
                    outputs.len(),
                    number.json,
                    number.quantity
                ),
            ));
            continue;
        }
        let value = if number.more_is_better {
            found.iter().sum()
        } else {
            found.iter().copied().fold(f64::NEG_INFINITY, f64::max)
        };
        quantities.insert(number.quantity.clone(), value);
    }
    quantities.retain(|name, value| {
        if !value.is_finite() {
            let message = format!("{name} is too large a number: it is unknown");
            warnings.push(Warning::new("number_not_found", message));
        }
        value.is_finite()
    });
    quantities
}

/// The rate of these flows at the end of a trial, in bits per second; `None` if the trial was too short. The end is the start
/// of the last interval that carried at least a hundredth of the fullest interval, because the final messages of programs are
/// not part of the steady state.
fn last_rate(flows: Vec<&Flow>, bin_s: f64) -> Option<f64> {
    let bin_count = flows.iter().map(|flow| flow.bins.len()).max().unwrap_or(0);
    let bytes_in_bin = |bin: usize| flows.iter().filter_map(|flow| flow.bins.get(bin)).sum::<u64>();
    let bins: Vec<u64> = (0..bin_count).map(bytes_in_bin).collect();
    let fullest = bins.iter().copied().max().unwrap_or(0);
    // The last of these intervals is incomplete.
    let end = bins.iter().rposition(|bytes| *bytes * 100 >= fullest.max(1)).unwrap_or(0);
    if fullest > 0 && end < FEWEST_BINS {
        return None;
    }
    let bin_count = ((LAST_RATE_S / bin_s).round() as usize).min(end / 2).max(1);
    let bytes: u64 = bins[end.saturating_sub(bin_count)..end].iter().sum();
    Some(bytes as f64 * 8.0 / (bin_count as f64 * bin_s))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_seconds_end_with_the_last_that_was_sent() {
        let rate = |bins: &[u64]| {
            last_rate(vec![&Flow { bins: bins.to_vec(), ..Flow::default() }], 0.1).map(f64::round)
        };
        let mut bins = vec![1_000; 20];
        bins.extend([10_000; 60]);
        assert_eq!(rate(&bins), Some(800_000.0), "only the last 5 s");
        bins.extend([0, 0, 50, 0, 20]);
        assert_eq!(rate(&bins), Some(800_000.0), "what is said at the end does not count");
        let short = [[0; 8], [1_000; 8]].concat();
        assert_eq!(rate(&short), Some(80_000.0), "the second half of a short trial");
        assert_eq!(rate(&short[..9]), None, "a part of a bin would be a large part of it");
        assert_eq!(rate(&[]), Some(0.0));
    }
}
