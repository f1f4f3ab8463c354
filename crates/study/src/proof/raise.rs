//! Raises a limit in the plan of a lab.

use std::{collections::BTreeMap, iter};

use lab::{
    link::{Direction, Loss, Queue, Shape},
    plan::{Host, Known, KnownKind, LinkKind, Plan, Process, Program},
};
use record::{Bottleneck, Cause, units::show_bytes};

use crate::study::Setup;

/// The largest connection queue that the kernel allows, and long enough for any trial.
const QUEUE: u64 = 65_535;
/// The largest receive or send buffer in bytes: twice what 1 Gbit/s with a round trip of 228 ms needs.
const BUFFER_BYTES: u64 = 64 * 1024 * 1024;
const PORT_RANGE: &str = "net.ipv4.ip_local_port_range";
const PORTS: [u64; 2] = [1_024, 65_535];
/// Factor by which a limit without a natural maximum is raised.
const TIMES: u64 = 4;

/// Raises the limit in a setup. Returns a description of the change.
///
/// # Errors
/// If the limit is not in the setup's lab. The error says what would raise it.
pub(super) fn raise(setup: &mut Setup, bottleneck: &Bottleneck) -> Result<String, String> {
    let from = setup.from.clone();
    let changed = setup.lab.as_mut().and_then(|plan| {
        let host = plan.host(&bottleneck.place);
        match bottleneck.cause {
            Cause::AcceptQueue => connection_queue(plan, host?, "net.core.somaxconn"),
            Cause::SynQueue => connection_queue(plan, host?, "net.ipv4.tcp_max_syn_backlog"),
            // The verdict names the sender, but the receive window belongs to the other hosts.
            Cause::ReceiveWindow => {
                let all = 0..plan.hosts.len();
                let others = all.filter(|other| Some(*other) != host);
                set(plan, others, "net.ipv4.tcp_rmem", [4_096, 131_072, BUFFER_BYTES])
            }
            Cause::SendBuffer => set(plan, [host?], "net.ipv4.tcp_wmem", [4_096, 65_536, BUFFER_BYTES]),
            Cause::SourcePorts => {
                from.iter().for_each(|host| drop(plan.hosts[*host].sysctls.remove(PORT_RANGE)));
                set(plan, from, PORT_RANGE, PORTS)
            }
            Cause::LinkRate => link_rate(plan, &bottleneck.place),
            Cause::LinkQueue => link_queue(plan, &bottleneck.place),
            Cause::PacketLoss => no_loss(plan),
            Cause::CpuQuota => cpu_quota(&mut plan.hosts[host?]),
            Cause::Descriptors => descriptors(plan, host?),
            Cause::ConnectionLimit => connection_limit(plan, host?),
            _ => None,
        }
    });
    changed.ok_or_else(|| bottleneck.cause.raised_by().to_owned())
}

/// Raises the connection queues: the kernel's limit and the backlog that a known program requests. For other programs, their
/// own backlog would remain the limit.
fn connection_queue(plan: &mut Plan, host: usize, name: &str) -> Option<String> {
    let raised: Vec<String> = processes(plan, host).filter_map(raise_backlog).collect();
    if raised.is_empty() {
        return None;
    }
    // The accept queue also limits the queue of handshakes.
    set(plan, [host], "net.core.somaxconn", [QUEUE])?;
    let set = set(plan, [host], name, [QUEUE])?;
    Some(format!("{set}; backlog of {} {QUEUE}", raised.join(", ")))
}

fn raise_backlog(process: &mut Process) -> Option<String> {
    let backlog = match &mut process.program {
        Program::Known(Known { kind: KnownKind::Nginx(nginx), .. }) => &mut nginx.backlog,
        Program::Known(Known { kind: KnownKind::Listen(listen), .. }) => &mut listen.backlog,
        program => {
            if let Some(argument) = argument_after(program, "--backlog") {
                *argument = argument.parse().unwrap_or(0).max(QUEUE).to_string();
            } else if let Program::Known(Known { kind: KnownKind::Serve(_), args, .. }) = program {
                args.extend(["--backlog".to_owned(), QUEUE.to_string()]);
            } else {
                return None;
            }
            return Some(process.name.clone());
        }
    };
    *backlog = Some(backlog.unwrap_or(0).max(QUEUE as u32));
    Some(process.name.clone())
}

