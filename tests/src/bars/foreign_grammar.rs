//! Command lines of wrk, ab and curl, drawn from a grammar of their options and of odd targets. For each line, proofload must send what the
//! program itself sends, or refuse the line with a reason.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use testing::{PATIENCE, foreign_lines::SentRequest};

use super::{Bar, By, Outcome, Scale};
use crate::{
    process::{Finished, Launch},
    proofload::binary,
    random::Random,
    recorder::Recorder,
    temporary::TemporaryFolder,
};

pub(super) const BAR: Bar = Bar {
    name: "foreign-grammar",
    what: "400 lines of wrk, ab and curl (sample: 60), drawn by a grammar of their options and of odd targets, beside these programs: \
           the same requests, or refused with the reason; at least 90 % of what the program accepts runs",
    full_seconds: 1_500,
    decided_by: By::Counts,
    run,
};

const SEED: u64 = 22;
/// Parts from which paths and queries are drawn.
const PARTS: &[&str] = &[
    "a",
    "b.html",
    "..",
    ".",
    "%2e%2e",
    "a\\b",
    "q='x'",
    "<c>",
    "^`",
    "\"x\"",
    "http://b.test/x",
    "",
    ";p=1",
    "{{uuid}}",
    "${HOME}",
    "a}",
    "[1]",
    "%zz",
    "~$&+@:!*(),=",
    "|",
    "%41",
    "a=1&b=2",
    "?",
    "é",
    "a b",
    "c",
    "d.json",
    "e-f_g",
    "%7Bh",
    "i=j",
    "1",
    "k;l=m",
    "n:o",
    "p@q",
    "r,s",
];
const HEADERS: &[&str] = &[
    "X-A: 1",
    "X-A: {{counter}}",
    "X-B: ${HOME}",
    "x-a: 2",
    "X-C:  a  b ",
    "X-D:1",
    "X-E:",
    "X-F",
    "X-G;",
    "Host: b.test",
    "host: c.test",
    "User-Agent: me",
    "Accept: text/html",
    "Cookie: a=1; b=2",
    "Authorization: Basic eDp5",
    "X-H: a:b",
    "X-I: \"q\" 'r'",
    "X-J: é",
    "Content-Type: text/x",
    "@X: 1",
];
/// Options of curl with their values. FILE stands for the path of a file.
const CURL: &[&[&str]] = &[
    &["-A", "agent"],
    &["-e", "http://r.test/"],
    &["-b", "c=${HOME}{{counter}}"],
    &["-b", "d=1"],
    &["-u", "ann:p:w"],
    &["-d", "a=1"],
    &["-d", "@FILE"],
    &["--data-raw", "@x{{y}}"],
    &["--data-binary", "@FILE"],
    &["--data-urlencode", "n=a b&c"],
    &["-G"],
    &["--json", "{}"],
    &["-F", "f=v"],
    &["-F", "g=@FILE;type=text/x"],
    &["-I"],
    &["-X", "PUT"],
    &["-X", "PURGE"],
    &["-r", "0-5"],
    &["-r", "7"],
    &["--compressed"],
    &["-g"],
    &["-g"],
    &["--path-as-is"],
    &["-s"],
    &["-S"],
    &["-k"],
    &["-4"],
    &["--http1.1"],
    &["--noproxy", "*"],
    &["--proto", "=http"],
    &["--url-query", "u=1 2"],
    &["--oauth2-bearer", "tok{{x}}"],
    &["-T", "FILE"],
    &["--trace", "/dev/null"],
    &["--max-redirs", "3"],
    &["-m", "300"],
    &["--no-keepalive"],
    &["--retry", "1"],
    &["--create-dirs"],
    &["-w", "%{http_code}"],
];
const AB: &[&[&str]] = &[
    &["-k"],
    &["-C", "c=${HOME}{{counter}}"],
    &["-C", "d=1"],
    &["-A", "ann:pw"],
    &["-i"],
    &["-m", "DELETE"],
    &["-p", "FILE"],
    &["-p", "FILE", "-T", "t/{{x}}"],
    &["-u", "FILE"],
    &["-l"],
    &["-r"],
    &["-q"],
    &["-d"],
    &["-S"],
    &["-v", "1"],
    &["-s", "300"],
    &["-T", "text/x"],
    &["-c", "2"],
];
const WRK: &[&[&str]] = &[&["--latency"], &["--timeout", "300s"], &["-L"], &["-T", "300"]];

struct Drawn {
    program: &'static str,
    words: Vec<String>,
}

