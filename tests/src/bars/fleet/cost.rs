//! What it costs that an agent makes the load, and not the command itself.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::{Machines, NEAR, PORT, WEB, trial};
use crate::{
    Trial,
    bars::{Bar, By, Outcome, Runs, Scale, is_wanted},
    disturbance::Witness,
    witnessed_target::WitnessedTarget,
};

pub(super) const BAR: Bar = Bar {
    name: "fleet-cost",
    what: "one agent by ssh and the same command on its host without it, 15 pairs in turns: rate >= 0.97 times, lateness p99 <= 1.2 times \
           (medians)",
    full_seconds: 420,
    decided_by: By::Times,
    run,
};

const LEAST_RATE_RATIO: f64 = 0.97;
const MOST_LATENESS_RATIO: f64 = 1.2;

fn run(scale: Scale) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let (pairs, seconds) = scale.pick((3, 1), (15, 5));
    let (_, gaps) = Witness::of_all(|| {
        Machines::with(1, &[], |machines| {
            let target = WitnessedTarget::start_in(&machines.network(WEB)?, PORT, Duration::ZERO)?;
            if is_wanted("rate") {
                let words = format!("-u 16 -d {seconds}s");
                let ratios = ratios(&mut outcome, machines, &words, pairs, |trial| trial.throughput_per_s);
                let ratios = ratios.context("rate")?;
                let bound = format!(">= {LEAST_RATE_RATIO} (median of {pairs} pairs)");
                let value = ratios.median();
                outcome.time().figure("rate_ratio", format!("{value:.3}"), bound, value >= LEAST_RATE_RATIO);
            }
            if is_wanted("lateness") {
                let words = format!("-R 2k -c 32 -d {seconds}s");
                let p99 = |trial: &Trial| trial.own_lateness.quantile_ns(0.99) as f64;
                let ratios = ratios(&mut outcome, machines, &words, pairs, p99).context("lateness")?;
                outcome.time().at_most("lateness_p99_ratio", &ratios, MOST_LATENESS_RATIO, "");
            }
            target.stop().map(drop)
        })
    })?;
    outcome.note(format!("a witness of real-time priority had no processor for {gaps}"));
    if scale == Scale::Full && gaps.disturb() {
        outcome.excuse_times(&format!("a witness of real-time priority had no processor for {gaps}"));
    }
    Ok(outcome)
}

/// The ratios of a figure with an agent to the same without one, of pairs in alternating order.
fn ratios(
    outcome: &mut Outcome,
    machines: &Machines,
    words: &str,
    pairs: usize,
    figure: impl Fn(&Trial) -> f64,
) -> Result<Runs> {
    // Both make the load in the host c1, with one thread.
    let words = format!("http {} {words} --threads 1 -q --json -", machines.url(""));
    let with_agent = machines.command(NEAR, &format!("{words} {}", machines.on(1)))?;
    let alone = machines.command("c1", &words)?;
    // The first one copies the program.
    trial(&with_agent, &[0, 3])?;
    let mut ratios = Runs::default();
    for pair in 0..pairs {
        let measured = |is_agent: bool| -> Result<f64> {
            let found = trial(if is_agent { &with_agent } else { &alone }, &[0, 3])?;
            ensure!(found.machines.len() == usize::from(is_agent), "{} machines", found.machines.len());
            Ok(figure(&found))
        };
        let agent_first = pair % 2 == 0;
        let (first, second) = (measured(agent_first)?, measured(!agent_first)?);
        let [agent, own] = if agent_first { [first, second] } else { [second, first] };
        outcome.note(format!("pair {}: {agent:.0} with an agent, {own:.0} without", pair + 1));
        ratios.push(agent / own);
    }
    Ok(ratios)
}
