//! A machine with too few descriptors, ports, processes or too little memory: never the target's limit.
//!
//! Each kind of want meets a target that carries more than the want allows, whose limit must not be said to be found, and
//! one that carries less, whose limit must be. What a refusal or a void trial advises is followed, and must work.

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

/// The bar.
pub(super) const BAR: Bar = Bar {
    name: "local-scarcity",
    what: "descriptors, ports, processes or memory are short: never the target's limit; its true one is found; advice works",
    full_seconds: 360,
    decided_by: By::Both,
    run,
};

/// A user and a group that nobody has: what others do does not count against its limit of processes.
const USER: u32 = 61_234;
/// An address that is no loopback address, of a block for documentation (RFC 5737).
const FAR: &str = "192.0.2.1";

/// A target without a limit, one of 100 requests a second, and one of 40 connections.
const MORE: &str = "--delay 200ms";
const LESS: &str = "--capacity 1 --service-time 10ms";
const FEW: &str = "--max-connections 40";

const RATE: &str = "limit rate --p90 500ms --void-attempts 2 --repeats 2";
const USERS: &str = "limit users --errors 0 --min 20 --trial 1s --repeats 1 --width 20% --void-attempts 2";
const CONNECTIONS: &str = "limit connections --rate 100 --errors 0 --trial 1s --repeats 1 --void-attempts 2";

/// What this machine lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Want {
    Descriptors,
    /// 100 towards an address that is not on loopback.
    Ports,
    /// The same on loopback, where there are other addresses to connect from.
    LoopbackPorts,
    /// Besides descriptors, so that more processes would help.
    Processes,
    Memory,
}

/// What must come of it.
#[derive(Debug, Clone, Copy)]
enum Truth {
    /// A valid trial that does all it should.
    Carried,
    /// A void trial that says so; where there is an option that helps, with it.
    Void(Option<&'static str>),
    /// The largest load asked for.
    AtLeast(f64),
    /// No upper bound, and this machine named as the limit; where there is an option that helps, with it.
    Ours,
    /// The target's limit is within the bounds.
    Found(f64),
    /// A refusal that names a `--max` or `--users`, with which all is well.
    Refused,
}

use Truth::{AtLeast, Carried, Found, Ours, Refused, Void};
use Want::{Descriptors, LoopbackPorts, Memory, Ports, Processes};

/// Name, what is short, the target, the command, and what must come of it.
type Case = (&'static str, Want, &'static str, &'static str, Truth);

/// What a sample runs.
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
    // A refusal comes before any measurement; what is measured, a busy machine leaves undecided.
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

/// A target, and somewhere that lacks something.
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
            // Wherever the binary lies, this user may not get there.
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

    /// Runs a case; whether the target was blamed for what is this machine's.
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
            // Then no more connections are advised.
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
        // What it advises is not refused again, nor called the target's limit. Only a busy machine may then not be able to tell.
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
            // The binary itself takes part of it.
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

/// Whether a search ended without a limit because other programs had the processors, as it says. A bound that says what is not so has no
/// excuse.
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

/// A generator that was late as well may have that for its reason: what waits for a connection may do so behind a burst.
fn is_void_for_want(output: &Output) -> bool {
    let for_want =
        |rule: &VoidRule| matches!(rule, VoidRule::PoolLimited | VoidRule::LocalExhaustion | VoidRule::Late);
    output.code == Some(3) && rules(output).iter().any(for_want)
}

/// The last of these options that a text gives a number for, with it.
fn advice(text: &str, options: &[&str]) -> Option<String> {
    let with_number = |(place, option): (usize, &str)| {
        let number: String = text[place + option.len()..].chars().take_while(char::is_ascii_digit).collect();
        (!number.is_empty()).then(|| (place, format!("{option}{number}")))
    };
    let found = options.iter().flat_map(|option| text.match_indices(*option));
    found.filter_map(with_number).max().map(|(_, advised)| advised)
}

/// A network of its own with 100 local ports, of which the target takes one.
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
