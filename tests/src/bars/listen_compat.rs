//! `--compat fluentd` answers like Fluentd's `in_http`, byte for byte, and stores the same line as its `out_file`.

mod recorded;

use std::{fs, io::Write, path::Path};

use anyhow::{Context, Result, ensure};
use testing::{
    PATIENCE, find,
    http::{Answer, Client, NoAnswer, exchange, get, post},
};

use super::{Bar, By, Outcome, Scale};
use crate::{
    faulty_disk::{FaultyDisk, Mood},
    listen::{Listen, ListenCall, stored_files},
    process::Launch,
    temporary::TemporaryFolder,
};

pub(super) const BAR: Bar = Bar {
    name: "listen-compat",
    what: "--compat fluentd: the answers of Fluentd's in_http case by case, byte for byte, the line of the reference \
           test, and 700 requests recorded from a real Fluentd: the differences are those of docs/listen.md",
    full_seconds: 20,
    decided_by: By::Counts,
    run,
};

/// The event of the reference test.
const EVENT: &str = r#"{"board_id":10,"playtime":5,"minimum_play":"Y","timestamp":"2019-11-12T10:00:01Z","user_id":1,"interest":100}"#;
/// 2020-01-13 17:52:09 in the time zone of the reference test, nine hours east.
const TIME_S: u64 = 1_578_905_529;
const ZONE: &str = "JST-9";
const LINE_TIME: &str = "2020-01-13T17:52:09+09:00";

const OK: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: Keep-Alive\r\nContent-Length: 0\r\n\r\n";
const OK_CLOSE: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 0\r\n\r\n";
const GET: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nContent-Type: text/plain\r\n\r\n";
const NO_PARAMETER: &str = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: Keep-Alive\r\n\
    Content-Length: 57\r\n\r\n400 Bad Request\n'json' or 'ndjson' parameter is required\n";
const BAD_GZIP: &str = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nContent-Type: text/plain\r\n\r\n";
const TOO_LARGE: &str =
    "HTTP/1.1 413 Request Entity Too Large\r\nContent-Length: 9\r\nContent-Type: text/plain\r\n\r\nToo large";
const CONTINUE: &str = "HTTP/1.1 100 Continue\r\n\r\n";
const EXPECTATION: &str =
    "HTTP/1.1 417 Expectation Failed\r\nContent-Length: 0\r\nContent-Type: text/plain\r\n\r\n";
const FORBIDDEN: &str = "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nContent-Type: text/plain\r\n\r\n";
const FORBIDDEN_POST: &str =
    "HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Length: 0\r\nContent-Type: text/plain\r\n\r\n";
const NO_CONTENT: &str = "HTTP/1.1 204 No Content\r\nConnection: Keep-Alive\r\nContent-Length: 0\r\n\
    Content-Type: text/plain\r\n\r\n";
const NO_ROOM: &str = "HTTP/1.1 500 Internal Server Error\r\nContent-Type: text/plain\r\n\
    Connection: Keep-Alive\r\nContent-Length: 57\r\n\r\n500 Internal Server Error\nbuffer space has too many data\n";
const NOTHING: &str = "";

const JSON: &str = "Content-Type: application/json\r\n";
const NDJSON: &str = "Content-Type: application/x-ndjson\r\n";
const FORM: &str = "Content-Type: application/x-www-form-urlencoded\r\n";

/// A request, the expected answer, whether the connection then closes, and the number of stored lines.
struct Case {
    name: &'static str,
    request: Vec<u8>,
    answer: &'static str,
    closes: bool,
    lines: usize,
}

fn case(name: &'static str, request: Vec<u8>, answer: &'static str, closes: bool, lines: usize) -> Case {
    Case { name, request, answer, closes, lines }
}

