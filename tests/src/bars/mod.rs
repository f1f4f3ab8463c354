//! The bars: measurements with bounds that the binary must meet.
//!
//! Every bar runs at full size (`make prove NAME=...`) and as a sample. `make test` decides what a sample counts, on any machine. `make
//! prove NAME=samples` reports the figures that depend on time. A figure that noise can spoil is the median of several runs, printed with
//! its spread.

use std::{
    io::{self, Write},
    time::{Duration, Instant},
};

use anyhow::Result;

use crate::disturbance::{Gaps, Witness};
pub use outcome::{Outcome, Runs, SHOWS_NOTES, Verdict};

mod balance_cost;
mod balance_disruption;
mod balance_spread;
mod balance_vm;
mod cause_account;
mod cause_table;
mod command_figures;
mod compare_beside_hog;
mod connections_18k;
mod connections_200k;
mod copy_faults;
mod copy_held_back;
mod copy_loopback;
mod copy_manners;
mod copy_ocean;
mod copy_paths;
mod descriptors;
mod disturbances;
mod first_contact;
mod fleet;
mod foreign_grammar;
mod fuzz;
mod generator_away;
mod host_settings;
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
mod limit_beside_hog;
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
mod ocean_copy;
mod ocean_path;
mod outcome;
mod pacing;
mod processor_by_host;
mod properties;
mod readme;
mod remote_verdict;
mod report_browser;
mod sessions;
mod sound_windows;
mod studies_beside_hog;
mod study_files;
mod study_folders;
mod study_fresh;
mod study_resume;
mod templates;
mod unanswered_connects;
mod verdict_conntrack;
mod verdict_proof;
mod verdict_rivals;
mod verdict_studies;
mod verdict_table;
mod vm_netem;
mod void_rules;

/// Every bar, in the order of the runs.
pub const ALL: &[Bar] = &[
    pacing::BAR,
    known_closed::BAR,
    known_stalls::BAR,
    known_exponential::BAR,
    misbehaviour::BAR,
    templates::BAR,
    foreign_grammar::BAR,
    sessions::BAR,
    properties::BAR,
    descriptors::BAR,
    local_scarcity::BAR,
    void_rules::BAR,
    verdict_table::BAR,
    cause_table::BAR,
    cause_account::BAR,
    verdict_conntrack::BAR,
    verdict_proof::BAR,
    verdict_rivals::BAR,
    verdict_studies::BAR,
    remote_verdict::BAR,
    processor_by_host::BAR,
    generator_away::BAR,
    disturbances::BAR,
    sound_windows::BAR,
    interrupt::BAR,
    connections_18k::BAR,
    connections_200k::BAR,
    link_delay::BAR,
    link_rate::BAR,
    link_loss::BAR,
    link_lossy_times::BAR,
    link_certified::BAR,
    fuzz::HTTP1,
    fuzz::ANSWERS,
    lab_hosts::BAR,
    lab_segment::BAR,
    lab_files::BAR,
    lab_crash::BAR,
    lab_nested::BAR,
    host_settings::BAR,
    vm_netem::BAR,
    limit_capacity::BAR,
    limit_generator_bound::BAR,
    limit_short_trials::BAR,
    limit_away::BAR,
    limit_beside_hog::BAR,
    first_contact::BAR,
    compare_beside_hog::BAR,
    studies_beside_hog::BAR,
    study_resume::BAR,
    study_files::BAR,
    study_folders::BAR,
    study_fresh::BAR,
    command_figures::BAR,
    ocean_path::BAR,
    copy_held_back::BAR,
    copy_faults::BAR,
    ocean_copy::BAR,
    copy_loopback::BAR,
    copy_paths::BAR,
    copy_manners::BAR,
    copy_ocean::BAR,
    balance_spread::BAR,
    balance_disruption::BAR,
    balance_cost::BAR,
    balance_vm::BAR,
    fleet::LIMIT,
    fleet::REQUESTS,
    fleet::COST,
    fleet::SECRETS,
    fleet::FAULTS,
    fleet::THOUSAND,
    fleet::CLOCKS,
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
    fuzz::EVENTS,
    fuzz::SFTP,
];

