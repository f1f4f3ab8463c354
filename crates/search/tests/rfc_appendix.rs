//! The example of RFC 9971, appendix C: one load, six points in time, four goals.
//!
//! In two of the 24 rows (goal "20% exceed", points 5 and 6), the RFC prints "Lower Bound" for exceed ratios above the
//! allowed 20 %: 42.857 % and 27.273 %. By the RFC's own rule (section 6.1, appendix A) and in this crate they are
//! upper bounds. The other 22 verdicts and all numbers of the 24 rows agree with the RFC.

use search::classification::{
    Classification::{self, LowerBound, Undecided, UpperBound},
    DurationSums, GoalTrial, Requirement, conditional_throughput,
};

fn goal(trial_duration_s: f64, duration_sum_s: f64, loss_percent: f64, exceed_percent: f64) -> Requirement {
    Requirement {
        loss_ratio: loss_percent / 100.0,
        exceed_ratio: exceed_percent / 100.0,
        trial_duration_s,
        duration_sum_s,
    }
}

/// RFC2544, TST009, "1s final", "20% exceed".
fn goals() -> [Requirement; 4] {
    [
        goal(60.0, 60.0, 0.0, 0.0),
        goal(60.0, 120.0, 0.0, 50.0),
        goal(1.0, 120.0, 0.5, 50.0),
        goal(60.0, 60.0, 0.5, 20.0),
    ]
}

fn trials(count: usize, duration_s: f64, loss_percent: f64) -> Vec<GoalTrial> {
    vec![GoalTrial { duration_s, effective_duration_s: duration_s, loss_ratio: loss_percent / 100.0 }; count]
}

/// The trials at each of the six points.
fn points() -> [Vec<GoalTrial>; 6] {
    let added = [
        trials(59, 1.0, 0.0),
        trials(1, 1.0, 1.0),
        trials(59, 1.0, 1.0),
        trials(1, 1.0, 0.0),
        trials(1, 60.0, 0.1),
        trials(1, 60.0, 0.0),
    ];
    let mut all = Vec::new();
    added.map(|added| {
        all.extend(added);
        all.clone()
    })
}

/// Seconds: full low, full high, short low, short high, effective high, effective whole. Percent: the
/// optimistic and the pessimistic exceed ratio.
type Row = ([f64; 6], [f64; 2], Classification);

#[rustfmt::skip]
const TABLE: [[Row; 4]; 6] = [
    [
        ([0.0, 0.0, 59.0, 0.0, 0.0, 60.0], [0.0, 100.0], Undecided),
        ([0.0, 0.0, 59.0, 0.0, 0.0, 120.0], [0.0, 100.0], Undecided),
        ([59.0, 0.0, 0.0, 0.0, 0.0, 120.0], [0.0, 50.833], Undecided),
        ([0.0, 0.0, 59.0, 0.0, 0.0, 60.0], [0.0, 100.0], Undecided),
    ],
    [
        ([0.0, 0.0, 59.0, 1.0, 1.0, 60.0], [1.667, 100.0], UpperBound),
        ([0.0, 0.0, 59.0, 1.0, 0.0, 120.0], [0.0, 100.0], Undecided),
        ([59.0, 1.0, 0.0, 0.0, 1.0, 120.0], [0.833, 50.833], Undecided),
        ([0.0, 0.0, 59.0, 1.0, 0.0, 60.0], [0.0, 100.0], Undecided),
    ],
    [
        ([0.0, 0.0, 59.0, 60.0, 60.0, 60.0], [100.0, 100.0], UpperBound),
        ([0.0, 0.0, 59.0, 60.0, 1.0, 120.0], [0.833, 100.0], Undecided),
        ([59.0, 60.0, 0.0, 0.0, 60.0, 120.0], [50.0, 50.833], Undecided),
        ([0.0, 0.0, 59.0, 60.0, 45.25, 60.0], [75.417, 100.0], UpperBound),
    ],
    [
        ([0.0, 0.0, 60.0, 60.0, 60.0, 60.0], [100.0, 100.0], UpperBound),
        ([0.0, 0.0, 60.0, 60.0, 0.0, 120.0], [0.0, 100.0], Undecided),
        ([60.0, 60.0, 0.0, 0.0, 60.0, 120.0], [50.0, 50.0], LowerBound),
        ([0.0, 0.0, 60.0, 60.0, 45.0, 60.0], [75.0, 100.0], UpperBound),
    ],
    [
        ([0.0, 60.0, 60.0, 60.0, 120.0, 120.0], [100.0, 100.0], UpperBound),
        ([0.0, 60.0, 60.0, 60.0, 60.0, 120.0], [50.0, 100.0], Undecided),
        ([120.0, 60.0, 0.0, 0.0, 60.0, 180.0], [33.333, 33.333], LowerBound),
        ([60.0, 0.0, 60.0, 60.0, 45.0, 105.0], [42.857, 42.857], UpperBound),
    ],
    [
        ([60.0, 60.0, 60.0, 60.0, 120.0, 180.0], [66.667, 66.667], UpperBound),
        ([60.0, 60.0, 60.0, 60.0, 60.0, 120.0], [50.0, 50.0], LowerBound),
        ([180.0, 60.0, 0.0, 0.0, 60.0, 240.0], [25.0, 25.0], LowerBound),
        ([120.0, 0.0, 60.0, 60.0, 45.0, 165.0], [27.273, 27.273], UpperBound),
    ],
];

