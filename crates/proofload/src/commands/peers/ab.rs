//! The command lines of ab, Apache's benchmark.

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};

use super::{
    Peer,
    table::{
        Given, Row, Translated,
        Translation::{Becomes, Default, Ignored, Own, Refused},
        Value, foreign_in_host, row, unsendable,
    },
};
use crate::output::peer_text::Layout;

/// ab: a closed load, with a new connection for each request unless `-k` is given.
#[derive(Debug)]
pub(crate) struct Ab;

/// The number of requests that `-t` implies in ab.
const REQUESTS_OF_A_TIME_LIMIT: &str = "50000";

const HTML: &str = "ab's HTML table is not written; --html FILE writes a page";
const VALUES: &str = "not written; --json FILE has every percentile, --hlog FILE the histograms";
const PROXY: &str = "ab sends each request to the proxy; proofload http makes a tunnel through the proxy: --proxy http://HOST:PORT";

const ROWS: &[Row] = &[
    row('n', "", "REQUESTS", Own("proofload http --requests; 1 unless given")),
    row('c', "", "N", Becomes("connections")),
    row('t', "", "SECONDS", Own("proofload http --duration, and -n 50000 unless that follows")),
    row('s', "", "SECONDS", Becomes("timeout")),
    row('k', "", "", Own("Keep connections; without it, proofload http --no-keepalive")),
    row('p', "", "FILE", Own("proofload http --method POST --body @FILE")),
    row('u', "", "FILE", Own("proofload http --method PUT --body @FILE")),
    row('T', "", "TYPE", Own("proofload http --content-type; of a body, text/plain unless given")),
    row('m', "", "METHOD", Becomes("method")),
    row('i', "", "", Own("proofload http --method HEAD")),
    row('H', "", "HEADER", Own("proofload http --header")),
    row('C', "", "NAME=VALUE", Own("proofload http --header 'Cookie: …'; the last counts, as in ab")),
    row('A', "", "USER:PASSWORD", Own("proofload http --header 'Authorization: Basic …'")),
    row('B', "", "ADDRESS", Becomes("source")),
    row('q', "", "", Becomes("quiet")),
    row('f', "", "PROTOCOL", Own("proofload http --tls-min and --tls-max")),
    row('Z', "", "CIPHERS", Becomes("ciphers")),
    row('E', "", "FILE", Becomes("cert")),
    row('r', "", "", Default),
    row('l', "", "", Default),
    row('d', "", "", Ignored("the percentiles are always shown")),
    row('S', "", "", Ignored("medians and deviations are always shown")),
    row('v', "", "LEVEL", Ignored("answers are not printed; `curl -v` shows one")),
    row('V', "", "", Ignored("`proofload --version` prints the version")),
    row('b', "", "BYTES", Ignored("the kernel sizes socket buffers; `proofload host tune` changes them")),
    row('e', "", "FILE", Refused(VALUES)),
    row('g', "", "FILE", Refused(VALUES)),
    row('w', "", "", Refused(HTML)),
    row('x', "", "ATTRIBUTES", Refused(HTML)),
    row('y', "", "ATTRIBUTES", Refused(HTML)),
    row('z', "", "ATTRIBUTES", Refused(HTML)),
    row('X', "", "PROXY", Refused(PROXY)),
    row('P', "", "USER:PASSWORD", Refused(PROXY)),
    row(
        'I',
        "",
        "",
        Refused("the name of the URL is always sent (SNI); --sni of proofload http sends another"),
    ),
];

impl Peer for Ab {
    const ABOUT: &'static str = "Run ab's command line and show its layout, with proofload's figures";
    const ROWS: &'static [Row] = ROWS;

