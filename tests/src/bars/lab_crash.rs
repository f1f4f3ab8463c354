//! A lab that is killed at any moment leaves nothing behind, and proofload touches nothing of other users.

use std::{fs, thread, time::Duration};

use anyhow::{Result, ensure};
use rustix::process::Signal;
use testing::PATIENCE;

use super::{Bar, By, Outcome, Scale};
use crate::{lab::Labs, process::Launch, random::Random};

pub(super) const BAR: Bar = Bar {
    name: "lab-crash",
    what: "200 SIGKILLs at random moments of a lab: nothing is left after the next command, nothing else is touched",
    full_seconds: 300,
    decided_by: By::Counts,
    run,
};

const FILE: &str = r#"
title = "crash"
[hosts]
web = { count = 4, cpu_quota = 0.5, sysctls = { "net.ipv4.tcp_rmem" = "4096 87380 67108864" } }
far = { cpus = 0 }
[[links]]
between = ["web"]
[[links]]
between = ["web1", "far"]
delay = "5ms"
[[processes]]
on = "web"
run = "nginx"
workers = 2
[[processes]]
on = "far"
command = ["sh", "-c", "sleep infinity & sleep infinity"]
"#;

/// Another user's lab, which stays up all the time.
const NEIGHBOUR: &str = r#"
title = "neighbour"
[hosts]
other = { count = 2 }
[[links]]
between = ["other"]
[[processes]]
on = "other1"
run = "serve"
"#;

fn run(scale: Scale) -> Result<Outcome> {
    let kills = scale.pick(8, 200);
    let labs = Labs::new()?;
    let file = labs.file("crash.toml", FILE)?;
    // Measure how long a lab takes to come up, to spread the moments over all of it.
    let (lab, up) = labs.up(&file)?;
    labs.down(lab)?;

    let (mut neighbour, _) = labs.up(&labs.file("neighbour.toml", NEIGHBOUR)?)?;
    let mut stranger = Launch::new("sleep").arg("infinity").start()?;
    // Names that look like proofload's but are not.
    fs::create_dir(labs.state().join("0123456789abcdef.lab"))?;
    fs::write(labs.state().join("notes.journal"), "somebody's notes\n")?;
    let before = labs.inventory()?;

    let mut random = Random::new(0x5eed);
    let (mut outcome, mut moments) = (Outcome::default(), [0; 3]);
    let mut left = Vec::new();
    for _ in 0..kills {
        let moment = random.below(3);
        moments[moment as usize] += 1;
        let mut lab = labs.command(&format!("lab up {file}"))?.start()?;
        match moment {
            0 => thread::sleep(random.between(Duration::ZERO, up)),
            1 => thread::sleep(up + random.between(Duration::ZERO, Duration::from_millis(200))),
            _ => {
                thread::sleep(up + Duration::from_millis(50));
                lab.signal(Signal::TERM);
                thread::sleep(random.between(Duration::ZERO, Duration::from_millis(150)));
            }
        }
        lab.signal(Signal::KILL);
        lab.wait(PATIENCE)?;
        let clean = labs.run("clean")?;
        ensure!(clean.code == Some(0), "clean failed: {}{}", clean.stdout, clean.stderr);
        left.extend(labs.difference(&before)?);
        if !left.is_empty() {
            break;
        }
    }
    left.iter().take(20).for_each(|thing| outcome.note(thing.as_str()));
    outcome.equal("kills", moments.iter().sum(), kills, "all were survived");
    outcome.equal("left_or_touched", left.len() as u64, 0, "of all that the inventory lists");
    let answers = labs.run("lab shell neighbour/other2 -- true")?;
    let well = neighbour.is_running() && answers.code == Some(0) && stranger.is_running();
    outcome.holds("neighbour", well, "another lab and another process are up and well");
    labs.down(neighbour)?;
    outcome.note(format!(
        "{} killed while they came up (at most {:.2} s), {} while they were up, {} while they went down",
        moments[0],
        up.as_secs_f64(),
        moments[1],
        moments[2]
    ));
    Ok(outcome)
}