#[test]
fn every_load_is_classified_as_in_the_table() {
    for (point, (trials, rows)) in points().iter().zip(TABLE).enumerate() {
        for (goal, (requirement, (seconds, percents, classification))) in goals().iter().zip(rows).enumerate()
        {
            let row = format!("point {}, goal {}", point + 1, goal + 1);
            let sums = DurationSums::of(trials.iter().copied(), requirement);
            let computed = [
                sums.full_low_s,
                sums.full_high_s,
                sums.short_low_s,
                sums.short_high_s,
                sums.effective_high_s(requirement),
                sums.effective_whole_s(requirement),
            ];
            for (computed, expected) in computed.into_iter().zip(seconds) {
                assert!((computed - expected).abs() < 1e-9, "{row}: {computed} s for {expected} s");
            }
            let ratios = sums.exceed_ratios(requirement);
            for (computed, expected) in [ratios.optimistic, ratios.pessimistic].into_iter().zip(percents) {
                assert!((computed * 100.0 - expected).abs() < 5e-4, "{row}: {computed} for {expected} %");
            }
            assert_eq!(sums.classify(requirement), classification, "{row}");
        }
    }
}

/// Goal and point, from 1, of the rows in which the printed verdict contradicts the printed numbers.
const PRINTED_LOWER_BOUND: [(usize, usize); 2] = [(4, 5), (4, 6)];

#[test]
fn the_printed_verdict_follows_from_the_printed_ratios_in_all_rows_but_two() {
    for (point, rows) in TABLE.iter().enumerate() {
        for (goal, (requirement, (_, percents, classification))) in goals().iter().zip(rows).enumerate() {
            let allowed = requirement.exceed_ratio * 100.0;
            let by_rule = match percents.map(|percent| percent <= allowed) {
                [true, true] => LowerBound,
                [false, false] => UpperBound,
                _ => Undecided,
            };
            let contradicted = PRINTED_LOWER_BOUND.contains(&(goal + 1, point + 1));
            let printed = if contradicted { LowerBound } else { *classification };
            assert_eq!(printed == by_rule, !contradicted, "point {}, goal {}", point + 1, goal + 1);
        }
    }
}

#[test]
fn conditional_throughputs_are_as_in_the_text() {
    let [.., last] = points();
    for (requirement, expected) in goals()[1..].iter().zip([1.0e6, 1.0e6, 0.999e6]) {
        let computed = conditional_throughput(1.0e6, last.iter().copied(), requirement);
        assert!((computed - expected).abs() < 1e-6, "{computed} for {expected}");
    }
}

#[test]
fn missing_seconds_count_as_lost() {
    let three = trials(3, 1.0, 0.0);
    for (requirement, expected) in
        [(goal(1.0, 3.0, 0.0, 0.0), 1e6), (goal(1.0, 4.0, 0.0, 0.0), 0.0), (goal(1.0, 4.0, 0.0, 25.0), 1e6)]
    {
        assert_eq!(conditional_throughput(1e6, three.iter().copied(), &requirement), expected);
    }
    assert_eq!(conditional_throughput(1e6, [], &goals()[0]), 0.0);
}

#[test]
fn rounding_does_not_change_a_sum_of_seconds() {
    let three = trials(3, 0.7, 0.0);
    let sum_s: f64 = three.iter().map(|trial| trial.duration_s).sum();
    assert!(sum_s < 2.1, "{sum_s}");
    let requirement = goal(0.7, 2.1, 0.0, 0.0);
    assert_eq!(DurationSums::of(three, &requirement).classify(&requirement), LowerBound);
}
