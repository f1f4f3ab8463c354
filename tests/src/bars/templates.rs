//! Checks every byte that templates and feeders produced, with the target's record.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{BufRead, BufReader},
};

use anyhow::{Result, ensure};
use serde::Deserialize;

use super::{Bar, By, Outcome, Scale, seconds};
use crate::{Proofload, Serve, temporary::TemporaryFolder};

pub(super) const BAR: Bar = Bar {
    name: "templates",
    what: "1,000,000 requests of templates and rows over 8 workers (sample: 40,000), by the target's record: every byte as it must be, every number once, each worker's and each user's in order, steps drawn by weight (chi-squared p > 0.001)",
    full_seconds: 180,
    decided_by: By::Counts,
    run,
};

const USERS: u64 = 64;
const WORKERS: u64 = 8;
const ROWS: u64 = 1_000;
/// Steps and their weights.
const STEPS: [(&str, u64); 3] = [("a", 1), ("b", 2), ("c", 5)];
/// Smallest probability at which a deviation from the weights counts as chance.
const LEAST_P: f64 = 0.001;

/// The fields that this test reads from a line of the record.
#[derive(Deserialize)]
struct Line {
    connection: u64,
    method: String,
    target: String,
    headers: Vec<(String, String)>,
    body: Option<String>,
}

fn run(scale: Scale) -> Result<Outcome> {
    let requests = scale.pick(40_000, 1_000_000);
    let folder = TemporaryFolder::new()?;
    let path = |name: &str| folder.path().join(name).display().to_string();
    let rows: String = (0..ROWS).map(|row| format!("{},\"value {row}, quoted\"\n", row * 7)).collect();
    fs::write(path("rows.csv"), format!("id,note\n{rows}"))?;
    let serve = Serve::start(&format!("--record {}", path("record.jsonl")))?;
    fs::write(path("study.toml"), study(&serve.url(), requests))?;
    let output = Proofload::new(&format!("run {} --out {}", path("study.toml"), path("out")))?
        .timeout(seconds(600))
        .run()?;
    let report = serve.stop()?;
    let mut outcome = Outcome::default();
    outcome.figure(
        "exit_status",
        output.code.unwrap_or(-1),
        "0, or 3: void",
        matches!(output.code, Some(0 | 3)),
    );
    outcome.equal("recorded", report.requests, requests, "the requests planned");
    check(&path("record.jsonl"), requests, &mut outcome)?;
    Ok(outcome)
}

fn study(url: &str, requests: u64) -> String {
    let mut text = format!(
        "title = \"Templates\"\nseed = 5\n[targets.api]\nurl = \"{url}\"\n[trial]\nvoid_attempts = 0\n[workload.http]\nusers = {USERS}\nrequests = {requests}\nthreads = {WORKERS}\n\
         feeders = \"rows.csv\"\nheaders = [\"X-Note: {{{{note}}}}\"]\n"
    );
    for (name, weight) in STEPS {
        text += &format!(
            "[[workload.http.steps]]\nname = \"{name}\"\nweight = {weight}\nrequest = \"POST /{name}/{{{{counter}}}}?u={{{{user}}}}&i={{{{iteration}}}}\"\n\
             body = \"{{{{id}}}};{{{{note|url}}}};{{{{iteration}}}}\"\n"
        );
    }
    text
}

/// Compares every request with the request expected for its number.
fn check(record: &str, requests: u64, outcome: &mut Outcome) -> Result<()> {
    let mut seen = vec![false; requests as usize + 1];
    let mut drawn: BTreeMap<String, u64> = BTreeMap::new();
    // The last iteration and number of each user, and the user of each connection.
    let (mut iterations, mut users) = (BTreeMap::new(), BTreeMap::new());
    let (mut wrong, mut out_of_order, mut first_wrong) = (0_u64, 0_u64, None);
    let mut lines = 0;
    for line in BufReader::new(File::open(record)?).lines() {
        let line = line?;
        let request: Line = serde_json::from_str(&line)?;
        lines += 1;
        let Some((step, number, user, iteration)) = parts(&request.target) else {
            wrong += 1;
            first_wrong.get_or_insert(line);
            continue;
        };
        let is_new = seen.get_mut(number as usize).is_some_and(|seen| !std::mem::replace(seen, true));
        let row = (number - 1) % ROWS;
        let note = format!("value {row}, quoted");
        let encoded = note.replace(' ', "%20").replace(',', "%2C");
        let field =
            |name: &str| request.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str());
        let as_must_be = is_new
            && request.method == "POST"
            && request.target == format!("/{step}/{number}?u={user}&i={iteration}")
            && field("X-Note") == Some(note.as_str())
            && request.body == Some(format!("{};{encoded};{iteration}", row * 7))
            && request.headers.len() == 4
            && (1..=USERS).contains(&user);
        if !as_must_be {
            wrong += 1;
            first_wrong.get_or_insert(line);
        }
        *drawn.entry(step).or_default() += 1;
        // A connection belongs to one user, and its requests come in the order of the user's iterations.
        let same = *users.entry(request.connection).or_insert(user) == user;
        let before = iterations.insert(user, (iteration, number)).unwrap_or_default();
        out_of_order += u64::from(!same || iteration != before.0 + 1 || number <= before.1);
    }
    outcome.equal("lines", lines, requests, "the requests planned");
    let missing = seen.iter().skip(1).filter(|seen| !**seen).count();
    // Each worker takes every n-th number. A worker that ends early leaves its last numbers unused, but no gap before them.
    let gaps: u64 = (0..WORKERS).map(|worker| gaps(&seen, worker)).sum();
    outcome.equal("requests_with_a_wrong_byte_or_a_number_twice", wrong, 0, "of all");
    outcome.equal("requests_out_of_order", out_of_order, 0, "of all");
    outcome.equal("gaps_in_a_worker's_numbers", gaps, 0, "of all");
    outcome.note(format!("{missing} of the numbers up to {requests} were another worker's"));
    let weights: u64 = STEPS.iter().map(|(_, weight)| weight).sum();
    let chi_squared: f64 = STEPS
        .iter()
        .map(|(name, weight)| {
            let expected = requests as f64 * *weight as f64 / weights as f64;
            (drawn.get(*name).copied().unwrap_or_default() as f64 - expected).powi(2) / expected
        })
        .sum();
    // With two degrees of freedom (three steps), the distribution has a closed form.
    let p = (-chi_squared / 2.0).exp();
    outcome.figure("p_of_the_weights", format!("{p:.3}"), format!("> {LEAST_P}"), p > LEAST_P);
    if let Some(line) = first_wrong {
        outcome.note(format!("the first wrong request: {line}"));
    }
    ensure!(!drawn.is_empty(), "nothing was recorded");
    Ok(())
}

/// The step, number, user and iteration in a request target.
fn parts(target: &str) -> Option<(String, u64, u64, u64)> {
    let (path, query) = target.split_once('?')?;
    let (step, number) = path.strip_prefix('/')?.split_once('/')?;
    let (user, iteration) = query.strip_prefix("u=")?.split_once("&i=")?;
    Some((
        step.to_owned(),
        number.parse().ok().filter(|n| *n > 0)?,
        user.parse().ok()?,
        iteration.parse().ok()?,
    ))
}

/// How many numbers of a worker are missing before its last one.
fn gaps(seen: &[bool], worker: u64) -> u64 {
    let own: Vec<bool> = seen.iter().skip(worker as usize + 1).step_by(WORKERS as usize).copied().collect();
    let last = own.iter().rposition(|seen| *seen).map_or(0, |last| last + 1);
    own[..last].iter().filter(|seen| !**seen).count() as u64
}
