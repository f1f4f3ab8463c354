//! The warnings of a comparison.

use record::Warning;

use super::{
    super::{
        resolvable::{Design, Method},
        sample::Confidence,
        summary::percent,
    },
    Family,
};

/// Warns of too few runs for any test, or for a rank test.
pub(super) fn of_design(family: &Family, design: Design, method: Option<Method>) -> Vec<Warning> {
    let (runs, unit) = match design {
        Design::Blocks { blocks } => (blocks.to_string(), "blocks"),
        Design::Separate { a, b } => (format!("{a} and {b}"), "runs of each"),
    };
    let among = match family.comparisons {
        1 => String::new(),
        comparisons => format!(" in one of {comparisons} comparisons"),
    };
    let (requested, min_runs) =
        (percent(family.confidence.value()), design.min_repeats_for_ranks(family.alpha_per_comparison));
    match method {
        None => vec![Warning::new(
            "few_runs",
            format!(
                "{runs} {unit} cannot show a difference at {requested} confidence{among}, however large; \
                 use {} or more",
                min_runs.max(3)
            ),
        )],
        Some(Method::PairedT | Method::WelchT) if !design.can_use_ranks(family.alpha_per_comparison) => {
            vec![Warning::new(
                "assumes_normal_noise",
                format!(
                    "{runs} {unit} are too few to show a difference at {requested} confidence{among} \
                     by ranks, so the result assumes (log-)normal noise; use {min_runs} or more to avoid the \
                     assumption"
                ),
            )]
        }
        Some(_) => Vec::new(),
    }
}

/// Warns that the interval has less confidence than requested.
pub(super) fn wide_interval(requested: Confidence, actual: f64) -> Warning {
    Warning::new(
        "few_values",
        format!(
            "too few runs to bound the effect at {} confidence: the interval shown has {}; use more runs",
            percent(requested.value()),
            percent(actual)
        ),
    )
}

/// Warns that a difference is not shown after the correction for the family.
pub(super) fn held_back(comparisons: usize) -> Warning {
    Warning::new(
        "held_back",
        format!(
            "a single comparison would show a difference here, but of {comparisons} comparisons some do by chance; \
             to confirm it, run again and compare only this quantity"
        ),
    )
}

/// Warns that A and B ran separately.
pub(super) fn separate_runs() -> Warning {
    Warning::new(
        "separate_runs",
        "A and B did not run alternately, so any other change between the runs counts as a difference; run both in \
         one study with blocks to exclude such changes",
    )
}

/// Warns that all runs gave the same value.
pub(super) fn no_spread() -> Warning {
    Warning::new(
        "no_spread",
        "the runs do not differ among themselves, so their noise and the smallest resolvable \
         difference are unknown; measure with a finer resolution",
    )
}
