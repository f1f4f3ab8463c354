//! wrk and wrk2.

use record::units::parse_count;

use super::{
    Peer,
    table::{
        Given, Row, Translated,
        Translation::{Becomes, Ignored, Own, Refused},
        literal, long, row,
    },
};
use crate::output::peer_text::Layout;

/// wrk: users that each wait for their answers. wrk2's own README calls its program wrk, so a rate makes it wrk2.
#[derive(Debug)]
pub(crate) struct Wrk;

/// wrk2: a constant rate, with times from when a request was due.
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
    long("timeout", "TIME", Becomes("timeout")),
    row('s', "script", "FILE", Refused(SCRIPT)),
    row('B', "batch_latency", "", Ignored("every request has a time of its own, from when it was due")),
    row('v', "version", "", Ignored("`proofload --version` prints the version")),
];

const SCRIPT: &str = "Lua scripts are not supported; describe the request with proofload http -X, -H and --body, and the \
                      load with --rate, --stage and --think-time";

impl Peer for Wrk {
    const ABOUT: &'static str = "Run wrk's command line and show its layout, with proofload's figures";
    const ROWS: &'static [Row] = ROWS;

    fn translate(_: &str, given: &Given) -> (Translated, Layout) {
        translate(given)
    }
}

impl Peer for Wrk2 {
    const ABOUT: &'static str = "Run wrk2's command line and show its layout, with proofload's figures";
    const ROWS: &'static [Row] = ROWS;

    fn translate(_: &str, given: &Given) -> (Translated, Layout) {
        let (mut translated, layout) = translate(given);
        if !given.has("-R") {
            translated
                .mistakes
                .push("-R is missing: wrk2 needs a rate, such as -R 2000; wrk has none".to_owned());
        }
        (translated, layout)
    }
}

fn translate(given: &Given) -> (Translated, Layout) {
    let mut translated = Translated::of(given);
    for (_, value) in given.iter().filter(|(row, _)| row.letter == Some('H')) {
        translated.set("header", Some(literal(value)));
    }
    for (name, value) in [("threads", "2"), ("connections", "10"), ("duration", "10s")] {
        translated.set_default(name, value);
    }
    // Neither program looks at certificates.
    translated.set("insecure", None);
    match unequal_threads(&translated) {
        Ok(note) => translated.notes.extend(note),
        Err(mistake) => translated.mistakes.push(mistake),
    }
    let is_distribution = given.has("-L");
    let layout = match given.has("-R") {
        true => Layout::Wrk2 { is_distribution, is_uncorrected: given.has("-U") },
        false => Layout::Wrk { is_distribution },
    };
    (translated, layout)
}

/// What wrk makes of connections that its threads cannot share evenly. It refuses fewer connections than threads.
fn unequal_threads(translated: &Translated) -> Result<Option<String>, String> {
    let count = |name: &str| {
        let option = translated.options.iter().find(|(given, _)| *given == name)?;
        parse_count(option.1.as_deref()?).ok()
    };
    let (Some(connections), Some(threads)) = (count("connections"), count("threads")) else {
        return Ok(None);
    };
    if connections < threads {
        return Err(format!(
            "-c {connections}: wrk wants as many connections as threads, or more (-t {threads})"
        ));
    }
    let each = connections / threads.max(1);
    Ok((each * threads != connections).then(|| {
        format!(
            "wrk would open {} connections, {each} for each of its {threads} threads; all {connections} were planned here",
            each * threads
        )
    }))
}
