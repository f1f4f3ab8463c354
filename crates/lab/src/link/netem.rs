//! The kernel's own emulation, where it is built in: `sch_netem` for delay and faults, below it
//! `sch_tbf` for the rate and the queue, on the sending side of each end.
//!
//! It is driven by `tc` (iproute2), so that what is set is what `tc qdisc show` shows.

use std::process::Command;

use record::Distribution;

use super::{
    LinkError,
    namespace::End,
    spec::{Direction, LinkSpec, Loss, Queue, Shape},
};
use crate::process::exec::search_path;

/// What of a link cannot be said to netem.
pub fn mistakes(spec: &LinkSpec) -> Vec<String> {
    let mut mistakes: Vec<String> = [&spec.a_to_b, &spec.b_to_a].into_iter().flat_map(beyond_netem).collect();
    mistakes.dedup();
    mistakes
}

/// Sets both ends up. The interfaces exist already, a veth pair for instance, and have no queueing discipline
/// but the kernel's default: another's would be lost.
///
/// # Errors
/// What cannot be said to netem, before anything is changed; then what `tc` says, and nothing is left.
pub fn apply(spec: &LinkSpec, a: &End, b: &End) -> Result<(), LinkError> {
    let orders = [
        (a, orders(Verb::Add, &a.device, &spec.a_to_b, spec.round_trip_ns(), a.mtu)?),
        (b, orders(Verb::Add, &b.device, &spec.b_to_a, spec.round_trip_ns(), b.mtu)?),
    ];
    let mut made: Vec<&End> = Vec::new();
    for (end, orders) in &orders {
        for (number, order) in orders.iter().enumerate() {
            if let Err(error) = tc(end, order) {
                // The first error is the one that matters.
                made.iter().for_each(|end| drop(remove(end)));
                return Err(error);
            }
            if number == 0 {
                made.push(end);
            }
        }
    }
    Ok(())
}

/// Changes one direction of a link that was set up.
///
/// # Errors
/// As [`apply`].
pub fn set(spec: &LinkSpec, direction: Direction, from: &End) -> Result<(), LinkError> {
    let shape = if direction == Direction::AToB { &spec.a_to_b } else { &spec.b_to_a };
    for order in orders(Verb::Replace, &from.device, shape, spec.round_trip_ns(), from.mtu)? {
        tc(from, &order)?;
    }
    Ok(())
}

/// Takes away what [`apply`] has set up at one end.
///
/// # Errors
/// What `tc` says.
pub fn remove(end: &End) -> Result<(), LinkError> {
    tc(end, &["qdisc", "del", "dev", &end.device, "root"].map(str::to_owned))
}

/// What to do with queueing disciplines.
#[derive(Debug, Clone, Copy)]
enum Verb {
    Add,
    Replace,
}

impl Verb {
    fn word(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Replace => "replace",
        }
    }
}

