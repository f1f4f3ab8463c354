//! Loads that end with their controller.

use std::{
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::*;

/// Within this time after its controller was killed, a machine sends nothing more.
const PROMPT: Duration = Duration::from_secs(2);

#[test]
fn inventory_as_root_a_load_of_other_machines_ends_with_its_controller() -> Result<()> {
    try_all(&[
        ("killed while users wait", a_controller_is_killed_while_users_wait),
        ("killed under load", a_controller_is_killed_under_load),
        ("interrupted", an_interrupt_leaves_a_result),
    ])
}

fn a_controller_is_killed_while_users_wait(fleet: &Fleet) -> Result<()> {
    let mut load = fleet.held()?;
    load.signal(Signal::KILL)?;
    load.process.wait(PATIENCE)?.context("it goes on")?;
    // The target still holds every answer back, so nothing but the end of the controller ends them.
    fleet.is_quiet()?;
    fleet.target.answer_all();
    ensure!(fleet.counts(BOTH) == [54, 54], "{:?} requests were sent", fleet.counts(BOTH));
    Ok(())
}

/// Adds up for how long this process was kept from running, until this is dropped or ended.
struct Delays {
    is_watched: Arc<()>,
    thread: JoinHandle<Duration>,
}

impl Delays {
    const PAUSE: Duration = Duration::from_millis(10);

    fn watch() -> Self {
        let is_watched = Arc::new(());
        let other = Arc::clone(&is_watched);
        let thread = thread::spawn(move || {
            let mut sum = Duration::ZERO;
            while Arc::strong_count(&other) > 1 {
                let begun = Instant::now();
                thread::sleep(Self::PAUSE);
                sum += begun.elapsed().saturating_sub(Self::PAUSE);
            }
            sum
        });
        Self { is_watched, thread }
    }

    fn end(self) -> Duration {
        drop(self.is_watched);
        self.thread.join().unwrap_or_default()
    }
}

fn a_controller_is_killed_under_load(fleet: &Fleet) -> Result<()> {
    let words = format!("-R 100 -c 8 -d 1h {}", on(&BOTH));
    let mut load = fleet.start(&fleet.http("", &words)?, ALL)?;
    load.until("both machines send", || fleet.counts(BOTH).iter().all(|sent| *sent >= 20))?;
    let (delays, killed) = (Delays::watch(), Instant::now());
    load.signal(Signal::KILL)?;
    load.process.wait(PATIENCE)?.context("it goes on")?;
    fleet.is_quiet()?;
    let delayed = delays.end();
    let last = fleet.target.received().last().context("nothing was received")?.at;
    let took = last.saturating_duration_since(killed);
    // Whatever kept this process from running delayed the machines as well.
    if took > PROMPT && delayed > PROMPT / 4 {
        testing::skipped("how soon machines stop after their controller", "the processors were busy");
        return Ok(());
    }
    ensure!(took <= PROMPT, "a request came {took:?} after the controller was killed ({delayed:?} delayed)");
    Ok(())
}

fn an_interrupt_leaves_a_result(fleet: &Fleet) -> Result<()> {
    let words = format!("-u 8 --think-time 5ms -d 1h {}", on(&BOTH));
    let mut load = fleet.start(&fleet.http("", &words)?, ALL)?;
    load.until("both machines send", || fleet.counts(BOTH).iter().all(|sent| *sent >= 50))?;
    load.signal(Signal::INT)?;
    let output = load.finish()?;
    fleet.is_quiet()?;
    let trial = output.trial_with_code(130)?;
    ensure!(trial.interrupted && names(trial) == BOTH, "{}", output.described());
    is_their_sum(trial).with_context(|| output.described())?;
    for machine in &trial.machines {
        let (counts, received) = (&machine.counts, fleet.target.count(address(&machine.name)));
        ensure!(machine.lost.is_none(), "{}: {:?}", machine.name, machine.lost);
        // Requests may have been cut off.
        let is_true = counts.completed >= 1 && (counts.completed..=counts.sent).contains(&received);
        ensure!(is_true, "{}: {received} received of {counts:?}", machine.name);
    }
    Ok(())
}
