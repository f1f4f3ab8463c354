//! How a trial's worker processes are divided among machines.

use std::ops::Range;

use load::MachineLimits;

/// The processes of each machine if `processes` are divided in proportion to weights: consecutive ranges.
pub(crate) fn ranges(processes: u64, weights: &[u64]) -> Vec<Range<u64>> {
    let whole: u128 = weights.iter().map(|weight| u128::from(*weight)).sum::<u128>().max(1);
    let mut up_to: u128 = 0;
    let mut end = 0;
    let range = |weight: &u64| {
        up_to += u128::from(*weight);
        let start = std::mem::replace(&mut end, (u128::from(processes) * up_to / whole) as u64);
        start..end
    };
    weights.iter().map(range).collect()
}

/// The weights of machines by their processors: the smallest machine has weight 1.
pub(crate) fn weights_of(limits: &[MachineLimits]) -> Vec<u64> {
    let least = limits.iter().map(|limits| limits.cpus).min().unwrap_or(1).max(1);
    limits.iter().map(|limits| u64::from(limits.cpus / least).max(1)).collect()
}

/// Limits of all machines together, for a plan whose processes are divided by these weights. The machine with the least for each
/// unit of its weight decides, and the number of processors is that of one unit of weight.
pub(crate) fn together(limits: &[MachineLimits], weights: &[u64]) -> MachineLimits {
    let whole: u64 = weights.iter().sum::<u64>().max(1);
    let parts = || limits.iter().zip(weights).filter(|(_, weight)| **weight > 0);
    let least = |of: fn(&MachineLimits) -> u64| {
        parts().map(|(limits, weight)| (of(limits) / weight).max(1)).min().unwrap_or(0).saturating_mul(whole)
    };
    MachineLimits {
        hard_descriptors: parts().map(|(limits, _)| limits.hard_descriptors).min().unwrap_or(0),
        ports: least(|limits| limits.ports),
        available_memory_bytes: least(|limits| limits.available_memory_bytes),
        cpus: least(|limits| u64::from(limits.cpus)).min(u64::from(u32::MAX)) as u32,
        tasks: least(|limits| limits.tasks),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn larger_machines_take_more() {
        let machine = |cpus| MachineLimits { cpus, ..MachineLimits::EXAMPLE };
        let limits = [machine(2), machine(9), machine(2)];
        let weights = weights_of(&limits);
        assert_eq!(weights, [1, 4, 1]);
        assert_eq!(ranges(6, &weights), [0..1, 1..5, 5..6]);
        let all = together(&limits, &weights);
        assert_eq!((all.ports, all.cpus), (28_232 / 4 * 6, 12));
    }

    proptest! {
        #[test]
        fn every_process_has_one_machine(processes in 0u64..5_000, weights in prop::collection::vec(0u64..100, 1..20)) {
            let ranges = ranges(processes, &weights);
            let mut end = 0;
            for range in &ranges {
                prop_assert_eq!(range.start, end);
                end = range.end;
            }
            prop_assert_eq!(end, if weights.iter().any(|weight| *weight > 0) { processes } else { 0 });
        }
    }
}
