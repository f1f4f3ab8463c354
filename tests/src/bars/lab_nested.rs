//! Labs inside labs, in containers and without root work, and leave the machine unchanged.

use std::{thread, time::Duration};

use anyhow::{Result, ensure};
use rustix::process::Signal;
use testing::PATIENCE;

use super::{Bar, By, Outcome, Scale};
use crate::{
    lab::Labs,
    process::{Launch, Process},
    random::Random,
};

pub(super) const BAR: Bar = Bar {
    name: "lab-nested",
    what: "labs in labs up to 5 deep, in containers, without root, killed at random, 50 times: the machine stays as it was",
    full_seconds: 150,
    decided_by: By::Counts,
    run,
};

/// A lab with a host, a segment, a sysctl and a process. The inventory would show each of them if it were made on the machine itself.
const FILE: &str = r#"
title = "TITLE"
[hosts]
a = { forward = true, QUOTA sysctls = { "net.ipv4.tcp_rmem" = "4096 87380 67108864" } }
b = {}
[[links]]
between = ["a", "b"]
segment = true
[[processes]]
on = "b"
run = "serve"
"#;
const DEEPEST: u64 = 5;

/// The place where the outermost lab starts.
const WAYS: [&str; 3] = ["machine", "container", "nobody"];

fn run(scale: Scale) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let root = prepared(Labs::new()?, "cpu_quota = 0.5,")?;
    // If the kernel does not let the user nobody have labs, test only root's.
    let nobody = match Labs::refusal_for_nobody()? {
        None => Some(prepared(Labs::of_nobody()?, "")?),
        Some(why) => {
            outcome.note(format!("not without root: {why}"));
            None
        }
    };
    let mut random = Random::new(0x1ab);
    let (mut up, mut left) = (0, Vec::new());
    let rounds = scale.pick(4, 50);
    for round in 0..rounds {
        let way = WAYS[round as usize % WAYS.len()];
        let labs = if way == "nobody" { nobody.as_ref().unwrap_or(&root) } else { &root };
        let before = labs.inventory()?;
        let depth = if way == "nobody" { 1 + random.below(2) } else { 1 + random.below(DEEPEST) };
        let mut nest = nest(labs, way, depth)?;
        // Kill every other nest at a random moment, and the rest once all labs are up.
        let is_killed_early = round % 2 == 1;
        let is_up = if is_killed_early {
            thread::sleep(random.between(Duration::ZERO, Duration::from_millis(300 * depth)));
            Ok(())
        } else {
            up += 1;
            nest.says("innermost is up", PATIENCE)
        };
        nest.signal(Signal::KILL);
        nest.wait(PATIENCE)?;
        for words in ["lab down --all", "clean"] {
            let done = labs.run(words)?;
            ensure!(done.code == Some(0), "`{words}` failed: {}{}", done.stdout, done.stderr);
        }
        is_up?;
        let difference = labs.difference(&before)?;
        left.extend(difference.into_iter().map(|thing| format!("{way}, {depth} deep: {thing}")));
    }
    left.iter().take(20).for_each(|thing| outcome.note(thing.as_str()));
    outcome.equal("up", up, rounds / 2, "all that were not killed before");
    outcome.equal("left_or_changed", left.len() as u64, 0, "of all that the inventory lists");
    Ok(outcome)
}

/// Writes lab files, with a quota of processor time if this user may set one.
fn prepared(labs: Labs, quota: &str) -> Result<Labs> {
    labs.file("nest.sh", include_str!("lab_nested.sh"))?;
    for depth in 1..=DEEPEST {
        let text = FILE.replace("QUOTA", quota).replace("TITLE", &format!("lab{depth}"));
        labs.file(&format!("lab{depth}.toml"), &text)?;
    }
    Ok(labs)
}

/// Starts this many labs, each inside the one before.
fn nest(labs: &Labs, way: &str, depth: u64) -> Result<Process> {
    let container = ["unshare", "--pid", "--fork", "--kill-child"];
    let words = if way == "container" { &container[..] } else { &[] };
    let nest: Launch = labs.program("sh")?.arg(labs.path("nest.sh")).arg(depth.to_string());
    nest.under(words.iter().copied()).start()
}
