//! The report's page in a real browser without a network: the browser reports nothing, requests nothing, and every picture shows data.

use std::{collections::BTreeSet, fs, path::Path};

use anyhow::{Context, Result, ensure};
use testing::PATIENCE;

use super::{Bar, By, Outcome, Scale, seconds};
use crate::{Proofload, process::Launch, temporary::TemporaryFolder};

mod pictures;

pub(super) const BAR: Bar = Bar {
    name: "report-browser",
    what: "the page of every shipped study in headless Chromium: 1 MB at the most, no console message, nothing asked of a network",
    full_seconds: 900,
    decided_by: By::Counts,
    run,
};

/// The shipped studies; the first has a search, several settings and a table of loads.
const STUDIES: [&str; 3] = ["max-rps", "quickstart", "max-rps-300ms"];
/// Options that shorten the first study to a sample.
const SAMPLE: &str = "--set budget=12s --set target=serve --set threads=1 --set connections=50,200 --set rate=1_000,4_000 \
                      --set trial.duration=1s --set search.trial=1s --set search.repeats=1 --set search.max=8k";

fn run(scale: Scale) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let studies = Path::new(env!("CARGO_MANIFEST_DIR")).join("../studies");
    let browser = Browser::new()?;
    let (studied, sample) = scale.pick((&STUDIES[..1], SAMPLE), (&STUDIES[..], ""));
    for name in studied {
        let folder = TemporaryFolder::new()?;
        let file = studies.join(format!("{name}.toml")).display().to_string();
        let words = format!("-q --out {} {sample}", folder.file("result"));
        let output = Proofload::new("run")?
            .arg(&file)
            .with(|launch| launch.words(&words))
            .timeout(seconds(scale.pick(120, 1_200)))
            .run()?;
        // Other bars judge whether the goals are met and whether the machine was too busy.
        ensure!(matches!(output.code, Some(0 | 1 | 3)), "{}", output.described());
        outcome.take_in(name, browser.check(&folder.path().join("result/report.html"))?);
    }
    Ok(outcome)
}

/// Largest page, in bytes.
const MAX_BYTES: u64 = 1_000_000;

/// A page that logs a message and requests a file, to show that the test would notice both.
const LOUD: &str = "<!DOCTYPE html><title>loud</title><img src=\"http://192.0.2.1/x.png\" alt=\"\">\
                    <script>console.log('heard')</script>";
const EMPTY: &str = "<!DOCTYPE html><title>empty</title>";

/// Headless Chromium in an empty network namespace.
pub(super) struct Browser {
    /// Hosts that the browser contacts for any page.
    asked_by_itself: BTreeSet<String>,
}

impl Browser {
    /// Opens an empty page and the loud one, to know what the browser does for any page.
    ///
    /// # Errors
    /// If Chromium cannot run, or does not report the message and the request of the loud page.
    pub(super) fn new() -> Result<Self> {
        let folder = TemporaryFolder::new()?;
        let (empty, loud) = (folder.path().join("empty.html"), folder.path().join("loud.html"));
        fs::write(&empty, EMPTY)?;
        fs::write(&loud, LOUD)?;
        let asked_by_itself = open(&folder, &empty, Light::Light)?.hosts;
        let loud = open(&folder, &loud, Light::Light)?;
        let asked_by_loud: Vec<&String> = loud.hosts.difference(&asked_by_itself).collect();
        ensure!(
            loud.console.iter().any(|line| line.contains("heard")) && asked_by_loud == ["192.0.2.1"],
            "chromium did not tell what a page said and asked for: {:?}, {asked_by_loud:?}",
            loud.console
        );
        Ok(Self { asked_by_itself })
    }

