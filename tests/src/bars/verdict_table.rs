//! Bottlenecks that were built on purpose are named, each with parameters that are drawn.

use std::fs;

use anyhow::{Context, Result};
use serde_json::Value;

use super::{Bar, Outcome, Scale, seconds};
use crate::{Proofload, machine::Cores, random::Random, temporary::TemporaryFolder};

/// The bar.
pub(super) const BAR: Bar = Bar {
    name: "verdict-table",
    what: "10 bottlenecks, built with drawn parameters, are each named in 5 of 5 trials; 20 sound trials name the offered load",
    full_seconds: 700,
    run,
};

/// A bottleneck, and the study that has it.
pub(super) struct Case {
    /// The cause as the result names it.
    pub(super) cause: &'static str,
    pub(super) study: fn(&mut Random) -> String,
}

/// A lab of two hosts, with a `serve` that HTTP requests go to.
#[derive(Default)]
struct Web {
    client: String,
    web: String,
    link: String,
    serve: String,
    workload: String,
}

impl Web {
    fn study(&self) -> String {
        let Self { client, web, link, serve, workload } = self;
        // An emulated link needs a processor of its own.
        let pinned = |cpu| if link.is_empty() { format!("cpus = \"{cpu}\", ") } else { String::new() };
        let (client, web) = (pinned("CLIENT") + client, pinned("WEB") + web);
        let arguments: Vec<String> = serve.split_whitespace().map(|word| format!("{word:?}")).collect();
        format!(
            "title = \"verdict\"\n[hosts]\nclient = {{ {client} }}\nweb = {{ {web} }}\n\
             [[links]]\nname = \"wire\"\nbetween = [\"client\", \"web\"]\n{link}\n\
             [targets.web]\non = \"web\"\nrun = \"serve\"\nargs = [{}]\n\
             [workload.http]\nfrom = \"client\"\ntarget = \"web\"\nduration = \"4s\"\n{workload}\n\
             [trial]\nvoid_attempts = 2\n[[goals]]\nerrors = 0.0\n",
            arguments.join(", ")
        )
    }
}

pub(super) const CASES: &[Case] = &[
    Case {
        cause: "accept_queue",
        study: |random| {
            // While it stands still, ten times as many users connect as its queue holds.
            let backlog = 4 + random.below(12);
            Web {
                serve: format!("--backlog {backlog} --stall 1s,150ms"),
                workload: format!("users = {}\nthink_time = \"exp:200ms\"\nkeepalive = false", 15 * backlog),
                ..Web::default()
            }
            .study()
        },
    },
    Case {
        cause: "syn_queue",
        study: |random| {
            // Handshakes take a round trip, and more of them are under way than the queue holds.
            let (backlog, delay_ms) = (6 + random.below(6), 80 + random.below(40));
            Web {
                link: format!("delay = \"{delay_ms}ms\""),
                serve: format!("--backlog {backlog}"),
                workload: format!(
                    "users = {}\nramp_up = \"1s\"\nthink_time = \"exp:100ms\"\nkeepalive = false",
                    8 * backlog
                ),
                ..Web::default()
            }
            .study()
        },
    },
    Case {
        cause: "receive_window",
        study: |random| {
            let (window, delay_ms) = (64 + random.below(100), 20 + random.below(30));
            Web {
                client: format!("tcp_rmem = \"{window}KiB\""),
                link: format!("delay = \"{delay_ms}ms\""),
                serve: "--body 20MB".to_owned(),
                workload: "users = 2".to_owned(),
                ..Web::default()
            }
            .study()
        },
    },
    Case {
        cause: "send_buffer",
        study: |random| {
            let (buffer, delay_ms) = (64 + random.below(100), 20 + random.below(30));
            Web {
                web: format!("tcp_wmem = \"{buffer}KiB\""),
                link: format!("delay = \"{delay_ms}ms\""),
                serve: "--body 20MB".to_owned(),
                workload: "users = 2".to_owned(),
                ..Web::default()
            }
            .study()
        },
    },
    Case {
        cause: "link_rate",
        study: |random| {
            let (rate, body) = (10 + random.below(40), 50 + random.below(200));
            Web {
                link: format!("rate = \"{rate}mbit\"\ndelay = \"2ms\""),
                serve: format!("--body {body}KB"),
                workload: "users = 8".to_owned(),
                ..Web::default()
            }
            .study()
        },
    },
    Case {
        cause: "packet_loss",
        study: |random| {
            let (loss, delay_ms) = (0.5 + 0.1 * random.below(10) as f64, 10 + random.below(20));
            Web {
                link: format!("delay = \"{delay_ms}ms\"\nloss = \"{loss:.1}%\""),
                serve: "--body 20MB".to_owned(),
                workload: "users = 2".to_owned(),
                ..Web::default()
            }
            .study()
        },
    },
    Case {
        cause: "cpu_quota",
        study: |random| {
            let quota = 0.05 + 0.02 * random.below(4) as f64;
            Web { web: format!("cpu_quota = {quota:.2}"), workload: "users = 8".to_owned(), ..Web::default() }
                .study()
        },
    },
    Case {
        cause: "slow_handler",
        study: |random| {
            let (capacity, service_ms) = (1 + random.below(8), 5 + random.below(20));
            let rate = 1_300 * capacity / service_ms;
            Web {
                serve: format!("--capacity {capacity} --service-time {service_ms}ms"),
                workload: format!("rate = {rate}"),
                ..Web::default()
            }
            .study()
        },
    },
    Case {
        cause: "source_ports",
        study: |random| {
            let last = 20_100 + random.below(200);
            Web {
                client: format!("sysctls = {{ \"net.ipv4.ip_local_port_range\" = \"20000 {last}\" }}"),
                serve: "--delay 500ms".to_owned(),
                workload: "rate = 1_000".to_owned(),
                ..Web::default()
            }
            .study()
        },
    },
    Case {
        cause: "generator",
        study: |random| {
            let rate = 400 + random.below(400);
            Web { workload: format!("rate = \"{rate}k\"\nthreads = 1\nconnections = 32"), ..Web::default() }
                .study()
        },
    },
];

