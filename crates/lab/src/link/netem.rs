//! The kernel's own link emulation, where available, for the packets that each end sends: `sch_netem` for delay and
//! faults and, below it, `sch_tbf` for the rate and the queue.
//!
//! `tc` (iproute2) configures netem, so `tc qdisc show` prints the same settings.

use std::{io, process::Command};

use kernel::netlink::{ETHERNET_HEADER_BYTES, Netlink, TokenBucket};
use netlink_packet_route::tc::TcHandle;
use nix::net::if_::if_nametoindex;
use record::Distribution;

use super::{
    LinkError,
    namespace::End,
    spec::{LinkSpec, Loss, Queue, Shape},
};
use crate::exec::search_path;

/// The settings of a link that netem does not support.
pub(crate) fn mistakes(spec: &LinkSpec) -> Vec<String> {
    let mut mistakes: Vec<String> =
        [&spec.a_to_b, &spec.b_to_a].into_iter().flat_map(unsupported_by_netem).collect();
    mistakes.dedup();
    mistakes
}

/// Configures both ends. The interfaces, such as a veth pair, must exist and have the kernel's default queueing
/// discipline.
///
/// # Errors
/// If netem does not support a setting, or the kernel refuses it. Both ends are then as before.
pub fn apply(spec: &LinkSpec, a: &End, b: &End) -> Result<(), LinkError> {
    let ends = [
        (a, build_qdiscs(&a.device, &spec.a_to_b, spec.round_trip_ns(), a.mtu)?),
        (b, build_qdiscs(&b.device, &spec.b_to_a, spec.round_trip_ns(), b.mtu)?),
    ];
    let mut made: Vec<&End> = Vec::new();
    for (end, (netem, bucket)) in &ends {
        let result = tc(end, netem).and_then(|()| {
            made.push(end);
            bucket.map_or(Ok(()), |bucket| limit(end, &bucket))
        });
        if let Err(error) = result {
            // The first error is the cause, so errors of the removal are dropped.
            made.iter().for_each(|end| drop(remove(end)));
            return Err(error);
        }
    }
    Ok(())
}

/// Adds the token bucket (`sch_tbf`) below netem.
fn limit(end: &End, bucket: &TokenBucket) -> Result<(), LinkError> {
    let below_netem = TcHandle { major: 1, minor: 1 };
    let add = || {
        let index = if_nametoindex(end.device.as_str())?;
        Netlink::open()?.add_bucket(index, below_netem, bucket)
    };
    end.namespace.run(|| {
        add().map_err(|error| LinkError::Netem {
            device: end.device.clone(),
            cause: match error.kind() {
                io::ErrorKind::NotFound => "this kernel has no sch_tbf and cannot load it".to_owned(),
                _ => format!("sch_tbf: {error}"),
            },
        })
    })
}

/// Removes the queueing disciplines that [`apply`] added at one end.
///
/// # Errors
/// The error of `tc`.
pub fn remove(end: &End) -> Result<(), LinkError> {
    tc(end, &["qdisc", "del", "dev", &end.device, "root"].map(str::to_owned))
}

fn tc(end: &End, arguments: &[String]) -> Result<(), LinkError> {
    let refuse = |cause: String| LinkError::Netem { device: end.device.clone(), cause };
    // `tc` must run in the end's namespace, and a child inherits the namespace of the thread that starts it.
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
    let output = String::from_utf8_lossy(&output.stderr);
    // `tc` prints "Specified qdisc kind is unknown", or the text of ENOENT if the kernel gives no message.
    let cause = if output.contains("kind is unknown") || output.contains("No such file") {
        "this kernel has no sch_netem and cannot load it".to_owned()
    } else if ["NLM_F_REPLACE", "Exclusivity flag", "File exists"].iter().any(|part| output.contains(part)) {
        format!(
            "it already has a queueing discipline, which would be lost; remove it: tc qdisc del dev {} root",
            end.device
        )
    } else {
        format!("tc {}: {}", arguments.join(" "), output.trim())
    };
    Err(refuse(cause))
}

