//! Machines that are lost during a trial: it is void, and they send nothing more.

use std::{thread, time::Duration};

use super::*;

/// How long a machine is stopped: longer than its lease of 5 s.
const STOP: Duration = Duration::from_secs(8);

#[test]
fn inventory_as_root_a_lost_machine_voids_the_trial_and_sends_nothing_more() -> Result<()> {
    try_all(&[
        ("agent", an_agent_is_killed),
        ("worker", a_worker_is_killed),
        ("stopped", a_stopped_machine_has_no_lease_when_it_goes_on),
    ])
}

/// The trial names the machine as lost, with its share, and no other one.
fn is_lost(output: &Output, machine: &str) -> Result<()> {
    let (trial, evidence) = void_by_loss(output, machine)?;
    let told = format!("machines were lost: {machine}, 50 % of the load (");
    ensure!(evidence.contains(&told), "'{told}' is not in '{evidence}'");
    for own in &trial.machines {
        let is_told = own.lost.as_ref().is_some_and(|why| !why.is_empty());
        ensure!(is_told == (own.name == machine), "{}: {:?}", own.name, own.lost);
    }
    is_their_sum(trial).with_context(|| output.described())
}

/// The counts of a machine that stays are those of the target.
fn stays(fleet: &Fleet, output: &Output, machine: &str) -> Result<()> {
    let own = output.trial()?.machines.iter().find(|own| own.name == machine);
    let counts = &own.with_context(|| output.described())?.counts;
    let received = fleet.target.count(address(machine));
    // An answer may not have arrived, nor a request that was cut off.
    ensure!(counts.completed > 0, "{machine}: {counts:?}");
    ensure!((counts.completed..=counts.sent).contains(&received), "{machine}: {received} of {counts:?}");
    Ok(())
}

fn an_agent_is_killed(fleet: &Fleet) -> Result<()> {
    let mut load = fleet.held()?;
    fleet.agents("c2").into_iter().try_for_each(|pid| signal(pid, Signal::KILL))?;
    // The trial goes on meanwhile: no answer has come that would end it.
    load.until("the workers of c2 end", || fleet.has_ended("c2"))?;
    fleet.target.answer_all();
    let output = load.finish()?;
    is_lost(&output, "c2")?;
    stays(fleet, &output, "c1")?;
    let sent = fleet.target.count(address("c2"));
    ensure!(sent == 54, "c2 has sent {sent} requests, and its agent was killed after 54");
    Ok(())
}

fn a_worker_is_killed(fleet: &Fleet) -> Result<()> {
    let load = fleet.held()?;
    let worker = fleet.workers("c2").into_iter().next().context("c2 has no worker")?;
    signal(worker, Signal::KILL)?;
    fleet.target.answer_all();
    let output = load.finish()?;
    let (trial, evidence) = void_by_loss(&output, "c2")?;
    ensure!(!evidence.contains("c1"), "c1 was not lost: {evidence}");
    is_their_sum(trial).with_context(|| output.described())?;
    stays(fleet, &output, "c1")
}

fn a_stopped_machine_has_no_lease_when_it_goes_on(fleet: &Fleet) -> Result<()> {
    let words = format!("-R 40 -c 8 -d 15s {}", on(&BOTH));
    let mut load = fleet.start(&fleet.http("", &words)?, ALL)?;
    load.until("both machines send", || fleet.counts(BOTH).iter().all(|sent| *sent >= 10))?;
    let processes = [fleet.agents("c2"), fleet.workers("c2")].concat();
    processes.iter().try_for_each(|pid| signal(*pid, Signal::STOP))?;
    thread::sleep(STOP);
    // Some 160 requests have become due. What was sent before has long been read.
    let [before, connections] = [fleet.target.count(address("c2")), fleet.target.accepted(address("c2"))];
    for pid in processes {
        // The end of its connection may have ended it.
        let _ = signal(pid, Signal::CONT);
    }
    let output = load.finish()?;
    is_lost(&output, "c2")?;
    fleet.is_quiet()?;
    stays(fleet, &output, "c1")?;
    let after = fleet.target.count(address("c2"));
    // It may have been stopped between its look at the lease and the system call that sends.
    let most = before + connections;
    ensure!(after <= most, "c2 has sent {after} requests, {before} of them before it was stopped");
    Ok(())
}
