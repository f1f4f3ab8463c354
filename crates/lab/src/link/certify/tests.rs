//! Tests of the judgement of given arrivals.

use super::*;

#[test]
fn a_processor_that_is_gone_holds_up_only_what_comes_and_goes() {
    let probes = Arrivals { times: vec![(0, 94_000_000); 20], ..Arrivals::default() };
    let undisturbed = |stolen| {
        let counted = Arrivals::default();
        measure_delay_and_loss(&Shape::default(), &probes, &counted, &[stolen]).delay.probes
    };
    assert_eq!(undisturbed(40_000_000..60_000_000), 20);
    assert_eq!((undisturbed(0..12_000_000), undisturbed(80_000_000..90_000_000)), (0, 0));
}

#[test]
fn the_median_is_expected_among_those_that_come_late() {
    let reorder = |ratio| Some(crate::link::Reorder { ratio, late_ns: 2_000_000 });
    let shape = |ratio| Shape { reorder: reorder(ratio), delay_ns: 5_000_000, ..Shape::default() };
    let judged = |ratio: f64, delay_ns: u64| {
        let probes =
            Arrivals { sent: 300, unique: 300, times: vec![(0, delay_ns); 300], ..Arrivals::default() };
        let mut reasons = Vec::new();
        let measured = measure_delay_and_loss(&shape(ratio), &probes, &probes, &[]);
        judge(&measured, &shape(ratio), false, &mut reasons);
        reasons
    };
    assert_eq!((judged(0.6, 7_100_000), judged(0.4, 5_100_000)), (vec![], vec![]));
    assert_eq!((judged(0.5, 7_100_000), judged(0.5, 5_100_000)), (vec![], vec![]), "as it comes");
    for (ratio, delay_ns) in [(0.6, 5_100_000), (0.4, 7_100_000), (0.5, 4_800_000), (0.5, 7_300_000)] {
        let reasons = judged(ratio, delay_ns);
        assert!(reasons.iter().any(|reason| reason.contains("median")), "{ratio} {delay_ns}: {reasons:?}");
    }
}

#[test]
fn a_link_that_loses_everything_says_so() {
    let shape = Shape { loss: crate::link::Loss::Random { ratio: 1.0 }, ..Shape::default() };
    let nothing = Arrivals { sent: 300, ..Arrivals::default() };
    let mut reasons = Vec::new();
    judge(&measure_delay_and_loss(&shape, &nothing, &nothing, &[]), &shape, false, &mut reasons);
    let [reason] = &reasons[..] else { panic!("{reasons:?}") };
    assert!(reason.contains("loses 100.0000 % as requested"), "{reason}");
}

#[test]
fn a_link_that_carried_nothing_has_no_rate() {
    let shape = Shape { rate_bits_per_s: Some(1_000_000), ..Shape::default() };
    let arrived = Arrivals { sent: 100, unique: 100, times: vec![(0, 777_000); 100], ..Arrivals::default() };
    let measured = measure_delay_and_loss(&shape, &arrived, &arrived, &[]);
    let with_rate = |rate, rate_packets| {
        let rates = (Some(rate), Some(1_000_000.0));
        let mut reasons = Vec::new();
        let measured = Measured {
            rate_bits_per_s: rates.0,
            expected_rate_bits_per_s: rates.1,
            rate_packets,
            ..measured.clone()
        };
        judge(&measured, &shape, false, &mut reasons);
        reasons
    };
    assert!(with_rate(0.0, 0).iter().any(|reason| reason.starts_with("it carries")), "nothing arrived");
    assert!(with_rate(600_000.0, 4).iter().any(|reason| reason.starts_with("it carries")));
    assert!(!with_rate(950_000.0, 19).iter().any(|reason| reason.starts_with("it carries")));
}
