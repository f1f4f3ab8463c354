//! Known answers in a machine whose time is simulated: its clock advances with the instructions that its one processor
//! executes, and skips what is idle. What else runs out here changes none of its figures, so times are judged here as counts are.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use proofload_tests::{ServeReport, Trial, Vm, proofload::parse_trial, stats::quantile_ranks};
use record::{Cause, TrialEntry};

const SCRIPT: &str = include_str!("known.sh");

/// What the script wrote in the section of this name.
fn section<'a>(output: &'a str, name: &str) -> Result<&'a str> {
    let (_, after) = output
        .split_once(&format!("== {name}\n"))
        .with_context(|| format!("no section '{name}': {output}"))?;
    Ok(after.split("\n== ").next().unwrap_or(after).trim())
}

/// A trial, of which nothing failed, and what its service says of it.
fn measured(output: &str, name: &str) -> Result<(Trial, ServeReport)> {
    let trial = parse_trial(section(output, &format!("{name} trial"))?)?;
    let report: ServeReport = serde_json::from_str(section(output, &format!("{name} serve"))?)?;
    let counts = &trial.counts;
    let is_whole = counts.completed == counts.scheduled && counts.completed == report.requests;
    ensure!(is_whole && trial.errors.total() == 0, "{name}: {counts:?} of {} requests", report.requests);
    Ok((trial, report))
}

fn response_ms(trial: &Trial, quantile: f64) -> f64 {
    trial.response_time.observed.quantile_ns(quantile) as f64 / 1e6
}

fn near(what: &str, value: f64, truth: f64, share: f64) -> Result<()> {
    ensure!((value / truth - 1.0).abs() <= share, "{what}: {value}, and {truth} is true");
    Ok(())
}

#[test]
fn in_a_vm_figures_and_verdicts_are_those_of_closed_forms() -> Result<()> {
    let vm = Vm::default().tools(["ip"]).modules(["veth", "bridge", "tcp_diag"]).proofload()?;
    let ran = vm.run(SCRIPT, Duration::from_secs(1_800))?;
    let output = ran.succeeded()?;

    // 20 users of a service of 300 ms.
    let (closed, _) = measured(output, "closed")?;
    near("closed: rate", closed.throughput_per_s, 20.0 / 0.3, 0.01)?;
    near("closed: p50", response_ms(&closed, 0.5), 300.0, 1.0 / 300.0)?;

    // A service that stands still for a tenth of the time: see the bar `known-stalls`.
    let (stalls, _) = measured(output, "stalls")?;
    for (quantile, truth_ms) in [(0.95, 100.0), (0.99, 180.0)] {
        near(&format!("stalls: {quantile}"), response_ms(&stalls, quantile), truth_ms, 0.05)?;
    }

    // Delays that are drawn: each percentile is where the service's own record says that it may be.
    let (exponential, report) = measured(output, "exponential")?;
    let truth = &report.delay_applied;
    for percent in 1..=99 {
        let quantile = f64::from(percent) / 100.0;
        let (lower, upper) = quantile_ranks(truth.count(), quantile, 0.99);
        let at_rank = |rank: u64| truth.quantile_ns(rank as f64 / truth.count() as f64) as f64 / 1e6;
        let measured_ms = exponential.service_time.observed.quantile_ns(quantile) as f64 / 1e6;
        let may_be = at_rank(lower) * 0.998..=at_rank(upper) * 1.002 + 0.5;
        ensure!(may_be.contains(&measured_ms), "p{percent}: {measured_ms} ms is not in {may_be:?}");
    }

    // Requests leave when they are due.
    let (paced, _) = measured(output, "paced")?;
    let late_us = paced.own_lateness.quantile_ns(0.95) as f64 / 1e3;
    ensure!(late_us < 50.0, "requests were sent {late_us} us late");
    let sent: Vec<u64> = paced.series.iter().map(|step| step.sent).collect();
    let is_even = sent.iter().all(|sent| (49..=51).contains(sent));
    ensure!(is_even && sent.len() == 20, "sent in each tenth of a second: {sent:?}");

    for (name, cause) in [
        ("slow_handler", Cause::SlowHandler),
        ("accept_queue", Cause::AcceptQueue),
        ("descriptors", Cause::Descriptors),
        ("offered_load", Cause::OfferedLoad),
    ] {
        let lines = section(output, &format!("{name} trials"))?;
        let entry: TrialEntry = serde_json::from_str(lines.lines().last().context("no trial")?)
            .with_context(|| format!("{name}: {lines}"))?;
        let verdict = entry.trial.verdict.with_context(|| format!("{name}: no verdict"))?;
        ensure!(verdict.first_cause() == Some(cause), "{name}: {verdict:?}");
    }
    Ok(())
}