/// A study that nothing bounds: open at 30 % of the capacity.
pub(super) const SOUND: fn(&mut Random) -> String = |random| {
    let capacity_per_s = 500 + random.below(2_000);
    Web {
        serve: format!("--capacity 1 --service-time {}us", 1_000_000 / capacity_per_s),
        workload: format!("rate = {}", capacity_per_s * 3 / 10),
        ..Web::default()
    }
    .study()
};

/// Trials of each case.
const TRIALS: u64 = 5;

fn run(scale: Scale) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let trials = scale.pick(1, TRIALS);
    for (number, case) in CASES[..scale.pick(4, CASES.len())].iter().enumerate() {
        let (mut named, mut void) = (0, 0);
        for trial in 0..trials {
            let study = (case.study)(&mut Random::new(1_000 * number as u64 + trial));
            let verdict = verdict_of(&study).context(case.cause)?;
            let first = &verdict["bottlenecks"][0];
            let is_named = first["cause"] == case.cause;
            named += u64::from(is_named);
            // What else ran on this machine made all attempts void, and the verdict says so.
            void += u64::from(!is_named && first["cause"] == "generator");
            let sign = if is_named { "" } else { "  WRONG" };
            outcome.note(format!("{}: {} ({}){sign}", case.cause, first["cause"], first["evidence"]));
            if !is_named {
                outcome.note(format!("{verdict:#}\n{study}"));
            }
        }
        if void > 0 && named + void == trials {
            let why = format!("{void} of {trials} trials were void for the generator");
            outcome.undecided(case.cause, format!("{trials} named rightly"), why);
        } else {
            outcome.equal(case.cause, named, trials, "named rightly");
        }
    }
    let sound = scale.pick(1, 20);
    let mut named = 0;
    for trial in 0..sound {
        let verdict = verdict_of(&SOUND(&mut Random::new(50_000 + trial))).context("sound")?;
        let is_named = verdict["bottlenecks"].as_array().is_some_and(|all| all.len() == 1)
            && verdict["bottlenecks"][0]["cause"] == "offered_load";
        named += u64::from(is_named);
        if !is_named {
            outcome.note(format!("sound: {verdict:#}"));
        }
    }
    outcome.equal("offered_load", named, sound, "sound trials that name it, and nothing else");
    Ok(outcome)
}

/// Runs a study of one trial, and returns its verdict: that of the last attempt, if the first were void.
pub(super) fn verdict_of(study: &str) -> Result<Value> {
    let folder = TemporaryFolder::new()?;
    let (file, out) = (folder.file("study.toml"), folder.file("result"));
    let study = pinned(study)?;
    fs::write(&file, &study)?;
    let output = Proofload::new("run")?
        .arg(&file)
        .with(|launch| launch.args(["--out", &out, "-q"]))
        .timeout(seconds(120))
        .run()?;
    let trials = fs::read_to_string(format!("{out}/trials.jsonl"))
        .with_context(|| format!("{}\n{study}", output.described()))?;
    verdict_in(&trials)
}

/// The study with processors of this machine for its hosts.
pub(super) fn pinned(study: &str) -> Result<String> {
    let Cores { generator, server, .. } = Cores::of_this_process()?;
    Ok(study.replace("CLIENT", &generator.to_string()).replace("WEB", &server.to_string()))
}

/// The verdict of the last trial of a journal.
pub(super) fn verdict_in(trials: &str) -> Result<Value> {
    let trial: Value = serde_json::from_str(trials.lines().last().context("a trial")?)?;
    Ok(trial["trial"]["verdict"].clone())
}

/// What a verdict names first.
pub(super) fn cause_of(verdict: &Value) -> &str {
    verdict["bottlenecks"][0]["cause"].as_str().unwrap_or("not determined")
}
