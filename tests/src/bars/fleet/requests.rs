//! However many machines make a load of a fixed number of requests, the target receives the same requests.

use std::{collections::BTreeMap, net::SocketAddr};

use anyhow::{Context, Result, ensure};
use testing::foreign_lines::SentRequest;

use super::{Machines, NEAR, PORT, WEB, trial, web};
use crate::{
    bars::{Bar, By, Outcome, Scale, is_wanted},
    proofload::patient,
    recorder::Recorder,
};

pub(super) const BAR: Bar = Bar {
    name: "fleet-requests",
    what: "7 loads of a fixed number of requests on 1, 3 and 8 machines, by the target's log: the same requests, each as often",
    full_seconds: 60,
    decided_by: By::Counts,
    run,
};

/// The loads: name, path, options, and the number of requests.
const CASES: [(&str, &str, &[&str], usize); 7] = [
    ("number", "{{counter}}", &["-n", "240", "-u", "24"], 240),
    ("loops", "{{user}}/{{iteration}}", &["-u", "24", "--loops", "10"], 240),
    ("values", "{{counter}}/{{random 1 1000000}}/{{uuid}}", &["-n", "240", "-u", "24", "--seed", "7"], 240),
    ("open", "{{counter}}/{{string 8}}", &["-R", "400", "-n", "240", "-c", "24", "--seed", "7"], 240),
    (
        "bodies",
        "x",
        &[
            "-u",
            "24",
            "--loops",
            "10",
            "-X",
            "POST",
            "--body",
            "{{hex 16}} {{counter}}",
            "-H",
            "X-Own: {{random 1 9}}",
        ],
        240,
    ),
    ("rows", "{{name}}", &["-n", "240", "-u", "24", "--feeder", ROWS], 240),
    ("events", "events", &["-u", "24", "--loops", "10", "--events"], 240),
];

/// Stands for a feeder of 240 rows of which each is used once.
const ROWS: &str = "ROWS";

/// The loads of a sample: each begins with a login on every machine.
const SAMPLED: [&str; 3] = ["values", "rows", "events"];

fn run(scale: Scale) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let counts: &[usize] = scale.pick(&[1, 2], &[1, 3, 8]);
    Machines::with(*counts.last().unwrap_or(&1), &[], |machines| {
        let address = SocketAddr::new(web().into(), PORT);
        let recorder = Recorder::start_in(machines.network(WEB)?, address)?;
        let is_run = |name: &str| match scale {
            Scale::Counts => SAMPLED.contains(&name),
            Scale::Sample | Scale::Full => is_wanted(name),
        };
        for case in CASES.iter().filter(|case| is_run(case.0)) {
            same(&mut outcome, machines, counts, &recorder, case).context(case.0)?;
        }
        Ok(())
    })?;
    Ok(outcome)
}

fn same(
    outcome: &mut Outcome,
    machines: &Machines,
    counts: &[usize],
    recorder: &Recorder,
    (name, path, options, requests): &(&str, &str, &[&str], usize),
) -> Result<()> {
    let mut of_one = None;
    let rows: String = (0..240).map(|row| format!("row-{row}\n")).collect();
    let rows = format!("{},once", machines.labs.file("rows.csv", &format!("name\n{rows}"))?);
    for &count in counts {
        let words = patient(&format!("-q --json - {}", machines.on(count)));
        let launch = machines.command(NEAR, "http")?.arg(machines.url(path));
        let launch = launch.words(&words).args(options.iter().map(|option| option.replace(ROWS, &rows)));
        let trial = trial(&launch, &[0, 3])?;
        ensure!(trial.machines.len() == count, "{} of {count} machines", trial.machines.len());
        let idle = trial.machines.iter().filter(|machine| machine.counts.sent == 0).count() as u64;
        outcome.equal(&format!("{name}_{count}_idle"), idle, 0, "machines that sent nothing");
        let received = recorder.take();
        let whole = received.len() as u64;
        outcome.equal(&format!("{name}_{count}"), whole, *requests as u64, "planned");
        let received = counted(received);
        let of_one = of_one.get_or_insert_with(|| received.clone());
        let other = difference(&received, of_one);
        let figure = format!("{name}_{count}_other");
        outcome.equal(
            &figure,
            other.len() as u64,
            0,
            "requests that one machine sends as often or not at all",
        );
        if let Some((request, [here, there])) = other.first() {
            outcome.note(format!(
                "{name}: {count} machines send {request} {here} times, one machine {there} times"
            ));
        }
    }
    Ok(())
}

/// The requests, in words, and how often each was received.
type Counted = BTreeMap<String, u64>;

fn counted(received: Vec<SentRequest>) -> Counted {
    let mut counted = Counted::new();
    for request in received {
        let SentRequest { method, target, headers, body } = request;
        // It has random numbers of its own.
        let headers: Vec<_> = headers.into_iter().filter(|(name, _)| name != "traceparent").collect();
        let body = without_run(&String::from_utf8_lossy(&body));
        *counted.entry(format!("{method} {target} {headers:?} {body}")).or_default() += 1;
    }
    counted
}

/// A body without what marks the run in the number of an event (`"RUN-CLIENT-NUMBER-FINGERPRINT"`): both first and last are others
/// in each run.
fn without_run(body: &str) -> String {
    const NAME: &str = "\"proofload\":\"";
    let parts = body.split_once(NAME).and_then(|(before, rest)| Some((before, rest.split_once('"')?)));
    let Some((before, (number, after))) = parts else { return body.to_owned() };
    let own: Vec<&str> = number.split('-').collect();
    format!("{before}{NAME}{}\"{after}", own.get(1..3).unwrap_or(&own[..]).join("-"))
}

/// Requests that one side received more often than the other, with both numbers.
fn difference(a: &Counted, b: &Counted) -> Vec<(String, [u64; 2])> {
    let mut all: Vec<&String> = a.keys().chain(b.keys()).collect();
    all.sort();
    all.dedup();
    let both = |request: &String| [a, b].map(|side| side.get(request).copied().unwrap_or(0));
    let numbers = all.into_iter().map(|request| (request.clone(), both(request)));
    numbers.filter(|(_, [a, b])| a != b).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_compared_without_what_marks_their_run() {
        let body = r#"{"a":1,"proofload":"c4f36294-00000b-0000000c-e80f84d1"}"#;
        assert_eq!(without_run(body), r#"{"a":1,"proofload":"00000b-0000000c"}"#);
        assert_eq!(without_run("0123 4"), "0123 4");
    }
}
