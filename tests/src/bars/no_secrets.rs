//! Secrets are sent, but appear in nothing that is written or printed.

mod help;
pub(super) mod kinds;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Result, ensure};
use rustix::process::Signal;
use testing::PATIENCE;

use help::{Listening, holds, wait};
use kinds::{KINDS, forms, heard_of};

use super::{Bar, By, Outcome, Scale};
use crate::{
    Proofload,
    nginx::free_address,
    process::{Launch, children_of},
    proofload::{Output, Running},
    temporary::TemporaryFolder,
};

pub(super) const BAR: Bar = Bar {
    name: "no-secrets",
    what: "secrets of 13 kinds reach the target, and stand in no byte that any command writes or prints; killed studies \
           go on with the same secrets, and with no others",
    full_seconds: 20,
    decided_by: By::Counts,
    run,
};

pub(super) const VARIABLE: &str = "PROOFLOAD_TEST_TENANT";
const HOOK: &str = "PROOFLOAD_TEST_HOOK";
/// Texts that are not secret and must not be masked.
const OPEN: [&str; 4] = ["page=2", "X-Request-Id", "req-4711", "text/x-open"];

fn run(_scale: Scale) -> Result<Outcome> {
    let mut bar = Search::new()?;
    let nginx = bar.nginx()?;
    let url = bar.url(&nginx.authority, "http://");
    let trials = [(bar.headers(), url.clone()), (bearer(), nginx.open_url()), (basic(), nginx.open_url())];
    for (number, (headers, url)) in trials.iter().enumerate() {
        let json = bar.out(&format!("trial-{number}.json"));
        let words = ["http", url, "-n", "20", "-c", "2", "--json", &json, "--hlog", &bar.out("trial.hlog")];
        let quiet = (number == 1).then_some("-q");
        let output = bar.finish(bar.call(words.into_iter().chain(quiet), headers)?)?;
        ensure!(output.code == Some(0), "{}", output.described());
        bar.open_in(&json)?;
        bar.finish(bar.call(["http", url, "-n", "5", "--json", "-"], headers)?)?;
    }
    bar.nameless(&nginx.authority)?;
    bar.mistakes(&url)?;
    bar.workers(&url)?;
    let limit = bar.limit(&url)?;
    let study = bar.study()?;
    bar.failing_study()?;
    bar.programs()?;
    bar.reports(&[&limit, &study])?;
    bar.look_into(&bar.folder.path().join("out"));

    let heard = fs::read_to_string(bar.folder.path().join("heard.log"))?
        + &fs::read_to_string(bar.folder.path().join("study.log"))?;
    let mut outcome = Outcome::default();
    let received = KINDS.iter().filter(|kind| heard.contains(&heard_of(kind))).count();
    outcome.equal("kinds_received", received as u64, KINDS.len() as u64, "the target's own log");
    let found = bar.found.len() as u64;
    outcome.equal("found", found, 0, "places that hold a secret");
    outcome.holds("open_values_shown", true, "what is no secret stays visible");
    outcome.note(format!("{} files and streams, {} bytes searched", bar.searched, bar.bytes));
    bar.found.iter().take(20).for_each(|found| outcome.note(found.clone()));
    Ok(outcome)
}

fn bearer() -> Vec<String> {
    [&format!("Authorization: Bearer {}", KINDS[10].1), "X-Request-Id: req-4711", "Accept: text/x-open"]
        .map(str::to_owned)
        .into()
}

fn basic() -> Vec<String> {
    let mut headers = bearer();
    headers[0] = format!("Authorization: Basic {}", heard_of(&KINDS[11]));
    headers
}

pub(super) struct Search {
    folder: TemporaryFolder,
    pub(super) found: BTreeSet<String>,
    searched: u64,
    bytes: u64,
}

impl Search {
    pub(super) fn new() -> Result<Self> {
        let folder = TemporaryFolder::new()?;
        for name in ["out", "tmp"] {
            fs::create_dir(folder.path().join(name))?;
        }
        fs::write(folder.path().join("headers"), format!("# colours\nX-Colour: {}\n", KINDS[8].1))?;
        Ok(Self { folder, found: BTreeSet::new(), searched: 0, bytes: 0 })
    }

    fn out(&self, name: &str) -> String {
        self.folder.file(&format!("out/{name}"))
    }

    /// A URL with secrets at this address.
    pub(super) fn url(&self, authority: &str, scheme: &str) -> String {
        let [api_key, access_token, sig] = [1, 2, 3].map(|kind: usize| heard_of(&KINDS[kind]));
        format!(
            "{scheme}ann:pa%40ss%2FURL-INFO-1@{authority}/x?page=2&api_key={api_key}&access_token={access_token}&sig={sig}"
        )
    }

