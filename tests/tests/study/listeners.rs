//! The shipped study of data listeners: whether what was acknowledged is stored.

use std::fs;

use anyhow::{Context, Result, ensure};
use proofload_tests::{Output, temporary::TemporaryFolder};
use record::{Ending, Purpose};

use super::{super::beside_others, http, report, result, run_study, trials_of};

/// A data listener: the smallest part of the shipped study, without the goal that is a time.
fn listener_study(words: &str) -> Result<(TemporaryFolder, Output)> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../studies/http-listener.toml");
    let (text, timed) = (fs::read_to_string(path)?, "connect_p99 = \"900ms\"\n");
    ensure!(text.contains(timed), "{path} has no {timed}");
    let words = format!("--set method=jmeter --set budget=1h --set workload.http.timeout=5m {words}");
    run_study(&text.replace(timed, ""), &words)
}

#[test]
fn listeners_lose_nothing_that_they_acknowledged() -> Result<()> {
    let _shared = beside_others();
    let (folder, output) = listener_study(
        "--set target=listen,nginx --set search.min=2 --set search.max=8 --set search.confirm=2 \
         --set workload.http.loops=20",
    )?;
    let result = result(&folder).with_context(|| output.described())?;
    ensure!(result.ending == Ending::Finished, "{:?}", result.warnings);
    let trials = trials_of(&folder, &output)?;
    for entry in &trials {
        let audit = entry.audit.as_ref().with_context(|| format!("trial {} has no audit", entry.index))?;
        ensure!(audit.is_clean() && audit.is_conclusive(), "trial {}: {audit:?}", entry.index);
        let counts = &http(entry).counts;
        let sent = entry.load.context("it has a load")? * 20.0;
        ensure!((counts.completed as f64, counts.failed) == (sent, 0), "trial {}: {counts:?}", entry.index);
        ensure!(audit.sent.all_acknowledged() == counts.completed, "{audit:?}");
        ensure!(audit.stored >= counts.completed, "{audit:?}");
    }
    for outcome in &result.outcomes {
        let audit = outcome.audit.context("the audits were not added up")?;
        ensure!(audit.is_clean() && audit.acknowledged > 0, "{audit:?}");
        let mut goals = outcome.searches.iter().flat_map(|search| &search.goals);
        ensure!(goals.all(|goal| goal.upper.is_none()), "a goal was missed: {outcome:?}");
    }
    ensure!(output.stdout.contains("acknowledged"), "{}", output.described());
    let kept = fs::read_dir(folder.path().join("result/receipts"))?.count();
    let confirming = trials.iter().filter(|entry| entry.purpose == Purpose::Confirm).count();
    ensure!(kept == confirming, "receipts of {kept} trials are kept, {confirming} confirmed a bound");
    ensure!(!folder.path().join("result/stored").exists(), "what the targets stored was left behind");
    Ok(())
}

#[test]
fn what_a_listener_lost_is_told_and_kept() -> Result<()> {
    let _shared = beside_others();
    // Looked for where nothing lies, everything that was acknowledged is lost.
    let (folder, output) = listener_study(
        "--set target=nginx --set search.min=2 --set search.max=3 --set workload.http.loops=5 \
         --set audit.flush=200ms --set audit.files=[\"{target_folder}/none/*.log\"]",
    )?;
    let result = result(&folder).with_context(|| output.described())?;
    let goals = &result.outcomes[0].searches[0].goals;
    let lost = goals.iter().find(|goal| goal.goal == "nothing lost").context("there is no such goal")?;
    ensure!(lost.lower.is_none() && result.outcomes[0].searches[0].confirmation.is_none(), "{lost:?}");
    let audit = result.outcomes[0].audit.context("nothing was audited")?;
    ensure!(audit.lost == audit.acknowledged && audit.stored == 0 && audit.lost > 0, "{audit:?}");
    let kept = folder.path().join("result/stored-of-trial-1/local-nginx/bodies.log");
    ensure!(fs::read_to_string(&kept)?.contains("\"proofload\":\""), "{} holds no events", kept.display());
    let junit = report(&folder, "--junit -")?;
    ensure!(junit.contains("name=\"audit\"") && junit.contains("<failure"), "{junit}");
    Ok(())
}
