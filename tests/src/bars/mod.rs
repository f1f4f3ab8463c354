//! The bars: what the binary must reach, each as a measurement with its bounds.
//!
//! Every bar runs in two sizes: whole (`make prove`) and as a sample short enough for every
//! `make test`. A figure that noise could spoil is the median of several runs, and its spread is
//! printed beside it.

use std::{
    fmt,
    io::{self, Write},
    time::{Duration, Instant},
};

use anyhow::Result;

use crate::stats::{median, spread};

mod command_figures;
mod connections_18k;
mod connections_200k;
mod descriptors;
mod fuzz_events;
mod fuzz_http1;
mod generator_away;
mod hostile_text;
mod interrupt;
mod known_closed;
mod known_exponential;
mod known_stalls;
mod lab_crash;
mod lab_files;
mod lab_hosts;
mod lab_nested;
mod lab_segment;
mod limit_away;
mod limit_capacity;
mod limit_generator_bound;
mod limit_short_trials;
mod link_certified;
mod link_delay;
mod link_loss;
mod link_lossy_times;
mod link_rate;
mod listen_bodies;
mod listen_compat;
mod listen_crash;
mod listen_disk;
mod listen_hostile;
mod listen_memory;
mod listen_power_cut;
mod local_scarcity;
mod many_connections;
mod misbehaviour;
mod no_secrets;
mod ocean_path;
mod pacing;
mod readme;
mod report_browser;
mod study_files;
mod study_folders;
mod study_fresh;
mod study_resume;
mod unanswered_connects;
mod vm_netem;
mod void_rules;

/// Every bar, in the order they are proved.
pub const ALL: &[Bar] = &[
    pacing::BAR,
    known_closed::BAR,
    known_stalls::BAR,
    known_exponential::BAR,
    misbehaviour::BAR,
    descriptors::BAR,
    local_scarcity::BAR,
    void_rules::BAR,
    generator_away::BAR,
    interrupt::BAR,
    connections_18k::BAR,
    connections_200k::BAR,
    link_delay::BAR,
    link_rate::BAR,
    link_loss::BAR,
    link_lossy_times::BAR,
    link_certified::BAR,
    fuzz_http1::BAR,
    lab_hosts::BAR,
    lab_segment::BAR,
    lab_files::BAR,
    lab_crash::BAR,
    lab_nested::BAR,
    vm_netem::BAR,
    limit_capacity::BAR,
    limit_generator_bound::BAR,
    limit_short_trials::BAR,
    limit_away::BAR,
    study_resume::BAR,
    study_files::BAR,
    study_folders::BAR,
    study_fresh::BAR,
    command_figures::BAR,
    ocean_path::BAR,
    report_browser::BAR,
    readme::BAR,
    no_secrets::BAR,
    hostile_text::BAR,
    listen_crash::BAR,
    listen_power_cut::BAR,
    listen_disk::BAR,
    listen_memory::BAR,
    listen_hostile::BAR,
    listen_bodies::BAR,
    listen_compat::BAR,
    fuzz_events::BAR,
];

/// One bar.
#[derive(Debug, Clone, Copy)]
pub struct Bar {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it holds the binary to, in a line.
    pub what: &'static str,
    /// About how long the whole of it takes, in seconds.
    pub full_seconds: u32,
    /// Measures. An error means that nothing could be measured, which is a failure too.
    pub run: fn(Scale) -> Result<Outcome>,
}

impl Bar {
    /// The bar of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        ALL.iter().find(|bar| bar.name == name)
    }

    /// Measures, prints a line for each figure, and tells whether all were reached.
    pub fn check(&self, scale: Scale) -> bool {
        // Written past the test harness's capture: the figures belong in every log.
        let mut out = io::stdout().lock();
        let begun = Instant::now();
        let (lines, passed) = match (self.run)(scale) {
            Ok(outcome) => (outcome.lines(self.name), outcome.passed(scale)),
            Err(error) => (format!("bar {} could not be measured FAIL\n{error:#}\n", self.name), false),
        };
        let _ = out.write_all(lines.as_bytes());
        let _ = writeln!(out, "    {}: {:.0} s", self.name, begun.elapsed().as_secs_f64());
        let _ = out.flush();
        passed
    }
}

/// How much of a bar is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Enough to see that it still holds.
    Sample,
    /// The whole of it.
    Full,
}

impl Scale {
    /// One of two values.
    pub fn pick<T>(self, sample: T, full: T) -> T {
        match self {
            Self::Sample => sample,
            Self::Full => full,
        }
    }
}

/// What a bar measured.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    figures: Vec<Figure>,
    notes: Vec<String>,
}

impl Outcome {
    /// Adds a figure.
    pub fn figure(&mut self, name: &str, value: impl fmt::Display, bound: impl fmt::Display, pass: bool) {
        self.add(name, value, bound, if pass { Verdict::Reached } else { Verdict::Missed });
    }

    /// Adds a figure that could not be had on this machine now, by the testimony of others than the binary.
    pub fn undecided(&mut self, name: &str, bound: impl fmt::Display, why: impl fmt::Display) {
        self.add(name, format!("not decided: {why}"), bound, Verdict::Undecided);
    }

    fn add(&mut self, name: &str, value: impl fmt::Display, bound: impl fmt::Display, verdict: Verdict) {
        let (value, bound) = (value.to_string(), bound.to_string());
        self.figures.push(Figure { name: name.to_owned(), value, bound, verdict });
    }