/// The queueing disciplines of one direction: the arguments of `tc` for netem, and the token bucket below netem.
fn build_qdiscs(
    device: &str,
    shape: &Shape,
    round_trip_ns: u64,
    mtu: u32,
) -> Result<(Vec<String>, Option<TokenBucket>), LinkError> {
    let mut mistakes = shape.mistakes();
    mistakes.extend(unsupported_by_netem(shape));
    if !mistakes.is_empty() {
        return Err(LinkError::Spec(mistakes));
    }
    let mut netem = vec!["qdisc", "add", "dev", device, "root", "handle", "1:", "netem", "limit"];
    let limit = line_packets(shape).to_string();
    let delay = delay_words(shape);
    let loss = loss_words(shape.loss);
    netem.push(&limit);
    netem.extend(delay.iter().chain(&loss).map(String::as_str));
    let duplicate = percent(shape.duplicate_ratio);
    if shape.duplicate_ratio > 0.0 {
        netem.extend(["duplicate", &duplicate]);
    }
    let bucket = shape.rate_bits_per_s.zip(shape.queue_bytes(round_trip_ns)).map(|(rate, queue_bytes)| {
        let frame_bytes = u64::from(mtu) + ETHERNET_HEADER_BYTES;
        TokenBucket {
            rate_bits_per_s: rate,
            // The smallest burst that frames and timers allow: half a millisecond, at least two frames.
            burst_bytes: (rate / 8 / 2_000).max(2 * frame_bytes),
            queue_bytes: match shape.queue {
                Queue::Bytes { bytes } => bytes.max(frame_bytes),
                Queue::Bdp { .. } => queue_bytes,
            },
            overhead_bytes: (shape.layer.bytes(1_500) - 1_500 - ETHERNET_HEADER_BYTES) as u16,
        }
    });
    Ok((netem.into_iter().map(str::to_owned).collect(), bucket))
}

/// Limit of netem in packets: the number of minimum-size packets that fit into the delay line. netem's default of 1,000
/// is too small for a fast link.
fn line_packets(shape: &Shape) -> u64 {
    let rate = shape.rate_bits_per_s.unwrap_or(100_000_000_000);
    let delay_ns = shape.delay_ns as f64 + 10.0 * shape.jitter.mean_ns();
    ((rate as f64 / 8.0 / 84.0 * delay_ns / 1e9) as u64).clamp(10_000, 50_000_000)
}

fn unsupported_by_netem(shape: &Shape) -> Vec<String> {
    let mut unsupported = Vec::new();
    if shape.layer.bytes(1_500) < 1_514 {
        unsupported.push("layer: netem counts Ethernet frames, not IP packets");
    }
    if shape.reorder.is_some() {
        unsupported.push("reorder: netem sends packets early instead of late");
    }
    if !matches!(shape.jitter, Distribution::Fixed { .. } | Distribution::Uniform { .. }) {
        unsupported.push("jitter: only uniform jitter is supported with netem");
    }
    unsupported.into_iter().map(|what| format!("{what}; use driver = \"emulator\"")).collect()
}

fn delay_words(shape: &Shape) -> Vec<String> {
    let us = |ns: u64| format!("{:.3}us", ns as f64 / 1e3);
    match shape.jitter {
        // The jitter of netem is uniform between delay - jitter and delay + jitter.
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

    fn made(shape: &Shape) -> (String, Option<TokenBucket>) {
        let (words, bucket) = build_qdiscs("eth0", shape, 100_000_000, 1_500).unwrap();
        (words.join(" "), bucket)
    }

    #[test]
    fn a_slow_long_link() {
        let shape = Shape { rate_bits_per_s: Some(20_000_000), delay_ns: 50_000_000, ..Shape::default() };
        let words = "qdisc add dev eth0 root handle 1: netem limit 10000 delay 50000.000us";
        let bucket = TokenBucket {
            rate_bits_per_s: 20_000_000,
            burst_bytes: 3_028,
            queue_bytes: 250_000,
            overhead_bytes: 24,
        };
        assert_eq!(made(&shape), (words.to_owned(), Some(bucket)));
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
        let words = "qdisc add dev eth0 root handle 1: netem limit 1488095 delay 1000.000us 1000.000us \
                     loss gemodel 1% 25% 100% 0% duplicate 0.1%";
        assert_eq!(made(&shape), (words.to_owned(), None));
        let random = Shape { loss: Loss::Random { ratio: 0.000_01 }, ..Shape::default() };
        assert!(made(&random).0.ends_with("loss random 0.001%"));
    }

    #[test]
    fn what_netem_cannot_do_is_refused_before_anything_is_changed() {
        let ip = Shape { layer: Layer::Ip, ..Shape::default() };
        let reorder = Shape { reorder: Some(Reorder { ratio: 0.1, late_ns: 1 }), ..Shape::default() };
        let jitter = Shape { jitter: Distribution::Exponential { mean_ns: 1 }, ..Shape::default() };
        for shape in [ip, reorder, jitter] {
            assert!(matches!(build_qdiscs("eth0", &shape, 0, 1_500), Err(LinkError::Spec(_))));
            assert_eq!(mistakes(&LinkSpec::symmetric(shape)).len(), 1);
        }
    }
}
