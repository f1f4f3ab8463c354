//! What is judged, of arrivals that are given.

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
