//! The load generators: how to run each and parse its output.

use std::{error::Error, fs, path::PathBuf, str::FromStr};

use anyhow::{Context, Result, bail, ensure};
use proofload_tests::{
    machine::{program, version},
    process::{Finished, Launch},
    proofload::{binary, parse_trial},
    repository,
    temporary::TemporaryFolder,
};

/// The load of a run, the same for every tool.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load<'a> {
    /// The URL, with a path.
    pub url: &'a str,
    /// Body of a POST; `None` is a GET.
    pub body: Option<&'a Body>,
    /// Number of connections.
    pub connections: u32,
    /// Whether a connection carries more than one request.
    pub keepalive: bool,
    /// Duration in seconds.
    pub seconds: u32,
    /// Processor of the tool.
    pub core: u32,
}

/// A body, as a file and as a script for wrk.
#[derive(Debug)]
pub(crate) struct Body(TemporaryFolder);

impl Body {
    /// A body with this number of bytes.
    ///
    /// # Errors
    /// If its files cannot be written.
    pub(crate) fn new(bytes: usize) -> Result<Self> {
        let folder = TemporaryFolder::new()?;
        let body = "x".repeat(bytes);
        fs::write(folder.file("body"), &body)?;
        fs::write(folder.file("wrk.lua"), format!("wrk.method = \"POST\"\nwrk.body = \"{body}\"\n"))?;
        Ok(Self(folder))
    }

    fn file(&self) -> String {
        self.0.file("body")
    }

    fn wrk_script(&self) -> String {
        self.0.file("wrk.lua")
    }
}

/// An installed load generator.
#[derive(Debug)]
pub(crate) struct Tool {
    kind: Kind,
    /// The path of the program.
    pub(crate) path: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Ours,
    Wrk,
    Ab,
    H2load,
    Oha,
}

impl Kind {
    const ALL: [Self; 5] = [Self::Ours, Self::Wrk, Self::Ab, Self::H2load, Self::Oha];

    fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Wrk => "wrk",
            Self::Ab => "ab",
            Self::H2load => "h2load",
            Self::Oha => "oha",
        }
    }

    fn remedy(self) -> &'static str {
        match self {
            Self::Ours => "make build",
            Self::Wrk => "apt-get install wrk",
            Self::Ab => "apt-get install apache2-utils",
            Self::H2load => "apt-get install nghttp2-client",
            Self::Oha => "cargo install oha --version 1.16.0 --locked --root target/peers",
        }
    }

    fn find(self) -> Option<PathBuf> {
        match self {
            Self::Ours => binary().ok(),
            Self::Oha => peer(self.name()),
            Self::Wrk | Self::Ab | Self::H2load => program(self.name()),
        }
    }
}

/// A program that was built for the benchmarks, or is in the PATH.
pub(crate) fn peer(name: &str) -> Option<PathBuf> {
    let own = repository().join("target/peers/bin").join(name);
    if own.is_file() { Some(own) } else { program(name) }
}

impl Tool {
    /// The installed tools, and the name and the installing command of the others.
    pub(crate) fn find_all() -> (Vec<Self>, Vec<(&'static str, &'static str)>) {
        let (mut tools, mut missing) = (Vec::new(), Vec::new());
        for kind in Kind::ALL {
            match kind.find() {
                Some(path) => tools.push(Self { kind, path }),
                None => missing.push((kind.name(), kind.remedy())),
            }
        }
        (tools, missing)
    }

