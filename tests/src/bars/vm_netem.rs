//! The kernel's link emulation and ours, measured in the same virtual machine.

use anyhow::{Context, Result};
use serde_json::Value;

use super::{Bar, By, Outcome, Scale, seconds};
use crate::Vm;

pub(super) const BAR: Bar = Bar {
    name: "vm-netem",
    what: "in Debian's kernel, 20 Mbit/s and 50 ms each way: netem and our links, delay and throughput",
    full_seconds: 150,
    decided_by: By::Counts,
    run,
};

/// Largest difference between two round-trip times, in milliseconds.
const DELAY_BOUND_MS: f64 = 0.5;
/// Largest relative difference between two throughputs (0 to 1).
const THROUGHPUT_BOUND: f64 = 0.03;

/// The kernel's own emulation, set up with `tc`. The script has a function for each link.
const KERNELS: [&str; 2] = ["netem_tbf", "netem"];
/// The links of `proofload link`: its own emulator, and the kernel's emulation that it sets up.
const OURS: [&str; 2] = ["emulator", "netem_driver"];

/// The time of the virtual machine is simulated, so no other program can change the results.
fn run(scale: Scale) -> Result<Outcome> {
    let (pings, omitted_s, flow_s) = scale.pick((5, 1, 2), (200, 5, 60));
    // Over a few seconds, iperf3 measures 6 % more than the rate if the queue counts bytes, as tbf's and ours do. netem's queue counts
    // packets, including those in transit, and shows no such surplus. So only long flows are compared with netem alone.
    let kernels = scale.pick(&KERNELS[..1], &KERNELS[..]);
    let links = kernels.iter().chain(&OURS).copied().collect::<Vec<_>>();
    let sizes = format!("PINGS={pings} OMITTED_S={omitted_s} FLOW_S={flow_s} LINKS='{}'", links.join(" "));
    let script = format!("{sizes}\n{}", include_str!("vm_netem.sh"));
    let ran = Vm::default()
        .tools(["ip", "tc", "ping", "iperf3"])
        .modules(["veth", "tun", "sch_netem", "sch_tbf"])
        .proofload()?
        .run(&script, seconds(2_400))?;
    let output = ran.succeeded()?;

    let mut outcome = Outcome::default();
    for ours in OURS {
        let measured = Measured::read(output, ours)?;
        for kernel in kernels {
            let truth = Measured::read(output, kernel)?;
            compare(&mut outcome, &format!("{ours}_against_{kernel}"), &measured, &truth);
        }
    }
    compare_lab(&mut outcome, output)?;
    let refusal = section(output, "refusal netem_driver")?;
    let is_kept = refusal.contains("already has a queueing discipline") && refusal.contains("qdisc tbf");
    let bound = "the driver refuses to replace another's discipline, and leaves none of its own";
    outcome.holds("foreign_kept", is_kept && !refusal.contains("qdisc netem"), bound);
    for link in links {
        outcome.note(format!("{link}: {}", Measured::read(output, link)?.described()));
    }
    let (release, wall_s) = (&ran.release, ran.wall.as_secs_f64());
    outcome.note(format!("Linux {release} in QEMU, {wall_s:.0} s; 20 Mbit/s of frames are 19.128 for TCP"));
    Ok(outcome)
}

fn compare(outcome: &mut Outcome, name: &str, measured: &Measured, truth: &Measured) {
    let apart_ms = measured.round_trip_ms - truth.round_trip_ms;
    let bound = format!("within ± {DELAY_BOUND_MS} ms");
    let pass = apart_ms.abs() <= DELAY_BOUND_MS;
    outcome.figure(&format!("{name}_round_trip"), format!("{apart_ms:+.3} ms"), bound, pass);
    let apart = measured.received_mbit_per_s / truth.received_mbit_per_s - 1.0;
    let bound = format!("within ± {}%", THROUGHPUT_BOUND * 100.0);
    let pass = apart.abs() <= THROUGHPUT_BOUND;
    outcome.figure(&format!("{name}_throughput"), format!("{:+.3}%", apart * 100.0), bound, pass);
}

