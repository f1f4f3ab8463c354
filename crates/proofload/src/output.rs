//! Output for people and programs: progress, text, files.

pub(crate) mod comparison_text;
pub(crate) mod destination;
pub(crate) mod hlog;
pub(crate) mod peer_text;
pub(crate) mod progress;
pub(crate) mod standard;
pub(crate) mod study_progress;
pub(crate) mod trial_text;
mod wrap;

use record::Percentile;

/// A percentile as it is shown; `≥` where the true time may be longer, in parentheses where it may be the generator's, not the
/// target's.
fn marked(percentile: Percentile, show: impl Fn(u64) -> String) -> String {
    let mark = if percentile.at_least { "≥" } else { "" };
    let shown = format!("{mark}{}", show(percentile.ns));
    if percentile.is_own() { format!("({shown})") } else { shown }
}
