//! Of two bottlenecks, the verdict names the tighter one first and lists the other. Causes outside the table are not determined.

use anyhow::{Context, Result};
use serde_json::Value;

use super::{
    Bar, By, Outcome, Scale, is_wanted,
    verdict_table::{Web, cause_of, decide, verdict_of},
};
use crate::{lab::SshdFolder, random::Random};

pub(super) const BAR: Bar = Bar {
    name: "verdict-rivals",
    what: "of 10 pairs of bottlenecks with capacities 1.5 apart the nearer is named first and the other listed, in 3 of 3 trials; \
           5 causes outside the table are not determined, 5 of 5",
    full_seconds: 700,
    decided_by: By::Times,
    run,
};

/// Ratio of the two capacities of a pair.
const APART: f64 = 1.5;
/// Rate of the link in a trial that measures the capacity of the other bottleneck alone.
const WIDE_MBIT_PER_S: f64 = 1_000.0;

/// A bottleneck beside a link. `RATE` stands for the link's rate in the study.
struct Rival {
    cause: &'static str,
    /// The study, and the capacity in Mbit/s if it is known. A program that logs in first carries less on average than the capacity.
    study: fn(&mut Random) -> (String, Option<f64>),
}

fn run(scale: Scale) -> Result<Outcome> {
    let _sshd = SshdFolder::made()?;
    let mut outcome = Outcome::default();
    let trials = scale.pick(1, 3);
    for (number, rival) in RIVALS[..scale.pick(1, RIVALS.len())].iter().enumerate() {
        if !is_wanted(rival.cause) {
            continue;
        }
        let mut by_pair = [[0, 0, trials]; 2];
        for trial in 0..trials {
            let (study, known) = (rival.study)(&mut Random::new(1_000 * number as u64 + trial));
            let capacity = match known {
                Some(capacity) => capacity,
                None => carried_mbit_per_s(&verdict_of(&with_rate(&study, WIDE_MBIT_PER_S), scale)?)
                    .with_context(|| format!("{} alone", rival.cause))?,
            };
            let pairs =
                [(capacity * APART, rival.cause, "link_rate"), (capacity / APART, "link_rate", rival.cause)];
            for ((rate, nearer, other), [right, void, _]) in pairs.into_iter().zip(&mut by_pair) {
                let verdict = verdict_of(&with_rate(&study, rate), scale)?;
                let is_right = cause_of(&verdict) == nearer && lists(&verdict, other);
                *right += u64::from(is_right);
                *void += u64::from(!is_right && cause_of(&verdict) == "generator");
                outcome.note(format!(
                    "{} alone {capacity:.1} Mbit/s, link {rate:.1}: {} ({})",
                    rival.cause,
                    cause_of(&verdict),
                    verdict["bottlenecks"][0]["evidence"]
                ));
                if !is_right {
                    outcome.note(format!("WRONG: {verdict:#}\n{study}"));
                }
            }
        }
        let [before, after] = by_pair;
        decide(
            &mut outcome,
            &format!("{}_before_link_rate", rival.cause),
            before,
            "named first, the other listed",
        );
        decide(
            &mut outcome,
            &format!("link_rate_before_{}", rival.cause),
            after,
            "named first, the other listed",
        );
    }
    let trials = scale.pick(1, 5);
    for (name, command) in &OUTSIDE[..scale.pick(1, OUTSIDE.len())] {
        if !is_wanted(name) {
            continue;
        }
        let (mut right, mut void) = (0, 0);
        for trial in 0..trials {
            let verdict = verdict_of(&outside(command, &mut Random::new(trial)), scale).context(*name)?;
            let is_right = cause_of(&verdict) == "not determined";
            right += u64::from(is_right);
            void += u64::from(cause_of(&verdict) == "generator");
            if !is_right {
                outcome.note(format!("{name}: {verdict:#}"));
            }
        }
        decide(&mut outcome, name, [right, void, trials], "not determined");
    }
    Ok(outcome)
}

fn with_rate(study: &str, mbit_per_s: f64) -> String {
    study.replace("RATE", &format!("{:.0}kbit", mbit_per_s * 1e3))
}

/// The rate that the link carried in Mbit/s, taken from the verdict's evidence.
fn carried_mbit_per_s(verdict: &Value) -> Result<f64> {
    let excluded = verdict["excluded"].as_array().context("no list")?;
    let link = excluded.iter().find(|excluded| excluded["cause"] == "link_rate");
    let evidence = link.and_then(|link| link["evidence"].as_str());
    let carried =
        evidence.and_then(|evidence| evidence.split("carried ").nth(1)?.split(' ').next()?.parse().ok());
    carried.with_context(|| format!("nothing on the link: {verdict:#}"))
}

