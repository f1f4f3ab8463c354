//! Sessions of many users, checked step by step with the target's record.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{BufRead, BufReader},
    path::Path,
};

use anyhow::{Context, Result, ensure};
use record::ResultFolder;
use serde::Deserialize;

use super::{Bar, By, Outcome, Runs, Scale};
use crate::{Proofload, Serve, temporary::TemporaryFolder};

pub(super) const BAR: Bar = Bar {
    name: "sessions",
    what: "10,000 users with 5 steps each (sample: 1,000) and tokens that expire: every step of every user in order, no token used by another; a failed step ends or is skipped as asked; rate >= 0.8 of the same requests without a session",
    full_seconds: 200,
    decided_by: By::Both,
    run,
};

/// The fields that this test reads from a line of the record.
#[derive(Deserialize)]
struct Line {
    connection: u64,
    target: String,
    headers: Vec<(String, String)>,
    body: Option<String>,
}

fn run(scale: Scale) -> Result<Outcome> {
    let users = scale.pick(1_000, 10_000);
    let mut outcome = Outcome::default();
    follow_steps(users, &mut outcome)?;
    if !scale.is_timed() {
        return Ok(outcome);
    }
    let (mut with, mut without) = (Runs::default(), Runs::default());
    for _ in 0..scale.pick(1, 5) {
        with.push(rate(users, true)?);
        without.push(rate(users, false)?);
    }
    let ratio = with.median() / without.median();
    outcome.note(format!("{:.0}/s with sessions, {:.0}/s without", with.median(), without.median()));
    outcome.time().figure("rate_with_sessions_to_without", format!("{ratio:.3}"), ">= 0.8", ratio >= 0.8);
    Ok(outcome)
}

/// The steps of a user: a login; steps that use its token, and renew the token when it has expired; a step that shows whose token it is; a
/// step that must fail, because it requests a page that does not exist; and a last step. `failing` says whether the failed step is skipped
/// or ends the iteration.
fn steps(failing: &str) -> String {
    format!(
        r#"
[[workload.http.steps]]
name = "login"
request = "POST /login"
body = '{{"user": "u{{{{user}}}}"}}'
take = {{ token = "json:$.token" }}
[[workload.http.steps]]
repeat = 2
steps = [
    {{ name = "work", request = "/private/w?u={{{{user}}}}", headers = "Authorization: Bearer {{{{token}}}}", expect = "200,401", pause = "exp:300ms" }},
    {{ name = "renew", if = "status == 401", request = "POST /login", body = '{{"user": "u{{{{user}}}}"}}', take = {{ token = "json:$.token" }} }},
]
[[workload.http.steps]]
name = "whose"
request = "/private/whose"
headers = "Authorization: Bearer {{{{token}}}}"
expect = "200,401"
take = {{ who = "regex:u\\d+|token" }}
[[workload.http.steps]]
name = "fails"
request = "/status/404"
on_failure = "{failing}"
[[workload.http.steps]]
name = "end"
request = "/items/end?u={{{{user}}}}&who={{{{who}}}}"
"#
    )
}

fn follow_steps(users: u64, outcome: &mut Outcome) -> Result<()> {
    for failing in ["go-on", "end"] {
        let folder = TemporaryFolder::new()?;
        let record = folder.path().join("record.jsonl");
        let serve = Serve::start(&format!("--pages --token-lifetime 300ms --record {}", record.display()))?;
        let load = format!("users = {users}\nloops = 1\nramp_up = \"{}ms\"\n", users / 5);
        let _ = trial_of(folder.path(), &serve.url(), &(load + &steps(failing)), 1)?;
        serve.stop()?;
        let mut connections: BTreeMap<u64, Vec<Line>> = BTreeMap::new();
        for line in BufReader::new(File::open(&record)?).lines() {
            let line: Line = serde_json::from_str(&line?)?;
            connections.entry(line.connection).or_default().push(line);
        }
        let wrong: Vec<String> =
            connections.values().filter_map(|lines| wrong_step(lines, failing).err()).collect();
        let name = failing.replace('-', "_");
        outcome.equal(&format!("users_{name}"), connections.len() as u64, users, "the users");
        outcome.equal(&format!("users_with_a_wrong_step_{name}"), wrong.len() as u64, 0, "of all");
        wrong.iter().take(3).for_each(|why| outcome.note(why));
        let renewed = connections.values().flatten().filter(|line| line.target == "/login").count() as u64;
        outcome.figure(
            &format!("tokens_renewed_{name}"),
            renewed.saturating_sub(users),
            "> 0",
            renewed > users,
        );
    }
    Ok(())
}