    fn translate(url: &str, given: &Given) -> (String, Translated, Layout) {
        let mut translated = Translated::of(given);
        refuse_as_ab(url, given, &mut translated);
        let mut requests = "1";
        for (row, value) in given.iter() {
            match row.letter {
                Some('n') => requests = value,
                Some('t') => {
                    requests = REQUESTS_OF_A_TIME_LIMIT;
                    translated.set("duration", value);
                }
                Some('p' | 'u') => {
                    translated.set_default("method", if row.letter == Some('p') { "POST" } else { "PUT" });
                    translated.put("body", Value::File(value.to_owned()));
                }
                Some('i') => translated.set_default("method", "HEAD"),
                Some('H') => translated.set("header", value),
                Some('f') => set_protocol(&mut translated, value),
                _ => {}
            }
        }
        translated.set("requests", requests);
        translated.set_default("connections", "1");
        if given.has("-p") || given.has("-u") {
            translated.set("content-type", given.last("-T").unwrap_or("text/plain"));
        }
        if let Some(cookie) = given.last("-C") {
            translated.add_header("Cookie", cookie);
        }
        if let Some(login) = given.last("-A") {
            translated.add_header("Authorization", &format!("Basic {}", BASE64.encode(login)));
        }
        if !translated.has_header("accept") {
            translated.add_header("Accept", "*/*");
        }
        match given.has("-k") {
            true => translated.add_header("Connection", "Keep-Alive"),
            false => translated.put("no-keepalive", Value::Flag),
        }
        // ab neither verifies certificates nor resumes TLS sessions.
        translated.put("insecure", Value::Flag);
        translated.put("no-resumption", Value::Flag);
        (url.to_owned(), translated, Layout::Ab)
    }
}

/// Refuses values that ab refuses or that mean something else in ab.
fn refuse_as_ab(url: &str, given: &Given, translated: &mut Translated) {
    let mut refuse = |why: String| translated.mistakes.push(why);
    unsendable(url).into_iter().for_each(&mut refuse);
    let rest = ["http://", "https://"].iter().find_map(|scheme| url.strip_prefix(scheme)).unwrap_or(url);
    let (authority, target) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    if !target.starts_with('/') {
        refuse("URL: ab requires a path: add a / after the host".to_owned());
    }
    if authority.ends_with(':') {
        refuse("URL: ab requires http:// or https:// in lower case".to_owned());
    }
    if authority.contains('@') {
        refuse("URL: ab accepts no login in the URL: write -A USER:PASSWORD".to_owned());
    }
    foreign_in_host("ab", authority, |c| c != '%').into_iter().for_each(&mut refuse);
    let methods = given.iter().filter(|(row, _)| matches!(row.letter, Some('i' | 'p' | 'u' | 'm')));
    for (row, _) in methods.skip(1).filter(|(row, _)| row.letter != Some('m')) {
        refuse(format!("{}: ab accepts only one of -i, -p, -u and -m: leave out the others", row.name()));
    }
    for name in ["-n", "-c", "-t", "-s"] {
        if let Some(value) = given.last(name).filter(|value| value.parse::<u32>().is_err()) {
            refuse(format!("{name} {value}: ab accepts only whole numbers without units"));
        }
    }
    let number = |name: &str, default: u64| given.last(name).map_or(Some(default), |n| n.parse().ok());
    let requests = if given.has("-t") { None } else { number("-n", 1) };
    if let (Some(requests), Some(users)) = (requests, number("-c", 1))
        && users > requests
    {
        refuse(format!("-c {users}: ab requires at least as many requests (-n {requests})"));
    }
}

fn set_protocol(translated: &mut Translated, name: &str) {
    let version = match name.to_ascii_uppercase().as_str() {
        "TLS1.2" => "1.2",
        "TLS1.3" => "1.3",
        "ALL" => return,
        _ => {
            translated
                .mistakes
                .push(format!("-f: '{name}' is not TLS1.2, TLS1.3 or ALL; older ones are not supported"));
            return;
        }
    };
    translated.set("tls-min", version);
    translated.set("tls-max", version);
}
