//! A large network comes up quickly, and goes down even faster.

use anyhow::{Result, ensure};

use super::{Bar, By, Outcome, Runs, Scale};
use crate::{
    lab::Labs,
    proofload::{binary, parse_trial},
};

pub(super) const BAR: Bar = Bar {
    name: "lab-hosts",
    what: "28 hosts on a segment are up in 3 s and down in 1 s; 200 hosts work",
    full_seconds: 30,
    decided_by: By::Both,
    run,
};

fn run(scale: Scale) -> Result<Outcome> {
    let labs = Labs::new()?;
    let mut outcome = Outcome::default();
    let before = labs.inventory()?;
    let file = labs.file("28.toml", &segment(28)?)?;
    let (mut ups, mut downs) = (Runs::default(), Runs::default());
    let pairs = if scale.is_timed() { scale.pick(3, 11) } else { 1 };
    for _ in 0..pairs {
        let (lab, up) = labs.up(&file)?;
        ups.push(up.as_secs_f64());
        downs.push(labs.down(lab)?.as_secs_f64());
    }
    if scale.is_timed() {
        outcome.time().at_most("up_28_s", &ups, 3.0, "");
        outcome.time().at_most("down_28_s", &downs, 1.0, "");
    }

    let file = labs.file("200.toml", &segment(200)?)?;
    let (lab, up) = labs.up(&file)?;
    // A check that the network works: the last host has had answers from the first, and others still get some.
    for host in ["h2", "h100", "h199"] {
        let url = "http://10.1.0.1:8080/";
        let load = format!("lab shell {host} -- {} http {url} -n 100 -c 2 -q --json -", binary()?.display());
        let finished = labs.run(&load)?;
        let trial = parse_trial(&finished.stdout)?;
        ensure!(trial.counts.completed == 100, "{host}: {}{}", finished.stdout, finished.stderr);
    }
    let down = labs.down(lab)?;
    outcome.holds("work_200", true, "hosts of 200 get answers from the first");
    outcome.note(format!("200 hosts: up in {:.2} s, down in {:.2} s", up.as_secs_f64(), down.as_secs_f64()));
    let left = labs.difference(&before)?;
    left.iter().for_each(|thing| outcome.note(thing.as_str()));
    outcome.equal("left", left.len() as u64, 0, "of all that the inventory lists");
    Ok(outcome)
}

/// A segment with this many hosts. The lab is ready once the last host has had answers from the first.
fn segment(hosts: u32) -> Result<String> {
    Ok(format!(
        "title = \"{hosts} hosts\"\n[hosts]\nh = {{ count = {hosts} }}\n[[links]]\nbetween = [\"h\"]\n\
         [[processes]]\non = \"h1\"\nrun = \"serve\"\n\
         [[processes]]\non = \"h{hosts}\"\nready = \"log:completed\"\nmay_end = true\n\
         command = [\"sh\", \"-c\", \"{} http http://{{h1}}:8080/ -n 10 -c 1 -q; echo completed\"]\n",
        binary()?.display()
    ))
}
