//! The look at this machine before the first trial.

use std::time::Duration;

use record::{HttpPlan, LoadModel, Noise};

use crate::study::Study;

/// Shorter trials are not worth a look, in seconds.
const SHORTEST_TRIAL_S: f64 = 5.0;
/// The longest look, and the largest share of the planned time that it may take.
const LONGEST_S: f64 = 1.0;
const LARGEST_SHARE: f64 = 0.05;

/// Looks at this machine before a trial, at the processors that its load is to have; none if the trial is shorter than 5 s or
/// ends by itself, and if the kernel does not tell.
pub fn before_trial(plan: &HttpPlan) -> Option<Noise> {
    let has_loops = matches!(plan.load, LoadModel::Closed { loops: Some(_), .. });
    let length_s = plan.sending_ns().filter(|_| !has_loops && plan.requests.is_none())? as f64 / 1e9;
    kernel::noise::look(length(length_s, length_s)?, &plan.cpus).ok()
}

/// Looks at this machine before the first trial of a study, which gets what is seen into its plan. The look takes its time from
/// the study's budget. Returns whether there was a look: as before a trial, and not if the study is resumed.
pub fn before_study(study: &mut Study) -> Option<&Noise> {
    let noise = kernel::noise::look(length_before(study)?, &[]).ok()?;
    heed(study, noise);
    study.noise.as_ref()
}

/// Gives a study what was seen of this machine before it, also when it is resumed.
pub fn heed(study: &mut Study, noise: Noise) {
    study.budget = study.budget.map(|budget| budget.saturating_sub(Duration::from_secs_f64(noise.looked_s)));
    study.noise = Some(noise);
}

/// What is to be told of a machine; nothing of a quiet one.
pub fn in_words(noise: &Noise) -> Option<String> {
    noise.is_noisy().then(|| format!("this machine is noisy: {noise}"))
}

/// How long to look before the first trial of a study.
fn length_before(study: &Study) -> Option<Duration> {
    let plan = crate::plan(study, Vec::new()).ok()?;
    let setup = study.setup(0, plan.search.as_ref().map(|search| search.min)).ok()?;
    let (trial_s, setting_s) = match &plan.search {
        Some(_) if setup.workload.ends_itself() => return None,
        // A lower and an upper bound at least.
        Some(search) => (search.trial_duration_s, 2.0 * search.duration_sum_s),
        None => {
            let trial_s = setup.workload.length_s()?;
            (trial_s, trial_s * plan.blocks.len() as f64)
        }
    };
    let planned_s = setting_s * plan.settings.len() as f64;
    length(trial_s, study.budget.map_or(planned_s, |budget| planned_s.min(budget.as_secs_f64())))
}

/// How long to look before trials of `trial_s` seconds that take `planned_s` seconds in all; none before short ones.
fn length(trial_s: f64, planned_s: f64) -> Option<Duration> {
    (trial_s >= SHORTEST_TRIAL_S)
        .then(|| Duration::from_secs_f64((LARGEST_SHARE * planned_s).clamp(0.0, LONGEST_S)))
}

#[cfg(test)]
mod tests {
    use testing::plans;

    use super::*;

    #[test]
    fn a_look_takes_a_twentieth_of_the_time_and_a_second_at_most() {
        let ms = |trial_s, planned_s| Some(length(trial_s, planned_s)?.as_millis());
        assert_eq!(ms(4.99, 600.0), None, "short trials have none");
        assert_eq!((ms(5.0, 5.0), ms(10.0, 10.0)), (Some(250), Some(500)));
        assert_eq!((ms(20.0, 20.0), ms(5.0, 3_600.0)), (Some(1_000), Some(1_000)));
    }

    #[test]
    fn trials_that_end_by_themselves_have_no_look() {
        let seconds = |plan: &HttpPlan| before_trial(plan).map(|noise| noise.looked_s);
        let plan = plans::open(50.0, 5, 8);
        assert!(seconds(&plan).is_some_and(|looked_s| looked_s >= 0.25), "{plan:?}");
        assert_eq!(seconds(&plans::open(50.0, 4, 8)), None);
        assert_eq!(seconds(&HttpPlan { requests: Some(9), ..plan }), None);
    }

    #[test]
    fn only_a_noisy_machine_is_told_of() {
        assert_eq!(in_words(&Noise::default()), None);
        let words = in_words(&Noise { others_ratio: 0.3, ..Noise::default() }).unwrap();
        assert!(
            words.starts_with("this machine is noisy: ") && words.contains("other programs 30.0 %"),
            "{words}"
        );
    }
}