    /// The name in the output; `ours` for proofload.
    pub(crate) fn name(&self) -> &'static str {
        self.kind.name()
    }

    /// Whether the tool is proofload.
    pub(crate) fn is_ours(&self) -> bool {
        self.kind == Kind::Ours
    }

    /// The version as the tool prints it.
    pub(crate) fn version(&self) -> String {
        let argument = match self.kind {
            Kind::Wrk => "-v",
            Kind::Ab => "-V",
            Kind::Ours | Kind::H2load | Kind::Oha => "--version",
        };
        version(&self.path, argument)
    }

    /// The command for a load; `None` if the tool does not support it.
    pub(crate) fn launch(&self, load: &Load) -> Option<Launch> {
        let Load { url, body, connections, keepalive, seconds, core } = *load;
        let is_secure = url.starts_with("https://");
        let post = |words: &str| body.map_or_else(String::new, |body| words.replace('@', &body.file()));
        let launch = Launch::new(self.path.display().to_string()).on_core(core);
        Some(match self.kind {
            Kind::Ours => {
                let words = format!("http {url} -c {connections} -d {seconds}s --threads 1 --cpus {core} -q");
                let fresh = if keepalive { "" } else { "--no-keepalive" };
                // The other tools check no certificate, except for oha.
                let secure = if is_secure { "--insecure --no-resumption" } else { "" };
                // `=` stands for the @ that proofload expects before a file name.
                launch
                    .words(&words)
                    .words(fresh)
                    .words(secure)
                    .words(&post("--body =@").replace('=', "@"))
                    .words("--json -")
            }
            Kind::Wrk => {
                let launch = launch.words(&format!("-t1 -c{connections} -d{seconds}s"));
                let launch = if keepalive { launch } else { launch.arg("-H").arg("Connection: close") };
                launch
                    .words(&body.map_or_else(String::new, |body| format!("-s {}", body.wrk_script())))
                    .arg(url)
            }
            Kind::Ab => {
                // After -t, ab stops at 50,000 requests unless -n is given. It keeps 32 bytes per request, so -n is only
                // as large as needed.
                let requests = 300_000 * seconds;
                let words = format!("-q -c {connections} -t {seconds} -n {requests}");
                launch.words(if keepalive { "-k" } else { "" }).words(&words).words(&post("-p @")).arg(url)
            }
            // h2load cannot open a connection per request.
            Kind::H2load if !keepalive => return None,
            Kind::H2load => {
                let words = format!("--h1 -t1 -c{connections} -D {seconds}");
                launch.words(&words).words(&post("-d @")).arg(url)
            }
            Kind::Oha => {
                let words = format!("--no-tui --output-format json -c {connections} -z {seconds}s");
                let words = words + if keepalive { "" } else { " --disable-keepalive" };
                let words = words + if is_secure { " --insecure" } else { "" };
                launch.words(&words).words(&post("-m POST -D @")).arg(url)
            }
        })
    }

    /// The number of successful requests that the tool reports.
    ///
    /// # Errors
    /// If the tool or a request failed, or its output cannot be parsed.
    pub(crate) fn requests(&self, finished: &Finished) -> Result<u64> {
        // proofload exits with 3 (void) if the generator had no processor time left, which a load without a rate may
        // cause. The cost per request is valid nevertheless.
        let is_valid = finished.code == Some(0) || (self.is_ours() && finished.code == Some(3));
        ensure!(
            is_valid,
            "{} ended with status {:?}: {} {}",
            self.name(),
            finished.code,
            finished.stderr.trim(),
            if self.is_ours() { "" } else { finished.stdout.trim() },
        );
        self.kind.parse(&finished.stdout)
    }

    /// The throughput that the tool reports, over the time that it measured, which may be longer than the given duration.
    ///
    /// # Errors
    /// If the output cannot be parsed.
    pub(crate) fn rate_per_s(&self, finished: &Finished) -> Result<f64> {
        self.kind.rate_per_s(&finished.stdout)
    }

    /// A remark on a run, if proofload judged its trial void.
    pub(crate) fn remark(&self, finished: &Finished) -> Option<String> {
        (self.is_ours() && finished.code == Some(3)).then(|| {
            let rules = parse_trial(&finished.stdout).map(|trial| {
                let rules = trial.validity.reasons().iter().map(|reason| format!("{:?}", reason.rule));
                rules.collect::<Vec<_>>().join(", ")
            });
            format!("void by its own rules: {}", rules.unwrap_or_default())
        })
    }
}

impl Kind {
    fn rate_per_s(self, stdout: &str) -> Result<f64> {
        match self {
            Self::Ours => Ok(parse_trial(stdout)?.throughput_per_s),
            Self::Wrk => number_after(stdout, "Requests/sec:"),
            Self::Ab => number_after(stdout, "Requests per second:"),
            Self::H2load => {
                let rest = stdout.split_once("finished in ").context("no time")?.1;
                number_after(rest, "s, ")
            }
            Self::Oha => {
                let json: serde_json::Value = serde_json::from_str(stdout).context("no JSON")?;
                json["summary"]["requestsPerSec"].as_f64().context("no rate")
            }
        }
    }

