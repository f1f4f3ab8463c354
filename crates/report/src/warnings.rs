//! All warnings of a study, without duplicates.

use record::{Warning, units::show_count};

use crate::{Results, text};

/// A warning and where it occurred.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LocatedWarning {
    /// The stable code.
    pub code: String,
    /// The cause and the next step.
    pub message: String,
    /// The settings or trials; empty for the whole study.
    pub locations: Vec<String>,
}

impl LocatedWarning {
    /// The message and its locations: `message (threads=2; trial 3)`.
    pub(crate) fn sentence(&self, max_locations: usize) -> String {
        let mut shown: Vec<String> =
            self.locations.iter().take(max_locations).map(|p| text::printable(p)).collect();
        if self.locations.len() > max_locations {
            shown.push(format!("{} more", self.locations.len() - max_locations));
        }
        let message = text::printable(&self.message);
        if shown.is_empty() { message } else { format!("{message} ({})", shown.join("; ")) }
    }
}

/// The warnings of the study, its settings and its trials.
pub(crate) fn warnings(results: &Results) -> Vec<LocatedWarning> {
    let mut warnings: Vec<LocatedWarning> = Vec::new();
    if let Some(result) = &results.result {
        result.warnings.iter().for_each(|warning| add(&mut warnings, warning, None));
        for outcome in &result.outcomes {
            let location = results.setting_name(outcome.setting);
            let of_summaries = outcome.summaries.iter().flat_map(|summary| &summary.warnings);
            for warning in outcome.warnings.iter().chain(of_summaries) {
                add(&mut warnings, warning, (results.plan.settings.len() > 1).then(|| location.clone()));
            }
        }
    }
    add_trials(&mut warnings, results);
    warnings
}

fn add(warnings: &mut Vec<LocatedWarning>, warning: &Warning, location: Option<String>) {
    let at = match warnings.iter().position(|t| t.code == warning.code && t.message == warning.message) {
        Some(at) => at,
        None => {
            let Warning { code, message } = warning.clone();
            warnings.push(LocatedWarning { code, message, locations: Vec::new() });
            warnings.len() - 1
        }
    };
    let locations = &mut warnings[at].locations;
    if let Some(location) = location.filter(|location| !locations.contains(location)) {
        locations.push(location);
    }
}

/// Adds the warnings of trials. Messages with the same code differ in their figures, so the first one stands for all of
/// them.
fn add_trials(warnings: &mut Vec<LocatedWarning>, results: &Results) {
    let mut of_trials: Vec<(&Warning, usize, u64)> = Vec::new();
    for entry in &results.trials {
        for warning in &entry.trial.warnings {
            match of_trials.iter_mut().find(|(first, ..)| first.code == warning.code) {
                Some((_, count, _)) => *count += 1,
                None => of_trials.push((warning, 1, entry.index)),
            }
        }
    }
    for (warning, count, index) in of_trials {
        let location = match count {
            1 => format!("trial {index}"),
            count => format!("trial {index}, similar in {} more", show_count(count as u64 - 1)),
        };
        add(warnings, warning, Some(location));
    }
}