    /// Header fields with secrets.
    pub(super) fn headers(&self) -> Vec<String> {
        vec![
            format!("Proxy-Authorization: Basic {}", heard_of(&KINDS[4])),
            format!("Cookie: lang=de; session={}", KINDS[5].1),
            format!("X-Api-Key: {}", KINDS[6].1),
            format!("X-Auth-Token: {}", KINDS[7].1),
            format!("@{}", self.folder.file("headers")),
            format!("X-Tenant: ${{{VARIABLE}}}"),
            "X-Request-Id: req-4711".to_owned(),
            "Accept: text/x-open".to_owned(),
        ]
    }

    fn nginx(&self) -> Result<Listening> {
        let authority = free_address()?.to_string();
        let file = self.configuration("heard", &authority, "")?;
        let launch = Launch::new("nginx").args(["-p", &self.folder.file(""), "-c", &file]);
        let process = launch.start()?;
        let listens = || std::net::TcpStream::connect(&authority).is_ok();
        wait("nginx listens", listens)?;
        Ok(Listening { _process: process, authority })
    }

    fn configuration(&self, name: &str, listen: &str, more: &str) -> Result<String> {
        let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
        let file = self.folder.file(&format!("{name}.conf"));
        let text = format!(
            "{user} daemon off; worker_processes 1; pid {name}.pid; error_log {name}.error; events {{ }}
http {{
    log_format heard escape=none '$request|$http_authorization|$http_proxy_authorization|$http_cookie|$http_x_api_key|$http_x_auth_token|$http_x_colour|$http_x_tenant|$http_x_request_id';
    access_log {name}.log heard; {more}
    client_body_temp_path {name}.1; proxy_temp_path {name}.2; fastcgi_temp_path {name}.3; uwsgi_temp_path {name}.4; scgi_temp_path {name}.5;
    server {{ listen {listen}; return 200 'ok'; }}
}}
"
        );
        fs::write(&file, text)?;
        Ok(file)
    }

