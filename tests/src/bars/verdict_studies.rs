//! The shipped studies name the bottlenecks of the reference tests.

use std::fs;

use anyhow::{Context, Result};
use record::{
    Bottleneck, Bounding,
    Cause::{
        self, AcceptQueue, CongestionWindow, Descriptors, OfferedLoad, PacketLoss, ReceiveWindow, SendBuffer,
        SshWindow,
    },
    ResultFolder,
};

use super::{Bar, By, Outcome, Scale, is_wanted};
use crate::{Proofload, lab::SshdFolder, temporary::TemporaryFolder};

pub(super) const BAR: Bar = Bar {
    name: "verdict-studies",
    what: "the shipped studies name what bounds the reference tests: the descriptors of a target that has 256, accept queues of 16 and \
           128 with their overflows, SSH's window for scp, the socket buffer for iperf3 with 2 MB, the congestion window with 0.1 % loss",
    full_seconds: 240,
    decided_by: By::Times,
    run,
};

const STUDIES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../studies");

/// A shipped study with a bottleneck.
struct Case {
    name: &'static str,
    study: &'static str,
    /// The options after the study.
    words: &'static str,
    /// A line of the study, and its replacement.
    change: [&'static str; 2],
    /// Causes that may be named first.
    first: &'static [Cause],
    /// Causes that must be named, first or later, and a part of the evidence.
    named: &'static [Cause],
    evidence: &'static str,
}

/// The cases. The first one is the sample.
const CASES: [Case; 6] = [
    Case {
        name: "descriptors",
        study: "max-rps",
        words: "--set mode=sweep --set target=serve --set connections=400 --set threads=1 --set rate=5_000 \
                --set targets.serve.descriptors=256",
        first: &[Descriptors],
        named: &[Descriptors],
        evidence: "of 256 descriptors open",
        ..OCEAN
    },
    Case {
        name: "accept_queue_128",
        words: "--set backlog=128 --set method=jmeter",
        evidence: "queue of 128 overflowed",
        // With this many users, some trials overflow a queue of 128 and others do not.
        first: &[AcceptQueue, OfferedLoad],
        ..BACKLOG_16
    },
    BACKLOG_16,
    Case {
        name: "socket_buffer",
        words: "--set program=iperf3-1 --set buffer=2MB --set trial.repeats=1",
        first: &[ReceiveWindow, SendBuffer],
        named: &[ReceiveWindow, SendBuffer],
        evidence: "",
        ..OCEAN
    },
    Case {
        name: "congestion_window",
        words: "--set program=iperf3-1 --set buffer=64MB --set trial.repeats=1",
        change: ["queue = \"2bdp\"", "queue = \"2bdp\"\nloss = \"0.1%\""],
        first: &[PacketLoss, CongestionWindow],
        named: &[CongestionWindow],
        evidence: "of a congestion window of",
        ..OCEAN
    },
    OCEAN,
];

const BACKLOG_16: Case = Case {
    name: "accept_queue_16",
    study: "http-listener",
    words: "--set backlog=16 --set method=jmeter",
    first: &[AcceptQueue],
    named: &[AcceptQueue],
    evidence: "queue of 16 overflowed",
    ..OCEAN
};

const OCEAN: Case = Case {
    name: "ssh_window",
    study: "ocean-path",
    words: "--set program=scp --set buffer=64MB --set trial.repeats=1",
    change: ["", ""],
    first: &[SshWindow],
    named: &[SshWindow],
    evidence: "of its window of 2.00 MiB on the way",
};

fn run(scale: Scale) -> Result<Outcome> {
    let _sshd = SshdFolder::made()?;
    let mut outcome = Outcome::default();
    for case in CASES[..scale.pick(1, CASES.len())].iter().filter(|case| is_wanted(case.name)) {
        check(&mut outcome, case).with_context(|| format!("{}: {}", case.study, case.words))?;
    }
    Ok(outcome)
}

fn check(outcome: &mut Outcome, case: &Case) -> Result<()> {
    let folder = TemporaryFolder::new()?;
    let (mut file, out) = (format!("{STUDIES}/{}.toml", case.study), folder.file("result"));
    let [from, to] = case.change;
    if !from.is_empty() {
        let text = fs::read_to_string(&file)?;
        file = folder.file("study.toml");
        fs::write(&file, text.replacen(from, to, 1))?;
    }
    let line = format!("run {file} --out {out} -q {}", case.words);
    let output = Proofload::new(&line)?.run()?;
    let read = ResultFolder::open(out.as_ref())?.read().with_context(|| output.described())?;
    let bounding = Bounding::of(&read.plan, 0, &read.trials).context("nobody looked")?;
    let bottlenecks = &bounding.verdict.bottlenecks;
    let is_first = bottlenecks.first().is_some_and(|first| case.first.contains(&first.cause));
    let is_shown =
        |named: &Bottleneck| case.named.contains(&named.cause) && named.evidence.contains(case.evidence);
    let is_answered = !case.evidence.is_empty() && output.stdout.contains(case.evidence);
    let has_shown = is_answered || bottlenecks.iter().any(is_shown);
    let told: Vec<String> =
        bottlenecks.iter().map(|named| format!("{} ({})", named.cause.words(), named.evidence)).collect();
    let name = format!("{}_{}", case.study, case.name).replace('-', "_");
    outcome.time().figure(&name, told.join("; "), case.words, is_first && has_shown);
    if !(is_first && has_shown) {
        outcome.note(format!("{:#?}\n{}", bounding.verdict, output.stdout));
    }
    Ok(())
}
