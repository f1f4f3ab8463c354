//! The plan of a search, from what a study asks for.

use record::{Goal, SearchPlan};
use search::{Preset, Unit, UpperBoundRule};

use crate::study::{Search, Study};

/// Share of the trials at a load that must be bad before the load surely does not meet a goal.
const SURELY_NOT: f64 = 0.9;
/// So many trials, all bad, are enough for that, however many must be good for the lower bound.
const SURELY_NOT_TRIALS: u32 = 3;

/// The plan of a study's search.
///
/// Under the preset `mlrsearch`, the default, the bounds of a goal are by two rules. *Meets it*: all trials at the load
/// did. *Does not meet it*: at least nine in ten did not. Between the two lie loads at which trials disagree; they are
/// part of the answer's interval and decide nothing. The other presets have one rule, with the exceed ratio that their
/// standard gives.
pub(crate) fn plan(study: &Study, asked: &Search) -> Result<SearchPlan, String> {
    let length = Length::of(study, asked);
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
        shaped.initial_trial_duration_s = match length.has_short_trials(shaped.initial_trial_duration_s) {
            true => shaped.initial_trial_duration_s.min(shaped.final_trial_duration_s),
            false => shaped.final_trial_duration_s,
        };
        shaped.width = asked.width;
        if preset == Preset::Mlrsearch {
            let enough_s = shaped.final_trial_duration_s * f64::from(SURELY_NOT_TRIALS);
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
    // The first try, and so many more: as for a setting that is not searched.
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

/// What the workload says about the length of a search's trials.
struct Length {
    /// Loops or requests end them.
    ends_itself: bool,
    /// The longest time over which users start, in seconds.
    ramp_up_s: f64,
}

impl Length {
    fn of(study: &Study, asked: &Search) -> Self {
        let settings = study.settings.iter().enumerate();
        let own = settings.filter(|(_, setting)| study.search_of(setting) == Some(asked));
        let mut length = Self { ends_itself: false, ramp_up_s: 0.0 };
        let mut is_first = true;
        study.each_setup(own.map(|(number, _)| (number, Some(asked.min))), &mut |_, setup| {
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

    /// Whether first trials of that many seconds make sense. Trials that end themselves would be as long, and count for
    /// less; in others hardly a user would have started.
    fn has_short_trials(&self, initial_s: f64) -> bool {
        !self.ends_itself && self.ramp_up_s <= RAMP_UP_SHARE * initial_s
    }

    fn fits(&self, trial_s: f64) -> Result<(), String> {
        if self.ramp_up_s < trial_s {
            return Ok(());
        }
        Err(format!(
            "the users start over {} s (ramp_up, --ramp-up), and a trial lasts {trial_s} s: not all would ever have started; \
             give longer trials (trial in [search], --trial) or a shorter ramp-up",
            self.ramp_up_s
        ))
    }
}

/// So much of a first trial may go by before all users have started.
const RAMP_UP_SHARE: f64 = 0.1;