/// A bar: a measurement with bounds.
#[derive(Debug, Clone, Copy)]
pub struct Bar {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it requires of the binary, in one line.
    pub what: &'static str,
    /// Approximate time of a full run, in seconds.
    pub full_seconds: u32,
    /// The kind of figures that decide its sample.
    pub decided_by: By,
    /// Measures. An error means that nothing could be measured, which also counts as a failure.
    pub run: fn(Scale) -> Result<Outcome>,
}

/// The kinds of figures in a bar's sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// Only counts, which do not depend on the machine: `make test` decides them.
    Counts,
    /// Times, random results, and what depends on them: `make prove NAME=samples` reports them.
    Times,
    /// Both kinds of figures.
    Both,
}

impl Bar {
    /// The bar with this name, if there is one.
    pub fn named(name: &str) -> Option<&'static Self> {
        ALL.iter().find(|bar| bar.name == name)
    }

    /// Runs the bar, prints a line for each figure, and returns the verdict.
    pub fn check(&self, scale: Scale) -> Checked {
        let begun = Instant::now();
        let watched = match scale {
            Scale::Sample => Witness::of_all(|| (self.run)(scale)),
            Scale::Counts | Scale::Full => (self.run)(scale).map(|outcome| (outcome, Gaps::default())),
        };
        let (lines, verdict, gaps) = match watched {
            Ok((mut outcome, gaps)) => {
                if gaps.disturb() {
                    outcome.excuse_times(&format!(
                        "a witness of real-time priority had no processor for {gaps}"
                    ));
                }
                (outcome.lines(self.name), outcome.verdict(scale), gaps)
            }
            Err(error) => {
                let line = format!("bar {} could not be measured FAIL\n{error:#}\n", self.name);
                (line, Verdict::Wrong, Gaps::default())
            }
        };
        // Write past the test harness's capture, because every log needs the figures. Take the lock only now, because bars run
        // concurrently.
        let mut out = io::stdout().lock();
        let _ = out.write_all(lines.as_bytes());
        let _ = writeln!(out, "    {}: {:.0} s", self.name, begun.elapsed().as_secs_f64());
        let is_reached = |line: &&str| line.ends_with(" pass") || line.starts_with(' ');
        let missed = lines.lines().filter(|line| !is_reached(line)).collect::<Vec<_>>().join("\n");
        if verdict != Verdict::Reached {
            // Repeat these lines, because a log that is cut keeps only those next to the verdict.
            let _ = writeln!(out, "{missed}");
        }
        Checked { verdict, missed, gaps }
    }
}

/// The result of a bar.
#[derive(Debug)]
pub struct Checked {
    /// The verdict on all its figures.
    pub verdict: Verdict,
    /// The lines of the figures that were not reached.
    pub missed: String,
    /// The times for which a witness had no processor. Only samples have a witness.
    pub gaps: Gaps,
}

/// The size of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Only the counts of a sample, which do not depend on time.
    Counts,
    /// A short run that shows whether the bar probably still holds.
    Sample,
    /// The full run.
    Full,
}

impl Scale {
    /// The first value except for a full run, which gets the second.
    pub fn pick<T>(self, sample: T, full: T) -> T {
        match self {
            Self::Counts | Self::Sample => sample,
            Self::Full => full,
        }
    }

    /// Whether times are judged.
    pub fn is_timed(self) -> bool {
        self != Self::Counts
    }
}

/// Whether a case of a bar runs: all do, unless the environment names some, as in `PROVE_CASES=disk,link_rate`.
fn is_wanted(case: &str) -> bool {
    std::env::var("PROVE_CASES").map_or(true, |cases| cases.split(',').any(|wanted| wanted == case))
}

/// Whether the case with this number runs. A name in `PROVE_CASES` selects `together` cases: `0-24`.
fn is_wanted_among(number: u64, together: u64) -> bool {
    let first = number / together * together;
    is_wanted(&format!("{first}-{}", first + together - 1))
}

/// A short form for timeouts.
fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Converts nanoseconds to microseconds.
fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

/// Converts nanoseconds to milliseconds.
fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        for bar in ALL {
            assert_eq!(ALL.iter().filter(|other| other.name == bar.name).count(), 1, "{}", bar.name);
            assert_eq!(Bar::named(bar.name).map(|found| found.what), Some(bar.what));
        }
        assert!(Bar::named("none").is_none());
    }
}
