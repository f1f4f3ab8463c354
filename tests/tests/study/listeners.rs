//! The shipped study of data listeners: whether what was acknowledged is stored.

use std::fs;

use anyhow::{Context, Result, ensure};
use proofload_tests::{Output, Proofload, temporary::TemporaryFolder};
use record::{BoundKind, Ending, Purpose, ResultFolder};

use super::{
    super::{QUIET, beside_others},
    http, report, result,
};

/// A data listener: the smallest part of the shipped study.
fn listener_study(words: &str) -> Result<(TemporaryFolder, Output)> {
    let folder = TemporaryFolder::new()?;
    let study = concat!(env!("CARGO_MANIFEST_DIR"), "/../studies/http-listener.toml");
    let words = format!("run {study} --out {} -q {words}", folder.file("result"));
    let output = Proofload::new(&words)?.run()?;
    Ok((folder, output))
}

#[test]
fn listeners_lose_nothing_that_they_acknowledged() -> Result<()> {
    let _alone = QUIET.write().unwrap_or_else(std::sync::PoisonError::into_inner);
    let (folder, output) = listener_study(
        "--set target=listen,nginx --set method=jmeter --set search.min=2 --set search.max=8 --set search.confirm=2 \
         --set workload.http.loops=20 --set budget=60s",
    )?;
    let result = result(&folder).with_context(|| output.described())?;
    ensure!(result.ending == Ending::Finished, "{:?}", result.warnings);
    let trials = ResultFolder::open(&folder.path().join("result"))?.trials()?;
    for entry in &trials {
        let audit = entry.audit.as_ref().with_context(|| format!("trial {} has no audit", entry.index))?;
        ensure!(audit.is_clean() && audit.is_conclusive(), "trial {}: {audit:?}", entry.index);
        ensure!(audit.sent.all_acknowledged() == http(entry).counts.completed, "{audit:?}");
        ensure!(audit.stored >= audit.sent.all_acknowledged(), "{audit:?}");
    }
    for outcome in &result.outcomes {
        let search = outcome.searches.first().context("no search was made")?;
        let is_cut_short =
            |kind: &BoundKind| matches!(kind, BoundKind::Unfinished | BoundKind::GeneratorBound { .. });
        // A crowded machine may give up trials as void; what was audited above stands all the same.
        if search.goals.iter().all(|goal| is_cut_short(&goal.kind)) && result.void_trials > 0 {
            continue;
        }
        ensure!(search.goals.iter().all(|goal| goal.kind == BoundKind::AtLeast), "{:?}", search.goals);
        let confirmed = search.confirmation.as_ref().context("the lower bound was not confirmed")?;
        // A crowded machine gives some up as void.
        let counts = confirmed.planned == 2 && (1..=2).contains(&confirmed.valid);
        ensure!(confirmed.load == 8.0 && counts, "{confirmed:?}");
        ensure!(confirmed.summaries.iter().any(|summary| summary.quantity == "stored_events_per_s"));
        let audit = outcome.audit.context("the audits were not added up")?;
        ensure!(audit.is_clean() && audit.acknowledged > 0, "{audit:?}");
    }
    let kept = fs::read_dir(folder.path().join("result/receipts"))?.count();
    let confirming = trials.iter().filter(|entry| entry.purpose == Purpose::Confirm).count();
    ensure!(kept == confirming, "receipts of {kept} trials are kept, {confirming} confirmed a bound");
    ensure!(!folder.path().join("result/stored").exists(), "what the targets stored was left behind");
    let mut told = vec!["acknowledged", "bytes stored"];
    told.extend((confirming > 0).then_some("further trials at the lower bound, 8 users"));
    for part in told {
        ensure!(output.stdout.contains(part), "'{part}' is not told: {}", output.described());
    }
    Ok(())
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
