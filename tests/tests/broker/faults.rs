//! Brokers, machines and controllers that are lost in the middle of a trial.

use std::{thread, time::Duration};

use record::VoidRule;

use super::*;

/// How long a machine is stopped: longer than its lease.
const STOP: Duration = Duration::from_secs(8);
/// How long it is then watched, at least.
const WATCH: Duration = Duration::from_secs(3);
/// At most so long after the death of its controller a machine sends: 2 s and its lease of 5 s.
const LAST: Duration = Duration::from_secs(7);
/// The number of short absences of the broker, one of which at least is to leave a trial valid: each machine is back long before its
/// lease ends, unless it is stopped for seconds meanwhile.
const ABSENCES: u32 = 5;
/// The requests of each machine in a load that is held.
const PART: u64 = 200;

#[test]
fn inventory_as_root_a_broker_that_is_killed_leaves_a_trial_whole_or_void() -> Result<()> {
    try_all(&[
        ("soon back", a_broker_that_is_soon_back_leaves_nothing_undecided),
        ("away", a_trial_ends_although_its_broker_stays_away),
    ])
}

#[test]
fn inventory_as_root_a_lost_machine_that_dialled_out_voids_the_trial() -> Result<()> {
    try_all(&[
        ("stopped", |site| a_stopped_machine_sends_nothing_after_its_lease(site, Agent::tree)),
        ("agent stopped", |site| {
            a_stopped_machine_sends_nothing_after_its_lease(site, |agent| Ok(vec![agent.pid()?]))
        }),
        ("agent killed", |site| an_agent_ends(site, Signal::KILL)),
        ("agent told to end", |site| an_agent_ends(site, Signal::TERM)),
    ])
}

#[test]
fn inventory_as_root_a_load_of_machines_that_dialled_out_ends_with_its_controller() -> Result<()> {
    try_all(&[
        ("killed while users wait", a_controller_is_killed_while_users_wait),
        ("killed under load", a_controller_is_killed_under_load),
        ("interrupted", an_interrupt_leaves_a_result),
    ])
}

/// The evidence for lost machines in a void trial.
fn evidence(output: &Output) -> Result<&str> {
    let trial = output.trial_with_code(3)?;
    let lost = trial.validity.reasons().iter().find(|reason| reason.rule == VoidRule::WorkerLost);
    Ok(lost.with_context(|| format!("no machine is lost: {}", output.described()))?.evidence.as_str())
}

/// Checks a held load that has ended after its answers were given: nothing is sent or counted twice, and it is whole (true), or void by
/// machines that are named (false).
fn is_whole_or_void(site: &Site, output: &Output) -> Result<bool> {
    let trial = output.trial()?;
    ensure!(names(trial) == BOTH, "{:?}: {}", names(trial), output.described());
    is_their_sum(trial).with_context(|| output.described())?;
    for machine in &trial.machines {
        let (counts, received) = (&machine.counts, site.target.count(address(&machine.name)));
        let is_once = counts.completed <= received && received <= PART && counts.sent <= PART;
        ensure!(is_once, "{}: {received} received, {counts:?}: {}", machine.name, output.described());
    }
    if trial.machines.iter().all(|machine| machine.lost.is_none()) {
        is_whole(site, output, &BOTH.map(|name| (name, 0.5, PART)))?;
        return Ok(true);
    }
    let evidence = evidence(output)?;
    for machine in &trial.machines {
        let is_named = evidence.contains(&format!("{}, 50 % of the load (", machine.name));
        ensure!(is_named == machine.lost.is_some(), "{}: '{evidence}'", machine.name);
    }
    Ok(false)
}

fn a_broker_that_is_soon_back_leaves_nothing_undecided(site: &mut Site) -> Result<()> {
    site.agents_on(&BOTH)?;
    let mut ends = Vec::new();
    for _ in 0..ABSENCES {
        let load = site.held()?;
        site.kill_broker()?;
        site.start_broker()?;
        site.target.answer_all();
        let output = load.finish()?;
        let has_survived = is_whole_or_void(site, &output)?;
        site.is_quiet()?;
        site.are_idle(&BOTH)?;
        if has_survived {
            return Ok(());
        }
        ends.push(output.described());
    }
    anyhow::bail!("none of {ABSENCES} short absences was survived: {}", ends.join("\n"))
}

fn a_trial_ends_although_its_broker_stays_away(site: &mut Site) -> Result<()> {
    site.agents_on(&BOTH)?;
    let load = site.held()?;
    site.kill_broker()?;
    // Users would wait for an hour.
    let output = load.finish()?;
    let evidence = evidence(&output)?;
    for machine in BOTH {
        ensure!(evidence.contains(machine), "'{machine}' is not in '{evidence}'");
    }
    // Each machine ends its part, and hears from nobody.
    site.is_quiet()?;
    ensure!(site.counts(BOTH) == [54, 54], "{:?} requests were sent", site.counts(BOTH));
    site.start_broker()?;
    site.are_idle(&BOTH)?;
    let next = site.run("-n 40 -u 4")?;
    is_whole(site, &next, &[("c1", 0.5, 20), ("c2", 0.5, 20)])
}

/// The trial is void because c2 was lost, with its share, and c1 was not.
fn c2_is_lost(site: &Site, output: &Output) -> Result<()> {
    let evidence = evidence(output)?;
    let told = "machines were lost: c2, 50 % of the load (";
    ensure!(evidence.contains(told), "'{told}' is not in '{evidence}'");
    let trial = output.trial()?;
    ensure!(names(trial) == BOTH, "{:?}", names(trial));
    is_their_sum(trial).with_context(|| output.described())?;
    for machine in &trial.machines {
        let is_told = machine.lost.as_ref().is_some_and(|why| !why.is_empty());
        ensure!(is_told == (machine.name == "c2"), "{}: {:?}", machine.name, machine.lost);
    }
    // The counts of the one that stays are those of the target. An answer may not have arrived, nor a request that was cut off.
    let (counts, received) = (&trial.machines[0].counts, site.target.count(address("c1")));
    let is_true = counts.completed > 0 && (counts.completed..=counts.sent).contains(&received);
    ensure!(is_true, "c1: {received} received of {counts:?}");
    Ok(())
}

