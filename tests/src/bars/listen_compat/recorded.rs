//! The recorded answers and events of a real Fluentd (`scripts/record-fluentd.py`), compared with ours request by request. The only
//! differences must be those that docs/listen.md lists.

use std::{collections::BTreeMap, fs};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use testing::http::{exchange, post};

use crate::{bars::Outcome, listen::ListenCall, temporary::TemporaryFolder};

const RECORDED: &str = include_str!("../../../data/fluentd.jsonl");
const PAGE: &str = include_str!("../../../../docs/listen.md");

/// The `<parse>` sections of the record, the same as in the script.
const PARSE: [(&str, &str); 3] = [
    ("default", ""),
    ("json", "<parse>\n@type json\n</parse>"),
    (
        "json-time",
        "<parse>\n@type json\ntime_key t\nkeep_time_key true\ntime_format %Y-%m-%dT%H:%M:%S%z\n</parse>",
    ),
];

/// A request, with the answer and the events of Fluentd with Oj. Each character of `body` and of the events is one byte.
#[derive(Debug, Deserialize)]
struct Row {
    parse: String,
    #[serde(rename = "type")]
    content_type: Option<String>,
    encoding: Option<String>,
    path: String,
    body: String,
    status: u16,
    /// Time, tag and event.
    stored: Vec<[String; 3]>,
}

/// A request, the status of our answer, and the events that we stored.
type Answered<'r> = (&'r Row, u16, Vec<[String; 3]>);

/// How we treat a request that Fluentd treats differently.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Ours {
    /// We refuse it and store nothing.
    Refused,
    /// We store all its events.
    Stored,
}

