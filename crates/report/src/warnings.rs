//! Every warning of a study, each once.

use record::{Warning, units::show_count};

use crate::{Results, text};

/// A warning and where it was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Told {
    /// Its stable name.
    pub code: String,
    /// What it is, and what to do.
    pub message: String,
    /// Where: `study`, a setting, `3 trials`.
    pub places: Vec<String>,
}

impl Told {
    /// `message (threads=2; 3 trials)`; a warning of the whole study needs no place.
    pub(crate) fn sentence(&self, most_places: usize) -> String {
        let mut shown: Vec<String> =
            self.places.iter().take(most_places).map(|p| text::printable(p)).collect();
        if self.places.len() > most_places {
            shown.push(format!("{} more", self.places.len() - most_places));
        }
        let message = text::printable(&self.message);
        if shown.is_empty() { message } else { format!("{message} ({})", shown.join("; ")) }
    }
}

/// The warnings of the study, then of its settings, then of its trials.
pub(crate) fn warnings(results: &Results) -> Vec<Told> {
    let mut told: Vec<Told> = Vec::new();
    if let Some(result) = &results.result {
        result.warnings.iter().for_each(|warning| tell(&mut told, warning, None));
        for outcome in &result.outcomes {
            let place = results.setting_name(outcome.setting);
            let of_summaries = outcome.summaries.iter().flat_map(|summary| &summary.warnings);
            for warning in outcome.warnings.iter().chain(of_summaries) {
                tell(&mut told, warning, (results.plan.settings.len() > 1).then(|| place.clone()));
            }
        }
    }
    tell_trials(&mut told, results);
    told
}

fn tell(told: &mut Vec<Told>, warning: &Warning, place: Option<String>) {
    let at = match told.iter().position(|t| t.code == warning.code && t.message == warning.message) {
        Some(at) => at,
        None => {
            let Warning { code, message } = warning.clone();
            told.push(Told { code, message, places: Vec::new() });
            told.len() - 1
        }
    };
    let places = &mut told[at].places;
    if let Some(place) = place.filter(|place| !places.contains(place)) {
        places.push(place);
    }
}

/// Messages of trials carry their figures, so the same warning reads differently each time: one of each code
/// stands for all, with their number.
fn tell_trials(told: &mut Vec<Told>, results: &Results) {
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
        let place = match count {
            1 => format!("trial {index}"),
            count => format!("trial {index}, and alike in {} more", show_count(count as u64 - 1)),
        };
        tell(told, warning, Some(place));
    }
}
