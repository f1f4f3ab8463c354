//! Studies whose machines are lost between trials.

use std::path::Path;

use proofload_tests::proofload::accepts_void;
use record::{ResultFolder, TrialEntry};

use super::*;

/// Requests of a trial. Each of two machines sends half of them, until one is lost.
const REQUESTS: u64 = 200;

#[test]
fn inventory_as_root_a_study_goes_on_without_lost_machines_if_it_may() -> Result<()> {
    with_fleet(|fleet| {
        // The first part makes c3 unreachable for good, the second c2.
        a_lost_machine_voids_all_later_trials(fleet)?;
        later_trials_run_on_the_rest(fleet)
    })
}

/// Kills the agent of a machine, and ends its sshd: no login will be possible.
fn make_unreachable(fleet: &Fleet, machine: &str) -> Result<()> {
    for pid in fleet.agents(machine) {
        signal(pid, Signal::KILL)?;
    }
    let is_sshd = |words: &String| words.starts_with("sshd: ") || words.starts_with("/usr/sbin/sshd ");
    for (pid, words) in fleet.processes(&[machine]) {
        if fleet.before.contains(&pid) && is_sshd(&words) {
            // Killed otherwise, it would take the lab down. A child that was there before may have ended.
            let _ = signal(pid, Signal::TERM);
        }
    }
    let is_gone = || !fleet.processes(&[machine]).values().any(is_sshd) && fleet.has_ended(machine);
    let found = find(PATIENCE, || is_gone().then_some(()));
    ensure!(found.is_some(), "still running: {:#?}", fleet.processes(&[machine]));
    Ok(())
}

/// Runs a study of four trials on c1 and another machine, which is lost in the middle of the second one. Also returns how many
/// requests the machine had sent by then.
fn lose(fleet: &Fleet, machine: &str, options: &str) -> Result<(Vec<TrialEntry>, Output, u64)> {
    let study = format!(
        "title = \"lost\"\n[workload.http]\nurl = \"{}\"\nusers = 4\nrequests = {REQUESTS}\ntimeout = \"5m\"\ndrain = \"5m\"\n\
         [trial]\nrepeats = 4\nvoid_attempts = 0\nsettle = \"100ms\"\n",
        url("")
    );
    let study = fleet.labs.file("study.toml", &study)?;
    let out = fleet.labs.path(&format!("lost-{machine}"));
    let words = format!("run {study} --out {out} -q {} {options}", on(&["c1", machine]));
    // Each machine sends 100 requests in the first trial, behind a few that look whether the target answers. With more than half as
    // many again, it is in the second one, and its two users wait for answers.
    let mut running = fleet.start(&fleet.control(&words)?, 160)?;
    let from = address(machine);
    running.until("the second trial waits for answers", || fleet.target.count(from) == 162)?;
    make_unreachable(fleet, machine)?;
    let sent = fleet.target.count(from);
    fleet.target.answer_all();
    let output = running.finish()?;
    ensure!(matches!(output.code, Some(0 | 1 | 3)), "{}", output.described());
    let trials = ResultFolder::open(Path::new(&out))?.trials()?;
    ensure!(trials.len() >= 3, "{} trials: {}", trials.len(), output.described());
    // The first one is as if nothing had happened.
    let http = trials[0].trial.http().context("no requests")?;
    ensure!(names(http) == ["c1", machine] && http.counts.completed == REQUESTS, "{:?}", http.counts);
    is_their_sum(http)?;
    let validity = &trials[0].trial.validity;
    ensure!(!validity.is_void() || accepts_void(&output.line, validity), "{validity:?}");
    Ok((trials, output, sent))
}

/// Whether a trial is void for a reason that names the machine.
fn is_void_by(entry: &TrialEntry, machine: &str) -> bool {
    entry.trial.validity.reasons().iter().any(|reason| reason.evidence.contains(machine))
}

fn a_lost_machine_voids_all_later_trials(fleet: &Fleet) -> Result<()> {
    let (trials, output, sent) = lose(fleet, "c3", "")?;
    for entry in &trials[1..] {
        let validity = &entry.trial.validity;
        ensure!(is_void_by(entry, "c3"), "trial {}: {validity:?}: {}", entry.index, output.described());
    }
    // Of the later trials none has begun on the other machine.
    let after = trials[2..].iter().filter_map(|entry| entry.trial.http());
    let completed: u64 = after.map(|http| http.counts.completed).sum();
    ensure!(completed == 0, "{completed} requests without c3");
    ensure!(fleet.target.count(address("c3")) == sent, "c3 sends on");
    fleet.is_quiet()
}

fn later_trials_run_on_the_rest(fleet: &Fleet) -> Result<()> {
    let (trials, output, sent) = lose(fleet, "c2", "--allow-lost 1")?;
    let lost = &trials[1];
    let is_void = lost.trial.validity.reasons().iter().any(|reason| reason.rule == VoidRule::WorkerLost);
    ensure!(is_void && is_void_by(lost, "c2"), "{:?}: {}", lost.trial.validity, output.described());
    for entry in &trials[2..] {
        let (validity, http) = (&entry.trial.validity, entry.trial.http().context("no requests")?);
        ensure!(!validity.is_void() || accepts_void(&output.line, validity), "{validity:?}");
        let warning = entry.trial.warnings.iter().find(|warning| warning.code == "machines_absent");
        ensure!(warning.is_some_and(|warning| warning.message.contains("c2")), "{:?}", entry.trial.warnings);
        ensure!(http.counts.completed == REQUESTS && http.counts.failed == 0, "{:?}", http.counts);
        is_their_sum(http)?;
        let of_c1 = http.machines.iter().find(|machine| machine.name == "c1").context("no c1")?;
        ensure!(of_c1.counts.completed == REQUESTS, "the rest makes the whole load: {:?}", of_c1.counts);
    }
    ensure!(fleet.target.count(address("c2")) == sent, "c2 sends on");
    fleet.is_quiet()
}
