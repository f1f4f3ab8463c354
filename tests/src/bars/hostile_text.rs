//! No command lets the text of a user or a server control a terminal or the log of a workflow.

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpListener},
    os::unix::ffi::OsStrExt,
    path::Path,
    thread,
};

use anyhow::{Result, ensure};
use testing::PATIENCE;

use super::{Bar, By, Outcome, Scale};
use crate::{
    process::{Finished, Launch},
    proofload::binary,
    temporary::TemporaryFolder,
};

pub(super) const BAR: Bar = Bar {
    name: "hostile-text",
    what: "40 hostile strings in titles, names, levels, paths, headers, answers, logs and files: no command gives one \
           to a terminal or to a workflow's log as it is",
    full_seconds: 120,
    decided_by: By::Counts,
    run,
};

/// Strings that can control a terminal or a workflow. A word follows each, to tell it from proofload's own output.
const HOSTILE: [&str; 40] = [
    "\u{1b}[2J",
    "\n::error::",
    "\u{202e}",
    "\r",
    "\u{9b}2J",
    "\u{1b}]0;",
    "\n##[error]",
    "\u{1b}[31m",
    "\u{7}",
    "\u{8}",
    "\u{b}",
    "\u{c}",
    "\u{7f}",
    "\u{1}",
    "\u{e}",
    "\u{1a}",
    "\u{1c}",
    "\u{84}",
    "\u{85}",
    "\u{90}",
    "\u{9d}",
    "\u{9e}",
    "\u{61c}",
    "\u{200e}",
    "\u{200f}",
    "\u{202a}",
    "\u{202d}",
    "\u{2066}",
    "\u{2067}",
    "\u{2069}",
    "\u{2028}",
    "\u{2029}",
    "\u{feff}",
    "\r\n::warning::",
    "\n  ::stop-commands::",
    "\u{1b}[8m",
    "\u{1b}[6n",
    "\u{1b}c",
    "\u{1b}P",
    "\u{1b}[?1049h",
];
const WORD: &str = "PWNED";

/// Command lines. `@` stands for the string, `%` for the server's authority.
const COMMANDS: &[&str] = &[
    "@",
    "http @",
    "http http://%/@ -n 1",
    "http http://%/ -n 1 --@",
    "http http://%/ -n 1 -H @:x",
    "http http://%/ -n 1 -H x:@",
    "http http://%/ -n 1 -X @",
    "http http://%/ -n 1 --body @@",
    "http http://%/ -n 1 --json no/@",
    "http http://%/ -n 3",
    "http http://%/ -n 1 --json -",
    "limit rate http://%/ --p99 @",
    "limit @ http://%/",
    "limit rate http://%/ --out study.toml/@",
    "run no/@.toml",
    "run study.toml --dry-run",
    "run study.toml --set @=1",
    "run study.toml --set title=@ --dry-run",
    "run study.toml --factor target=@",
    "run study.toml --out out",
    "run mistakes.toml",
    "run broken.toml",
    "report no/@",
    "report out",
    "report out --html -",
    "report out --json -",
    "report out --junit -",
    "report out --openmetrics -",
    "report out --github -",
    "report out --github-annotations",
    "report damaged",
    "compare out out",
    "compare out no/@",
    "compare out out --json -",
    "serve --listen @",
    "serve --misbehave @",
    "listen --check --route /@=written",
    "listen --check --config listen.toml",
    "listen --check --import fluentd.conf",
    "listen --check --bearer-file no/@",
    "audit events --receipts damaged",
    "audit no/@ --receipts no/@",
    "lab up no/@",
    "lab graph lab.toml",
    "lab graph lab.toml --dot",
    "lab graph lab.toml --svg",
    "lab up lab.toml",
    "link @ x",
    "link 1 1 --rate @",
];

fn run(scale: Scale) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let (mut looked_at, mut found) = (0, Vec::new());
    for (number, hostile) in HOSTILE.iter().enumerate().take(scale.pick(5, HOSTILE.len())) {
        let text = format!("{hostile}{WORD}");
        let folder = TemporaryFolder::new()?;
        let server = hostile_server(text.clone())?;
        lay_out(folder.path(), &text, server)?;
        for line in COMMANDS {
            // A terminal gets the same output as a pipe, plus lines that are rewritten. The log of a workflow is a pipe.
            for on_terminal in [false, true] {
                let done = call(line, &text, server, folder.path(), on_terminal)?;
                let printed = done.stdout + &done.stderr;
                ensure!(!printed.is_empty(), "`{line}` said nothing");
                looked_at += 1;
                if acts(&printed, hostile, on_terminal) {
                    found.push(format!("string {number} by `{line}`: {printed:?}"));
                }
            }
        }
    }
    outcome.figure("outputs", looked_at, ">= 490, each with something to read", looked_at >= 490);
    outcome.equal("found", found.len() as u64, 0, "outputs in which a string acts");
    found.iter().take(20).for_each(|found| outcome.note(found.chars().take(2_000).collect::<String>()));
    Ok(outcome)
}

