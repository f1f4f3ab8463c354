//! A machine that lacks descriptors, ports, processes or memory: proofload never takes this for the target's limit.
//!
//! Each shortage is tested with a target that can carry more than the shortage allows, so that no limit must be found, and with one that
//! carries less, whose limit must be found. The test also follows the advice of a refusal or a void trial, which must work.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown},
    path::Path,
};

use anyhow::{Context, Result};
use record::{BoundKind, GoalOutcome, ResultFolder, VoidRule};
use testing::PATIENCE;

use super::{Bar, By, Outcome, Scale, seconds};
use crate::{
    Output, Proofload, Serve,
    link::host,
    process::{Launch, Process},
    proofload::{binary, read_trial},
    temporary::TemporaryFolder,
};

pub(super) const BAR: Bar = Bar {
    name: "local-scarcity",
    what: "descriptors, ports, processes or memory are short: never the target's limit; its true one is found; advice works",
    full_seconds: 360,
    decided_by: By::Both,
    run,
};

/// The id of a user and group that nothing else uses, so that no other process counts against its limit of processes.
const USER: u32 = 61_234;
/// An address that is not on loopback, from a block for documentation (RFC 5737).
const FAR: &str = "192.0.2.1";

/// Targets: one without a limit, one with 100 requests per second, and one with 40 connections.
const MORE: &str = "--delay 200ms";
const LESS: &str = "--capacity 1 --service-time 10ms";
const FEW: &str = "--max-connections 40";

const RATE: &str = "limit rate --p90 500ms --void-attempts 2 --repeats 2";
const USERS: &str = "limit users --errors 0 --min 20 --trial 1s --repeats 1 --width 20% --void-attempts 2";
const CONNECTIONS: &str = "limit connections --rate 100 --errors 0 --trial 1s --repeats 1 --void-attempts 2";

/// The resource that this machine lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Want {
    Descriptors,
    /// Only 100 ports for connections to an address that is not on loopback.
    Ports,
    /// Only 100 ports on loopback, but with further source addresses.
    LoopbackPorts,
    /// Few processes and also few descriptors, so that proofload would need more processes.
    Processes,
    Memory,
}

