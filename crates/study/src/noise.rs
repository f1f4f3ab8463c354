//! Measures the noise of this machine before the first trial.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use record::{HttpPlan, LoadModel, Noise, OnNoise};

use crate::study::Study;

/// A look at the noise is worth its time only before trials of at least this length, in seconds.
const SHORTEST_TRIAL_S: f64 = 5.0;
/// The longest look, in seconds, and the largest share of the planned time that it may take.
const LONGEST_S: f64 = 1.0;
const LARGEST_SHARE: f64 = 0.05;
/// The longest wait for a quieter machine, in seconds.
const LONGEST_WAIT_S: f64 = 10.0;

/// Looks at the processors of this machine that the trial's load will use, and waits for a quieter machine if `on_noise` says so. `None` if
/// the trial is shorter than 5 s or ends by itself, or if the kernel does not report the noise. Passes messages for the user to `tell`, but
/// none if the machine is quiet.
pub fn before_trial(
    plan: &HttpPlan,
    on_noise: OnNoise,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(&str),
) -> Option<Noise> {
    let has_loops = matches!(plan.load, LoadModel::Closed { loops: Some(_), .. });
    let sending_ns = plan.sending_ns().filter(|_| !has_loops && plan.requests.is_none());
    let length = sending_ns.map(|ns| ns as f64 / 1e9).and_then(|length_s| length(length_s, length_s));
    let look =
        &mut |length| kernel::noise::look(length, &plan.cpus).ok().filter(|_| !stop.load(Ordering::Relaxed));
    look_and_wait(length, on_noise, look, tell)
}

/// Looks at this machine before the first trial of a study, and waits, as [`before_trial`] does. Stores the measured noise in the study.
/// The study's budget includes the look but not the wait.
pub fn before_study(study: &mut Study, stop: &AtomicBool, tell: &mut dyn FnMut(&str)) {
    let look = &mut |length| kernel::noise::look(length, &[]).ok().filter(|_| !stop.load(Ordering::Relaxed));
    if let Some(noise) = look_and_wait(length_before(study), study.trial.on_noise, look, tell) {
        heed(study, noise);
    }
}

/// Stores the noise of this machine in a study, and subtracts the time of the look from its budget. A resumed study calls this with the
/// noise of its first run.
pub fn heed(study: &mut Study, noise: Noise) {
    study.budget = study.budget.map(|budget| budget.saturating_sub(Duration::from_secs_f64(noise.looked_s)));
    study.noise = Some(noise);
}

/// Looks once. If `on_noise` says to wait and the machine is noisy, repeats the look, for at most 10 s in all. Without a `length`, there is
/// no look. `look` returns `None` if it cannot measure anything, or if the user has asked to stop.
fn look_and_wait(
    length: Option<Duration>,
    on_noise: OnNoise,
    look: &mut dyn FnMut(Duration) -> Option<Noise>,
    tell: &mut dyn FnMut(&str),
) -> Option<Noise> {
    let waits = on_noise == OnNoise::Wait;
    let Some(length) = length else {
        if waits {
            tell(
                "no wait for a quieter machine: noise is measured only before trials of at least 5 s, and not if loops, requests \
                 or programs end them",
            );
        }
        return None;
    };
    let mut noise = look(length)?;
    if !noise.is_noisy() {
        return Some(noise);
    }
    tell(&format!("this machine is noisy: {noise}"));
    if !waits {
        return Some(noise);
    }
    tell("waiting for a quieter machine, for at most 10 s");
    let mut waited_s = 0.0;
    while noise.is_noisy()
        && waited_s + LONGEST_S <= LONGEST_WAIT_S
        && let Some(next) = look(Duration::from_secs_f64(LONGEST_S))
    {
        waited_s += next.looked_s;
        noise = Noise { waited_s, ..next };
    }
    let is = if noise.is_noisy() { "still noisy" } else { "quiet" };
    tell(&format!("waited {waited_s:.0} s; this machine is {is}: {noise}"));
    Some(noise)
}

/// Length of the look before the first trial of a study; `None` without a look.
fn length_before(study: &Study) -> Option<Duration> {
    let plan = crate::plan(study, Vec::new()).ok()?;
    let setup = study.setup(0, plan.search.as_ref().map(|search| search.min)).ok()?;
    let (trial_s, setting_s) = match &plan.search {
        Some(_) if setup.workload.ends_itself() => return None,
        // At least one lower and one upper bound must be measured.
        Some(search) => (search.trial_duration_s, 2.0 * search.duration_sum_s),
        None => {
            let trial_s = setup.workload.length_s()?;
            (trial_s, trial_s * plan.blocks.len() as f64)
        }
    };
    let planned_s = setting_s * plan.settings.len() as f64;
    length(trial_s, study.budget.map_or(planned_s, |budget| planned_s.min(budget.as_secs_f64())))
}

/// Length of the look before trials of `trial_s` seconds that take `planned_s` seconds in total; `None` before short trials.
fn length(trial_s: f64, planned_s: f64) -> Option<Duration> {
    (trial_s >= SHORTEST_TRIAL_S)
        .then(|| Duration::from_secs_f64((LARGEST_SHARE * planned_s).clamp(0.0, LONGEST_S)))
}

