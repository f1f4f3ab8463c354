use proptest::prelude::*;

use super::*;

const A: [f64; 8] = [1000.0, 1010.0, 990.0, 1005.0, 995.0, 1002.0, 998.0, 1007.0];

fn times(values: &[f64], factors: &[f64]) -> Vec<f64> {
    values.iter().zip(factors.iter().cycle()).map(|(value, factor)| value * factor).collect()
}

fn question<'a>(a: &'a [f64], b: &'a [f64]) -> Question<'a> {
    Question { runs: Runs::Blocks { a, b }, better: Better::More, scale: Scale::Ratio }
}

fn codes(comparison: &Comparison) -> Vec<&str> {
    comparison.warnings.iter().map(|warning| warning.code.as_str()).collect()
}

#[test]
fn a_clear_difference_is_shown_in_the_right_direction() {
    let b = times(&A, &[1.10, 1.12, 1.09, 1.11]);
    let faster = compare(question(&A, &b), Confidence::default()).unwrap();
    assert_eq!((faster.verdict, faster.method), (Verdict::BBetter, Some(Method::SignedRank)));
    assert!((1.09..1.12).contains(&faster.effect) && faster.low > 1.08 && faster.high < 1.13, "{faster:?}");
    assert!((faster.p_value - 2.0 / 256.0).abs() < 1e-12);
    assert!(faster.resolvable.is_some_and(|smallest| smallest < 0.05), "{faster:?}");

    let less = Question { better: Better::Less, ..question(&A, &b) };
    assert_eq!(compare(less, Confidence::default()).unwrap().verdict, Verdict::ABetter);
    let swapped = compare(question(&b, &A), Confidence::default()).unwrap();
    assert_eq!(swapped.verdict, Verdict::ABetter);
    assert!((swapped.effect * faster.effect - 1.0).abs() < 1e-12, "ratios turn around");
}

#[test]
fn separate_runs_are_compared_with_a_warning() {
    let b = times(&A, &[1.10, 1.12, 1.09]);
    let runs = Runs::Separate { a: &A, b: &b };
    let found = compare(Question { runs, ..question(&A, &b) }, Confidence::default()).unwrap();
    assert_eq!((found.verdict, found.method), (Verdict::BBetter, Some(Method::RankSum)));
    assert!(codes(&found).contains(&"separate_runs"));
}

#[test]
fn equal_targets_show_no_difference_and_state_the_resolvable_one() {
    let b = times(&A, &[1.01, 0.99, 1.02, 0.98]);
    let found = compare(question(&A, &b), Confidence::default()).unwrap();
    assert_eq!(found.verdict, Verdict::NoDifferenceShown);
    assert!(found.low < 1.0 && found.high > 1.0);
    assert!(found.resolvable.is_some_and(|smallest| (0.01..0.05).contains(&smallest)), "{found:?}");
    let same = compare(question(&A, &A), Confidence::default()).unwrap();
    assert_eq!((same.verdict, same.effect, same.p_value), (Verdict::NoDifferenceShown, 1.0, 1.0));
    assert_eq!((same.resolvable, codes(&same)), (None, vec!["no_spread"]));
}

#[test]
fn too_few_runs_show_nothing_and_name_the_number_needed() {
    let found = compare(question(&A[..2], &[2000.0, 2100.0]), Confidence::default()).unwrap();
    assert_eq!((found.verdict, found.method, found.resolvable), (Verdict::CannotTell, None, None));
    assert_eq!(
        found.warnings[0].message,
        "2 blocks cannot show a difference at 95 % confidence, however large; use 6 or more"
    );
    let four = compare(question(&A[..4], &times(&A[..4], &[1.5, 1.52])), Confidence::default()).unwrap();
    assert_eq!((four.verdict, four.method), (Verdict::BBetter, Some(Method::PairedT)));
    assert_eq!(codes(&four), ["assumes_normal_noise"]);
}

