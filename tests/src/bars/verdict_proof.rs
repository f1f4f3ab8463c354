//! Raising the limit that a verdict names moves the bound; if it does not, the proof says so.

use std::fs;

use anyhow::{Context, Result};
use serde_json::Value;

use super::{
    Bar, By, Outcome, Scale, seconds,
    verdict_table::{CASES, COOKIES, pinned},
};
use crate::{Proofload, lab::SshdFolder, random::Random, temporary::TemporaryFolder};

pub(super) const BAR: Bar = Bar {
    name: "verdict-proof",
    what: "--prove moves the bound of 11 bottlenecks, says that a SYN queue with cookies does not move, and leaves what it cannot raise",
    full_seconds: 1_500,
    decided_by: By::Times,
    run,
};

/// Causes whose limit proofload can raise. The first one is the sample.
const RAISED: [&str; 11] = [
    "cpu_quota",
    "link_rate",
    "accept_queue",
    "receive_window",
    "send_buffer",
    "packet_loss",
    "source_ports",
    "descriptors",
    "link_queue",
    "connection_limit",
    "syn_queue",
];
const NOT_RAISED: [&str; 2] = ["slow_handler", "ssh_window"];

fn run(scale: Scale) -> Result<Outcome> {
    let _sshd = SshdFolder::made()?;
    let mut outcome = Outcome::default();
    let of_cause = |cause: &&str| CASES.iter().find(|case| case.cause == *cause).context("no such case");
    for cause in &RAISED[..scale.pick(1, RAISED.len())] {
        let study = (of_cause(cause)?.study)(&mut Random::new(9_000));
        prove(&mut outcome, cause, &study, "moved", scale)?;
    }
    if scale == Scale::Full {
        for cause in &NOT_RAISED {
            let study = (of_cause(cause)?.study)(&mut Random::new(9_000));
            prove(&mut outcome, cause, &study, "not_tried", scale)?;
        }
        // With SYN cookies, a longer queue carries no more load; the goal is missed because of the path.
        let study = (of_cause(&"syn_queue")?.study)(&mut Random::new(9_000));
        let study = study.replace(&format!("{COOKIES} = 0"), &format!("{COOKIES} = 1"));
        let study = study.replace("errors = 0.0", "errors = 0.0\np50 = \"10ms\"");
        prove(&mut outcome, "syn_queue with cookies", &study, "not_moved", scale)?;
    }
    Ok(outcome)
}

/// Runs a study with its proof, and checks the result of the proof.
fn prove(outcome: &mut Outcome, name: &str, study: &str, expected: &str, scale: Scale) -> Result<()> {
    let folder = TemporaryFolder::new()?;
    let (file, out) = (folder.file("study.toml"), folder.file("result"));
    let study = pinned(study)?.replace("\"4s\"", scale.pick("\"500ms\"", "\"3s\""));
    fs::write(&file, &study)?;
    let output = Proofload::new("run --prove -q")?
        .arg(&file)
        .with(|launch| launch.args(["--out", &out]))
        .timeout(seconds(400))
        .run()?;
    let result = fs::read_to_string(format!("{out}/result.json"))
        .with_context(|| format!("{}\n{study}", output.described()))?;
    let result: Value = serde_json::from_str(&result)?;
    let proof = &result["proofs"][0];
    let is_right = proof["cause"] == *name.split(' ').next().unwrap_or(name) && proof["proven"] == expected;
    outcome.time().figure(name, &proof["proven"], expected, is_right);
    outcome.note(format!("{name}: {}, {}", proof["change"], proof["figures"]));
    if !is_right {
        outcome.note(format!("{proof:#}\n{}\n{study}", output.stdout));
    }
    Ok(())
}