#[cfg(test)]
mod tests {
    use load::MachineLimits;
    use testing::plans;

    use super::*;

    #[test]
    fn a_look_takes_a_twentieth_of_the_time_and_a_second_at_most() {
        let ms = |trial_s, planned_s| Some(length(trial_s, planned_s)?.as_millis());
        assert_eq!(ms(4.99, 600.0), None, "short trials have none");
        assert_eq!((ms(5.0, 5.0), ms(10.0, 10.0)), (Some(250), Some(500)));
        assert_eq!((ms(20.0, 20.0), ms(5.0, 3_600.0)), (Some(1_000), Some(1_000)));
    }

    /// The measured noise and the messages for successive looks that see these shares of other programs.
    fn waited(length_ms: Option<u64>, on_noise: OnNoise, others: &[f64]) -> (Option<Noise>, Vec<String>) {
        let (mut looks, mut told) = (others.iter(), Vec::new());
        let look = &mut |length: Duration| {
            let others_ratio = *looks.next()?;
            Some(Noise { looked_s: length.as_secs_f64(), others_ratio, ..Noise::default() })
        };
        let noise = look_and_wait(length_ms.map(Duration::from_millis), on_noise, look, &mut |words| {
            told.push(words.to_owned());
        });
        (noise, told)
    }

    #[test]
    fn a_wait_ends_with_the_noise_and_after_ten_seconds() {
        let (noise, told) = waited(Some(250), OnNoise::Wait, &[0.3, 0.2, 0.02, 0.9]);
        let noise = noise.unwrap();
        assert_eq!((noise.waited_s, noise.others_ratio, noise.looked_s), (2.0, 0.02, 1.0));
        assert!(told[0].contains("noisy") && told[0].contains("programs 30.0 %"), "{told:?}");
        assert!(told[2].starts_with("waited 2 s; this machine is quiet"), "{told:?}");
        let (noise, told) = waited(Some(250), OnNoise::Wait, &[0.3; 100]);
        assert_eq!(noise.unwrap().waited_s, 10.0);
        assert!(told[2].starts_with("waited 10 s; this machine is still noisy"), "{told:?}");
        let (noise, _) = waited(Some(250), OnNoise::Wait, &[0.3, 0.3]);
        assert_eq!(noise.unwrap().waited_s, 1.0, "interrupted");
    }

    #[test]
    fn nothing_waits_unless_it_is_asked_to_and_the_machine_is_noisy() {
        let (noise, told) = waited(Some(250), OnNoise::Wait, &[0.0, 0.3]);
        assert_eq!((noise.unwrap().waited_s, told.len()), (0.0, 0));
        for on_noise in [OnNoise::Widen, OnNoise::Void] {
            let (noise, told) = waited(Some(250), on_noise, &[0.3, 0.0]);
            assert_eq!((noise.unwrap().others_ratio, told.len()), (0.3, 1), "{told:?}");
        }
        let (noise, told) = waited(None, OnNoise::Wait, &[0.3]);
        assert!(noise.is_none() && told[0].starts_with("no wait"), "{told:?}");
        assert_eq!(waited(None, OnNoise::Widen, &[0.3]), (None, Vec::new()));
    }

    #[test]
    fn the_plan_of_a_study_keeps_what_was_seen_and_so_does_its_resumption() {
        let read = |words: &str| {
            let text = format!(
                "{words}[targets.web]\nurl = \"http://127.0.0.1:1/\"\n[workload.http]\nusers = 1\nduration = \"5s\"\n"
            );
            crate::file::read("f", &text, &[], &MachineLimits::EXAMPLE).unwrap()
        };
        let mut study = read("budget = \"4s\"\n");
        before_study(&mut study, &AtomicBool::new(false), &mut |_| ());
        let plan = crate::plan(&study, Vec::new()).unwrap();
        let noise = plan.noise.clone().unwrap();
        let left_s = study.budget.unwrap().as_secs_f64();
        assert!(noise.looked_s >= 0.2 && (left_s + noise.looked_s - 4.0).abs() < 1e-6, "{noise:?} {left_s}");
        let mut resumed = read("budget = \"4s\"\n");
        heed(&mut resumed, noise);
        assert_eq!((crate::plan(&resumed, Vec::new()).unwrap(), resumed.budget), (plan, study.budget));
        assert_eq!(length_before(&read("")), Some(Duration::from_millis(250)));
        assert_eq!(length_before(&read("[trial]\nrepeats = 100\n")), Some(Duration::from_secs(1)));
    }

    #[test]
    fn trials_that_end_by_themselves_have_no_look() {
        let seconds = |plan: &HttpPlan| {
            let noise = before_trial(plan, OnNoise::Widen, &AtomicBool::new(false), &mut |_| ());
            noise.map(|noise| noise.looked_s)
        };
        let plan = plans::open(50.0, 5, 8);
        assert!(seconds(&plan).is_some_and(|looked_s| looked_s >= 0.25), "{plan:?}");
        assert_eq!(seconds(&plans::open(50.0, 4, 8)), None);
        assert_eq!(seconds(&HttpPlan { requests: Some(9), ..plan }), None);
    }
}
