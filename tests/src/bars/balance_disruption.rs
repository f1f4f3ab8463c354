//! Changes at a balancer break only those connections that cannot survive the change.

use std::{thread, time::Duration};

use anyhow::{Context, Result};
use testing::PATIENCE;

use super::{Bar, By, Outcome, Scale, seconds};
use crate::{
    Trial,
    balanced::{Balanced, VIP},
    process::Process,
};

pub(super) const BAR: Bar = Bar {
    name: "balance-disruption",
    what: "under 2,000 new connections a second and 5,000 that stay: a server is added, drained, weighted, removed, the daemon killed, \
           or restarted with a new program: no connection breaks; a dead server breaks only its own, and gets no new ones after its checks",
    full_seconds: 320,
    decided_by: By::Times,
    run,
};

const SERVERS: usize = 5;
/// A check that recognises a dead server within [`KNOWN_DEAD_S`]: three checks, each with its timeout, and the last interval.
const CHECK: &str =
    "check = { kind = \"tcp\", interval = \"500ms\", timeout = \"500ms\", fall = 3, rise = 2 }";
const KNOWN_DEAD_S: f64 = 3.5;

/// The changes to test.
const EVENTS: [&str; 6] = ["kill", "add", "drain", "weight", "remove", "restart"];

fn run(scale: Scale) -> Result<Outcome> {
    let loads = scale.pick(
        Loads { users: 300, ramp_up_s: 1, rate_per_s: 300, duration_s: 4 },
        Loads { users: 5_000, ramp_up_s: 2, rate_per_s: 2_000, duration_s: 20 },
    );
    let lab = Balanced::up(SERVERS, 100)?;
    let mut outcome = Outcome::default();
    for event in &EVENTS[..scale.pick(1, EVENTS.len())] {
        lab.configure("", CHECK, SERVERS - 1)?;
        let mut daemon = lab.start()?;
        (1..SERVERS).for_each(|n| lab.await_state(&Balanced::web(n), "up"));
        let mut running = loads.start(&lab)?;
        thread::sleep(loads.before());
        daemon = happen(&lab, event, daemon)?;
        let [stayed, new] = &mut running;
        let is_under_load = stayed.is_running() && new.is_running();
        outcome.time().holds(&format!("{event}_under_load"), is_under_load, "it is over before the load is");
        let [stayed, new] = loads.end(running)?;
        unbroken(&mut outcome, event, &loads, &stayed, &new);
        lab.tell("stop")?;
        daemon.finish(PATIENCE)?;
    }
    death(&mut outcome, &lab, &loads)?;
    lab.down()?;
    Ok(outcome)
}

/// Two loads at once: users who keep their connections, and requests with a new connection each.
struct Loads {
    users: u64,
    ramp_up_s: u64,
    rate_per_s: u64,
    duration_s: u64,
}

impl Loads {
    fn start(&self, lab: &Balanced) -> Result<[Process; 2]> {
        let Self { users, ramp_up_s, rate_per_s, duration_s } = self;
        let stayed = format!("-c {users} --ramp-up {ramp_up_s}s --think-time exp:3s -d {duration_s}s");
        let new = format!("-R {rate_per_s} --no-keepalive -d {duration_s}s");
        Ok([lab.load(&stayed)?, lab.load(&new)?])
    }

    /// Time until all users have connected.
    fn before(&self) -> Duration {
        seconds(self.ramp_up_s + 1)
    }

    fn end(&self, [stayed, new]: [Process; 2]) -> Result<[Trial; 2]> {
        let within = seconds(self.duration_s);
        Ok([Balanced::trial(stayed, within)?, Balanced::trial(new, within)?])
    }
}

/// Performs an event. Returns the balancer's process that runs afterwards.
fn happen(lab: &Balanced, event: &str, daemon: Process) -> Result<Process> {
    let last = Balanced::web(SERVERS);
    match event {
        "add" => {
            lab.tell(&format!("add {VIP} {} --server-name {last}", Balanced::address(SERVERS)))?;
            lab.await_state(&last, "up");
        }
        "drain" => _ = lab.tell(&format!("drain {VIP} web2"))?,
        "weight" => _ = lab.tell(&format!("set {VIP} web1 --weight 5"))?,
        "remove" => _ = lab.tell(&format!("remove {VIP} web3"))?,
        "kill" => {
            lab.kill(daemon)?;
            return lab.start();
        }
        "restart" => {
            lab.tell("stop --keep")?;
            daemon.finish(PATIENCE)?;
            return lab.start();
        }
        other => anyhow::bail!("no event '{other}'"),
    }
    Ok(daemon)
}

fn unbroken(outcome: &mut Outcome, event: &str, loads: &Loads, stayed: &Trial, new: &Trial) {
    outcome.time().equal(
        &format!("{event}_connections"),
        stayed.counts.connections_opened,
        loads.users,
        "one for each user, for all the time",
    );
    outcome.time().equal(&format!("{event}_failed_of_users"), stayed.counts.failed, 0, "of all requests");
    outcome.time().equal(&format!("{event}_failed_of_new"), new.counts.failed, 0, "of all requests");
    outcome.note(format!(
        "{event}: {} requests of {} users, {} on new connections at {:.0}/s",
        stayed.counts.completed, loads.users, new.counts.completed, new.throughput_per_s
    ));
}

/// A server dies. Its own connections break; once its checks have failed, new connections avoid it.
fn death(outcome: &mut Outcome, lab: &Balanced, loads: &Loads) -> Result<()> {
    lab.configure("", CHECK, SERVERS)?;
    let daemon = lab.start()?;
    (1..=SERVERS).for_each(|n| lab.await_state(&Balanced::web(n), "up"));
    let running = loads.start(lab)?;
    thread::sleep(loads.before());
    let own = lab.of_servers("ring_ratio")?[0];
    // Without its link, the server answers nothing, not even with a reset.
    lab.on("web1", "ip link set eth0 down")?;
    let dead_s = loads.before().as_secs_f64();
    let [stayed, new] = loads.end(running)?;
    // A request on a broken connection either fails or hangs.
    let broken = stayed.counts.failed + stayed.counts.in_flight;
    let most = (loads.users as f64 * own * 1.25) as u64;
    outcome.time().figure(
        "death_broken_of_users",
        broken,
        format!("1 to {most}, those of the server"),
        (1..=most).contains(&broken),
    );
    let late = |end_s: f64| end_s > dead_s + KNOWN_DEAD_S + 1.0;
    let started_late: u64 = new.series.iter().filter(|step| late(step.end_s)).map(|step| step.sent).sum();
    let completed_late: u64 =
        new.series.iter().filter(|step| late(step.end_s)).map(|step| step.completed).sum();
    // The load of a sample has ended by then.
    if started_late > 0 {
        outcome.time().figure(
            "death_lost_later",
            started_late.saturating_sub(completed_late),
            format!("<= {}, a hundredth, {KNOWN_DEAD_S} s after the death", started_late / 100),
            completed_late >= started_late - started_late / 100,
        );
    }
    lab.on("web1", "ip link set eth0 up")?;
    lab.tell("stop")?;
    daemon.finish(PATIENCE).map(drop).context("the balancer")
}