/// Whether an output contains the string unchanged, or a line that controls a workflow.
fn acts(printed: &str, hostile: &str, on_terminal: bool) -> bool {
    let whole = format!("{hostile}{WORD}");
    let obeyed = printed.lines().any(|line| {
        let words = line.trim_start();
        words.starts_with("##[") || (words.starts_with("::") && !words.starts_with("::error title="))
    });
    // Output to a terminal has colours and rewrites lines. A string that begins with a line break may follow one of proofload's own lines.
    let is_break = hostile.starts_with(['\n', '\r']);
    let raw = !is_break && printed.contains(&whole);
    let stray = !on_terminal && printed.chars().any(|c| c.is_control() && c != '\n');
    obeyed || raw || stray
}

fn call(line: &str, text: &str, server: SocketAddr, folder: &Path, on_terminal: bool) -> Result<Finished> {
    let words = line.split(' ').map(|word| word.replace('%', &server.to_string()).replace('@', text));
    let binary = binary()?.display().to_string();
    let words: Vec<String> = std::iter::once(binary).chain(words).collect();
    let mut launch = Launch::new("env").args(["-C", &folder.display().to_string()]);
    launch = match on_terminal {
        false => launch.args(words),
        true => {
            let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
            launch.args(["script", "-qec", &quoted.join(" "), "/dev/null"])
        }
    };
    launch.run(PATIENCE)
}

/// Writes files with the string at every place that holds a user's text.
fn lay_out(folder: &Path, text: &str, server: SocketAddr) -> Result<()> {
    // TOML has the escapes of JSON, except for characters beyond the basic plane, which do not occur here.
    let escaped: String = text
        .chars()
        .map(|c| if c.is_ascii_graphic() { c.to_string() } else { format!("\\u{:04x}", u32::from(c)) })
        .collect();
    let quoted = format!("\"{}\"", escaped.replace("\\\\", "\\"));
    let study = format!(
        "title = {quoted}\n[workload.http]\nurl = \"http://{server}/\"\nrequests = 5\nconnections = 1\n\
         method = \"POST\"\nbody = \"{{level}}\"\n[factors]\nlevel = [\"a\", {quoted}]\n[[goals]]\nname = {quoted}\nerrors = \"1%\"\n[trial]\nvoid_attempts = 0\n"
    );
    fs::write(folder.join("study.toml"), &study)?;
    fs::write(
        folder.join("mistakes.toml"),
        format!(
            "{study}{quoted} = 1\n[workload]\n{quoted} = 1\n[hosts]\n{quoted} = {{}}\n[[goals]]\np99 = {quoted}\n"
        ),
    )?;
    fs::write(folder.join("broken.toml"), format!("title = {text} = [\n"))?;
    fs::create_dir(folder.join("damaged"))?;
    fs::write(folder.join("damaged/plan.json"), text)?;
    fs::write(folder.join("damaged/trials.jsonl"), text)?;
    fs::write(folder.join("listen.toml"), format!("{quoted} = 1\nroute = [{quoted}]\nack = {quoted}\n"))?;
    fs::write(folder.join("fluentd.conf"), format!("<source>\n@type {text}\n</source>\n<{text}>\n"))?;
    fs::create_dir(folder.join("events"))?;
    let name: Vec<u8> = text.bytes().filter(|byte| *byte != b'/').collect();
    fs::write(
        folder.join("events").join(std::ffi::OsStr::from_bytes(&name)),
        format!("{text}\n{{\"a\":{text}"),
    )?;
    fs::write(
        folder.join("lab.toml"),
        format!(
            "title = {quoted}\n[hosts]\na = {{}}\nb = {{}}\n[[links]]\nbetween = [\"a\", \"b\"]\n[[processes]]\non = \"a\"\n\
             command = [\"sh\", \"-c\", \"printf '%s\\n' \\\"$0\\\" >&2; exit 3\", {quoted}]\nready = \"exit\"\n"
        ),
    )?;
    Ok(())
}

/// A server whose every answer has the string wherever possible. It ends with this program.
fn hostile_server(text: String) -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let text = text.clone();
            thread::spawn(move || {
                let mut request = [0; 4_096];
                while stream.read(&mut request).is_ok_and(|bytes| bytes > 0) {
                    let length = text.len();
                    let answer =
                        format!("HTTP/1.1 503 {text}\r\nX: {text}\r\nContent-Length: {length}\r\n\r\n{text}");
                    if stream.write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    Ok(address)
}