/// The required result.
#[derive(Debug, Clone, Copy)]
enum Truth {
    /// A valid trial that carries the whole load.
    Carried,
    /// A void trial that names the shortage and, if an option helps, this option.
    Void(Option<&'static str>),
    /// The largest load that was requested.
    AtLeast(f64),
    /// No upper bound, and this machine named as the limit; if an option helps, also this option.
    Ours,
    /// The target's limit is within the bounds.
    Found(f64),
    /// A refusal that names a value of `--max` or `--users` with which the command works.
    Refused,
}

use Truth::{AtLeast, Carried, Found, Ours, Refused, Void};
use Want::{Descriptors, LoopbackPorts, Memory, Ports, Processes};

/// Name, shortage, options of the target, command, and required result.
type Case = (&'static str, Want, &'static str, &'static str, Truth);

/// The cases of a sample.
const SAMPLE: [&str; 2] = ["http_one_process", "rate_one_process"];

const CASES: &[Case] = &[
    ("http_one_process", Descriptors, MORE, "http -R 2000 -d 2s --processes 1", Void(Some("--processes "))),
    (
        "rate_one_process",
        Descriptors,
        MORE,
        "RATE --min 200 --max 1500 --processes 1 --trial 1s --width 20%",
        Ours,
    ),
    ("users_refused", Descriptors, MORE, "USERS --processes 1", Refused),
    ("http_processes", Processes, MORE, "http -R 2000 -d 2s", Void(None)),
    ("http_memory", Memory, MORE, "http -R 20k -d 1s", Void(None)),
    ("http_descriptors", Descriptors, MORE, "http -R 1000 -d 2s", Carried),
    ("http_descriptors_less", Descriptors, LESS, "http -R 50 -d 2s --processes 1", Carried),
    (
        "rate_descriptors",
        Descriptors,
        MORE,
        "RATE --min 200 --max 1500 --trial 1s --width 20%",
        AtLeast(1_500.0),
    ),
    (
        "rate_descriptors_less",
        Descriptors,
        LESS,
        "RATE --min 20 --max 3000 --trial 4s --processes 1",
        Found(100.0),
    ),
    ("users_descriptors", Descriptors, MORE, "USERS --max 400", AtLeast(400.0)),
    ("connections_less", Descriptors, FEW, "CONNECTIONS --max 400 --processes 1", Refused),
    ("connections_descriptors_less", Descriptors, FEW, "CONNECTIONS --max 150 --processes 1", Found(40.5)),
    ("study_descriptors", Descriptors, MORE, "run --set search.max=1000", AtLeast(1_000.0)),
    ("study_one_process", Descriptors, MORE, "run --set workload.http.processes=1", Ours),
    ("http_ports", Ports, MORE, "http -R 1000 -d 2s", Void(None)),
    ("rate_ports", Ports, MORE, "RATE --min 200 --max 1500 --trial 1s --width 20%", Ours),
    ("rate_ports_less", Ports, LESS, "RATE --min 20 --max 1500 --trial 4s", Found(100.0)),
    ("users_ports", Ports, MORE, "USERS", Refused),
    (
        "rate_loopback_ports",
        LoopbackPorts,
        MORE,
        "RATE --min 200 --max 1000 --trial 1s --width 20%",
        AtLeast(1_000.0),
    ),
    ("connections_ports_less", Ports, FEW, "CONNECTIONS --max 90", Found(40.5)),
    ("rate_processes", Processes, MORE, "RATE --min 200 --max 3000 --trial 1s --width 20%", Ours),
    ("users_processes", Processes, MORE, "USERS", Refused),
    ("rate_memory_less", Memory, LESS, "RATE --min 20 --max 3000 --trial 4s", Found(100.0)),
    ("users_memory", Memory, MORE, "USERS", Refused),
];

fn run(scale: Scale) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut blamed = 0;
    // A refusal comes before any measurement, so a busy machine cannot change it. It may leave measured results undecided.
    let chosen = |case: &&Case| match scale {
        Scale::Counts => matches!(case.4, Refused),
        Scale::Sample => SAMPLE.contains(&case.0),
        Scale::Full => true,
    };
    for &(name, want, target, words, truth) in CASES.iter().filter(chosen) {
        let place = Place::new(want, target)?;
        blamed += u64::from(place.case(&mut outcome, name, words, truth)?);
    }
    outcome.equal("limits_blamed_on_the_target", blamed, 0, "of those that were this machine's");
    Ok(outcome)
}

/// A target, and an environment with the shortage.
struct Place {
    want: Want,
    serve: Serve,
    network: Option<Process>,
    folder: TemporaryFolder,
}

impl Place {
    fn new(want: Want, target: &str) -> Result<Self> {
        let folder = TemporaryFolder::new()?;
        if want == Processes {
            // Copy the binary, because this user may not have access to its folder.
            let program = folder.path().join("proofload");
            fs::copy(binary()?, &program)?;
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
            chown(folder.path(), Some(USER), Some(USER))
                .context("cannot give a folder away; is this root?")?;
        }
        let network = match want {
            Ports | LoopbackPorts => Some(few_ports()?),
            _ => None,
        };
        let address = if want == Ports { FAR } else { "127.0.0.1" };
        let words = format!("{target} --listen {address}:0");
        let serve = match &network {
            Some(network) => Serve::start_under(&words, &within(network))?,
            None => Serve::start(&words)?,
        };
        Ok(Self { want, serve, network, folder })
    }

