//! What is a value is sent byte for byte, whatever it looks like, or refused with the reason; and it is printed nowhere.

use std::{collections::BTreeSet, fs};

use anyhow::{Context, Result, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use proofload_tests::{
    process::{Finished, Launch},
    proofload::{binary, patient},
    recorder::Recorder,
    temporary::TemporaryFolder,
};
use testing::{PATIENCE, foreign_lines::SentRequest};

/// Which options and keys are texts of a request. That it has all of them is for a test of the program.
const TABLE: &str = include_str!("../../data/values.txt");

/// Values, as bash writes them and as they are; and why some may be refused.
const VALUES: [(&str, &[u8], &[&str]); 6] = [
    ("$'value-{{uuid}}-x'", b"value-{{uuid}}-x", &[]),
    ("$'value-{{x}}-none'", b"value-{{x}}-none", &[]),
    ("$'value-${HOME}-x'", b"value-${HOME}-x", &[]),
    (
        "$'value-one\\rvalue-two'",
        b"value-one\rvalue-two",
        &[
            "line end",
            "a space or a control character",
            "it has a control character",
            "not a name, a colon and a value",
        ],
    ),
    ("$'value-\\'\"-quote'", b"value-'\"-quote", &[]),
    ("$'value-\\xff-byte'", b"value-\xff-byte", &["UTF-8"]),
];

/// Where a value must be in what is sent.
#[derive(Debug, Clone, Copy)]
enum Place {
    Field(&'static str),
    /// A field of `Basic` whose password it is.
    Login(&'static str),
    Body,
    Path,
    /// The value of the parameter `k`, percent-decoded.
    Query,
}

/// A way that a value goes.
struct Way {
    /// The option or key, as the table names it.
    name: &'static str,
    /// The words behind `proofload`, as bash takes them: `$HOST` is the recorder, `$FILE` the file of the value, `$FIELDS` a file
    /// with the field X-V, `$STUDY` a file of the text `study`. `$VALUE` is the value where a line of another program has it, where it
    /// is no secret, if the words do not end with [`SECRET`]; `$WHOLE` is a URL whose path it is.
    words: &'static str,
    study: &'static str,
    place: Place,
}

/// Marks a line of another program in which the value is a secret by its name.
const SECRET: &str = " # a secret";

const fn way(name: &'static str, words: &'static str, place: Place) -> Way {
    Way { name, words, study: "", place }
}

const fn key(name: &'static str, study: &'static str, place: Place) -> Way {
    Way { name, words: "run \"$STUDY\" -q --out \"$OUT\"", study, place }
}

const WAYS: &[Way] = &[
    way("http header", "http -n 1 -u 1 -q -H 'X-V: ${VALUE}' http://$HOST/", Place::Field("x-v")),
    way("http header", "http -n 1 -u 1 -q -H @\"$FIELDS\" http://$HOST/", Place::Field("x-v")),
    way("http body", "http -n 1 -u 1 -q -b '${VALUE}' http://$HOST/", Place::Body),
    way("http body", "http -n 1 -u 1 -q -b @\"$FILE\" http://$HOST/", Place::Body),
    way(
        "http content-type",
        "http -n 1 -u 1 -q -b x -T '${VALUE}' http://$HOST/",
        Place::Field("content-type"),
    ),
    way(
        "http proxy",
        "http -n 1 -u 1 -q --timeout 5s -x \"http://u:\"'${VALUE}'\"@$HOST\" http://$HOST/",
        Place::Login("proxy-authorization"),
    ),
    way("http URL", "http -n 1 -u 1 -q \"http://$HOST/?k=\"'${VALUE}'", Place::Query),
    way("http URL", "http -n 1 -u 1 -q \"http://$HOST/\"'${VALUE}'", Place::Path),
    way("http URL", "http -n 1 -u 1 -q \"http://u:\"'${VALUE}'\"@$HOST/\"", Place::Login("authorization")),
    way("http URL", "http -n 1 -u 1 -q '${WHOLE}'", Place::Path),
    way(
        "http URL",
        "http -n 1 -u 1 -q --cookies --log \"$OUT/../log\" --log-sample 1 '${WHOLE}'",
        Place::Path,
    ),
    way(
        "http URL",
        "http -n 1 -u 1 -q --cookies -H 'X-V: ${VALUE}' -H 'X-W: w {{counter}}' \"http://$HOST/\"'${VALUE}?{{counter}}'",
        Place::Field("x-v"),
    ),
    way("wrk header", "wrk -t1 -c1 -d1s -H \"X-V: $VALUE\" http://$HOST/", Place::Field("x-v")),
    way("wrk URL", "wrk -t1 -c1 -d1s \"http://$HOST/$VALUE\"", Place::Path),
    way("wrk2 header", "wrk2 -t1 -c1 -d1s -R9 -H \"X-V: $VALUE\" http://$HOST/", Place::Field("x-v")),
    way("wrk2 URL", "wrk2 -t1 -c1 -d1s -R9 \"http://$HOST/$VALUE\"", Place::Path),
    way("ab H", "ab -n 1 -H \"X-V: $VALUE\" http://$HOST/", Place::Field("x-v")),
    way("ab C", "ab -n 1 -C \"$VALUE\" http://$HOST/", Place::Field("cookie")),
    way("ab T", "ab -n 1 -p \"$FILE\" -T \"$VALUE\" http://$HOST/", Place::Field("content-type")),
    way("ab p", "ab -n 1 -p \"$FILE\" http://$HOST/", Place::Body),
    way("ab u", "ab -n 1 -u \"$FILE\" http://$HOST/", Place::Body),
    way("ab A", "ab -n 1 -A \"u:$VALUE\" http://$HOST/", Place::Login("authorization")),
    way("ab URL", "ab -n 1 \"http://$HOST/$VALUE\"", Place::Path),
    way("curl", "http -n 1 -u 1 -q -- curl -H \"X-V: $VALUE\" http://$HOST/", Place::Field("x-v")),
    way("curl", "http -n 1 -u 1 -q -- curl -H @\"$FIELDS\" http://$HOST/", Place::Field("x-v")),
    way("curl", "http -n 1 -u 1 -q -- curl -b \"a=$VALUE\" http://$HOST/", Place::Field("cookie")),
    way("curl", "http -n 1 -u 1 -q -- curl -e \"$VALUE\" http://$HOST/", Place::Field("referer")),
    way("curl", "http -n 1 -u 1 -q -- curl -r \"$VALUE\" http://$HOST/", Place::Field("range")),
    way(
        "curl",
        "http -n 1 -u 1 -q -- curl --oauth2-bearer \"$VALUE\" http://$HOST/",
        Place::Field("authorization"),
    ),
    way("curl", "http -n 1 -u 1 -q -- curl -u \"u:$VALUE\" http://$HOST/", Place::Login("authorization")),
    way("curl", "http -n 1 -u 1 -q -- curl --data-raw \"$VALUE\" http://$HOST/", Place::Body),
    way("curl", "http -n 1 -u 1 -q -- curl --data-binary @\"$FILE\" http://$HOST/", Place::Body),
    way("curl", "http -n 1 -u 1 -q -- curl -F \"a=$VALUE\" http://$HOST/", Place::Body),
    way("curl", "http -n 1 -u 1 -q -- curl -g \"http://$HOST/$VALUE\"", Place::Path),
    way(
        "http curl",
        "http -n 1 -u 1 -q --curl \"curl -b \\\"a=\\$VALUE\\\" http://$HOST/\"",
        Place::Field("cookie"),
    ),
    way(
        "http curl",
        "http -n 1 -u 1 -q --curl \"curl -u u:$(printf %q \"$VALUE\") http://$HOST/\" # a secret",
        Place::Login("authorization"),
    ),
    way(
        "http curl",
        "http -n 1 -u 1 -q --curl \"curl -G --data-urlencode api_key=$(printf %q \"$VALUE\") http://$HOST/\" # a secret",
        Place::Path,
    ),
    way(
        "curl",
        "http -n 1 -u 1 -q -- curl -g -H \"X-Api-Key: $VALUE\" \"http://$HOST/$VALUE\" # a secret",
        Place::Field("x-api-key"),
    ),
    key(
        "study workload.http.headers",
        "url = \"http://HOST/\"\nheaders = [\"X-V: ${VALUE}\"]",
        Place::Field("x-v"),
    ),
    key(
        "study workload.http.headers",
        "url = \"http://HOST/\"\nheaders = [\"@FIELDS\"]",
        Place::Field("x-v"),
    ),
    key("study workload.http.body", "url = \"http://HOST/\"\nbody = \"${VALUE}\"", Place::Body),
    key("study workload.http.body", "url = \"http://HOST/\"\nbody = \"@FILE\"", Place::Body),
    key(
        "study workload.http.content_type",
        "url = \"http://HOST/\"\nbody = \"x\"\ncontent_type = \"${VALUE}\"",
        Place::Field("content-type"),
    ),
    key(
        "study workload.http.proxy",
        "url = \"http://HOST/\"\nproxy = \"http://u:${VALUE}@HOST\"\ntimeout = \"5s\"",
        Place::Login("proxy-authorization"),
    ),
    key("study workload.http.url", "url = \"http://HOST/?k=${VALUE}\"", Place::Query),
    key(
        "study workload.http.path",
        "[targets.t]\nurl = \"http://HOST/\"\n--target = \"t\"\npath = \"/?k=${VALUE}\"",
        Place::Query,
    ),
    key(
        "study targets.*.url",
        "[targets.t]\nurl = \"http://u:${VALUE}@HOST/\"\n--",
        Place::Login("authorization"),
    ),
    key(
        "study workload.http.steps[].request",
        "url = \"http://HOST/\"\nsteps = [{ request = \"GET /?k=${VALUE}\" }]",
        Place::Query,
    ),
    key(
        "study workload.http.steps[].headers",
        "url = \"http://HOST/\"\nsteps = [{ request = \"GET /{{counter}}\", headers = \"X-V: ${VALUE}\" }]",
        Place::Field("x-v"),
    ),
    key(
        "study workload.http.steps[].body",
        "url = \"http://HOST/\"\nsteps = [{ request = \"POST /\", body = \"{{counter}} ${VALUE}\" }]",
        Place::Body,
    ),
];

/// Whether a request has the value at its place.
fn has(request: &SentRequest, place: Place, value: &[u8]) -> bool {
    let contains = |bytes: &[u8]| bytes.windows(value.len()).any(|window| window == value);
    let field = |name: &str| request.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value);
    match place {
        Place::Field(name) => field(name).is_some_and(|field| contains(field.as_bytes())),
        Place::Login(name) => field(name)
            .and_then(|field| BASE64.decode(field.strip_prefix("Basic ")?).ok())
            .is_some_and(|login| contains(&login)),
        Place::Body => contains(&request.body),
        Place::Path => contains(&decoded(&request.target)),
        Place::Query => request.target.split_once("?k=").is_some_and(|(_, query)| decoded(query) == value),
    }
}

/// A text without its percent escapes.
fn decoded(text: &str) -> Vec<u8> {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let byte = part.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.extend(byte);
        bytes.extend(part.get(2..).unwrap_or_default().as_bytes());
    }
    bytes
}

/// All that a call left behind for a reader.
fn left(finished: &Finished, out: &std::path::Path) -> Result<Vec<u8>> {
    let mut left = [finished.stdout.as_bytes(), finished.stderr.as_bytes()].concat();
    let mut folders = vec![out.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten() {
            let path = entry?.path();
            match path.is_dir() {
                true => folders.push(path),
                false => left.extend(fs::read(&path)?),
            }
        }
    }
    Ok(left)
}

/// Sends a value by a way.
fn send(way: &Way, (quoted, value, refusals): (&str, &[u8], &[&str]), recorder: &Recorder) -> Result<()> {
    let folder = TemporaryFolder::new()?;
    let path = |name: &str| folder.path().join(name);
    fs::write(path("value"), value)?;
    fs::write(path("fields"), [b"X-V: ", value, b"\n"].concat())?;
    let (targets, workload) = way.study.split_once("--").unwrap_or(("", way.study));
    let study = format!(
        "title = \"Values\"\n{targets}[trial]\nvoid_attempts = 0\n[workload.http]\nusers = 1\nrequests = 2\n{workload}\n"
    );
    let study = study
        .replace("HOST", &recorder.host())
        .replace("@FIELDS", &format!("@{}", path("fields").display()))
        .replace("@FILE", &format!("@{}", path("value").display()));
    fs::write(path("study.toml"), study)?;
    let words = match way.words.starts_with("http ") {
        // What is patient stands before a line of curl.
        true if !way.words.contains("--timeout") => {
            way.words.replacen("http ", &format!("http --out \"$OUT\" {} ", patient("")), 1)
        }
        _ => way.words.to_owned(),
    };
    let script = format!(
        "export VALUE={quoted}; HOST={}; export WHOLE=http://$HOST/${{VALUE}}; FILE='{}' FIELDS='{}' STUDY='{}' OUT='{}'; exec {} {words}",
        recorder.host(),
        path("value").display(),
        path("fields").display(),
        path("study.toml").display(),
        path("out").display(),
        binary()?.display(),
    );
    let finished = Launch::new("bash").args(["-c", &script]).run(PATIENCE)?;
    let requests = recorder.take();
    let said =
        format!("{}: {quoted}\n{script}\n{}\n{}\n{requests:?}", way.name, finished.stdout, finished.stderr);
    // The recorder is no proxy: a study that has found out so refuses to go on.
    let is_tunnel = matches!(way.place, Place::Login("proxy-authorization")) && !requests.is_empty();
    if finished.code == Some(2) && !is_tunnel {
        ensure!(requests.is_empty(), "refused, and sent: {said}");
        ensure!(
            refusals.iter().any(|why| finished.stderr.contains(why)),
            "refused for another reason: {said}"
        );
    } else {
        ensure!(!requests.is_empty(), "nothing was sent: {said}");
        let others = requests.iter().filter(|request| !has(request, way.place, value));
        // Behind a proxy's answer, requests of the tunnel follow.
        let others = others.filter(|request| !is_tunnel || request.method == "CONNECT").count();
        ensure!(others == 0, "sent otherwise: {said}");
    }
    // What stands on a line of another program is no secret by itself.
    if !way.words.contains("$VALUE") || way.words.ends_with(SECRET) {
        let left = left(&finished, &path("out"))?;
        let is_shown = left.windows(value.len()).any(|window| window == value);
        ensure!(!is_shown, "printed: {said}");
        // A part of it would tell it, too, and so would another spelling, of which this part is no other.
        let part = String::from_utf8_lossy(value).chars().skip(6).take(6).collect::<String>();
        for part in [&part, "value-"] {
            let is_shown = left.windows(part.len()).any(|window| window == part.as_bytes());
            ensure!(!is_shown, "'{part}' is printed: {said}");
        }
    }
    Ok(())
}

/// The options and keys of the table that are texts.
fn texts() -> BTreeSet<String> {
    let mut texts = BTreeSet::new();
    for line in TABLE.lines() {
        let Some((command, names)) = line.split_once(" text: ") else { continue };
        texts.extend(names.split(' ').map(|name| format!("{command} {name}")));
    }
    texts
}

#[test]
fn every_value_is_sent_as_it_is_and_printed_nowhere() -> Result<()> {
    let ways: BTreeSet<String> = WAYS.iter().map(|way| way.name.to_owned()).collect();
    // The commands that search take the same options as `http`, from the same rows.
    for text in texts().iter().filter(|text| !text.starts_with("limit")) {
        ensure!(ways.contains(text), "no way tries '{text}'");
    }
    for text in texts().iter().filter_map(|text| text.strip_prefix("limit ")) {
        ensure!(ways.contains(&format!("http {text}")), "http has no '{text}'");
    }
    let recorder = Recorder::start()?;
    let mut wrong = Vec::new();
    for value in VALUES {
        for way in WAYS {
            if let Err(why) = send(way, value, &recorder).context("a value") {
                wrong.push(format!("{why:#}"));
            }
        }
    }
    ensure!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), VALUES.len() * WAYS.len(), wrong.join("\n\n"));
    Ok(())
}