    fn parse(self, stdout: &str) -> Result<u64> {
        let requests = match self {
            Self::Ours => {
                let trial = parse_trial(stdout)?;
                let failed = trial.counts.failed;
                ensure!(failed == 0, "{failed} requests failed: {:?}", trial.errors);
                trial.counts.completed
            }
            Self::Wrk => {
                for trouble in ["Socket errors:", "Non-2xx or 3xx responses:"] {
                    if let Some(line) = stdout.lines().find(|line| line.contains(trouble)) {
                        bail!("{}", line.trim());
                    }
                }
                number_before(stdout, " requests in ")?
            }
            Self::Ab => {
                for trouble in ["Failed requests:", "Non-2xx responses:"] {
                    let count: u64 = number_after(stdout, trouble).unwrap_or(0);
                    ensure!(count == 0, "{trouble} {count}");
                }
                number_after(stdout, "Complete requests:")?
            }
            Self::H2load => {
                let line = stdout.lines().find(|line| line.starts_with("requests:")).context("no counts")?;
                for trouble in [" failed", " errored", " timeout"] {
                    let count = number_before(line, trouble)?;
                    ensure!(count == 0, "{count}{trouble}");
                }
                number_before(line, " succeeded")?
            }
            Self::Oha => {
                let json: serde_json::Value = serde_json::from_str(stdout).context("no JSON")?;
                let counts = |name: &str| {
                    let counts = json[name].as_object().into_iter().flatten();
                    counts.map(|(key, n)| (key, n.as_u64().unwrap_or(0)))
                };
                // Requests in flight at the end are not failures.
                let is_error = |(key, n): &(&String, u64)| *n > 0 && !key.contains("aborted due to deadline");
                let errors: Vec<_> = counts("errorDistribution").filter(is_error).collect();
                ensure!(errors.is_empty(), "{errors:?}");
                let bad = counts("statusCodeDistribution").find(|(status, _)| status.as_str() != "200");
                ensure!(bad.is_none(), "status {bad:?}");
                counts("statusCodeDistribution").map(|(_, n)| n).sum()
            }
        };
        ensure!(requests > 0, "the tool made no request");
        Ok(requests)
    }
}

fn number_after<T: FromStr<Err: Error + Send + Sync + 'static>>(text: &str, label: &str) -> Result<T> {
    let number = around(text, label)?.1.split_whitespace().next().unwrap_or_default();
    number.parse().with_context(|| format!("'{number}' after '{label}'"))
}

fn number_before(text: &str, label: &str) -> Result<u64> {
    let number = around(text, label)?.0.split_whitespace().next_back().unwrap_or_default();
    number.parse().with_context(|| format!("'{number}' before '{label}'"))
}

fn around<'t>(text: &'t str, label: &str) -> Result<(&'t str, &'t str)> {
    text.split_once(label).with_context(|| format!("'{label}' is not in the output"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_parsed_from_the_output_of_each_tool() {
        let wrk = "Running 2s test\n  308423 requests in 2.10s, 47.36MB read\nRequests/sec: 146951.72\n";
        assert_eq!(Kind::Wrk.parse(wrk).unwrap(), 308_423);
        assert_eq!(Kind::Wrk.rate_per_s(wrk).unwrap(), 146_951.72);
        let ab = "Complete requests:      311955\nFailed requests:        0\nKeep-Alive requests:    311955\n\
             Requests per second:    155977.31 [#/sec] (mean)\n";
        assert_eq!((Kind::Ab.parse(ab).unwrap(), Kind::Ab.rate_per_s(ab).unwrap()), (311_955, 155_977.31));
        let h2load = "finished in 2.00s, 136644.50 req/s, 20.20MB/s\nrequests: 273289 total, 273353 started, 273289 done, 273289 succeeded, \
                      0 failed, 0 errored, 0 timeout\nstatus codes: 273289 2xx\n";
        assert_eq!(Kind::H2load.parse(h2load).unwrap(), 273_289);
        assert_eq!(Kind::H2load.rate_per_s(h2load).unwrap(), 136_644.5);
        let oha = r#"{"summary": {"requestsPerSec": 107814.25}, "statusCodeDistribution": {"200": 215628}, "errorDistribution": {"aborted due to deadline": 64}}"#;
        assert_eq!(
            (Kind::Oha.parse(oha).unwrap(), Kind::Oha.rate_per_s(oha).unwrap()),
            (215_628, 107_814.25)
        );
    }

    #[test]
    fn failures_are_reported() {
        let wrk = "  10 requests in 2.10s\n  Socket errors: connect 0, read 3, write 0, timeout 0\n";
        assert!(Kind::Wrk.parse(wrk).unwrap_err().to_string().contains("read 3"));
        assert!(Kind::Ab.parse("Complete requests: 5\nFailed requests: 2\n").is_err());
        let h2load = "requests: 5 total, 5 started, 5 done, 4 succeeded, 1 failed, 0 errored, 0 timeout\n";
        assert!(Kind::H2load.parse(h2load).is_err());
        assert!(Kind::Oha.parse(r#"{"statusCodeDistribution": {"200": 5, "500": 1}}"#).is_err());
        assert!(Kind::Oha.parse(r#"{"statusCodeDistribution": {}}"#).is_err());
    }
}
