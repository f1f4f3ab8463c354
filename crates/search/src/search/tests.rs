use super::*;

#[test]
fn a_miss_well_below_the_generators_limit_is_a_dispute() {
    let outcome = |missed: Option<f64>, kind| GoalOutcome {
        goal: "p99".to_owned(),
        lower: None,
        upper: missed.map(|load| Bound { load, conditional_throughput: None, trials: 1 }),
        kind,
    };
    let limit = BoundKind::GeneratorBound { at: 1_000.0 };
    let highest = 1_000.0 * (1.0 - MIN_DISPUTE_WIDTHS * 0.05);
    for (missed, kind, is_dispute) in [
        (Some(highest - 1.0), limit, true),
        (Some(highest + 1.0), limit, false),
        (None, limit, false),
        (Some(highest - 1.0), BoundKind::Regular, false),
    ] {
        let found = dispute(&outcome(missed, BoundKind::Regular), &outcome(None, kind), 0.05);
        assert_eq!(found.is_some(), is_dispute, "{missed:?} {kind:?}");
        let told = found.map(|dispute| (dispute.goal, dispute.missed, dispute.not_made));
        assert!(told.is_none_or(|told| told == ("p99".to_owned(), highest - 1.0, 1_000.0)));
    }
}