/// Values in or before a host, and URLs with them. Whatever becomes of the letters, no `needle` is to be read.
const HOSTS: [(&str, &str); 6] = [
    ("Needle-AbC.invalid", "http://${VALUE}/"),
    ("Needle-AbC", "http://x${VALUE}y.invalid:81/a"),
    ("hunter2@Needle-ABC.invalid", "http://${VALUE}/"),
    ("%4eeedle-x.invalid", "${VALUE}"),
    ("needle-b\u{fc}cher", "http://${VALUE}.invalid/"),
    ("https://Needle.invalid/needle-path?needle=1", "${VALUE}"),
];

#[test]
fn a_value_in_a_host_is_printed_in_no_spelling() -> Result<()> {
    let folder = TemporaryFolder::new()?;
    let file = folder.path().join("study.toml");
    for (value, url) in HOSTS.into_iter().chain([("open", "http://needle.invalid/")]) {
        fs::write(
            &file,
            format!("title = \"x\"\n[workload.http]\nurl = \"{url}\"\nusers = 1\nrequests = 1\n"),
        )?;
        let file = file.display().to_string();
        for words in [
            &["http", "-n", "1", url][..],
            &["limit", "rate", "--max", "999", url],
            &["run", &file],
            &["run", &file, "--dry-run"],
        ] {
            let call =
                Launch::new(binary()?.display().to_string()).args(words.iter().copied()).env("VALUE", value);
            let finished = call.run(PATIENCE)?;
            let said = (finished.stdout.clone() + &finished.stderr).to_lowercase();
            ensure!(finished.code == Some(2), "{words:?} {value}: not refused: {said}");
            ensure!(said.contains("cannot find the address of"), "{words:?} {value}: {said}");
            ensure!(said.contains("needle") == (value == "open"), "{words:?} {value}: {said}");
        }
    }
    Ok(())
}