fn cases() -> Vec<Case> {
    let to = |path: &str, headers: &str, body: &str| post(path, headers, body.as_bytes());
    let raw = |text: &str| text.as_bytes().to_vec();
    let two = format!("{EVENT}\n{EVENT}\n");
    let form = "json=%7B%22a%22%3A1%7D";
    vec![
        case("ok", to("/t", JSON, EVENT), OK, false, 1),
        case("ok_ndjson", to("/t", NDJSON, &two), OK, false, 2),
        case("ok_array", to("/t", JSON, &format!("[{EVENT},{EVENT}]")), OK, false, 2),
        case("ok_form", to("/t", FORM, form), OK, false, 1),
        case("ok_query", to(&format!("/t?{form}"), "Content-Type: text/plain\r\n", ""), OK, false, 1),
        case("ok_empty_body", to("/t", NDJSON, ""), OK, false, 0),
        case("ok_close", to("/t", &format!("{JSON}Connection: close\r\n"), EVENT), OK_CLOSE, true, 1),
        case(
            "ok_http10",
            raw("POST /t HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: 7\r\n\r\n{\"a\":1}"),
            OK_CLOSE,
            true,
            1,
        ),
        case(
            "ok_http10_keepalive",
            raw(
                "POST /t HTTP/1.0\r\nContent-Type: application/json\r\nConnection: Keep-alive\r\nContent-Length: 7\r\n\r\n{\"a\":1}",
            ),
            OK,
            false,
            1,
        ),
        case("no_content_type", to("/t", "", EVENT), NO_PARAMETER, false, 0),
        case("form_without_json", to("/t", FORM, "other=1"), NO_PARAMETER, false, 0),
        case("bad_gzip", to("/t", &format!("{JSON}Content-Encoding: gzip\r\n"), EVENT), BAD_GZIP, true, 0),
        case(
            "bad_deflate",
            to("/t", &format!("{JSON}Content-Encoding: deflate\r\n"), EVENT),
            BAD_GZIP,
            true,
            0,
        ),
        case("unknown_encoding", to("/t", &format!("{JSON}Content-Encoding: br\r\n"), EVENT), OK, false, 1),
        case("too_large", to("/t", JSON, &"x".repeat(5_000)), TOO_LARGE, true, 0),
        case(
            "too_large_chunked",
            raw(&format!(
                "POST /t HTTP/1.1\r\nHost: x\r\n{JSON}Transfer-Encoding: chunked\r\n\r\n1388\r\n{}",
                "x".repeat(5_000)
            )),
            TOO_LARGE,
            true,
            0,
        ),
        case(
            "too_large_expected",
            raw(&format!(
                "POST /t HTTP/1.1\r\nHost: x\r\n{JSON}Content-Length: 5000\r\nExpect: 100-continue\r\n\r\n"
            )),
            TOO_LARGE,
            true,
            0,
        ),
        case(
            "expects_else",
            raw(&format!("POST /t HTTP/1.1\r\nHost: x\r\n{JSON}Content-Length: 9\r\nExpect: 200-ok\r\n\r\n")),
            EXPECTATION,
            true,
            0,
        ),
        case("get", raw("GET /t HTTP/1.1\r\nHost: x\r\n\r\n"), GET, true, 0),
        case("options", raw("OPTIONS /t HTTP/1.1\r\nHost: x\r\n\r\n"), FORBIDDEN, true, 0),
        case(
            "put",
            raw(&format!("PUT /t HTTP/1.1\r\nHost: x\r\n{JSON}Content-Length: 7\r\n\r\n{{\"a\":1}}")),
            OK,
            false,
            1,
        ),
        case(
            "delete",
            raw(&format!("DELETE /t HTTP/1.1\r\nHost: x\r\n{JSON}Content-Length: 7\r\n\r\n{{\"a\":1}}")),
            OK,
            false,
            1,
        ),
        case("not_http", raw("\x16\x03\x01\x02\x00 hello\r\n\r\n"), NOTHING, true, 0),
    ]
}

fn run(_scale: Scale) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    ensure!(OK.len() == 88 && OK_CLOSE.len() == 64, "the table is not as measured");
    let folder = TemporaryFolder::new()?;
    let listen = start(&folder.path().join("plain"), "--compat fluentd --no-tag --max-body 4KiB", "")?;
    let mut before = 0;
    for case in cases() {
        let (answer, closed) = asked(&listen, &case.request).with_context(|| case.name)?;
        judge(&mut outcome, case.name, &answer.whole(), case.answer, closed == case.closes);
        let now = lines(&folder.path().join("plain"))?.len();
        if now - before != case.lines {
            outcome.equal(
                &format!("{}_lines", case.name),
                (now - before) as u64,
                case.lines as u64,
                "stored",
            );
        }
        before = now;
    }
    continued(&mut outcome, &listen)?;
    line_of_reference(&mut outcome, &listen, &folder.path().join("plain"))?;
    listen.stop()?;
    cors(&mut outcome, &folder)?;
    other_successes(&mut outcome, &folder)?;
    no_room(&mut outcome)?;
    recorded::replay(&mut outcome)?;
    Ok(outcome)
}

