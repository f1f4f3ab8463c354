//! A balancer spreads new connections as its table says, and only requests pass through it.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use testing::until;

use super::{Bar, By, Outcome, Scale, seconds};
use crate::balanced::Balanced;

pub(super) const BAR: Bar = Bar {
    name: "balance-spread",
    what: "100,000 requests on new connections over 25 servers: none fails; shares as the ring's (chi-squared p > 0.01), by turns \
           within 1 but for those that keep the server of their port; only what clients send passes the balancer",
    full_seconds: 80,
    decided_by: By::Counts,
    run,
};

const SERVERS: usize = 25;
const FILE_BYTES: u32 = 5 << 10;
/// Limits of the chi-squared sum with 24 degrees of freedom. By chance, the sum exceeds the first in one of 10,000 runs (for samples, which
/// run often) and the second in one of 100 (for a full run).
const MAX_CHI_SQUARED: (f64, f64) = (58.6, 42.98);
/// Maximum percentage of connections that skip their turn because their port was used less than 1.07 s before. With more of them, the
/// result says little about the turns.
const MOST_KEPT_PERCENT: f64 = 20.0;
/// Allowed number of frames other than those of requests: checks and address resolution.
const OTHER_FRAMES: u64 = 2_000;

/// The number of connections in the balancer's table, after a sweep that has seen all of them.
fn known_flows(lab: &Balanced) -> Result<f64> {
    let since = Instant::now();
    let mut known = None;
    until("a sweep has seen all connections", || {
        known = lab.statistics("balancer").ok().and_then(|statistics| {
            let sweep = &statistics["sweep"];
            let is_later = sweep["age_s"].as_f64()? < since.elapsed().as_secs_f64();
            sweep["flows"].as_f64().filter(|_| is_later)
        });
        known.is_some()
    });
    known.context("no sweep")
}

fn run(scale: Scale) -> Result<Outcome> {
    let requests: u64 = scale.pick(4_000, 100_000);
    let lab = Balanced::up(SERVERS, FILE_BYTES)?;
    let mut outcome = Outcome::default();
    for schedule in ["maglev", "round-robin"] {
        lab.configure("", &format!("schedule = \"{schedule}\"\ncheck = {{ kind = \"tcp\" }}"), SERVERS)?;
        let daemon = lab.start()?;
        (1..=SERVERS).for_each(|n| lab.await_state(&Balanced::web(n), "up"));
        let [client, balancer] = [lab.traffic("client")?, lab.traffic("balancer")?];
        let load = lab.load(&format!("-c 20 -n {requests} --no-keepalive"))?;
        let trial = Balanced::trial(load, seconds(300))?;
        let of = |name: &str| format!("{schedule}_{name}").replace('-', "_");
        outcome.equal(&of("completed"), trial.counts.completed, requests, "asked for");
        outcome.equal(&of("failed"), trial.counts.failed, 0, "of all requests");
        let since = |now: [[u64; 2]; 2], before: [[u64; 2]; 2]| {
            [0, 1].map(|way| [0, 1].map(|what| now[way][what] - before[way][what]))
        };
        let client = since(lab.traffic("client")?, client);
        let balancer = since(lab.traffic("balancer")?, balancer);
        // Frames that the balancer received, less those that the client sent.
        let more = balancer[0][0].saturating_sub(client[1][0]);
        outcome.figure(
            &of("frames_not_of_clients"),
            more,
            format!("<= {OTHER_FRAMES}"),
            more <= OTHER_FRAMES,
        );
        let answers = requests * u64::from(FILE_BYTES);
        ensure!(client[0][1] > answers, "the client has received {} bytes", client[0][1]);
        let through = balancer[1][1];
        outcome.figure(
            &of("bytes_through"),
            through,
            format!("< {answers}, those of the answers"),
            through < answers / 4,
        );
        outcome.note(format!(
            "{schedule}: {:.0} requests/s; of each, {:.1} frames and {:.0} bytes pass the balancer",
            trial.throughput_per_s,
            balancer[0][0] as f64 / requests as f64,
            through as f64 / requests as f64
        ));
        let flows = lab.of_servers("flows")?;
        let total: f64 = flows.iter().sum();
        outcome.equal(&of("flows"), total as u64, requests, "one for each request");
        if schedule == "maglev" {
            let shares = lab.of_servers("ring_ratio")?;
            let apart = |(flows, share): (&f64, &f64)| (flows - share * total).powi(2) / (share * total);
            // The client uses each port several times, and the ring always gives a port the same server, so connections from one port are
            // not independent.
            let uses = total / known_flows(&lab)?;
            outcome.note(format!("{schedule}: {uses:.2} connections from each port"));
            let chi_squared = flows.iter().zip(&shares).map(apart).sum::<f64>() / uses;
            let most = scale.pick(MAX_CHI_SQUARED.0, MAX_CHI_SQUARED.1);
            let bound = format!("<= {most}: p > {}", scale.pick("0.0001", "0.01"));
            outcome.figure(&of("chi_squared"), format!("{chi_squared:.1}"), bound, chi_squared <= most);
        } else {
            // The kernel may reuse a port that its server has just closed; such a connection keeps its server and takes no turn.
            let kept = lab.of_servers("kept")?;
            let turns: Vec<f64> = flows.iter().zip(&kept).map(|(flows, kept)| flows - kept).collect();
            let most = turns.iter().copied().fold(0.0, f64::max);
            let apart = most - turns.iter().copied().fold(f64::MAX, f64::min);
            outcome.figure(&of("most_apart"), apart, "<= 1", apart <= 1.0);
            let kept: f64 = kept.iter().sum();
            let bound = format!("<= {MOST_KEPT_PERCENT} % of all");
            if scale == Scale::Full {
                outcome.time().figure(&of("kept"), kept, bound, kept * 100.0 <= total * MOST_KEPT_PERCENT);
            }
        }
        lab.tell("stop")?;
        daemon.finish(testing::PATIENCE)?;
    }
    lab.down()?;
    Ok(outcome)
}