/// Stops these processes of c2 for longer than its lease.
fn a_stopped_machine_sends_nothing_after_its_lease(
    site: &mut Site,
    stopped: fn(&Agent) -> Result<Vec<i32>>,
) -> Result<()> {
    site.agents_on(&BOTH)?;
    let launch = site.http(&url(""), &format!("-R 40 -c 8 -d 20s {}", site.on(POOL)))?;
    let mut load = site.start(&launch, "http", ALL)?;
    load.until("both machines send", || site.counts(BOTH).iter().all(|sent| *sent >= 10))?;
    let processes = stopped(site.agent_on("c2")?)?;
    processes.iter().try_for_each(|pid| signal(*pid, Signal::STOP))?;
    thread::sleep(STOP);
    // Requests have become due meanwhile. What was sent within the lease has long been read, but for one of each connection.
    let most = site.target.count(address("c2")) + site.target.accepted(address("c2"));
    thread::sleep(WATCH);
    let sent = site.target.count(address("c2"));
    ensure!(sent <= most, "c2 has sent {sent} requests, {most} at most before its lease ended");
    for pid in processes {
        // What it had of the session may have ended.
        let _ = signal(pid, Signal::CONT);
    }
    let output = load.finish()?;
    c2_is_lost(site, &output)?;
    site.is_quiet()?;
    let sent = site.target.count(address("c2"));
    ensure!(sent <= most, "c2 has sent {sent} requests, {most} at most before its lease ended");
    // It is of use again.
    site.are_idle(&BOTH)?;
    let next = site.run("-n 40 -u 4")?;
    is_whole(site, &next, &[("c1", 0.5, 20), ("c2", 0.5, 20)])
}

fn an_agent_ends(site: &mut Site, how: Signal) -> Result<()> {
    site.agents_on(&BOTH)?;
    let mut load = site.held()?;
    let agent = site.take("c2")?;
    signal(agent.pid()?, how)?;
    let has_ended = || site.workers("c2").is_empty() && site.target.open(address("c2")) == 0;
    // The trial goes on meanwhile: no answer has come that would end it.
    load.until("what the agent has started ends", has_ended)?;
    if how == Signal::TERM {
        agent.ends()?;
    } else {
        drop(agent);
    }
    site.target.answer_all();
    let output = load.finish()?;
    c2_is_lost(site, &output)?;
    let sent = site.target.count(address("c2"));
    ensure!(sent == 54, "c2 has sent {sent} requests, and its agent ended after 54");
    // The next load is made by the one that is left.
    site.is_quiet()?;
    site.are_idle(&["c1"])?;
    let next = site.run("-n 40 -u 4")?;
    is_whole(site, &next, &[("c1", 1.0, 40)])
}

fn a_controller_is_killed_while_users_wait(site: &mut Site) -> Result<()> {
    site.agents_on(&BOTH)?;
    site.held()?.kill()?;
    // The target still holds every answer back, so nothing but the end of the controller ends them.
    site.is_quiet()?;
    ensure!(site.counts(BOTH) == [54, 54], "{:?} requests were sent", site.counts(BOTH));
    site.target.answer_all();
    site.are_idle(&BOTH)
}

fn a_controller_is_killed_under_load(site: &mut Site) -> Result<()> {
    site.agents_on(&BOTH)?;
    let launch = site.http(&url(""), &format!("-R 100 -c 8 -d 1h {}", site.on(POOL)))?;
    let mut load = site.start(&launch, "http", ALL)?;
    load.until("both machines send", || site.counts(BOTH).iter().all(|sent| *sent >= 20))?;
    load.kill()?;
    thread::sleep(LAST);
    // One of each connection may have been under way, or is not read yet.
    let most = BOTH.map(|name| site.target.count(address(name)) + site.target.accepted(address(name)));
    site.is_quiet()?;
    let sent = site.counts(BOTH);
    ensure!(
        sent[0] <= most[0] && sent[1] <= most[1],
        "{sent:?} requests were sent, at most {most:?} in time"
    );
    site.are_idle(&BOTH)
}

fn an_interrupt_leaves_a_result(site: &mut Site) -> Result<()> {
    site.agents_on(&BOTH)?;
    let launch = site.http(&url(""), &format!("-u 8 --think-time 5ms -d 1h {}", site.on(POOL)))?;
    let mut load = site.start(&launch, "http", ALL)?;
    load.until("both machines send", || site.counts(BOTH).iter().all(|sent| *sent >= 50))?;
    load.signal(Signal::INT)?;
    let output = load.finish()?;
    site.is_quiet()?;
    let trial = output.trial_with_code(130)?;
    ensure!(trial.interrupted && names(trial) == BOTH, "{}", output.described());
    is_their_sum(trial).with_context(|| output.described())?;
    for machine in &trial.machines {
        let (counts, received) = (&machine.counts, site.target.count(address(&machine.name)));
        ensure!(machine.lost.is_none(), "{}: {:?}", machine.name, machine.lost);
        // Requests may have been cut off.
        let is_true = counts.completed >= 1 && (counts.completed..=counts.sent).contains(&received);
        ensure!(is_true, "{}: {received} received of {counts:?}", machine.name);
    }
    site.are_idle(&BOTH)
}
