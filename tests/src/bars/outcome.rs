//! The results of a bar: figures with their bounds, and whether each was reached.

use std::{
    fmt,
    sync::atomic::{AtomicBool, Ordering},
};

use super::Scale;
use crate::stats::{median, spread};

/// Whether notes go to standard error at once, so that an interrupt of a bar that takes an hour does not lose them.
pub static SHOWS_NOTES: AtomicBool = AtomicBool::new(false);

/// The results of a bar.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    figures: Vec<Figure>,
    notes: Vec<String>,
    next_is_a_time: bool,
}

impl Outcome {
    /// Adds a figure with its bound, and whether it is within the bound.
    pub fn figure(&mut self, name: &str, value: impl fmt::Display, bound: impl fmt::Display, pass: bool) {
        let missed = if self.next_is_a_time { Verdict::Missed } else { Verdict::Wrong };
        self.add(name, value, bound, if pass { Verdict::Reached } else { missed });
    }

    /// Adds a figure that this machine could not measure, according to witnesses other than the binary.
    pub fn undecided(&mut self, name: &str, bound: impl fmt::Display, why: impl fmt::Display) {
        self.next_is_a_time = true;
        self.add(name, format!("not decided: {why}"), bound, Verdict::Undecided);
    }

    fn add(&mut self, name: &str, value: impl fmt::Display, bound: impl fmt::Display, verdict: Verdict) {
        let (value, bound) = (value.to_string(), bound.to_string());
        let is_time = std::mem::take(&mut self.next_is_a_time);
        self.figures.push(Figure { name: name.to_owned(), value, bound, verdict, is_time });
    }

    /// Marks the next figure as a time, a rate, or something that depends on one. Other programs that use the processors can spoil it.
    pub fn time(&mut self) -> &mut Self {
        self.next_is_a_time = true;
        self
    }

    /// Makes missed times undecided, with the reason `why`.
    pub fn excuse_times(&mut self, why: &str) {
        for figure in self.figures.iter_mut().filter(|figure| figure.verdict == Verdict::Missed) {
            figure.verdict = Verdict::Undecided;
            figure.value = format!("not decided: {}, but {why}", figure.value);
        }
    }

    /// Adds a figure that must not exceed a bound. It is the median of several runs, printed with its spread.
    pub fn at_most(&mut self, name: &str, runs: &Runs, most: f64, unit: &str) {
        let value = runs.median();
        let bound = format!("<= {}{}", shown(most), runs.spread_shown());
        self.figure(name, format!("{}{unit}", shown(value)), bound, value <= most);
    }

    /// Adds a figure that must be within `distance` of the true value.
    pub fn near(&mut self, name: &str, value: f64, truth: f64, distance: f64, unit: &str) {
        let bound = format!("= {} ± {}", shown(truth), shown(distance));
        self.figure(name, format!("{}{unit}", shown(value)), bound, (value - truth).abs() <= distance);
    }

    /// Adds the median of several runs, which must be within `distance` of the true value.
    pub fn runs_near(&mut self, name: &str, runs: &Runs, truth: f64, distance: f64) {
        let value = runs.median();
        let bound = format!("= {} ± {}{}", shown(truth), shown(distance), runs.spread_shown());
        self.figure(name, shown(value), bound, (value - truth).abs() <= distance);
    }

    /// Adds a count that must be equal to the count of the other side.
    pub fn equal(&mut self, name: &str, value: u64, truth: u64, whose: &str) {
        self.figure(name, value, format!("= {truth}, {whose}"), value == truth);
    }

    /// Adds a figure that is yes or no.
    pub fn holds(&mut self, name: &str, pass: bool, bound: &str) {
        self.figure(name, if pass { "yes" } else { "no" }, bound, pass);
    }

    /// Adds all figures and notes of another outcome, with a prefix before the names of its figures.
    pub fn take_in(&mut self, prefix: &str, other: Self) {
        let named = |figure: Figure| Figure { name: format!("{prefix}_{}", figure.name), ..figure };
        self.figures.extend(other.figures.into_iter().map(named));
        self.notes.extend(other.notes);
    }

    /// Adds a line that helps to understand the figures.
    pub fn note(&mut self, text: impl Into<String>) {
        let text = text.into();
        if SHOWS_NOTES.load(Ordering::Relaxed) {
            eprintln!("    {text}");
        }
        self.notes.push(text);
    }