#[test]
fn holms_rule_corrects_a_family() {
    let clear = times(&A, &[1.10, 1.12, 1.09, 1.11]);
    let slight = times(&A, &[1.003, 1.03, 1.01, 1.025, 0.995, 1.02]);
    let alone = compare(question(&A, &slight), Confidence::default()).unwrap();
    assert_eq!(alone.verdict, Verdict::BBetter, "{alone:?}");
    let questions = [question(&A, &slight), question(&A, &clear), question(&A, &A), question(&A, &A[..3])];
    let found = compare_all(&questions, Confidence::default());
    let [Ok(slight), Ok(clear), Ok(same), Err(refused)] = &found[..] else { panic!("{found:?}") };
    assert_eq!((slight.verdict, slight.comparisons), (Verdict::NoDifferenceShown, 3));
    assert!(codes(slight).contains(&"held_back"));
    assert_eq!((clear.verdict, same.verdict), (Verdict::BBetter, Verdict::NoDifferenceShown));
    assert_eq!(*refused, SampleError::UnequalBlocks { a: 8, b: 3 });
    assert!(
        clear.resolvable > compare(question(&A, &clear_of(&A)), Confidence::default()).unwrap().resolvable
    );
}

fn clear_of(a: &[f64]) -> Vec<f64> {
    times(a, &[1.10, 1.12, 1.09, 1.11])
}

#[test]
fn values_that_may_be_zero_are_compared_by_their_difference() {
    let (a, b) = ([0.0; 8], [0.01, 0.02, 0.015, 0.03, 0.012, 0.022, 0.018, 0.025]);
    let errors =
        Question { runs: Runs::Blocks { a: &a, b: &b }, better: Better::Less, scale: Scale::Difference };
    let found = compare(errors, Confidence::default()).unwrap();
    assert_eq!(found.verdict, Verdict::ABetter);
    assert!(found.low > 0.0 && found.effect < 0.03);
    let ratio = compare(Question { scale: Scale::Ratio, ..errors }, Confidence::default());
    assert_eq!(ratio, Err(SampleError::NotPositive { index: 0, value: 0.0 }));
}

#[test]
fn an_outlying_block_causes_a_warning_and_is_kept() {
    let mut b = times(&A, &[1.01, 0.99, 1.02, 0.98]);
    b[5] *= 0.5;
    let found = compare(question(&A, &b), Confidence::default()).unwrap();
    assert_eq!(codes(&found), ["outliers"]);
    assert!(found.warnings[0].message.contains("blocks 6 (counted from 1)"), "{found:?}");
}

proptest! {
    #[test]
    fn never_panics_and_survives_json(
        a in prop::collection::vec(any::<f64>(), 0..12), b in prop::collection::vec(any::<f64>(), 0..12),
        blocks: bool, ratio: bool
    ) {
        let runs = if blocks { Runs::Blocks { a: &a, b: &b } } else { Runs::Separate { a: &a, b: &b } };
        let scale = if ratio { Scale::Ratio } else { Scale::Difference };
        if let Ok(found) = compare(Question { runs, better: Better::More, scale }, Confidence::default()) {
            let json = serde_json::to_string(&found).unwrap();
            prop_assert!(serde_json::from_str::<Comparison>(&json).is_ok(), "{}", json);
        }
    }

    #[test]
    fn swapping_a_and_b_swaps_the_verdict(
        pairs in prop::collection::vec((1.0..2.0, 1.0..2.0), 1..15), blocks: bool
    ) {
        let (a, b): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
        let runs = |a, b| if blocks { Runs::Blocks { a, b } } else { Runs::Separate { a, b } };
        let ask = |runs| compare(Question { runs, better: Better::More, scale: Scale::Ratio }, Confidence::default());
        let (forth, back) = (ask(runs(&a, &b)).unwrap(), ask(runs(&b, &a)).unwrap());
        prop_assert!((forth.effect * back.effect - 1.0).abs() < 1e-9);
        prop_assert!((forth.p_value - back.p_value).abs() < 1e-9);
        let turned = match forth.verdict {
            Verdict::ABetter => Verdict::BBetter,
            Verdict::BBetter => Verdict::ABetter,
            other => other,
        };
        prop_assert_eq!(back.verdict, turned);
    }
}
