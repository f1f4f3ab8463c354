//! The shipped study of data listeners: whether what was acknowledged is stored.

use std::{fs, time::Duration};

use anyhow::{Context, Result, ensure};
use proofload_tests::{Output, Proofload, proofload::is_crowded, temporary::TemporaryFolder};
use record::{BoundKind, Ending, GoalOutcome, Purpose, ResultFolder, SettingOutcome, TrialEntry};

use super::{super::beside_others, http, report, result};

/// A data listener: the smallest part of the shipped study.
fn listener_study(words: &str) -> Result<(TemporaryFolder, Output)> {
    let folder = TemporaryFolder::new()?;
    let study = concat!(env!("CARGO_MANIFEST_DIR"), "/../studies/http-listener.toml");
    let words = format!("run {study} --out {} -q {words}", folder.file("result"));
    // The study's own budget ends it before. On a crowded machine it takes many times as long.
    let output = Proofload::new(&words)?.timeout(Duration::from_secs(300)).run()?;
    Ok((folder, output))
}

#[test]
fn measured_listeners_lose_nothing_that_they_acknowledged() -> Result<()> {
    let _lock = crate::alone();
    let (folder, output) = listener_study(
        "--set target=listen,nginx --set method=jmeter --set search.min=2 --set search.max=8 --set search.confirm=2 \
         --set workload.http.loops=20",
    )?;
    let result = result(&folder).with_context(|| output.described())?;
    ensure!(result.ending == Ending::Finished, "{:?}", result.warnings);
    // A crowded machine leaves goals undecided, but no goal missed.
    ensure!(matches!(output.code, Some(0 | 3)), "{}", output.described());
    let trials = ResultFolder::open(&folder.path().join("result"))?.trials()?;
    for entry in &trials {
        let validity = &entry.trial.validity;
        ensure!(!validity.is_void() || is_crowded(validity), "trial {}: {validity:?}", entry.index);
        let audit = entry.audit.as_ref().with_context(|| format!("trial {} has no audit", entry.index))?;
        ensure!(audit.is_clean() && audit.is_conclusive(), "trial {}: {audit:?}", entry.index);
        ensure!(audit.sent.all_acknowledged() == http(entry).counts.completed, "{audit:?}");
        ensure!(audit.stored >= audit.sent.all_acknowledged(), "{audit:?}");
    }
    let mut told = vec!["acknowledged".to_owned()];
    for outcome in &result.outcomes {
        told.extend(carried(outcome, &trials)?);
    }
    for part in told {
        ensure!(output.stdout.contains(&part), "'{part}' is not told: {}", output.described());
    }
    let kept = fs::read_dir(folder.path().join("result/receipts"))?.count();
    let confirming = trials.iter().filter(|entry| entry.purpose == Purpose::Confirm).count();
    ensure!(kept == confirming, "receipts of {kept} trials are kept, {confirming} confirmed a bound");
    ensure!(!folder.path().join("result/stored").exists(), "what the targets stored was left behind");
    Ok(())
}

/// Checks that a listener carried all 8 users, as far as the machine let trials be valid. Returns what must be told of it.
fn carried(outcome: &SettingOutcome, trials: &[TrialEntry]) -> Result<Vec<String>> {
    let audit = outcome.audit.context("the audits were not added up")?;
    ensure!(audit.is_clean() && audit.acknowledged > 0, "{audit:?}");
    let own = trials.iter().filter(|entry| entry.setting == outcome.setting);
    let (confirming, searching): (Vec<_>, Vec<_>) = own.partition(|entry| entry.purpose == Purpose::Confirm);
    let count_valid =
        |entries: &[&TrialEntry]| entries.iter().filter(|entry| !entry.trial.validity.is_void()).count();
    let search = outcome.searches.first().context("no search was made")?;
    // Only void trials may cut a search short.
    let is_cut_short = count_valid(&searching) < searching.len()
        && search
            .goals
            .iter()
            .all(|goal| matches!(goal.kind, BoundKind::Unfinished | BoundKind::GeneratorBound { .. }));
    let carries_all = |goal: &GoalOutcome| {
        goal.kind == BoundKind::AtLeast && goal.lower.as_ref().is_some_and(|bound| bound.load == 8.0)
    };
    ensure!(is_cut_short || search.goals.iter().all(carries_all), "{:?}", search.goals);
    ensure!(search.goals.iter().all(|goal| goal.upper.is_none()), "a goal was missed: {:?}", search.goals);

    // One load decides all goals, so they share their lower bound.
    let lower = search.goals[0].lower.as_ref().filter(|_| search.finished).map(|bound| bound.load);
    let confirmed = search.confirmation.as_ref();
    ensure!(confirmed.map(|found| found.load) == lower, "{confirmed:?} of {:?}", search.goals);
    ensure!(
        confirmed.is_some() || (is_cut_short && confirming.is_empty()),
        "the lower bound was not confirmed"
    );
    let Some(confirmed) = confirmed else { return Ok(Vec::new()) };
    let valid = count_valid(&confirming);
    ensure!(confirmed.planned == 2 && confirmed.valid as usize == valid, "{confirmed:?}");
    // Each further trial is valid in the end, or was given up as void.
    ensure!(
        valid == 2 || (valid < 2 && confirming.len() > 2),
        "{confirmed:?} of {} trials",
        confirming.len()
    );
    ensure!(
        confirmed.met.iter().all(|&met| met as usize == valid) && confirmed.met.len() == 5,
        "{confirmed:?}"
    );
    let measured = confirmed.summaries.iter().any(|summary| summary.quantity == "stored_events_per_s");
    ensure!(measured == (valid > 0) && confirmed.audit.is_some() == (valid > 0), "{confirmed:?}");
    ensure!(confirmed.audit.is_none_or(|audit| audit.is_clean() && audit.acknowledged > 0), "{confirmed:?}");
    let was = if valid == 1 { "was" } else { "were" };
    let sentence =
        format!("{valid} of 2 further trials at the lower bound, {} users, {was} valid", confirmed.load);
    Ok([sentence].into_iter().chain(measured.then(|| "bytes stored".to_owned())).collect())
}

#[test]
fn what_a_listener_lost_is_told_and_kept() -> Result<()> {
    let _shared = beside_others();
    // Looked for where nothing lies, everything that was acknowledged is lost.
    let (folder, output) = listener_study(
        "--set target=nginx --set method=jmeter --set search.min=2 --set search.max=3 --set workload.http.loops=5 \
         --set audit.flush=200ms --set audit.files=[\"{target_folder}/none/*.log\"]",
    )?;
    let result = result(&folder).with_context(|| output.described())?;
    if result.void_trials == 0 {
        ensure!(output.code == Some(1), "{}", output.described());
        let goals = &result.outcomes[0].searches[0].goals;
        let lost = goals.iter().find(|goal| goal.goal == "nothing lost").context("there is no such goal")?;
        ensure!(
            lost.kind == BoundKind::Below && result.outcomes[0].searches[0].confirmation.is_none(),
            "{lost:?}"
        );
    }
    let audit = result.outcomes[0].audit.context("nothing was audited")?;
    ensure!(audit.lost == audit.acknowledged && audit.stored == 0 && audit.lost > 0, "{audit:?}");
    let kept = folder.path().join("result/stored-of-trial-1/local-nginx/bodies.log");
    ensure!(fs::read_to_string(&kept)?.contains("\"proofload\":\""), "{} holds no events", kept.display());
    let junit = report(&folder, "--junit -")?;
    ensure!(junit.contains("name=\"audit\"") && junit.contains("<failure"), "{junit}");
    Ok(())
}