/// Checks a link of a lab file that the kernel emulates: it must have both schedulers, and the delay of a link made with `tc`.
fn compare_lab(outcome: &mut Outcome, output: &str) -> Result<()> {
    let qdiscs = section(output, "qdiscs lab_netem")?;
    let is_made = qdiscs.contains("delay 50ms") && qdiscs.contains("tbf") && qdiscs.contains("rate 20Mbit");
    outcome.holds("lab_netem_made", is_made, "a lab file's link has netem's delay and tbf's rate");
    let ping = section(output, "ping lab_netem")?;
    let (round_trip_ms, _) = round_trips_ms(ping)
        .with_context(|| format!("ping in the lab has no line of round trips:\n{ping}"))?;
    let truth_ms = Measured::read(output, "netem_tbf")?.round_trip_ms;
    outcome.near("lab_netem_round_trip_ms", round_trip_ms, truth_ms, DELAY_BOUND_MS, "");
    Ok(())
}

/// The measurements over one link.
#[derive(Debug)]
struct Measured {
    round_trip_ms: f64,
    worst_round_trip_ms: f64,
    received_mbit_per_s: f64,
    retransmits: u64,
    loaded_round_trip_ms: f64,
}

impl Measured {
    /// Reads the measurements from the script's output: `== ping LINK` and ping's summary, `== iperf3 LINK` and its JSON.
    fn read(output: &str, link: &str) -> Result<Self> {
        let ping = section(output, &format!("ping {link}"))?;
        let round_trips = round_trips_ms(ping)
            .with_context(|| format!("ping over {link} has no line of round trips:\n{ping}"))?;
        let iperf3 = section(output, &format!("iperf3 {link}"))?;
        let json: Value =
            serde_json::from_str(iperf3).with_context(|| format!("iperf3 over {link} wrote:\n{iperf3}"))?;
        let figure = |pointer: &str| {
            json.pointer(pointer)
                .and_then(Value::as_f64)
                .with_context(|| format!("iperf3 over {link} did not report {pointer}:\n{iperf3}"))
        };
        Ok(Self {
            round_trip_ms: round_trips.0,
            worst_round_trip_ms: round_trips.1,
            received_mbit_per_s: figure("/end/sum_received/bits_per_second")? / 1e6,
            retransmits: figure("/end/sum_sent/retransmits")? as u64,
            loaded_round_trip_ms: figure("/end/streams/0/sender/mean_rtt")? / 1e3,
        })
    }

    fn described(&self) -> String {
        format!(
            "idle round trip {:.3} ms, worst {:.3} ms; one flow {:.3} Mbit/s, {} segments sent again, \
             round trip meanwhile {:.0} ms",
            self.round_trip_ms,
            self.worst_round_trip_ms,
            self.received_mbit_per_s,
            self.retransmits,
            self.loaded_round_trip_ms
        )
    }
}

/// The text after the line `== NAME`, up to the next such line.
fn section<'a>(output: &'a str, name: &str) -> Result<&'a str> {
    let (_, after) = output
        .split_once(&format!("== {name}\n"))
        .with_context(|| format!("the script wrote no section '{name}':\n{output}"))?;
    Ok(after.split("\n== ").next().unwrap_or(after))
}

/// Mean and maximum from ping's line `rtt min/avg/max/mdev = 100.092/100.093/100.110/0.002 ms`. The lines of single packets have only three
/// digits.
fn round_trips_ms(ping: &str) -> Option<(f64, f64)> {
    let (_, figures) = ping.split_once("min/avg/max/mdev = ")?;
    let mut figures = figures.split('/').skip(1).map(|figure| figure.parse().ok());
    Some((figures.next()??, figures.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_tools_write_is_read() {
        let output = "== ping a\n2 received\nrtt min/avg/max/mdev = 100.092/100.093/100.110/0.002 ms\n\
                      == iperf3 a\n{\"end\": {\"sum_sent\": {\"retransmits\": 3},\n\
                      \"streams\": [{\"sender\": {\"mean_rtt\": 171000}}],\n\
                      \"sum_received\": {\"bits_per_second\": 19.5e6}}}\n== ping b\nnothing\n";
        let measured = Measured::read(output, "a").unwrap();
        assert_eq!((measured.round_trip_ms, measured.worst_round_trip_ms), (100.093, 100.11));
        assert_eq!((measured.received_mbit_per_s, measured.retransmits), (19.5, 3));
        assert!(measured.described().ends_with("3 segments sent again, round trip meanwhile 171 ms"));
        let missing = Measured::read(output, "b").unwrap_err().to_string();
        assert!(missing.contains("ping over b has no line of round trips"), "{missing}");
    }
}