/// The first fault in the steps of one user.
fn wrong_step(lines: &[Line], failing: &str) -> Result<(), String> {
    let (mut user, mut login) = (String::new(), String::new());
    let mut plain = Vec::new();
    for line in lines {
        let refuse = |why: &str| Err(format!("{why}: {} on connection {}", line.target, line.connection));
        match line.target.split('?').next().unwrap_or_default() {
            "/login" => {
                let body = line.body.as_deref().unwrap_or_default();
                let own = body.trim_start_matches("{\"user\": \"u").trim_end_matches("\"}").to_owned();
                if !user.is_empty() && user != own {
                    return refuse("another user's login");
                }
                (user, login) = (own, String::new());
            }
            path @ ("/private/w" | "/private/whose") => {
                let token = line
                    .headers
                    .iter()
                    .find(|(name, _)| name == "Authorization")
                    .map_or("", |(_, value)| value);
                let of_login = token.trim_start_matches("Bearer ").split('-').next().unwrap_or_default();
                if of_login.is_empty() || (!login.is_empty() && login != of_login) {
                    return refuse("a token of no or of another login");
                }
                login = of_login.to_owned();
                if path == "/private/w" && line.target != format!("/private/w?u={user}") {
                    return refuse("another user's step");
                }
                plain.push(path);
            }
            "/status/404" => plain.push("fails"),
            "/items/end" => {
                let own =
                    [format!("/items/end?u={user}&who=u{user}"), format!("/items/end?u={user}&who=token")];
                if !own.contains(&line.target) {
                    return refuse("another user's token");
                }
                plain.push("end");
            }
            _ => return refuse("a request that no step sends"),
        }
    }
    let mut expected = vec!["/private/w", "/private/w", "/private/whose", "fails"];
    expected.extend((failing == "go-on").then_some("end"));
    if plain == expected { Ok(()) } else { Err(format!("user {user}: {plain:?}")) }
}

/// Requests per second of five steps, with or without the features of a session.
fn rate(users: u64, is_session: bool) -> Result<f64> {
    let folder = TemporaryFolder::new()?;
    let serve = Serve::start("--pages --token-lifetime 600s")?;
    let take = if is_session { "take = { token = \"json:$.token\" }" } else { "" };
    let token = if is_session { "{{token}}" } else { "0000000000000000" };
    let renew = if is_session { "steps = [" } else { "" };
    let end = if is_session { "]" } else { "" };
    let work = format!(
        "request = \"/private/w?u={{{{user}}}}\", headers = \"Authorization: Bearer {token}\", expect = \"200,401\""
    );
    let repeated = if is_session {
        format!(
            "{renew} {{ name = \"work\", {work} }}, {{ name = \"renew\", if = \"status == 401\", request = \"POST /login\", body = \"user=u\" }} {end}"
        )
    } else {
        work.replace(", ", "\n")
    };
    let text = format!(
        "users = {users}\nloops = 3\n[[workload.http.steps]]\nname = \"login\"\nrequest = \"POST /login\"\n\
         body = '{{\"user\": \"u{{{{user}}}}\"}}'\n{take}\n[[workload.http.steps]]\nrepeat = 4\n{repeated}\n"
    );
    let rate = trial_of(folder.path(), &serve.url(), &text, 0)?;
    serve.stop()?;
    Ok(rate)
}

/// Runs a study of one trial with this workload. Returns its requests per second.
fn trial_of(folder: &Path, url: &str, workload: &str, code: i32) -> Result<f64> {
    let (study, out) = (folder.join("study.toml"), folder.join("out"));
    let goals = "[[goals]]\nname = \"no errors\"\nerrors = 0.0\n[trial]\nvoid_attempts = 0\n";
    fs::write(
        &study,
        format!("title = \"Sessions\"\n[targets.api]\nurl = \"{url}\"\n[workload.http]\n{workload}\n{goals}"),
    )?;
    let output = Proofload::new(&format!("run {} --out {}", study.display(), out.display()))?.run()?;
    ensure!([Some(code), Some(3)].contains(&output.code), "{}", output.described());
    let trials = ResultFolder::open(&out)?.read()?.trials;
    let entry = trials.first().context("there is a trial")?;
    Ok(entry.trial.http().context("it is one of requests")?.throughput_per_s)
}
