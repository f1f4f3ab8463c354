//! A segment with a limited rate: the rate that TCP reaches through a port, alone and shared.

use anyhow::{Context, Result};
use serde_json::Value;

use super::{Bar, By, Outcome, Scale, seconds};
use crate::{lab::Labs, process::Finished};

pub(super) const BAR: Bar = Bar {
    name: "lab-segment",
    what: "three hosts on a segment of 100 Mbit/s: a TCP flow gets 93 to 96 Mbit/s, to and from a host, and so do \
           two together that share a port",
    full_seconds: 50,
    decided_by: By::Times,
    run,
};

const FILE: &str = r#"
title = "segment"
[hosts]
client = { count = 2 }
web = {}
[[links]]
between = ["client", "web"]
rate = "100mbit"
[[processes]]
on = "web"
run = "iperf3"
name = "one"
[[processes]]
on = "web"
run = "iperf3"
name = "two"
port = 5202
"#;

/// With an MTU of 1500 and TCP time stamps, 1448 of the 1514 bytes of a frame are payload: 95.6 Mbit/s.
const MOST_MBIT_PER_S: f64 = 96.0;
const LEAST_MBIT_PER_S: f64 = 93.0;

fn run(scale: Scale) -> Result<Outcome> {
    let flow_s = scale.pick(3, 15);
    let labs = Labs::new()?;
    let (lab, _) = labs.up(&labs.file("segment.toml", FILE)?)?;
    let mut outcome = Outcome::default();
    let flow = |client: &str, options: &str| {
        let iperf3 = format!("iperf3 -c 10.1.0.3 {options} --omit 1 --time {flow_s} --json");
        labs.command(&format!("lab shell {client} -- {iperf3}"))?.start()
    };
    let patience = seconds(flow_s + 30);
    for (name, options) in [("to_web", ""), ("from_web", "--reverse")] {
        let rate = received_mbit_per_s(&flow("client1", options)?.finish(patience)?)?;
        bound(&mut outcome, name, rate);
    }
    let both = [flow("client1", "")?, flow("client2", "--port 5202")?];
    let shares = both.map(|flow| received_mbit_per_s(&flow.finish(patience)?));
    let [one, other] = shares;
    let (one, other) = (one?, other?);
    bound(&mut outcome, "two_to_web", one + other);
    outcome.note(format!("the two that share the port get {one:.1} and {other:.1} Mbit/s"));
    labs.down(lab)?;
    Ok(outcome)
}

fn bound(outcome: &mut Outcome, name: &str, mbit_per_s: f64) {
    let bound = format!("{LEAST_MBIT_PER_S} to {MOST_MBIT_PER_S} Mbit/s");
    let pass = (LEAST_MBIT_PER_S..=MOST_MBIT_PER_S).contains(&mbit_per_s);
    outcome.time().figure(&format!("{name}_mbit_per_s"), format!("{mbit_per_s:.2}"), bound, pass);
}

fn received_mbit_per_s(iperf3: &Finished) -> Result<f64> {
    let said = || format!("iperf3 wrote: {}{}", iperf3.stdout, iperf3.stderr);
    let result: Value = serde_json::from_str(&iperf3.stdout).with_context(said)?;
    let rate = result.pointer("/end/sum_received/bits_per_second").and_then(Value::as_f64);
    Ok(rate.with_context(said)? / 1e6)
}