/// The first column of the table in docs/listen.md, our behaviour, and whether the difference concerns a row.
type Difference = (&'static str, Ours, fn(&Row) -> bool);

/// If several differences concern a row, the first one counts.
const DIFFERENCES: [Difference; 15] = [
    ("MessagePack", Ours::Refused, |row| row.body.starts_with("msgpack=")),
    ("`;` between the fields of a form", Ours::Refused, |row| row.body.contains("%7D;")),
    ("several fields with records in a form", Ours::Refused, |row| {
        ["json=", "name=\"json\""].iter().any(|field| row.body.matches(field).count() > 1)
    }),
    ("a multipart form without its last boundary", Ours::Refused, |row| row.body.ends_with("--xx\r\n")),
    ("a body of another type beside `?json=` or `?ndjson=`", Ours::Refused, |row| {
        row.content_type.as_deref() == Some("text/plain") && row.path.contains("json=")
    }),
    ("two slashes at the beginning of a path", Ours::Refused, |row| row.path.starts_with("//")),
    ("compressed bodies with bytes missing or following", Ours::Refused, |row| {
        matches!(row.encoding.as_deref(), Some("gzip" | "deflate"))
    }),
    ("JSON that only Oj or Yajl takes", Ours::Refused, |row| {
        let is_control = |byte: &u8| *byte < 0x20 && !b"\r\n".contains(byte);
        row.body.starts_with("/*")
            || (row.stored.len() == 1 && bytes(&row.body).iter().any(is_control))
            || (row.stored.len() == 1 && std::str::from_utf8(&bytes(&row.body)).is_err())
    }),
    ("a body with a mistake, answered 200", Ours::Refused, |row| row.status == 200 && row.stored.is_empty()),
    ("what Fluentd cannot write, answered 500", Ours::Refused, |row| row.status == 500),
    ("records that are no objects", Ours::Refused, |row| {
        row.stored.iter().any(|[_, _, event]| !event.starts_with('{'))
    }),
    ("times that are none, or beyond the year 9999", Ours::Refused, |row| {
        row.body.starts_with("{\"time\":") && !row.path.contains('?')
    }),
    ("`application/csp-report`", Ours::Stored, |row| {
        row.content_type.as_deref() == Some("application/csp-report")
    }),
    ("`?json=` beside a body of `x-ndjson`", Ours::Stored, |row| row.path.contains("?json=")),
    ("`?time=` beside a member that is the time, with `<parse> @type json`", Ours::Stored, |row| {
        row.path.contains("?time=") && row.parse == "json"
    }),
];

/// Sends every recorded request and compares the results.
pub(super) fn replay(outcome: &mut Outcome) -> Result<()> {
    let rows = RECORDED.lines().skip(1).map(serde_json::from_str).collect::<Result<Vec<Row>, _>>()?;
    ensure!(rows.len() >= 230, "the record has only {} requests", rows.len());
    let mut met = [0_u64; DIFFERENCES.len()];
    let mut others = 0;
    for (parse, section) in PARSE {
        for (row, status, stored) in answered(section, rows.iter().filter(|row| row.parse == parse))? {
            if (status, &stored) == (row.status, &row.stored) {
                continue;
            }
            let events = row.body.lines().filter(|line| !line.is_empty()).count();
            let known = DIFFERENCES.iter().position(|(_, _, is_about)| is_about(row));
            let is_as_told = known.is_some_and(|known| match DIFFERENCES[known].1 {
                Ours::Refused => matches!(status, 0 | 400..500) && stored.is_empty(),
                Ours::Stored => matches!(status, 200..300) && stored.len() == events,
            });
            if let Some(known) = known.filter(|_| is_as_told) {
                met[known] += 1;
                continue;
            }
            others += 1;
            outcome.note(format!("{row:?}: we answer {status} and store {stored:?}"));
        }
    }
    outcome.equal("recorded_other_differences", others, 0, "requests");
    let listed = listed();
    let names: Vec<&str> = DIFFERENCES.iter().map(|(name, ..)| *name).collect();
    outcome.holds("recorded_page", listed == names, "docs/listen.md lists these differences");
    for (name, met) in names.iter().zip(met) {
        outcome.figure(&format!("recorded: {name}"), met, ">= 1 requests", met > 0);
    }
    outcome.note(format!(
        "{} requests recorded, {} of them with a difference that is listed; {}",
        rows.len(),
        met.iter().sum::<u64>(),
        RECORDED.lines().next().unwrap_or_default()
    ));
    Ok(())
}

/// Our answers and stored events for these rows, with this `<parse>` section.
fn answered<'r>(section: &str, rows: impl Iterator<Item = &'r Row>) -> Result<Vec<Answered<'r>>> {
    let folder = TemporaryFolder::new()?;
    let (conf, lines) = (folder.file("fluent.conf"), folder.file("lines"));
    let text = format!(
        "<source>\n@type http\n{section}\n</source>\n<match **>\n@type file\npath x\nappend true\n<buffer []>\n\
         </buffer>\n</match>\n"
    );
    fs::write(&conf, text)?;
    let call = ListenCall::new(folder.path(), &format!("--import {conf} --path {lines}"))?;
    let listen = call.start_by(|launch| launch.env("TZ", "UTC").start())?;
    let mut answers = Vec::new();
    for row in rows {
        let header = |name: &str, value: &Option<String>| {
            value.as_ref().map_or_else(String::new, |value| format!("{name}: {value}\r\n"))
        };
        let headers = header("Content-Type", &row.content_type)
            + &header("Content-Encoding", &row.encoding)
            + "Connection: close\r\n";
        let answer = exchange(listen.address(), &post(&row.path, &headers, &bytes(&row.body)))?;
        answers.push((row, answer.status, Vec::new()));
    }
    listen.stop()?;
    let mut stored: BTreeMap<String, Vec<[String; 3]>> = BTreeMap::new();
    let lines = fs::read(lines).context("nothing was stored")?;
    for line in lines.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
        let line: String = line.iter().map(|&byte| char::from(byte)).collect();
        let mut columns = line.splitn(3, '\t').map(str::to_owned);
        let mut next = || columns.next().context("a line has three columns");
        let (time, tag, event) = (next()?, next()?, next()?);
        // Recorded times are from 2019 or earlier, so a later time is the current one.
        let time = if time.as_str() > "2020" { "now".to_owned() } else { time };
        let number = tag.split('.').next().unwrap_or_default().to_owned();
        stored.entry(number).or_default().push([time, tag, event]);
    }
    for (row, _, own) in &mut answers {
        let number = row.path.split(['/', '?']).find(|part| part.starts_with('r')).unwrap_or_default();
        *own = stored.remove(number).unwrap_or_default();
    }
    ensure!(stored.is_empty(), "lines of no request: {stored:?}");
    Ok(answers)
}

fn bytes(text: &str) -> Vec<u8> {
    text.chars().map(|c| c as u8).collect()
}

/// The first column of the table in docs/listen.md.
fn listed() -> Vec<&'static str> {
    let table = PAGE
        .split_once("<!-- differences -->")
        .and_then(|(_, rest)| rest.split_once("<!-- end of differences -->"));
    let rows = table.map_or("", |(table, _)| table).lines().filter(|line| line.starts_with("| "));
    rows.skip(1).filter_map(|row| row.split(" | ").next()).map(|cell| cell.trim_start_matches("| ")).collect()
}
