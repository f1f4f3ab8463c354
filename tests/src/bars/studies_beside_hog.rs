//! The shipped studies beside a hog: every setting gets its figures, and no study takes much longer.

use anyhow::Result;
use record::{SearchOutcome, SettingOutcome};

use super::{
    Bar, By, Outcome, Scale, is_wanted,
    ocean_path::{Studied, study_with_any_goals},
};
use crate::{
    Proofload,
    hog::{Bursts, Hog},
    lab::SshdFolder,
    machine::Cores,
    random::Random,
};

pub(super) const BAR: Bar = Bar {
    name: "studies-beside-hog",
    what: "six shipped studies beside a hog of 10 % on both processors: every setting has its figures, no table has a dash more than \
           without the hog, and none takes more than 1.5 times as long",
    full_seconds: 6_600,
    decided_by: By::Times,
    run,
};

const HOG_SHARE: f64 = 0.1;
/// The hog's shortest burst, in milliseconds.
const SHORTEST_MS: f64 = 0.2;
/// The studies, each with the hog's longest burst in milliseconds. Bursts are shorter if a goal limits the 99th percentile to 10 ms,
/// because a target that stops for as long has no capacity for that goal. `PROVE_CASES` names a study followed by `-quiet` or `-hog` for
/// one of its two runs.
const STUDIES: [(&str, f64); 6] = [
    ("quickstart", 5.0),
    ("http-listener", 20.0),
    ("max-rps", 5.0),
    ("l2dsr-vs-proxy", 20.0),
    ("ocean-path", 20.0),
    ("ocean-copy", 20.0),
];

fn run(scale: Scale) -> Result<Outcome> {
    let _sshd = SshdFolder::made()?;
    let mut outcome = Outcome::default();
    let (studies, words) = scale.pick((&STUDIES[..1], "--set budget=12s"), (&STUDIES[..], ""));
    for (seed, &(name, longest_ms)) in studies.iter().enumerate() {
        let half = |which: &str| is_wanted(name) || is_wanted(&format!("{name}-{which}"));
        let quiet = (scale == Scale::Full && half("quiet"))
            .then(|| study_with_any_goals(name, words, &[]))
            .transpose()?;
        let quiet = quiet.as_ref().map(|studied| shown(&mut outcome, name, "quiet", studied)).transpose()?;
        if !half("hog") {
            continue;
        }
        let cores = Cores::of_this_process()?;
        let mut random = Random::new(seed as u64);
        let on = [cores.generator, cores.server];
        let hog = Hog::start(
            on.map(|core| (core, Bursts::new(random.any(), HOG_SHARE, [SHORTEST_MS, longest_ms]))),
        )?;
        let studied = study_with_any_goals(name, words, &[])?;
        hog.end()?;
        let dashes = shown(&mut outcome, name, "beside the hog", &studied)?;
        let without = without_figures(&studied);
        outcome.time().figure(
            &format!("{name}_settings_without_figures"),
            format!("{} of {}", without.len(), studied.plan.settings.len()),
            "0",
            without.is_empty(),
        );
        for number in without {
            outcome.note(format!("{name}: {} has no figure", studied.plan.settings[number].name));
        }
        let Some((quiet_dashes, quiet_s)) = quiet else { continue };
        outcome.time().figure(&format!("{name}_dashes"), dashes.0, quiet_dashes, dashes.0 <= quiet_dashes);
        let ratio = dashes.1 / quiet_s;
        outcome.time().figure(&format!("{name}_time"), format!("{ratio:.2}"), "<= 1.5", ratio <= 1.5);
    }
    Ok(outcome)
}

/// Notes how a study went. Returns the number of dashes in the tables of its report, and its time in seconds.
fn shown(outcome: &mut Outcome, name: &str, when: &str, studied: &Studied) -> Result<(usize, f64)> {
    let report = Proofload::new(&format!("report {}", studied.folder.file("result")))?.run()?.stdout;
    let dashes = report.split_whitespace().filter(|word| *word == "–").count();
    let void = studied.trials.iter().filter(|entry| entry.trial.validity.is_void()).count();
    let (trials, took_s) = (studied.trials.len(), studied.took_s);
    outcome.note(format!(
        "{name}, {when}: {void} of {trials} trials void, {took_s:.0} s, {dashes} dashes\n{report}"
    ));
    Ok((dashes, took_s))
}

/// Settings without figures: they have no valid trial or, in a search, no bound for one of the goals.
fn without_figures(studied: &Studied) -> Vec<usize> {
    let outcomes = studied.result.as_ref().map_or(&[][..], |result| &result.outcomes);
    let has_bound =
        |search: &SearchOutcome| search.goals.iter().all(|goal| goal.lower.is_some() || goal.upper.is_some());
    let says = |outcome: &SettingOutcome| match studied.plan.settings[outcome.setting].searched {
        true => outcome.searches.iter().any(has_bound),
        false => !outcome.summaries.is_empty(),
    };
    let says_something = |number: &usize| outcomes.iter().any(|own| own.setting == *number && says(own));
    (0..studied.plan.settings.len()).filter(|number| !says_something(number)).collect()
}
