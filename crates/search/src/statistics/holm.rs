//! Correction for multiple comparisons. Without it, at least one of twenty comparisons of equal targets at 95 %
//! confidence claims a difference more often than not.

/// Adjusts p-values by Holm's step-down rule and keeps their order. If each is compared with 1 − confidence, the
/// probability of *any* false claim stays below that, whatever the dependence of the comparisons. S. Holm, "A simple
/// sequentially rejective multiple test procedure", 1979.
pub(super) fn adjust(p_values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|&i, &j| p_values[i].total_cmp(&p_values[j]));
    let mut adjusted = vec![0.0; p_values.len()];
    let mut largest = 0.0_f64;
    for (done, &index) in order.iter().enumerate() {
        largest = largest.max((p_values.len() - done) as f64 * p_values[index]).min(1.0);
        adjusted[index] = largest;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// statsmodels 0.15: `multipletests([0.01, 0.04, 0.03, 0.005], method="holm")[1]`.
    #[test]
    fn adjusts_as_statsmodels_does() {
        let adjusted = adjust(&[0.01, 0.04, 0.03, 0.005]);
        for (adjusted, expected) in adjusted.iter().zip([0.03, 0.06, 0.06, 0.02]) {
            assert!((adjusted - expected).abs() < 1e-12, "{adjusted}");
        }
        assert_eq!(adjust(&[]), Vec::<f64>::new());
        assert_eq!(adjust(&[0.3]), [0.3]);
    }

    proptest! {
        #[test]
        fn keeps_the_order_and_never_lowers(p_values in prop::collection::vec(0.0..=1.0, 0..30)) {
            let adjusted = adjust(&p_values);
            for (i, (p, a)) in p_values.iter().zip(&adjusted).enumerate() {
                prop_assert!(a >= p && *a <= 1.0);
                prop_assert!(*a <= (p * p_values.len() as f64).min(1.0) + 1e-12, "no worse than Bonferroni");
                for (q, b) in p_values[i..].iter().zip(&adjusted[i..]) {
                    prop_assert!((p <= q) == (a <= b) || a == b);
                }
            }
        }
    }
}