fn judge(outcome: &mut Outcome, name: &str, answer: &str, expected: &str, closes_right: bool) {
    let pass = answer == expected && closes_right;
    outcome.holds(name, pass, "byte for byte, and the connection as Fluentd leaves it");
    if !pass {
        outcome.note(format!(
            "{name}: answered {answer:?}, expected {expected:?}; closing right: {closes_right}"
        ));
    }
}

/// Tests a client that waits for `100 Continue` before it sends its body.
fn continued(outcome: &mut Outcome, listen: &Listen) -> Result<()> {
    let mut client = Client::connect(listen.address())?;
    let head =
        format!("POST /t HTTP/1.1\r\nHost: x\r\n{JSON}Content-Length: 7\r\nExpect: 100-continue\r\n\r\n");
    let leave = client.ask(head.as_bytes())?;
    judge(outcome, "continue", &leave.whole(), CONTINUE, true);
    let answer = client.timeout(PATIENCE).ask(b"{\"a\":1}")?;
    judge(outcome, "continued", &answer.whole(), OK, true);
    // Two requests on one connection, pipelined.
    let request = post("/t", JSON, EVENT.as_bytes());
    let first = client.timeout(PATIENCE).ask(&[request.as_slice(), &request].concat())?.whole();
    let second = client.try_answer()?.whole();
    judge(outcome, "pipelined", &second, OK, first == OK && !is_closed(&mut client));
    Ok(())
}

/// The answer to a request on a new connection, and whether the listener then closes it.
fn asked(listen: &Listen, request: &[u8]) -> Result<(Answer, bool)> {
    let mut client = Client::connect(listen.address())?;
    Ok((client.ask(request)?, is_closed(&mut client)))
}

/// Whether the listener has closed a connection instead of answering another request on it.
fn is_closed(client: &mut Client) -> bool {
    // Writing may fail if the connection is closed.
    let _ = client.socket.write_all(&get("/"));
    let next = client.timeout(PATIENCE).try_answer();
    matches!(next, Err(NoAnswer::Fin(0) | NoAnswer::Reset))
}

fn line_of_reference(outcome: &mut Outcome, listen: &Listen, store: &Path) -> Result<()> {
    let request = post(&format!("/http_listener_test?time={TIME_S}"), NDJSON, EVENT.as_bytes());
    let (answer, closed) = asked(listen, &request)?;
    judge(outcome, "reference", &answer.whole(), OK, !closed);
    let stored = fs::read_to_string(store.join("http_listener_test.log")).unwrap_or_default();
    let expected = format!("{LINE_TIME}\t{EVENT}\n");
    outcome.holds("reference_line", stored == expected, "time, tab, the event as sent, newline");
    if stored != expected {
        outcome.note(format!("stored {stored:?}, expected {expected:?}"));
    }
    Ok(())
}

fn cors(outcome: &mut Outcome, folder: &TemporaryFolder) -> Result<()> {
    let listen = start(
        &folder.path().join("cors"),
        "",
        "cors_allow_origins [\"http://a.example\",\"http://*.b.example\"]",
    )?;
    let options = |origin: &str, method: &str| {
        format!(
            "OPTIONS /t HTTP/1.1\r\nHost: x\r\nOrigin: {origin}\r\nAccess-Control-Request-Method: {method}\r\n\
             Access-Control-Request-Headers: content-type\r\n\r\n"
        )
        .into_bytes()
    };
    let allowed = |origin: &str| {
        format!(
            "HTTP/1.1 200 OK\r\nAccess-Control-Allow-Methods: POST\r\nAccess-Control-Allow-Headers: content-type\r\n\
             Access-Control-Allow-Origin: {origin}\r\nContent-Length: 0\r\nContent-Type: text/plain\r\n\r\n"
        )
    };
    let from = |origin: &str| post("/t", &format!("{JSON}Origin: {origin}\r\n"), EVENT.as_bytes());
    let posted = |origin: &str| {
        format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nAccess-Control-Allow-Origin: {origin}\r\n\
             Connection: Keep-Alive\r\nContent-Length: 0\r\n\r\n"
        )
    };
    let (a, b, c) = ("http://a.example", "http://x.b.example", "http://c.example");
    let table = [
        ("cors_preflight", options(a, "POST"), allowed(a), true),
        ("cors_preflight_pattern", options(b, "POST"), allowed(b), true),
        ("cors_preflight_origin", options(c, "POST"), FORBIDDEN.to_owned(), true),
        ("cors_preflight_method", options(a, "PUT"), FORBIDDEN.to_owned(), true),
        ("cors_post", from(a), posted(a), false),
        ("cors_post_origin", from(c), FORBIDDEN_POST.to_owned(), true),
        ("cors_post_no_origin", post("/t", JSON, EVENT.as_bytes()), FORBIDDEN_POST.to_owned(), true),
    ];
    for (name, request, expected, closes) in table {
        let (answer, closed) = asked(&listen, &request)?;
        judge(outcome, name, &answer.whole(), &expected, closed == closes);
    }
    listen.stop()?;
    Ok(())
}

