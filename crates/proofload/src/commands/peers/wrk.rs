//! The command lines of wrk and wrk2.

use load::split_port;
use record::units::parse_count;

use super::{
    Peer,
    table::{
        Given, Row, Translated,
        Translation::{Becomes, Ignored, Own, Refused},
        Value, foreign_in_host, header_name, row, unsendable,
    },
};
use crate::output::peer_text::Layout;

/// wrk: a closed load. A rate selects wrk2, because wrk2's README calls its program wrk too.
#[derive(Debug)]
pub(crate) struct Wrk;

/// wrk2: a constant rate, with latencies measured from the scheduled time of each request.
#[derive(Debug)]
pub(crate) struct Wrk2;

const ROWS: &[Row] = &[
    row('c', "connections", "N", Becomes("connections")),
    row('d', "duration", "TIME", Becomes("duration")),
    row('t', "threads", "N", Becomes("threads")),
    row('R', "rate", "RATE", Becomes("rate")),
    row('H', "header", "HEADER", Own("proofload http --header")),
    row('L', "latency", "", Own("Print the latency distribution")),
    row('U', "u_latency", "", Own("Print also the latency from the actual send (wrk2)")),
    row('T', "timeout", "TIME", Becomes("timeout")),
    row('s', "script", "FILE", Refused(SCRIPT)),
    row('B', "batch_latency", "", Ignored("every request is timed on its own, from when it was due")),
    row('v', "version", "", Ignored("`proofload --version` prints the version")),
];

const SCRIPT: &str = "Lua scripts are not supported; describe the request with proofload http -X, -H and --body, and the \
                      load with --rate, --stage and --think-time";

impl Peer for Wrk {
    const ABOUT: &'static str = "Run wrk's command line and show its layout, with proofload's figures";
    const ROWS: &'static [Row] = ROWS;

    fn translate(url: &str, given: &Given) -> (String, Translated, Layout) {
        translate(url, given)
    }
}

impl Peer for Wrk2 {
    const ABOUT: &'static str = "Run wrk2's command line and show its layout, with proofload's figures";
    const ROWS: &'static [Row] = ROWS;

    fn translate(url: &str, given: &Given) -> (String, Translated, Layout) {
        let (url, mut translated, layout) = translate(url, given);
        if !given.has("-R") {
            translated
                .mistakes
                .push("-R is missing: wrk2 needs a rate, such as -R 2000; wrk has none".to_owned());
        }
        (url, translated, layout)
    }
}

fn translate(url: &str, given: &Given) -> (String, Translated, Layout) {
    let mut translated = Translated::of(given);
    for (_, field) in given.iter().filter(|(row, _)| row.letter == Some('H')) {
        set_header(field, &mut translated);
    }
    let url = set_url(url, &mut translated);
    for (name, value) in [("threads", "2"), ("connections", "10"), ("duration", "10s")] {
        translated.set_default(name, value);
    }
    // Neither program verifies certificates.
    translated.put("insecure", Value::Flag);
    match unequal_threads(&translated) {
        Ok(note) => translated.notes.extend(note),
        Err(mistake) => translated.mistakes.push(mistake),
    }
    let is_distribution = given.has("-L");
    let layout = match given.has("-R") {
        true => Layout::Wrk2 { is_distribution, is_uncorrected: given.has("-U") },
        false => Layout::Wrk { is_distribution },
    };
    (url, translated, layout)
}

/// Sets a field like wrk's Lua table: names are case-sensitive, and the last value counts.
fn set_header(field: &str, translated: &mut Translated) {
    let name = header_name(field);
    let Some((written, value)) = field.split_once(": ").filter(|(before, _)| !before.contains(':')) else {
        // Text without a name may be a secret, so the note shows only its first word.
        let name = name.split(' ').next().unwrap_or_default();
        translated.notes.push(format!("-H '{name}…': wrk sends no field without a space after its colon"));
        return;
    };
    translated.remove_headers(|known| header_name(known) == name);
    if name == "Content-Length" {
        translated.notes.push(format!("-H '{name}…': wrk sends the body's own length"));
    } else if name != "Host" && name.eq_ignore_ascii_case("host") {
        translated
            .mistakes
            .push(format!("-H '{name}…': wrk would send a second Host field: write Host with a capital H"));
    } else {
        // An invalid name, such as one with a blank, is refused when the request is planned, as by wrk.
        translated.add_header(written, value);
    }
}

/// The URL as wrk interprets it. wrk ignores user info and sends the URL's host as the Host field.
fn set_url(url: &str, translated: &mut Translated) -> String {
    translated.mistakes.extend(unsendable(url));
    let start = secrets::mask::authority(url);
    if start == 0 {
        translated.mistakes.push("URL: wrk requires a scheme: put http:// in front of the URL".to_owned());
        return url.to_owned();
    }
    let (scheme, rest) = url.split_at(start);
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, mut target) = rest.split_at(end);
    if target.starts_with('?') {
        translated.notes.push("URL: wrk sends no query without a path: write / before the ?".to_owned());
        target = "";
    } else if target.starts_with('#') {
        translated
            .mistakes
            .push("URL: wrk takes no fragment without a path: write / before the #".to_owned());
    }
    let host = match authority.split_once('@') {
        Some((_, host)) => {
            translated.notes.push("URL: wrk does not send the login in the URL".to_owned());
            host
        }
        None => authority,
    };
    let (name, port) = split_port(host);
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || ".-".contains(c);
    translated.mistakes.extend(foreign_in_host("wrk", name, is_of_name));
    // wrk includes the port in the Host field even if it is the scheme's default.
    if (port == ":80" || port == ":443" || port.starts_with(":0")) && !translated.has_header("Host") {
        translated.add_header("Host", host);
    }
    format!("{scheme}{host}{target}")
}

/// A note if the connections cannot be shared evenly among wrk's threads; an error if there are fewer connections than
/// threads, as in wrk.
fn unequal_threads(translated: &Translated) -> Result<Option<String>, String> {
    let count = |name: &str| {
        let option = translated.options.iter().find(|(given, _)| *given == name)?;
        parse_count(option.1.words()).ok()
    };
    let (Some(connections), Some(threads)) = (count("connections"), count("threads")) else {
        return Ok(None);
    };
    if connections < threads {
        return Err(format!("-c {connections}: wrk needs at least one connection per thread (-t {threads})"));
    }
    let each = connections / threads.max(1);
    Ok((each * threads != connections).then(|| {
        format!(
            "wrk would open only {} connections, {each} for each of its {threads} threads; proofload opens all {connections}",
            each * threads
        )
    }))
}