    /// Runs a case. Returns true if proofload blamed the target for a shortage of this machine.
    fn case(&self, outcome: &mut Outcome, name: &str, words: &str, truth: Truth) -> Result<bool> {
        let output = self.run(words, 0)?;
        let kind = output.trial.is_none().then(|| self.goal(0)).transpose();
        let (shown, pass) = match truth {
            Carried => (format!("exit {:?}", output.code), output.code == Some(0)),
            Void(_) => (format!("exit {:?}, {:?}", output.code, rules(&output)), is_void_for_want(&output)),
            Refused => (format!("exit {:?}", output.code), output.code == Some(2)),
            AtLeast(_) | Ours | Found(_) => {
                let goal = kind.as_ref().ok().and_then(Option::as_ref);
                let goal = goal.with_context(|| output.described())?;
                if is_given_up(goal, truth, &output) {
                    outcome.undecided(name, format!("{truth:?}"), "the machine was too busy to search");
                    return Ok(false);
                }
                (shown(goal), truth.is_met_by(goal))
            }
        };
        let of = if matches!(truth, Refused) { &mut *outcome } else { outcome.time() };
        of.figure(name, &shown, format!("{truth:?}"), pass);
        if !pass {
            outcome.note(format!("{name}: {}", output.described()));
        }
        let is_late_only = rules(&output) == [VoidRule::Late];
        let advised = match truth {
            // In this case, the trial advises no more connections.
            Void(_) if is_late_only => return Ok(false),
            Refused => advice(&output.stderr, &["--max ", "--users ", "--connections "]),
            Void(Some(option)) => advice(&output.stdout, &[option]),
            _ => return Ok(matches!(truth, Void(_) | Ours) && !pass),
        };
        let advised = advised.with_context(|| format!("no number is advised: {}", output.described()))?;
        let (option, _) = advised.split_once(' ').unwrap_or_default();
        let kept: Vec<&str> =
            words.split(" --").filter(|word| !format!("--{word}").starts_with(option)).collect();
        let followed = self.run(&format!("{} {advised}", kept.join(" --")), 1)?;
        // The advised command must not be refused, and must not blame the target. Only a busy machine may prevent a result.
        let pass = matches!(followed.code, Some(0 | 3));
        let (name, value) = (format!("{name}_advice"), format!("{advised}: exit {:?}", followed.code));
        outcome.figure(&name, value, "exit 0, or 3 for the machine's other users", pass);
        if !pass {
            outcome.note(format!("{name}: {}", followed.described()));
        }
        Ok(false)
    }

    fn run(&self, words: &str, number: u32) -> Result<Output> {
        let words = words.replace("RATE", RATE).replace("USERS", USERS).replace("CONNECTIONS", CONNECTIONS);
        let out = self.folder.file(&format!("result-{number}"));
        let mut proofload = match words.strip_prefix("run") {
            Some(options) => {
                let study = self.folder.file("study.toml");
                fs::write(&study, study_file(&self.serve.url()))?;
                Proofload::new(&format!("run {study} {options} --out {out}"))?
            }
            None if words.starts_with("http") => {
                Proofload::new(&format!("{words} --json {out}"))?.arg(&self.serve.url())
            }
            None => Proofload::new(&format!("{words} --out {out}"))?.arg(&self.serve.url()),
        };
        if self.want == Processes {
            let state = self.folder.file("state");
            proofload = proofload.with(|launch| {
                launch.program(self.folder.file("proofload")).env("PROOFLOAD_STATE_DIR", &state)
            });
        }
        let limited = proofload.with(|launch| self.short_of(launch));
        let mut output = limited.arg("-q").timeout(seconds(600)).run()?;
        if words.starts_with("http") {
            output.trial = read_trial(Path::new(&out))?;
        }
        Ok(output)
    }

    fn short_of(&self, launch: Launch) -> Launch {
        let user = USER.to_string();
        let launch = match self.want {
            Descriptors => launch.descriptors(256),
            Processes => launch
                .under(["setpriv", "--reuid", &user, "--regid", &user, "--clear-groups"])
                .under(["prlimit", "--nproc=20:20"])
                .descriptors(128),
            // The limit includes the memory of the binary.
            Memory => launch.under(["prlimit", "--as=57671680"]),
            Ports | LoopbackPorts => launch,
        };
        match &self.network {
            Some(network) => launch.under(within(network).iter().map(String::as_str)),
            None => launch,
        }
    }