fn tc(end: &End, arguments: &[String]) -> Result<(), LinkError> {
    let refuse = |cause: String| LinkError::Netem { device: end.device.clone(), cause };
    // A child has the namespace of the thread that starts it.
    let output = end.namespace.run(|| {
        Command::new("tc")
            .args(arguments)
            .env("PATH", search_path())
            .output()
            .map_err(|error| refuse(format!("cannot run tc: {error} (Debian: apt-get install iproute2)")))
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let kind = if arguments.iter().any(|word| word == "netem") { "sch_netem" } else { "sch_tbf" };
    // "Specified qdisc kind is unknown", or ENOENT where the answer has no words.
    let cause = if said.contains("kind is unknown") || said.contains("No such file") {
        format!("this kernel has no {kind} and cannot load it")
    } else if ["NLM_F_REPLACE", "Exclusivity flag", "File exists"].iter().any(|part| said.contains(part)) {
        format!(
            "it has a queueing discipline already, which would be lost; tc qdisc del dev {} root",
            end.device
        )
    } else {
        format!("tc {}: {}", arguments.join(" "), said.trim())
    };
    Err(refuse(cause))
}

/// The calls of `tc` that make one direction.
fn orders(
    verb: Verb,
    device: &str,
    shape: &Shape,
    round_trip_ns: u64,
    mtu: u32,
) -> Result<Vec<Vec<String>>, LinkError> {
    let mut mistakes = shape.mistakes();
    mistakes.extend(beyond_netem(shape));
    if !mistakes.is_empty() {
        return Err(LinkError::Spec(mistakes));
    }
    let verb = verb.word();
    let mut netem = vec!["qdisc", verb, "dev", device, "root", "handle", "1:", "netem", "limit"];
    let limit = line_packets(shape).to_string();
    let delay = delay_words(shape);
    let loss = loss_words(shape.loss);
    netem.push(&limit);
    netem.extend(delay.iter().chain(&loss).map(String::as_str));
    let duplicate = percent(shape.duplicate_ratio);
    if shape.duplicate_ratio > 0.0 {
        netem.extend(["duplicate", &duplicate]);
    }
    let mut orders = vec![netem.into_iter().map(str::to_owned).collect()];
    if let (Some(rate), Some(queue_bytes)) = (shape.rate_bits_per_s, shape.queue_bytes(round_trip_ns)) {
        let frame = u64::from(mtu) + 14;
        // A bucket as shallow as frames and timers allow: half a millisecond, two frames at least.
        let burst = (rate / 8 / 2_000).max(2 * frame);
        let limit = match shape.queue {
            Queue::Bytes { bytes } => bytes.max(frame),
            Queue::Bdp { .. } => queue_bytes,
        };
        let rest = format!(
            "qdisc {verb} dev {device} parent 1:1 handle 10: tbf rate {rate}bit burst {burst} limit {limit} \
             overhead {}",
            shape.layer.bytes(1_500) - 1_500 - 14
        );
        orders.push(rest.split_whitespace().map(str::to_owned).collect());
    }
    Ok(orders)
}

/// Room for all that the delay line may hold, in packets as small as they get; netem's own default of
/// 1,000 drops what a fast link has under way.
fn line_packets(shape: &Shape) -> u64 {
    let rate = shape.rate_bits_per_s.unwrap_or(100_000_000_000);
    let delay_ns = shape.delay_ns as f64 + 10.0 * shape.jitter.mean_ns();
    ((rate as f64 / 8.0 / 84.0 * delay_ns / 1e9) as u64).clamp(10_000, 50_000_000)
}

fn beyond_netem(shape: &Shape) -> Vec<String> {
    let mut beyond = Vec::new();
    if shape.layer.bytes(1_500) < 1_514 {
        beyond.push("layer: the kernel counts Ethernet frames, not ip alone");
    }
    if shape.reorder.is_some() {
        beyond.push("reorder: netem sends packets early instead of late");
    }
    if !matches!(shape.jitter, Distribution::Fixed { .. } | Distribution::Uniform { .. }) {
        beyond.push("jitter: netem is given uniform ones only");
    }
    beyond.into_iter().map(|what| format!("{what}; use driver = \"emulator\"")).collect()
}

fn delay_words(shape: &Shape) -> Vec<String> {
    let us = |ns: u64| format!("{:.3}us", ns as f64 / 1e3);
    match shape.jitter {
        // netem's own is uniform, from the delay less to the delay plus the jitter.
        Distribution::Uniform { min_ns, max_ns } => {
            let half_ns = (max_ns - min_ns) / 2;
            vec!["delay".to_owned(), us(shape.delay_ns + min_ns + half_ns), us(half_ns)]
        }
        Distribution::Fixed { ns } if shape.delay_ns + ns > 0 => {
            vec!["delay".to_owned(), us(shape.delay_ns + ns)]
        }
        _ => Vec::new(),
    }
}

fn loss_words(loss: Loss) -> Vec<String> {
    let words = match loss {
        Loss::None => String::new(),
        Loss::Random { ratio } => format!("loss random {}", percent(ratio)),
        Loss::GilbertElliott { good_to_bad, bad_to_good, loss_good, loss_bad } => format!(
            "loss gemodel {} {} {} {}",
            percent(good_to_bad),
            percent(bad_to_good),
            percent(loss_bad),
            percent(loss_good)
        ),
    };
    words.split_whitespace().map(str::to_owned).collect()
}

fn percent(ratio: f64) -> String {
    format!("{}%", (ratio * 1e8).round() / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::{Layer, Reorder};

    fn lines(shape: &Shape) -> Vec<String> {
        orders(Verb::Replace, "eth0", shape, 100_000_000, 1_500)
            .unwrap()
            .iter()
            .map(|words| words.join(" "))
            .collect()
    }

    #[test]
    fn a_slow_long_link() {
        let shape = Shape { rate_bits_per_s: Some(20_000_000), delay_ns: 50_000_000, ..Shape::default() };
        assert_eq!(
            lines(&shape),
            [
                "qdisc replace dev eth0 root handle 1: netem limit 10000 delay 50000.000us",
                "qdisc replace dev eth0 parent 1:1 handle 10: tbf rate 20000000bit burst 3028 limit 250000 overhead 24",
            ]
        );
    }

    #[test]
    fn faults_in_the_words_of_tc() {
        let shape = Shape {
            loss: Loss::GilbertElliott {
                good_to_bad: 0.01,
                bad_to_good: 0.25,
                loss_good: 0.0,
                loss_bad: 1.0,
            },
            duplicate_ratio: 0.001,
            jitter: Distribution::Uniform { min_ns: 0, max_ns: 2_000_000 },
            layer: Layer::Frame,
            ..Shape::default()
        };
        assert_eq!(
            lines(&shape),
            ["qdisc replace dev eth0 root handle 1: netem limit 1488095 delay 1000.000us 1000.000us \
              loss gemodel 1% 25% 100% 0% duplicate 0.1%"]
        );
        let random = Shape { loss: Loss::Random { ratio: 0.000_01 }, ..Shape::default() };
        assert!(lines(&random)[0].ends_with("loss random 0.001%"));
    }

    #[test]
    fn what_netem_cannot_do_is_refused_before_anything_is_changed() {
        let ip = Shape { layer: Layer::Ip, ..Shape::default() };
        let reorder = Shape { reorder: Some(Reorder { ratio: 0.1, late_ns: 1 }), ..Shape::default() };
        let jitter = Shape { jitter: Distribution::Exponential { mean_ns: 1 }, ..Shape::default() };
        for shape in [ip, reorder, jitter] {
            assert!(matches!(orders(Verb::Add, "eth0", &shape, 0, 1_500), Err(LinkError::Spec(_))));
            assert_eq!(mistakes(&LinkSpec::symmetric(shape)).len(), 1);
        }
    }
}