    /// The worst verdict of all figures. An outcome without figures is wrong, and so is one that has times where only counts may decide.
    pub fn verdict(&self, scale: Scale) -> Verdict {
        let has_time = self.figures.iter().any(|figure| figure.is_time);
        if self.figures.is_empty() || (has_time && !scale.is_timed()) {
            return Verdict::Wrong;
        }
        self.figures.iter().map(|figure| figure.verdict).max().unwrap_or(Verdict::Wrong)
    }

    /// The lines of a bar's figures and notes.
    pub fn lines(&self, bar: &str) -> String {
        let figures = self.figures.iter().map(|Figure { name, value, bound, verdict, .. }| {
            format!("bar {bar} {name}={value} (bound {bound}) {verdict}\n")
        });
        let notes = self.notes.iter().map(|note| format!("    {bar}: {note}\n"));
        figures.chain(notes).collect()
    }
}

/// The values of the same figure in several runs.
#[derive(Debug, Clone, Default)]
pub struct Runs(Vec<f64>);

impl Runs {
    /// Number of values.
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

    /// Only the smallest value, for a figure that disturbances can only increase.
    pub fn least(&self) -> Self {
        Self(self.0.iter().copied().reduce(f64::min).into_iter().collect())
    }

    /// Whether there are no values.
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
    is_time: bool,
}

/// The verdict on a figure, or on all figures of a bar, in ascending order of severity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// The figure is within its bound.
    Reached,
    /// Other programs had the processors, or this machine could not measure the figure.
    Undecided,
    /// A time, a rate, or something that depends on one is outside of its bound.
    Missed,
    /// A count is wrong, which no machine excuses; or nothing could be measured.
    Wrong,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reached => "pass",
            Self::Undecided => "UNDECIDED",
            Self::Missed => "MISSED",
            Self::Wrong => "WRONG",
        })
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_the_agreed_form() {
        let mut outcome = Outcome::default();
        let mut runs = Runs::default();
        [1.25, 1.0, 1.05].into_iter().for_each(|value| runs.push(value));
        outcome.at_most("p50_ratio", &runs, 1.2, "");
        outcome.time().near("rate", 700.0, 666.7, 6.667, "/s");
        outcome.equal("reset", 82, 83, "serve's count");
        outcome.note("remark");
        assert_eq!(
            outcome.lines("b"),
            "bar b p50_ratio=1.05 (bound <= 1.2; median of 3 runs, 1 to 1.25) pass\n\
             bar b rate=700/s (bound = 666.7 ± 6.667) MISSED\n\
             bar b reset=82 (bound = 83, serve's count) WRONG\n    b: remark\n"
        );
        assert_eq!(outcome.verdict(Scale::Sample), Verdict::Wrong);
        assert_eq!(Outcome::default().verdict(Scale::Sample), Verdict::Wrong, "nothing was tested");
    }

    #[test]
    fn a_disturbed_machine_excuses_times_and_nothing_else() {
        let of = |value: f64, failed: u64| {
            let mut outcome = Outcome::default();
            outcome.time().near("p50_ms", value, 300.0, 1.0, "");
            outcome.equal("failed", failed, 0, "serve's");
            outcome
        };
        let mut late = of(302.0, 0);
        assert_eq!(late.verdict(Scale::Sample), Verdict::Missed);
        late.excuse_times("a neighbour was there");
        assert_eq!(late.verdict(Scale::Sample), Verdict::Undecided);
        let line = "bar b p50_ms=not decided: 302, but a neighbour was there (bound = 300 ± 1) UNDECIDED\n";
        assert!(late.lines("b").starts_with(line), "{}", late.lines("b"));

        let mut wrong = of(300.0, 1);
        wrong.excuse_times("a neighbour was there");
        assert_eq!(wrong.verdict(Scale::Sample), Verdict::Wrong);
    }

    #[test]
    fn where_counts_decide_no_figure_is_a_time() {
        let mut counted = Outcome::default();
        counted.equal("failed", 0, 0, "serve's");
        assert_eq!(counted.verdict(Scale::Counts), Verdict::Reached);
        let mut timed = counted.clone();
        timed.time().near("p50_ms", 300.0, 300.0, 1.0, "");
        assert_eq!(timed.verdict(Scale::Counts), Verdict::Wrong);
        counted.undecided("p99", "<= 1", "stolen");
        assert_eq!(counted.verdict(Scale::Counts), Verdict::Wrong);
        assert_eq!(counted.verdict(Scale::Full), Verdict::Undecided);
    }
}
