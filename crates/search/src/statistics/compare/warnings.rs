//! What a careful reader of a comparison should know, and what to do about it.

use record::Warning;

use super::{
    super::{
        resolvable::{Design, Method},
        sample::Confidence,
        summary::percent,
    },
    Family,
};

/// Too few runs for any test, or for one by ranks.
pub(super) fn of_design(family: &Family, design: Design, method: Option<Method>) -> Vec<Warning> {
    let (runs, unit) = match design {
        Design::Blocks { blocks } => (blocks.to_string(), "blocks"),
        Design::Separate { a, b } => (format!("{a} and {b}"), "runs of each"),
    };
    let among = match family.comparisons {
        1 => String::new(),
        comparisons => format!(" in one of {comparisons} comparisons"),
    };
    let (wanted, fewest) = (percent(family.confidence.value()), design.fewest_for_ranks(family.alpha_of_one));
    match method {
        None => vec![Warning::new(
            "few_runs",
            format!(
                "{runs} {unit} cannot show a difference at {wanted}{among}, however large; use {} or more",
                fewest.max(3)
            ),
        )],
        Some(Method::PairedT | Method::WelchT) if !design.has_ranks(family.alpha_of_one) => {
            vec![Warning::new(
                "assumes_normal_noise",
                format!(
                    "{runs} {unit} are too few to show a difference at {wanted}{among} by ranks, \
                     so this rests on the noise being (log-)normal; with {fewest} or more it need \
                     not"
                ),
            )]
        }
        Some(_) => Vec::new(),
    }
}

/// The interval has less confidence than wanted.
pub(super) fn wide_interval(wanted: Confidence, real: f64) -> Warning {
    Warning::new(
        "few_values",
        format!(
            "so few runs cannot bound the effect at {}: the interval shown has {}; use more runs",
            percent(wanted.value()),
            percent(real)
        ),
    )
}

/// A difference alone, but not in its family.
pub(super) fn held_back(comparisons: usize) -> Warning {
    Warning::new(
        "held_back",
        format!(
            "alone this would pass for a difference, but of {comparisons} comparisons some do by chance; to \
             confirm it, run it again and compare only this"
        ),
    )
}

/// A and B ran apart.
pub(super) fn separate_runs() -> Warning {
    Warning::new(
        "separate_runs",
        "A and B did not run in turns, so whatever else changed between them counts as a difference; \
         run both in one study with blocks to exclude it",
    )
}

/// All runs gave the same.
pub(super) fn no_spread() -> Warning {
    Warning::new(
        "no_spread",
        "the runs do not differ among themselves, so their noise is unknown and nothing can be said \
         of what would be resolved; measure with a finer resolution",
    )
}