    /// Opens a page in light and in dark mode, and checks it.
    ///
    /// # Errors
    /// If Chromium fails, or there is no page.
    pub(super) fn check(&self, page: &Path) -> Result<Outcome> {
        // Use a new profile for each page, so that the browser contacts the same hosts by itself.
        let folder = TemporaryFolder::new()?;
        let mut outcome = Outcome::default();
        let bytes = fs::metadata(page).with_context(|| format!("cannot read {}", page.display()))?.len();
        outcome.figure("bytes", bytes, format!("<= {MAX_BYTES}"), bytes <= MAX_BYTES);
        for light in [Light::Light, Light::Dark] {
            let seen = open(&folder, page, light)?;
            let name = |figure: &str| format!("{}_{figure}", light.name());
            let asked: Vec<&String> = seen.hosts.difference(&self.asked_by_itself).collect();
            outcome.equal(&name("console_messages"), seen.console.len() as u64, 0, "a page without a script");
            outcome.equal(&name("hosts_asked"), asked.len() as u64, 0, "a page that is whole");
            seen.console.iter().for_each(|line| outcome.note(line));
            asked.iter().for_each(|host| outcome.note(format!("asked {host}")));
        }
        let (pictures, blank) = pictures::without_data(&folder, page)?;
        outcome.figure("pictures", pictures, ">= 1", pictures > 0);
        outcome.equal("pictures_without_data", blank.len() as u64, 0, "each shows a series");
        blank.into_iter().for_each(|name| outcome.note(format!("nothing is seen in: {name}")));
        Ok(outcome)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Light {
    Light,
    Dark,
}

impl Light {
    fn name(self) -> &'static str {
        match self {
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }
}

/// What the browser reported about a page.
struct Seen {
    console: Vec<String>,
    hosts: BTreeSet<String>,
}

/// Chromium without a window or a network. The caller adds the page.
fn chromium(folder: &TemporaryFolder) -> Launch {
    Launch::new("chromium")
        .words("--headless=new --no-sandbox --disable-gpu --no-first-run --hide-scrollbars")
        .words("--disable-background-networking --disable-component-update --disable-sync")
        .words("--enable-logging=stderr --v=0")
        .arg(format!("--user-data-dir={}", folder.file("profile")))
        .under(["unshare", "--map-root-user", "--net"])
}

fn open(folder: &TemporaryFolder, page: &Path, light: Light) -> Result<Seen> {
    let page = page.canonicalize().with_context(|| format!("there is no {}", page.display()))?;
    let network_log = folder.file("network.json");
    let mut chromium = chromium(folder).arg(format!("--log-net-log={network_log}"));
    if light == Light::Dark {
        chromium = chromium.arg("--blink-settings=preferredColorScheme=0");
    }
    // With a screenshot, the browser shows the page and then exits.
    let screenshot = folder.file("page.png");
    chromium = chromium.arg(format!("--screenshot={screenshot}"));
    let chromium = chromium.arg(format!("file://{}", page.display()));
    let finished = chromium.run(PATIENCE).context("chromium is needed to look at the report")?;
    ensure!(finished.code == Some(0), "chromium ended with {:?}:\n{}", finished.code, finished.stderr);
    let log = fs::read_to_string(&network_log).context("chromium left no log of its network")?;
    fs::remove_file(screenshot).context("chromium left no screenshot")?;
    fs::remove_file(network_log)?;
    let console = finished.stderr.lines().filter(|line| line.contains(":CONSOLE:") && !is_own(line));
    Ok(Seen { console: console.map(str::to_owned).collect(), hosts: hosts(&log) })
}

/// Whether a message comes from the browser's own start page, which is open beside ours and complains about the missing network.
fn is_own(line: &str) -> bool {
    line.rsplit_once("source: ").is_some_and(|(_, source)| source.starts_with("chrome://"))
}

/// The hosts of all remote addresses in Chromium's network log.
fn hosts(log: &str) -> BTreeSet<String> {
    let addresses = log.split("\"url\":\"").skip(1).filter_map(|rest| rest.split('"').next());
    let remote = addresses.filter_map(|address| address.split_once("://"));
    let remote = remote.filter(|(scheme, _)| ["http", "https", "ws", "wss"].contains(scheme));
    remote.filter_map(|(_, rest)| rest.split(['/', '?', '#']).next()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_browsers_own_messages_are_left_out() {
        assert!(is_own(r#"[1:INFO:CONSOLE:574] "Slow network", source: chrome://resources/x.js (574)"#));
        assert!(!is_own(r#"[1:INFO:CONSOLE:1] "source: chrome://x", source: file:///page.html (1)"#));
        assert!(!is_own(r#"[1:INFO:CONSOLE:1] "first line of two"#));
    }

    #[test]
    fn hosts_are_read_out_of_the_log() {
        let log = r#"{"params":{"url":"http://192.0.2.1/x.png"}},{"url":"file:///x"},{"url":"https://a.example?b"}"#;
        assert_eq!(hosts(log), BTreeSet::from(["192.0.2.1".to_owned(), "a.example".to_owned()]));
    }
}