/// Whether a verdict mentions a cause.
fn lists(verdict: &Value, cause: &str) -> bool {
    let of =
        |list: &str| verdict[list].as_array().is_some_and(|all| all.iter().any(|one| one["cause"] == cause));
    of("bottlenecks") || of("excluded")
}

const RIVALS: [Rival; 5] = [
    Rival {
        cause: "slow_handler",
        study: |random| {
            let (capacity, service_ms, body_kb) =
                (1 + random.below(4), 10 + random.below(20), 20 + random.below(60));
            let serve = format!("--capacity {capacity} --service-time {service_ms}ms --body {body_kb}KB");
            (http("", "", &serve, 2, 24), None)
        },
    },
    Rival {
        cause: "receive_window",
        study: |random| {
            let client = format!("tcp_rmem = \"{}KiB\"", 64 + random.below(100));
            (http(&client, "", "--body 20MB", 20 + random.below(30), 2), None)
        },
    },
    Rival {
        cause: "send_buffer",
        study: |random| {
            let web = format!("tcp_wmem = \"{}KiB\"", 64 + random.below(100));
            (http("", &web, "--body 20MB", 20 + random.below(30), 2), None)
        },
    },
    Rival {
        cause: "cpu_quota",
        study: |random| {
            let web = format!("cpu_quota = {:.2}", 0.05 + 0.01 * random.below(4) as f64);
            // With fewer users, the delay of the path would limit the load before the quota does.
            (http("", &web, &format!("--body {}KB", 5 + random.below(10)), 2, 64), None)
        },
    },
    Rival {
        cause: "ssh_window",
        study: |random| {
            let delay_ms = 60 + random.below(40);
            let run = "head -c 80M /dev/zero | ssh -F {ssh_config} server 'cat > /dev/null'";
            // A window of 2 MiB per round trip.
            let capacity = f64::from(8 << 21) / 1e3 / (2 * delay_ms) as f64;
            (command(delay_ms, run), Some(capacity))
        },
    },
];

/// Causes that no rule knows: a program that pauses, waits for a lock, or limits its own rate.
const OUTSIDE: [(&str, &str); 5] = [
    ("own_pause", "sleep PAUSE"),
    ("lock", "(flock 9; sleep PAUSE) 9> {scratch}/lock & sleep 0.2; flock {scratch}/lock true"),
    (
        "paced_pipe",
        "for i in $(seq 30); do head -c 100K /dev/zero; sleep 0.1; done | ssh -F {ssh_config} server 'cat > /dev/null'",
    ),
    ("paced_sender", "iperf3 --client {server} --time 3 --bitrate 5M"),
    ("paced_ping", "ping -q -c 15 -i 0.2 {server}"),
];

/// A command with such a cause, over a link that is much faster than needed.
fn outside(run: &str, random: &mut Random) -> String {
    let run = run.replace("PAUSE", &format!("{}.5", 2 + random.below(2)));
    with_rate(&command(20 + random.below(40), &run), WIDE_MBIT_PER_S)
}

fn http(client: &str, web: &str, serve: &str, delay_ms: u64, users: u64) -> String {
    Web {
        client: client.to_owned(),
        web: web.to_owned(),
        link: format!("rate = \"RATE\"\ndelay = \"{delay_ms}ms\"\nqueue = \"2MB\""),
        serve: serve.to_owned(),
        workload: format!("users = {users}"),
        ..Web::default()
    }
    .study()
}

fn command(delay_ms: u64, run: &str) -> String {
    format!(
        "title = \"rivals\"\n[hosts]\n\
         client = {{ tcp_rmem = \"64MiB\", tcp_wmem = \"64MiB\" }}\n\
         server = {{ tcp_rmem = \"64MiB\", tcp_wmem = \"64MiB\" }}\n\
         [[links]]\nname = \"wire\"\nbetween = [\"client\", \"server\"]\nrate = \"RATE\"\ndelay = \"{delay_ms}ms\"\n\
         [[processes]]\non = \"server\"\nrun = \"iperf3\"\n\
         [targets.sshd]\non = \"server\"\nrun = \"sshd\"\nconfig = \"debian\"\n\
         [workload.command]\nfrom = \"client\"\nrun = '''{run}'''\n\
         [trial]\nvoid_attempts = 2\n[[goals]]\nerrors = 0.0\n"
    )
}