/// Raises haproxy's maxconn, its option `-n`.
fn connection_limit(plan: &mut Plan, host: usize) -> Option<String> {
    let raise = |process: &mut Process| {
        let limit = argument_after(&mut process.program, "-n")?;
        let raised = limit.parse::<u64>().ok()? * TIMES;
        let words = format!("-n {raised} instead of {limit} for");
        *limit = raised.to_string();
        Some(format!("{words} {}", process.name))
    };
    let raised: Vec<String> = processes(plan, host).filter_map(raise).collect();
    (!raised.is_empty()).then(|| raised.join(", "))
}

/// The argument that follows an option in a program's command line.
fn argument_after<'p>(program: &'p mut Program, option: &str) -> Option<&'p mut String> {
    let words = match program {
        Program::Command(words) => words,
        Program::Known(known) => &mut known.args,
    };
    let at = words.iter().position(|word| word == option)?;
    words.get_mut(at + 1)
}

fn descriptors(plan: &mut Plan, host: usize) -> Option<String> {
    let raise = |process: &mut Process| {
        let few = process.descriptors.take()?;
        Some(format!("no limit of {few} descriptors for {}", process.name))
    };
    let raised: Vec<String> = processes(plan, host).filter_map(raise).collect();
    (!raised.is_empty()).then(|| raised.join(", "))
}

fn processes(plan: &mut Plan, host: usize) -> impl Iterator<Item = &mut Process> {
    plan.processes.iter_mut().filter(move |process| process.host == host)
}

/// Sets the numbers of a sysctl on hosts. Larger existing numbers are kept.
fn set<const N: usize>(
    plan: &mut Plan,
    hosts: impl IntoIterator<Item = usize>,
    name: &str,
    numbers: [u64; N],
) -> Option<String> {
    let mut hosts_of: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for host in hosts {
        let host = plan.hosts.get_mut(host)?;
        let before = host.sysctls.get(name).map_or("", String::as_str).split_whitespace();
        let before = before.map(|number| number.parse().unwrap_or(0)).chain(iter::repeat(0));
        let raised: Vec<String> = numbers
            .iter()
            .zip(before)
            .map(|(number, before): (_, u64)| before.max(*number).to_string())
            .collect();
        host.sysctls.insert(name.to_owned(), raised.join(" "));
        hosts_of.entry(raised.join(" ")).or_default().push(host.name.clone());
    }
    let words = hosts_of.iter().map(|(value, hosts)| format!("{name} = \"{value}\" at {}", hosts.join(", ")));
    let words: Vec<String> = words.collect();
    (!words.is_empty()).then(|| words.join("; "))
}

fn cpu_quota(host: &mut Host) -> Option<String> {
    let quota = host.cpu_quota?;
    let raised = quota * TIMES as f64;
    host.cpu_quota = Some(raised);
    Some(format!("quota of {raised:.2} instead of {quota:.2} processors"))
}

fn link_rate(plan: &mut Plan, place: &str) -> Option<String> {
    let raise = |rate: &mut Option<u64>| {
        let was = (*rate)?;
        *rate = Some(was * TIMES);
        Some(format!("{} instead of {} Mbit/s", megabits(was * TIMES), megabits(was)))
    };
    match link(plan, place)? {
        LinkKind::Segment { port_rate_bits_per_s } => raise(port_rate_bits_per_s),
        LinkKind::Emulated(spec) => {
            each_shape([&mut spec.a_to_b, &mut spec.b_to_a], |shape| raise(&mut shape.rate_bits_per_s))
        }
        LinkKind::Pair => None,
    }
}

fn megabits(bits: u64) -> f64 {
    bits as f64 / 1e6
}

fn link_queue(plan: &mut Plan, place: &str) -> Option<String> {
    let LinkKind::Emulated(spec) = link(plan, place)? else { return None };
    let round_trip_ns = spec.round_trip_ns();
    each_shape([&mut spec.a_to_b, &mut spec.b_to_a], |shape| {
        let was = shape.queue_bytes(round_trip_ns)?;
        shape.queue = Queue::Bytes { bytes: was * TIMES };
        Some(format!("a queue of {} instead of {}", show_bytes(was * TIMES), show_bytes(was)))
    })
}

/// Removes the loss from all links, because a verdict does not say which of them lost the packets.
fn no_loss(plan: &mut Plan) -> Option<String> {
    let mut lossless = Vec::new();
    for link in &mut plan.links {
        let LinkKind::Emulated(spec) = &mut link.kind else { continue };
        let all = Direction::BOTH.map(|direction| spec.shape(direction).loss);
        if all.iter().any(|loss| *loss != Loss::None) {
            (spec.a_to_b.loss, spec.b_to_a.loss) = (Loss::None, Loss::None);
            lossless.push(link.name.as_str());
        }
    }
    (!lossless.is_empty()).then(|| format!("no loss on {}", lossless.join(", ")))
}

