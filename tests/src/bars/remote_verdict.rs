//! Bottlenecks of a target on a remote machine, reachable only by `ssh`, are named like those of a lab's hosts.

use std::fs;

use anyhow::{Context, Result};
use serde_json::Value;
use testing::PATIENCE;

use super::{
    Bar, By, Outcome, Scale,
    verdict_table::{CASES, SOUND, cause_of, decide, pinned, verdict_in, verdict_of},
};
use crate::{
    lab::{Labs, SshdFolder},
    random::Random,
};

pub(super) const BAR: Bar = Bar {
    name: "remote-verdict",
    what: "6 bottlenecks of a target behind ssh are named in 3 of 3 trials as in a lab, from what a shell reads there; 5 sound trials \
           name the offered load",
    full_seconds: 420,
    decided_by: By::Times,
    run,
};

/// Causes at the target. Other causes need the counters of a lab's links, which a remote host does not have.
const CAUSES: [&str; 6] =
    ["receive_window", "accept_queue", "syn_queue", "send_buffer", "slow_handler", "cpu_quota"];
/// The name of the remote host.
const REMOTE: &str = "far";
/// The target's host, as it is called in the ssh configuration of the lab.
const LOGIN: &str = "root@web";

fn run(scale: Scale) -> Result<Outcome> {
    let _sshd = SshdFolder::made()?;
    let mut outcome = Outcome::default();
    let trials = scale.pick(1, 3);
    for cause in &CAUSES[..scale.pick(2, CAUSES.len())] {
        let case = CASES.iter().find(|case| case.cause == *cause).context("no such case")?;
        let (mut same, mut void) = (0, 0);
        for trial in 0..trials {
            let study = (case.study)(&mut Random::new(7_000 + trial));
            let verdict = remote_verdict(&study, scale).context(case.cause)?;
            // In a sample, the sample of the bar `verdict-table` tests the lab's half.
            let local = (scale == Scale::Full).then(|| verdict_of(&study, scale)).transpose()?;
            let is_same = local.as_ref().is_none_or(|local| cause_of(local) == cause_of(&verdict));
            let first = &verdict["bottlenecks"][0];
            let is_named = first["cause"] == *cause && first["place"] == REMOTE && is_same;
            same += u64::from(is_named);
            let causes = [Some(&verdict), local.as_ref()].map(|verdict| verdict.map(cause_of));
            void += u64::from(!is_named && causes.contains(&Some("generator")));
            outcome.note(format!("{cause}: {causes:?} ({})", first["evidence"]));
            if !is_named {
                outcome.note(format!("WRONG: {verdict:#}\n{local:#?}\n{study}"));
            }
        }
        decide(&mut outcome, cause, [same, void, trials], "named as in a lab");
    }
    let sound = scale.pick(1, 5);
    let (mut named, mut void) = (0, 0);
    for trial in 0..sound {
        let verdict = remote_verdict(&SOUND(&mut Random::new(60_000 + trial)), scale).context("sound")?;
        let is_alone = verdict["bottlenecks"].as_array().is_some_and(|all| all.len() == 1);
        let is_named = is_alone && cause_of(&verdict) == "offered_load";
        named += u64::from(is_named);
        void += u64::from(cause_of(&verdict) == "generator");
        if !is_named {
            outcome.note(format!("sound: {verdict:#}"));
        }
    }
    decide(&mut outcome, "offered_load", [named, void, sound], "sound trials that name it, and nothing else");
    Ok(outcome)
}

/// The verdict of a study's load. The study has no lab, and knows its target by a URL and a login.
fn remote_verdict(study: &str, scale: Scale) -> Result<Value> {
    let study = pinned(study)?;
    let (hosts, rest) = study.split_once("[targets.web]\n").context("no target")?;
    let (target, workload) =
        rest.split_once("[workload.http]\nfrom = \"client\"\n").context("no workload")?;
    let labs = Labs::new()?;
    let lab_file = format!("{hosts}[[processes]]\n{target}[[processes]]\non = \"web\"\nrun = \"sshd\"\n");
    let (lab, _) = labs.up(&labs.file("lab.toml", &lab_file)?)?;
    let said = lab.stdout();
    let word_after = |lead: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix(lead));
        line.map(str::trim).with_context(|| format!("no line of {lead:?}: {said}"))
    };
    let (address, run_folder) = (word_after("web ")?, word_after("files and logs in ")?);
    let path = labs.with_ssh(&format!("exec /usr/bin/ssh -F {run_folder}/ssh_config \"$@\""))?;
    // A sample is shorter, but long enough that the cost of an overflow, one second, does not decide.
    let workload = workload.replace("\"4s\"", scale.pick("\"3s\"", "\"4s\""));
    let text = format!(
        "title = \"remote\"\nobserve = [\"{REMOTE}={LOGIN}\"]\n[targets.web]\nurl = \"http://{address}:8080/\"\n\
         [workload.http]\n{workload}"
    );
    let out = labs.path("result");
    let words = format!(
        "lab shell client -- {} run {} --out {out} -q",
        crate::proofload::binary()?.display(),
        labs.file("study.toml", &text)?
    );
    let output = labs.command(&words)?.env("PATH", &path).run(PATIENCE)?;
    labs.down(lab)?;
    let trials = fs::read_to_string(format!("{out}/trials.jsonl"))
        .with_context(|| format!("{}{}\n{text}\n{lab_file}", output.stdout, output.stderr))?;
    verdict_in(&trials)
}
