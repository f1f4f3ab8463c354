//! Plans a search from the settings of a study.

use record::{Goal, SearchPlan};
use search::{Preset, Unit, UpperBoundRule};

use crate::study::{Begin, Search, Study};

/// Share of the trials at a load that must miss a goal before the load counts as not meeting it.
const SURELY_NOT: f64 = 0.9;
/// Number of trials that suffices for this if all miss the goal. The lower bound may need more.
const SURELY_NOT_MIN_TRIALS: u32 = 3;

/// Largest factor by which trials become longer if their results depend on the time: at most from 5 s to 80 s.
const LONGER_MAX: f64 = 16.0;

/// Smallest such factor. If [`LONGER_TRIALS`] trials of this length exceed the search's share of the budget, trials keep the requested
/// length.
const LEAST_LONGER: f64 = 6.0;
/// This many longer trials suffice to find bounds.
const LONGER_TRIALS: f64 = 12.0;

/// Plans a study's search.
///
/// The preset `mlrsearch`, the default, has two rules for the bounds of a goal. A load meets the goal if all its trials did,
/// and misses the goal if at least nine in ten trials did. At loads between the two, trials disagree: these loads lie between
/// the bounds and decide nothing. The other presets have one rule, with the exceed ratio of their standard.
pub(crate) fn plan(study: &Study, asked: &Search) -> Result<SearchPlan, String> {
    let length = TrialLength::of(study, asked);
    let preset: Preset = asked.preset.parse().map_err(|error: search::UnknownPreset| error.to_string())?;
    let shape = |goal: &Goal| {
        let mut shaped = preset.goal(&goal.name, goal.loss_ratio);
        if let Some(duration) = asked.trial_duration {
            let repeats = shaped.duration_sum_s / shaped.final_trial_duration_s;
            shaped.final_trial_duration_s = duration.as_secs_f64();
            shaped.duration_sum_s = repeats * shaped.final_trial_duration_s;
        }
        if let Some(repeats) = asked.repeats {
            shaped.duration_sum_s = shaped.final_trial_duration_s * f64::from(repeats);
        }
        shaped.initial_trial_duration_s = if length.has_short_trials(shaped.initial_trial_duration_s) {
            shaped.initial_trial_duration_s.min(shaped.final_trial_duration_s)
        } else {
            shaped.final_trial_duration_s
        };
        shaped.width = asked.width;
        if preset == Preset::Mlrsearch {
            let enough_s = shaped.final_trial_duration_s * f64::from(SURELY_NOT_MIN_TRIALS);
            let duration_sum_s = shaped.duration_sum_s.min(enough_s);
            shaped.exceed_ratio = 0.0;
            shaped.upper_bound_rule = Some(UpperBoundRule { exceed_ratio: SURELY_NOT, duration_sum_s });
        }
        shaped
    };
    let unit = if asked.takes_whole_loads() { Unit::Whole } else { Unit::Continuous };
    let mut plan =
        search::SearchPlan::new(unit, asked.min, asked.max, study.goals.iter().map(shape).collect());
    plan.method = preset.method();
    plan.gaps_seed = (preset == Preset::Mlrsearch).then_some(study.seed);
    plan.expected_load = match asked.begin {
        Begin::At(load) => Some(load),
        Begin::Smallest | Begin::Looks => None,
    };
    // Trials that end by themselves cannot become longer.
    let longest_s = plan.goals[0].final_trial_duration_s * LONGER_TRIALS;
    // Otherwise, one search on a noisy machine takes the time of all other settings.
    let runs = study.settings.len() as f64 * f64::from(study.trial.repeats);
    let longer_max = study
        .budget
        .map_or(LONGER_MAX, |budget| (budget.as_secs_f64() / runs.max(1.0) / longest_s).min(LONGER_MAX));
    plan.longer_max =
        plan.gaps_seed.filter(|_| !length.ends_itself && longer_max >= LEAST_LONGER).map(|_| longer_max);
    // The first attempt plus its repeats, as for settings without a search.
    plan.void.attempts = study.trial.void_attempts.saturating_add(1);
    let mistakes = plan.mistakes();
    if !mistakes.is_empty() {
        return Err(search::Mistakes(mistakes).to_string());
    }
    let decisive = &plan.goals[0];
    length.fits(decisive.final_trial_duration_s)?;
    Ok(SearchPlan {
        unit: asked.unit.clone(),
        min: asked.min,
        max: asked.max,
        width: asked.width,
        method: asked.preset.clone(),
        trial_duration_s: decisive.final_trial_duration_s,
        duration_sum_s: decisive.duration_sum_s,
        exceed_ratio: decisive.exceed_ratio,
        confirm: asked.confirm,
        method_settings: serde_json::to_value(&plan)
            .expect("a search's plan has no maps with keys that are no text"),
    })
}

/// Duration of a search's trials, as far as the workload determines it.
struct TrialLength {
    /// Whether loops or requests end the trials.
    ends_itself: bool,
    /// Longest ramp-up of the users, in seconds.
    ramp_up_s: f64,
}

impl TrialLength {
    fn of(study: &Study, asked: &Search) -> Self {
        let settings = study.settings.iter().enumerate();
        let searched = settings.filter(|(_, setting)| study.search_of(setting) == Some(asked));
        let mut length = Self { ends_itself: false, ramp_up_s: 0.0 };
        let mut is_first = true;
        study.each_setup(searched.map(|(number, _)| (number, Some(asked.min))), &mut |_, setup| {
            let Ok(setup) = setup else { return true };
            let ends_itself = setup.workload.ends_itself();
            length.ends_itself |= std::mem::take(&mut is_first) && ends_itself;
            if !ends_itself {
                length.ramp_up_s = length.ramp_up_s.max(setup.workload.ramp_up().as_secs_f64());
            }
            true
        });
        length
    }

    /// Whether first trials of `initial_s` seconds are useful. Trials that end by themselves would take as long as full trials
    /// but count less; with a long ramp-up hardly any user would have started.
    fn has_short_trials(&self, initial_s: f64) -> bool {
        !self.ends_itself && self.ramp_up_s <= MAX_RAMP_UP_RATIO * initial_s
    }

    fn fits(&self, trial_s: f64) -> Result<(), String> {
        if self.ramp_up_s < trial_s {
            return Ok(());
        }
        Err(format!(
            "the users start over {} s (ramp_up, --ramp-up), but a trial lasts {trial_s} s: some users would never start; \
             give longer trials (trial in [search], --trial) or a shorter ramp-up",
            self.ramp_up_s
        ))
    }
}

/// Largest share of a first trial that the ramp-up may take.
const MAX_RAMP_UP_RATIO: f64 = 0.1;