/// Changes both directions, and returns the description for the first one that changed.
fn each_shape(shapes: [&mut Shape; 2], change: impl FnMut(&mut Shape) -> Option<String>) -> Option<String> {
    let [there, back] = shapes.map(change);
    there.or(back)
}

/// Finds a link by the name that verdicts use for one of its directions: `link sea a to b`.
fn link<'p>(plan: &'p mut Plan, place: &str) -> Option<&'p mut LinkKind> {
    let names = place.strip_prefix("link ")?;
    let is_named = |name: &str| names.strip_prefix(name).is_some_and(|rest| rest.starts_with(' '));
    plan.links.iter_mut().find(|link| is_named(&link.name)).map(|link| &mut link.kind)
}

#[cfg(test)]
mod tests {
    use load::MachineLimits;
    use record::Certainty;

    use super::*;

    const STUDY: &str = r#"
        [hosts]
        client = {}
        lb = { tcp_rmem = "64KiB" }
        web = { cpu_quota = 0.5 }
        [[links]]
        name = "wire"
        between = ["client", "lb"]
        rate = "10mbit"
        loss = "1%"
        [[links]]
        name = "lan"
        between = ["lb", "web"]
        rate = "100mbit"
        [[processes]]
        on = "lb"
        run = "haproxy"
        backends = ["web"]
        args = ["-n", "20"]
        [targets.web]
        on = "web"
        run = "nginx"
        backlog = 16
        descriptors = 100
        [workload.http]
        from = "lb"
        target = "web"
        duration = "1s"
        users = 1
    "#;

    fn setup() -> Setup {
        let limits = MachineLimits::read().unwrap();
        crate::file::read("f", STUDY, &[], &limits).unwrap().setup(0, None).unwrap()
    }

    fn raised(cause: Cause, place: &str) -> Result<String, String> {
        let (mut raised, evidence) = (setup(), String::new());
        let named = Bottleneck { cause, place: place.to_owned(), evidence, certainty: Certainty::Counted };
        let words = raise(&mut raised, &named);
        assert_eq!(raised == setup(), words.is_err(), "{words:?}");
        words
    }

    #[test]
    fn what_is_in_the_lab_is_raised() {
        let queues = "at web; backlog of web-web 65535";
        for (cause, place, words) in [
            (Cause::AcceptQueue, "web", format!("net.core.somaxconn = \"65535\" {queues}")),
            (Cause::SynQueue, "web", format!("net.ipv4.tcp_max_syn_backlog = \"65535\" {queues}")),
            (
                Cause::ReceiveWindow,
                "web",
                "net.ipv4.tcp_rmem = \"4096 131072 67108864\" at client, lb".into(),
            ),
            (Cause::SendBuffer, "web", "net.ipv4.tcp_wmem = \"4096 65536 67108864\" at web".into()),
            (Cause::SourcePorts, "", "net.ipv4.ip_local_port_range = \"1024 65535\" at lb".into()),
            (Cause::LinkRate, "link wire a to b", "40 instead of 10 Mbit/s".into()),
            (Cause::LinkQueue, "link wire a to b", "a queue of 640 KiB instead of 160 KiB".into()),
            (Cause::PacketLoss, "", "no loss on wire".into()),
            (Cause::CpuQuota, "web", "quota of 2.00 instead of 0.50 processors".into()),
            (Cause::Descriptors, "web", "no limit of 100 descriptors for web-web".into()),
            (Cause::ConnectionLimit, "lb", "-n 80 instead of 20 for lb-haproxy".into()),
        ] {
            assert_eq!(raised(cause, place), Ok(words), "{cause:?}");
        }
    }

    #[test]
    fn what_is_larger_stays() {
        let mut plan = setup().lab.unwrap();
        plan.hosts[0].sysctls.insert("net.ipv4.tcp_wmem".to_owned(), "8192 1000 99000000".to_owned());
        let words = set(&mut plan, [0], "net.ipv4.tcp_wmem", [4_096, 65_536, BUFFER_BYTES]);
        assert_eq!(words.unwrap(), "net.ipv4.tcp_wmem = \"8192 65536 99000000\" at client");
    }

    #[test]
    fn what_is_not_in_the_lab_is_only_advised() {
        for (cause, place) in
            [(Cause::AcceptQueue, "lb"), (Cause::LinkRate, "link x a to b"), (Cause::Disk, "")]
        {
            assert_eq!(raised(cause, place), Err(cause.raised_by().to_owned()), "{cause:?}");
        }
    }
}