    /// A call of the binary with these headers, the environment variable, and private folders for its files.
    fn call<'a>(&self, words: impl IntoIterator<Item = &'a str>, headers: &[String]) -> Result<Proofload> {
        let with_option = |header: &String| ["-H".to_owned(), header.clone()];
        let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
        Ok(Proofload::new("")?.with(|launch| {
            launch
                .args(words)
                .args(headers.iter().flat_map(with_option))
                .env(VARIABLE, KINDS[9].1)
                .env("PROOFLOAD_STATE_DIR", &self.folder.file("state"))
                .env("TMPDIR", &self.folder.file("tmp"))
        }))
    }

    /// Runs a call to its end, and searches its output.
    fn finish(&mut self, call: Proofload) -> Result<Output> {
        let output = call.run()?;
        self.look("standard output", output.stdout.as_bytes());
        self.look("standard error", output.stderr.as_bytes());
        Ok(output)
    }

    /// Secrets without a telling name: a variable that holds the whole URL, and a value that occurs again in the path and name of a step.
    fn nameless(&mut self, authority: &str) -> Result<()> {
        let hook = format!("http://{authority}/hook/{}?n=1", KINDS[12].1);
        let again = format!("http://{authority}/{}", KINDS[6].1);
        for (name, url) in [("hook", format!("${{{HOOK}}}")), ("again", again)] {
            let [out, log] = [name.to_owned(), format!("{name}.log")].map(|name| self.out(&name));
            let words =
                ["http", &url, "-n", "5", "--cookies", "--out", &out, "--log", &log, "--log-sample", "1"];
            let call = self.call(words, &self.headers())?.with(|launch| launch.env(HOOK, &hook));
            let output = self.finish(call)?;
            ensure!(output.code == Some(0), "{}", output.described());
        }
        Ok(())
    }

    /// Searches bytes from a place.
    pub(super) fn look(&mut self, place: &str, bytes: &[u8]) {
        self.searched += 1;
        self.bytes += bytes.len() as u64;
        let text = String::from_utf8_lossy(bytes);
        for kind in &KINDS {
            if let Some(form) = forms(kind).iter().find(|form| text.contains(form.as_str())) {
                let at = text.find(form.as_str()).unwrap_or(0);
                let before: String = text[..at].chars().rev().take(60).collect();
                let before: String = before.chars().rev().collect();
                self.found.insert(format!("{} stands in {place} behind {before:?}", kind.0));
            }
        }
    }

    /// Searches the files below a folder.
    fn look_into(&mut self, folder: &Path) {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        for path in entries.map(|entry| entry.path()) {
            // Ignore a file that has just disappeared: it was searched before or will be searched next time.
            match fs::symlink_metadata(&path) {
                Ok(about) if about.is_dir() => self.look_into(&path),
                Ok(about) if about.is_file() => {
                    let bytes = fs::read(&path).unwrap_or_default();
                    self.look(&path.display().to_string(), &bytes);
                }
                _ => {}
            }
        }
    }

    fn open_in(&self, file: &str) -> Result<()> {
        let text = fs::read_to_string(file)?;
        for open in OPEN {
            ensure!(text.contains(open), "{file} does not show {open}");
        }
        Ok(())
    }

    /// Commands that are refused or fail: their messages must not contain the secrets.
    fn mistakes(&mut self, url: &str) -> Result<()> {
        let refused = self.url("127.0.0.1:1", "http://");
        let bare = self.url("127.0.0.1:1", "");
        let https = self.url("127.0.0.1:1", "https://");
        let no_port = self.url("127.0.0.1:99999", "http://");
        let headers = self.headers();
        let mut no_colon = bearer();
        no_colon[0] = no_colon[0].replace(':', "");
        let both = [headers.clone(), bearer()].concat();
        let cases: [(&[&str], &[String], i32); 9] = [
            (&["http", &refused, "-n", "5"], &headers, 2),
            (&["http", &bare, "-n", "5"], &headers, 2),
            (&["http", &https, "-n", "5"], &headers, 2),
            (&["http", &no_port, "--rate", "x"], &headers, 2),
            (&["http", url, &refused], &headers, 2),
            (&["http", url, &bare, "--no-such-option"], &headers, 2),
            (&["http", url], &no_colon, 2),
            (&["http", url], &both, 2),
            (&["limit", "rate", url, "--set", &https], &headers, 2),
        ];
        for (words, headers, code) in cases {
            let output = self.finish(self.call(words.iter().copied(), headers)?)?;
            ensure!(output.code == Some(code), "expected {code}: {}", output.described());
        }
        for header in ["X-Tenant: ${PROOFLOAD_TEST_UNSET}", "@/no/such/file", "X-Tenant: ${"] {
            let output = self.finish(self.call(["http", "127.0.0.1:1"], &[header.to_owned()])?)?;
            ensure!(output.code == Some(2) && output.stderr.contains("--header: "), "{}", output.described());
        }
        Ok(())
    }

    /// Searches the command lines of worker processes. The command line of the main process has no secrets here.
    fn workers(&mut self, url: &str) -> Result<()> {
        let open =
            url.split_once('@').map_or(url, |(_, rest)| rest).split_once('?').map_or("", |(url, _)| url);
        let headers: Vec<String> =
            self.headers().into_iter().filter(|header| !header.contains("SECRET-")).collect();
        let words = ["http", open, "--rate", "50", "--duration", "1500ms", "--processes", "2", "-q"];
        // Leave out the first header, which is a secret in base64.
        let running = self.call(words, &headers[1..])?.start()?;
        let pid = running.process.pid();
        wait("two workers run", || children_of(pid).len() >= 2)?;
        for pid in children_of(pid).into_iter().chain([pid]) {
            self.look("a command line", &fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default());
        }
        self.ended(running).map(drop)
    }

    fn ended(&mut self, running: Running) -> Result<Output> {
        let output = running.finish()?;
        self.look("standard output", output.stdout.as_bytes());
        self.look("standard error", output.stderr.as_bytes());
        Ok(output)
    }

    /// A search that is killed and resumed.
    fn limit(&mut self, url: &str) -> Result<PathBuf> {
        let out = self.out("limit");
        let words = "limit rate --max 200 --min 100 --width 40% --trial 500ms --p99 1s --out";
        let words: Vec<&str> = words.split(' ').chain([out.as_str(), url]).collect();
        self.killed_and_resumed(&words, self.headers(), &out)?;
        // A run with another salt must still count as the same plan.
        let other = self.out("limit-2");
        let words: Vec<&str> = words.iter().map(|word| if *word == out { &other } else { *word }).collect();
        let output = self.finish(self.call(words, &self.headers())?)?;
        ensure!(output.code != Some(2), "{}", output.described());
        let output =
            self.finish(self.call(["compare", &out, &other, "--json", &self.out("c.json")], &[])?)?;
        ensure!(
            output.code != Some(2) && !output.stdout.contains("not the same"),
            "two runs with the same secrets are said to differ: {}",
            output.described()
        );
        Ok(out.into())
    }

    fn killed_and_resumed(&mut self, words: &[&str], headers: Vec<String>, out: &str) -> Result<()> {
        let mut running = self.call(words.iter().copied(), &headers)?.start()?;
        let trials = format!("{out}/trials.jsonl");
        let has_trial = || fs::metadata(&trials).is_ok_and(|file| file.len() > 0);
        if let Err(late) = wait("a trial is written", has_trial) {
            return Err(late.context(running.process.stdout() + &running.process.stderr()));
        }
        running.process.signal(Signal::KILL);
        running.process.wait(PATIENCE)?;
        let resumed = || words.iter().copied().chain(["--resume"]);
        let other = self.call(resumed(), &headers)?.with(|launch| launch.env(VARIABLE, "another-value"));
        let output = self.finish(other)?;
        ensure!(
            output.code == Some(2) && output.stderr.contains("another value of the header X-Tenant"),
            "another secret is not refused: {}",
            output.described()
        );
        let output = self.finish(self.call(resumed(), &headers)?)?;
        ensure!(output.code == Some(0) || output.code == Some(3), "{}", output.described());
        ensure!(fs::exists(format!("{out}/result.json"))?, "no result: {}", output.described());
        Ok(())
    }

    /// A study file with secrets, whose target repeats them in its log.
    fn study(&mut self) -> Result<PathBuf> {
        let target = self.configuration("study", "18080", "access_log /dev/stderr heard;")?;
        let folder = self.folder.file("");
        let command = format!("[\"nginx\", \"-e\", \"stderr\", \"-p\", \"{folder}\", \"-c\", \"{target}\"]");
        let file = self.study_file("study", &command, 4)?;
        let out = self.out("study");
        let output = self.finish(self.call(["run", &file, "--dry-run"], &[])?)?;
        ensure!(output.code == Some(0), "{}", output.described());
        self.killed_and_resumed(&["run", &file, "--out", &out], Vec::new(), &out)?;
        self.open_in(&format!("{out}/study.toml"))?;

        // Search the files that exist only while the study runs, such as the target's log.
        let again = self.out("study-2");
        let mut running = self.call(["run", &file, "--out", &again, "-q"], &[])?.start()?;
        let mut masked_log = false;
        while running.process.is_running() {
            for folder in ["state", "tmp"] {
                let folder = self.folder.path().join(folder);
                self.look_into(&folder);
                masked_log |= holds(&folder, ".log", "***");
            }
        }
        ensure!(masked_log, "no log of a target was seen to be masked while the study ran");
        self.ended(running)?;
        Ok(out.into())
    }

    /// A study whose target ends after its first request. The error message shows the end of the target's log, which must be masked.
    fn failing_study(&mut self) -> Result<()> {
        let target = self.configuration("failing", "18080", "access_log /dev/stderr heard;")?;
        let folder = self.folder.file("");
        let script = format!(
            "nginx -e stderr -p {folder} -c {target} & while ! [ -s {folder}failing.log ]; do sleep 0.02; done; sleep 0.1; \
             kill $!; exit 3"
        );
        let file = self.study_file("failing", &format!("[\"sh\", \"-c\", \"{script}\"]"), 1)?;
        let output = self.finish(self.call(["run", &file, "--out", &self.out("failing")], &[])?)?;
        let shown = output.stdout.clone() + &output.stderr;
        ensure!(
            shown.contains("|***|"),
            "the end of the target's log is not told, masked: {}",
            output.described()
        );
        Ok(())
    }

    fn study_file(&self, name: &str, command: &str, repeats: u32) -> Result<String> {
        let file = self.folder.file(&format!("{name}.toml"));
        let headers: Vec<String> = self
            .headers()
            .iter()
            .map(|header| format!("  \"{}\",\n", header.replace("COOKIE", "\\u0043OOKIE")))
            .collect();
        let headers = headers.concat().replace(&format!("@{}", self.folder.file("headers")), "@headers");
        let text = format!(
            "title = \"secrets\"  # X-Api-Key: {}
[targets.web]\ncommand = {command}\nport = 18080\nready = \"tcp:18080\"\nflood = \"truncate\"
[workload.http]\nurl = \"{}\"\nheaders = [\n{headers}]\nrate = 50\nconnections = 2\nduration = \"500ms\"\nthreads = 1
[trial]\nrepeats = {repeats}
",
            KINDS[6].1,
            self.url("{web}", "http://"),
        );
        fs::write(&file, text)?;
        Ok(file)
    }

    fn reports(&mut self, folders: &[&PathBuf]) -> Result<()> {
        for (number, folder) in folders.iter().enumerate() {
            let folder = folder.display().to_string();
            let mut words = vec!["report".to_owned(), folder.clone(), "--github-annotations".to_owned()];
            for format in ["html", "json", "junit", "openmetrics", "github"] {
                words.extend([format!("--{format}"), self.out(&format!("report-{number}.{format}"))]);
            }
            for words in [words, vec!["report".to_owned(), folder]] {
                let output = self.finish(self.call(words.iter().map(String::as_str), &[])?)?;
                ensure!(output.code == Some(0), "{}", output.described());
            }
        }
        Ok(())
    }
}
