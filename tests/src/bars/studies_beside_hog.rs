//! The shipped studies beside a hog: every setting has its figures, and a study takes little longer.

use anyhow::Result;
use record::{SearchOutcome, SettingOutcome};

use super::{
    Bar, By, Outcome, Scale, is_wanted,
    ocean_path::{Studied, study},
};
use crate::{
    Proofload,
    hog::{Bursts, Hog},
    lab::SshdFolder,
    machine::Cores,
    random::Random,
};

/// The bar.
pub(super) const BAR: Bar = Bar {
    name: "studies-beside-hog",
    what: "six shipped studies beside a hog of 10 % on both processors: every setting has its figures, no table has a dash more than \
           without the hog, and none takes more than 1.5 times as long",
    full_seconds: 6_600,
    decided_by: By::Times,
    run,
};

const HOG_SHARE: f64 = 0.1;
const HOG_BURSTS_MS: [f64; 2] = [0.2, 20.0];
/// `PROVE_CASES` names them, with `-quiet` or `-hog` behind the name for one of the two runs.
const STUDIES: [&str; 6] =
    ["quickstart", "http-listener", "max-rps", "l2dsr-vs-proxy", "ocean-path", "ocean-copy"];

fn run(scale: Scale) -> Result<Outcome> {
    let _sshd = SshdFolder::made()?;
    let mut outcome = Outcome::default();
    let (studies, words) = scale.pick((&STUDIES[..1], "--set budget=12s"), (&STUDIES[..], ""));
    for (seed, &name) in studies.iter().enumerate() {
        let half = |which: &str| is_wanted(name) || is_wanted(&format!("{name}-{which}"));
        let quiet = (scale == Scale::Full && half("quiet")).then(|| study(name, words, &[])).transpose()?;
        let quiet = quiet.as_ref().map(|studied| shown(&mut outcome, name, "quiet", studied)).transpose()?;
        if !half("hog") {
            continue;
        }
        let cores = Cores::of_this_process()?;
        let mut random = Random::new(seed as u64);
        let on = [cores.generator, cores.server];
        let hog = Hog::start(on.map(|core| (core, Bursts::new(random.any(), HOG_SHARE, HOG_BURSTS_MS))))?;
        let studied = study(name, words, &[])?;
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

/// Notes how a study went; gives the dashes in the tables of its report, and its seconds.
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

/// Settings of which nothing can be said: without a valid trial or, in a search, without a bound for one of its goals.
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