    /// Adds a figure that must not exceed a bound: the median of several runs, with its spread.
    pub fn at_most(&mut self, name: &str, runs: &Runs, most: f64, unit: &str) {
        let value = runs.median();
        let bound = format!("<= {}{}", shown(most), runs.spread_shown());
        self.figure(name, format!("{}{unit}", shown(value)), bound, value <= most);
    }

    /// Adds a figure that must lie within a distance of what is known to be true.
    pub fn near(&mut self, name: &str, value: f64, truth: f64, distance: f64, unit: &str) {
        let bound = format!("= {} ± {}", shown(truth), shown(distance));
        self.figure(name, format!("{}{unit}", shown(value)), bound, (value - truth).abs() <= distance);
    }

    /// Adds the median of several runs, which must lie within a distance of what is known to be true.
    pub fn runs_near(&mut self, name: &str, runs: &Runs, truth: f64, distance: f64) {
        let value = runs.median();
        let bound = format!("= {} ± {}{}", shown(truth), shown(distance), runs.spread_shown());
        self.figure(name, shown(value), bound, (value - truth).abs() <= distance);
    }

    /// Adds a count that must be exactly the one that the other side reports.
    pub fn equal(&mut self, name: &str, value: u64, truth: u64, whose: &str) {
        self.figure(name, value, format!("= {truth}, {whose}"), value == truth);
    }

    /// Adds a yes-or-no.
    pub fn holds(&mut self, name: &str, pass: bool, bound: &str) {
        self.figure(name, if pass { "yes" } else { "no" }, bound, pass);
    }

    /// Adds all of another outcome, its figures' names after a prefix.
    pub fn take_in(&mut self, prefix: &str, other: Self) {
        let named = |figure: Figure| Figure { name: format!("{prefix}_{}", figure.name), ..figure };
        self.figures.extend(other.figures.into_iter().map(named));
        self.notes.extend(other.notes);
    }

    /// Adds a line that is no figure but helps to read them.
    pub fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// Whether there are figures and all were reached; a sample may leave some undecided.
    pub fn passed(&self, scale: Scale) -> bool {
        let has = |verdict| self.figures.iter().any(|figure| figure.verdict == verdict);
        has(Verdict::Reached) && !has(Verdict::Missed) && (scale == Scale::Sample || !has(Verdict::Undecided))
    }

    /// The lines of a bar's figures and notes.
    pub fn lines(&self, bar: &str) -> String {
        let figures = self.figures.iter().map(|Figure { name, value, bound, verdict }| {
            let verdict = match verdict {
                Verdict::Reached => "pass",
                Verdict::Missed => "FAIL",
                Verdict::Undecided => "UNDECIDED",
            };
            format!("bar {bar} {name}={value} (bound {bound}) {verdict}\n")
        });
        let notes = self.notes.iter().map(|note| format!("    {bar}: {note}\n"));
        figures.chain(notes).collect()
    }
}

/// The same figure of several runs.
#[derive(Debug, Clone, Default)]
pub struct Runs(Vec<f64>);

impl Runs {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Adds a run's value.
    pub fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    /// The median.
    pub fn median(&self) -> f64 {
        median(&self.0)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn spread_shown(&self) -> String {
        match self.0.len() {
            0 | 1 => String::new(),
            n => {
                let (low, high) = spread(&self.0);
                format!("; median of {n} runs, {} to {}", shown(low), shown(high))
            }
        }
    }
}

#[derive(Debug, Clone)]
struct Figure {
    name: String,
    value: String,
    bound: String,
    verdict: Verdict,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Reached,
    Missed,
    Undecided,
}

/// A number with about four digits: enough to compare with a bound.
fn shown(value: f64) -> String {
    let text = match value.abs() {
        v if v >= 1_000.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 0.1 || v == 0.0 => format!("{value:.3}"),
        _ => format!("{value:.6}"),
    };
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Seconds, for a time-out.
fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Nanoseconds as microseconds.
fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

/// Nanoseconds as milliseconds.
fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_the_agreed_form() {
        let mut outcome = Outcome::default();
        let mut runs = Runs::default();
        [1.25, 1.0, 1.05].into_iter().for_each(|value| runs.push(value));
        outcome.at_most("p50_ratio", &runs, 1.2, "");
        outcome.near("rate", 700.0, 666.7, 6.667, "/s");
        outcome.equal("reset", 83, 83, "serve's count");
        outcome.note("remark");
        assert_eq!(
            outcome.lines("b"),
            "bar b p50_ratio=1.05 (bound <= 1.2; median of 3 runs, 1 to 1.25) pass\n\
             bar b rate=700/s (bound = 666.7 ± 6.667) FAIL\n\
             bar b reset=83 (bound = 83, serve's count) pass\n    b: remark\n"
        );
        assert!(!outcome.passed(Scale::Sample) && !Outcome::default().passed(Scale::Sample));
        let mut undecided = Outcome::default();
        undecided.undecided("p99", "<= 1", "stolen");
        assert!(!undecided.passed(Scale::Sample), "nothing was decided");
        undecided.equal("errors", 0, 0, "");
        assert!(undecided.passed(Scale::Sample) && !undecided.passed(Scale::Full));
    }

    #[test]
    fn names_are_unique() {
        for bar in ALL {
            assert_eq!(ALL.iter().filter(|other| other.name == bar.name).count(), 1, "{}", bar.name);
            assert_eq!(Bar::named(bar.name).map(|found| found.what), Some(bar.what));
        }
        assert!(Bar::named("none").is_none());
    }
}