fn other_successes(outcome: &mut Outcome, folder: &TemporaryFolder) -> Result<()> {
    let listen = start(&folder.path().join("204"), "", "use_204_response true")?;
    let (answer, closed) = asked(&listen, &post("/t", JSON, EVENT.as_bytes()))?;
    // A 204 has no body, whatever its Content-Length says, so this answer has only a head.
    judge(outcome, "use_204_response", &answer.whole(), NO_CONTENT, !closed);
    listen.stop()?;
    let listen = start(&folder.path().join("gif"), "", "respond_with_empty_img true")?;
    let (answer, closed) = asked(&listen, &post("/t", JSON, EVENT.as_bytes()))?;
    let head = "HTTP/1.1 200 OK\r\nContent-Type: image/gif; charset=utf-8\r\nConnection: Keep-Alive\r\n\
                Content-Length: 35\r\n\r\n";
    let is_gif = answer.body.len() == 35 && answer.body.starts_with(b"GIF89a") && answer.body.ends_with(b";");
    judge(outcome, "respond_with_empty_img", &answer.head, head, is_gif && !closed);
    listen.stop()?;
    Ok(())
}

fn no_room(outcome: &mut Outcome) -> Result<()> {
    let disk = FaultyDisk::new()?;
    let call = ListenCall::new(&disk.path(), "--compat fluentd")?;
    let listen = call.start_by(|launch: Launch| disk.start(launch))?;
    let request = post("/t", JSON, EVENT.as_bytes());
    let (good, good_closed) = asked(&listen, &request)?;
    disk.set(Mood { refusal: Some(28), ..Mood::default() });
    let (full, full_closed) = asked(&listen, &request)?;
    disk.set(Mood::default());
    judge(outcome, "room", &good.whole(), OK, !good_closed);
    judge(outcome, "no_room", &full.whole(), NO_ROOM, !full_closed);
    // The listener retries by itself.
    let ask = || exchange(listen.address(), &request).map_or_else(|error| error.to_string(), |a| a.whole());
    let again = find(PATIENCE, || Some(ask()).filter(|answer| answer == OK));
    judge(outcome, "room_again", &again.unwrap_or_else(ask), OK, true);
    listen.stop()?;
    Ok(())
}

/// Starts a listener with these options or, if `source` is not empty, with a Fluentd configuration that has this line in its source.
fn start(store: &Path, words: &str, source: &str) -> Result<Listen> {
    fs::create_dir(store)?;
    let mut words = words.to_owned();
    if !source.is_empty() {
        let text = format!(
            "<source>\n  @type http\n  port 9880\n  bind 127.0.0.1\n  {source}\n</source>\n<match **>\n  @type file\n  \
             path {0}/${{tag}}\n  append true\n  <buffer tag>\n    flush_mode interval\n    flush_interval 1s\n  </buffer>\n\
             </match>\n",
            store.display()
        );
        let file = store.with_extension("conf");
        fs::write(&file, text)?;
        words += &format!(" --import {}", file.display());
    }
    let call = ListenCall::new(store, &words)?;
    call.start_by(|launch| launch.env("TZ", ZONE).start())
}

fn lines(store: &Path) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    for file in stored_files(store)? {
        lines.extend(fs::read_to_string(&file)?.lines().map(str::to_owned));
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_in_the_table_are_those_of_the_bodies() {
        for answer in [NO_PARAMETER, NO_ROOM, TOO_LARGE] {
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            assert!(head.contains(&format!("Content-Length: {}", body.len())), "{answer}: {}", body.len());
        }
    }
}