fn draw(random: &mut Random, host: &str, file: &str) -> Drawn {
    let pick = |random: &mut Random, from: &[&'static str]| from[random.below(from.len() as u64) as usize];
    // Draw wrk rarely, because each of its lines takes a second.
    let (program, options) =
        [("curl", CURL), ("curl", CURL), ("ab", AB), ("wrk", WRK)][random.below(4) as usize];
    let mut words = Vec::new();
    for _ in 0..random.below(4) {
        let option = options[random.below(options.len() as u64) as usize];
        words.extend(option.iter().map(|word| word.replace("FILE", file)));
    }
    for _ in 0..random.below(3) {
        words.extend(["-H".to_owned(), pick(random, HEADERS).to_owned()]);
    }
    let mut url =
        ["http://", "http://", "http://", "", "HTTP://"][random.below(5) as usize].to_owned() + host;
    for _ in 0..random.below(4) {
        url += &format!("/{}", pick(random, PARTS));
    }
    if random.below(2) == 0 {
        url += &format!("?{}", pick(random, PARTS));
    }
    if random.below(6) == 0 {
        url += "#z";
    }
    words.push(url);
    Drawn { program, words }
}

impl Drawn {
    /// Words in front of the others that keep the run short.
    fn short(&self) -> &'static [&'static str] {
        match self.program {
            "wrk" => &["-t1", "-c1", "-d1s"],
            "ab" => &["-n", "2"],
            _ => &["-q", "-o", "/dev/null"],
        }
    }

    fn itself(&self) -> Result<Finished> {
        let words = self.short().iter().map(|word| (*word).to_owned()).chain(self.words.iter().cloned());
        Launch::new(self.program).args(words).run(PATIENCE)
    }

    fn ours(&self) -> Result<Finished> {
        let launch = Launch::new(binary()?.display().to_string());
        let launch = match self.program {
            "curl" => launch.words("http -n 1 -u 1 -q -- curl"),
            program => launch.arg(program),
        };
        let words = self.short().iter().map(|word| (*word).to_owned()).chain(self.words.iter().cloned());
        launch.args(words).run(PATIENCE)
    }
}

/// The requests that a run sends, without repetitions. If a program is too slow to send any, it runs again.
fn sent(recorder: &Recorder, run: impl Fn() -> Result<Finished>) -> Result<(Finished, Vec<SentRequest>)> {
    for attempt in 1.. {
        let finished = run()?;
        let mut requests = recorder.take();
        requests.dedup();
        if !requests.is_empty() || finished.code != Some(0) || attempt == 5 {
            return Ok((finished, requests));
        }
    }
    unreachable!("the last attempt returns")
}

fn run(scale: Scale) -> Result<Outcome> {
    let lines = scale.pick(60, 400);
    let (recorder, folder) = (Recorder::start()?, TemporaryFolder::new()?);
    let file = folder.path().join("file");
    std::fs::write(&file, "one {{x}} ${HOME}\r\ntwo\n")?;
    let mut random = Random::new(SEED);
    let mut outcome = Outcome::default();
    let (mut different, mut accepted, mut ran, mut programs) = (0, 0, 0, BTreeSet::new());
    for _ in 0..lines {
        let drawn = draw(&mut random, &recorder.host(), &file.display().to_string());
        let line = format!("{} {:?}", drawn.program, drawn.words);
        let (own, requests) = sent(&recorder, || drawn.ours()).with_context(|| line.clone())?;
        let (itself, theirs) = sent(&recorder, || drawn.itself()).with_context(|| line.clone())?;
        ensure!(own.signal.is_none() && !own.stderr.contains("panicked"), "{line}: {}", own.stderr);
        let is_accepted = itself.code == Some(0) && !theirs.is_empty();
        accepted += u64::from(is_accepted);
        if own.code == Some(2) {
            if !requests.is_empty() || own.stderr.trim().is_empty() {
                different += 1;
                outcome.note(format!("refused without a reason, or after it was sent: {line}"));
            } else if is_accepted {
                outcome
                    .note(format!("refused: {line}\n      {}", own.stderr.trim().replace('\n', "\n      ")));
            }
            continue;
        }
        ran += u64::from(is_accepted);
        programs.insert(drawn.program);
        if requests != theirs {
            different += 1;
            outcome.note(format!(
                "different: {line}\n      ours   {requests:?}\n      itself {theirs:?} (exit status {:?})",
                itself.code
            ));
        }
    }
    outcome.equal("lines_that_differ_in_silence", different, 0, "of all");
    let percent = 100.0 * ran as f64 / accepted.max(1) as f64;
    outcome.figure("percent_of_accepted_lines_that_run", format!("{percent:.1}"), ">= 90", percent >= 90.0);
    outcome.equal("programs", programs.len() as u64, 3, "wrk, ab and curl");
    Ok(outcome)
}