    fn goal(&self, number: u32) -> Result<GoalOutcome> {
        let folder = ResultFolder::open(&self.folder.path().join(format!("result-{number}")))?;
        let result = folder.result()?.context("the search left no result")?;
        Ok(result.outcomes[0].searches[0].goals[0].clone())
    }
}

impl Truth {
    fn is_met_by(self, goal: &GoalOutcome) -> bool {
        let (lower, upper) = (goal.lower.as_ref().map(|b| b.load), goal.upper.as_ref().map(|b| b.load));
        match self {
            AtLeast(most) => goal.kind == BoundKind::AtLeast && lower == Some(most),
            Ours => matches!(goal.kind, BoundKind::GeneratorBound { .. }) && upper.is_none(),
            Found(limit) => {
                goal.kind == BoundKind::Regular
                    && lower.is_some_and(|lower| lower <= limit)
                    && upper.is_some_and(|upper| upper >= limit)
            }
            Carried | Void(_) | Refused => false,
        }
    }
}

/// Whether a search ended without a limit because other programs had the processors, and says so. There is no excuse for a wrong bound.
fn is_given_up(goal: &GoalOutcome, truth: Truth, output: &Output) -> bool {
    let says_so = output.stdout.contains("this machine was too busy to measure");
    let is_wrong = |limit| goal.lower.as_ref().is_some_and(|lower| lower.load > limit);
    let has_wrong_bound = goal.upper.is_some() || matches!(truth, Found(limit) if is_wrong(limit));
    goal.kind == BoundKind::Unfinished && says_so && !has_wrong_bound
}

fn shown(goal: &GoalOutcome) -> String {
    let load = |bound: &Option<record::Bound>| bound.as_ref().map(|bound| bound.load);
    format!("{:.1?} to {:.1?} {:?}", load(&goal.lower), load(&goal.upper), goal.kind)
}

fn rules(output: &Output) -> Vec<VoidRule> {
    let reasons = output.trial.iter().flat_map(|trial| trial.validity.reasons());
    reasons.map(|reason| reason.rule).collect()
}

/// Whether a trial is void because of the shortage. Lateness counts, too, because a request that waits for a connection is late.
fn is_void_for_want(output: &Output) -> bool {
    let for_want =
        |rule: &VoidRule| matches!(rule, VoidRule::PoolLimited | VoidRule::LocalExhaustion | VoidRule::Late);
    output.code == Some(3) && rules(output).iter().any(for_want)
}

/// The last of these options that a text names with a number, as `OPTION NUMBER`.
fn advice(text: &str, options: &[&str]) -> Option<String> {
    let with_number = |(place, option): (usize, &str)| {
        let number: String = text[place + option.len()..].chars().take_while(char::is_ascii_digit).collect();
        (!number.is_empty()).then(|| (place, format!("{option}{number}")))
    };
    let found = options.iter().flat_map(|option| text.match_indices(*option));
    found.filter_map(with_number).max().map(|(_, advised)| advised)
}

/// Makes a network with 100 local ports, one of which the target takes.
fn few_ports() -> Result<Process> {
    let network = host()?;
    let script = format!(
        "ip link set lo up && ip address add {FAR}/32 dev lo && \
         echo 20000 20099 > /proc/sys/net/ipv4/ip_local_port_range"
    );
    let words = within(&network);
    let done =
        Launch::new("sh").args(["-c", &script]).under(words.iter().map(String::as_str)).run(PATIENCE)?;
    anyhow::ensure!(done.code == Some(0), "cannot set the network up: {}", done.stderr);
    Ok(network)
}

fn within(network: &Process) -> Vec<String> {
    vec!["nsenter".to_owned(), format!("--net=/proc/{}/ns/net", network.pid())]
}

fn study_file(url: &str) -> String {
    format!(
        "title = \"scarcity\"\n[workload.http]\nurl = \"{url}\"\n[search]\nvary = \"rate\"\nmin = 20\nmax = 1500\n\
         width = \"20%\"\ntrial = \"1s\"\nrepeats = 2\n[trial]\nvoid_attempts = 1\n[[goals]]\np90 = \"500ms\"\n"
    )
}
