//! Live progress on standard error: one line for each trial of a study, or every 5 s of a single trial. On a terminal, a line is
//! updated every second. The workers report these figures in any case, so progress costs the measuring threads nothing.

use std::{
    io::IsTerminal,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use load::Tick;
use record::{
    CurrentBounds, Goal, GoalQuantity, HttpPlan, LoadUnit, Measured, Purpose, Trial, TrialEntry,
    study::UNDECIDED,
    units::{show_count, show_rate, show_time_ns},
};
use study::{Event, Study};

use super::standard;

/// Shows the progress of a study or of a single trial.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    quiet: bool,
    /// Whether figures of a running trial are printed when standard error is not a terminal.
    prints_seconds: bool,
    goals: Vec<Goal>,
    unit: Option<LoadUnit>,
    /// Number of completed trials.
    done: usize,
    /// Number of trials that the study will run; `None` if a search determines it.
    planned: Option<usize>,
    /// Number of repeats of a void trial.
    void_attempts: u32,
    started: Instant,
    /// The current trial in words; empty for a single trial.
    running: String,
    seconds: Seconds,
}

/// Totals over the past seconds of the current trial.
#[derive(Default)]
struct Seconds {
    /// Planned duration of the trial in seconds; `None` if unlimited.
    length_s: Option<f64>,
    failed: u64,
    last_end_ns: u64,
}

/// A terminal line that is updated in place; `None` if standard error is not a terminal or `quiet` is set.
pub(crate) fn bar(quiet: bool, template: &str) -> Option<ProgressBar> {
    (std::io::stderr().is_terminal() && !quiet).then(|| {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(250));
        bar
    })
}

/// Seconds between two progress lines if standard error is not a terminal.
const LINE_INTERVAL_S: u64 = 5;

impl Progress {
    /// The progress of a study; prints nothing if `quiet`.
    pub(crate) fn of_study(study: &Study, quiet: bool) -> Self {
        Self {
            goals: study.goals.clone(),
            unit: study.search.as_ref().map(|search| search.unit.clone()),
            void_attempts: study.trial.void_attempts,
            ..Self::new(quiet)
        }
    }

    /// The progress of a single trial; prints nothing if `quiet`.
    pub(crate) fn of_trial(plan: &HttpPlan, quiet: bool) -> Self {
        let seconds = Seconds { length_s: length_s(plan), ..Seconds::default() };
        let progress = Self { prints_seconds: true, seconds, ..Self::new(quiet) };
        progress.set_status("connecting");
        progress
    }

    fn new(quiet: bool) -> Self {
        Self {
            bar: bar(quiet, "{spinner} {wide_msg}"),
            quiet,
            prints_seconds: false,
            goals: Vec::new(),
            unit: None,
            done: 0,
            planned: None,
            void_attempts: 0,
            started: Instant::now(),
            running: String::new(),
            seconds: Seconds::default(),
        }
    }

    /// Updates the display after an event of the study.
    pub(crate) fn show(&mut self, event: &Event<'_>) {
        match event {
            Event::Planned { plan, done, retried } => {
                self.done = *done;
                let searched = plan.settings.iter().any(|setting| setting.searched);
                self.planned = (!searched).then(|| plan.blocks.iter().map(Vec::len).sum::<usize>() + retried);
                if *done > 0 {
                    self.print_line(&format!(
                        "keeping {} trials of an earlier run",
                        show_count(*done as u64)
                    ));
                }
            }
            Event::SettingUp { name } => self.set_status(&format!("starting hosts and targets  {name}")),
            Event::TrialBegins { name, purpose, load, plan } => {
                self.seconds = Seconds { length_s: plan.and_then(length_s), ..Seconds::default() };
                let what = match purpose {
                    Purpose::WarmUp => "warm-up",
                    Purpose::Search | Purpose::Repeat => "trial",
                    Purpose::Confirm => "confirmation trial",
                };
                let number = match self.planned {
                    Some(planned) => format!("{} of {planned}", self.done + 1),
                    None => (self.done + 1).to_string(),
                };
                let words = [Some(format!("{what} {number}")), load.clone(), Some((*name).to_owned())];
                let words = words.into_iter().flatten().filter(|word| !word.is_empty());
                self.running = words.collect::<Vec<_>>().join("  ");
                self.set_status(&self.running.clone());
            }
            Event::Tick(tick) => self.show_second(tick),
            Event::TrialEnded(entry) => {
                self.done += 1;
                if entry.needs_retry(self.void_attempts) {
                    self.planned = self.planned.map(|planned| planned + 1);
                }
                let line = self.trial_line(entry);
                self.print_line(&line);
            }
            Event::SearchProgress { bounds, remaining_s } => {
                let line = self.bounds_line(bounds, *remaining_s);
                self.print_line(&line);
            }
            Event::Waiting(words) => {
                self.set_status(words);
                self.print_line(words);
            }
            Event::Warning(message) => self.print_line(&format!("proofload: {message}")),
        }
    }

    /// Removes the status line from the terminal.
    pub(crate) fn end(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    fn show_second(&mut self, tick: &Tick) {
        let Seconds { length_s, failed, last_end_ns } = &mut self.seconds;
        *failed += tick.failed;
        // A slow worker may report its last, partial second later than other workers and with an earlier end.
        let second_s = tick.end_ns.saturating_sub(*last_end_ns) as f64 / 1e9;
        let start_s = *last_end_ns / 1_000_000_000;
        *last_end_ns = (*last_end_ns).max(tick.end_ns);
        let is_due = start_s / LINE_INTERVAL_S < tick.end_ns / 1_000_000_000 / LINE_INTERVAL_S;
        let is_shown = self.bar.is_some() || (self.prints_seconds && is_due && !self.quiet);
        if second_s <= 0.0 || !is_shown {
            return;
        }
        let times = &tick.response_time;
        let shown = |ns| if times.is_empty() { "–".to_owned() } else { show_time_ns(ns) };
        let line = format!(
            "{:.0}{} s  {}  p50 {}  p99 {}  max {}  failed {}  connections {}  in flight {}{}{}",
            tick.end_ns as f64 / 1e9,
            length_s.map_or_else(String::new, |length_s| format!("/{length_s:.0}")),
            show_rate(tick.completed as f64 / second_s),
            shown(times.quantile_ns(0.5)),
            shown(times.quantile_ns(0.99)),
            shown(times.max_ns()),
            show_count(*failed),
            show_count(tick.open_connections),
            show_count(tick.in_flight),
            if self.running.is_empty() { "" } else { "  " },
            // Last, because the terminal's width may cut it.
            self.running,
        );
        match self.bar {
            None => self.print_line(&line),
            Some(_) => self.set_status(&line),
        }
    }

    fn trial_line(&self, entry: &TrialEntry) -> String {
        let trial = &entry.trial;
        let verdict = match trial.validity.reasons() {
            [] if !entry.undecided.is_empty() => brief(trial.told(UNDECIDED).unwrap_or("undecided")),
            [] if entry.growth_per_s.is_some() => "not met: response times kept growing".to_owned(),
            [] => {
                match self.goals.iter().zip(&entry.loss_ratios).find(|(goal, loss)| **loss > goal.loss_ratio)
                {
                    Some((goal, loss)) => format!("not met: {}{}", goal.name, loss_text(goal, *loss, trial)),
                    None if self.goals.is_empty() => "measured".to_owned(),
                    None => "met".to_owned(),
                }
            }
            [first, ..] => format!("void: {}", brief(&first.evidence)),
        };
        let figures = match &trial.measured {
            Measured::Http(http) => {
                let p99 = match http.response_time.lower_bound().is_empty() {
                    true => "–".to_owned(),
                    false => http.response_time.percentile(0.99).in_words(|ns| show_time_ns(ns as u64)),
                };
                format!("{}, p99 {p99}", http.throughput().in_words(show_rate))
            }
            Measured::Command(command) => {
                command.wall_s.map_or_else(|| "–".to_owned(), |wall_s| show_time_ns((wall_s * 1e9) as u64))
            }
        };
        format!("{:>5.0} s  {}  {figures}  {verdict}", self.started.elapsed().as_secs_f64(), self.running)
    }

    fn bounds_line(&self, bounds: &[CurrentBounds], remaining_s: f64) -> String {
        let show = |load: &Option<f64>| match (load, &self.unit) {
            (Some(load), Some(unit)) => unit.show(*load),
            _ => "?".to_owned(),
        };
        let goal_bounds = |(goal, known): (&Goal, &CurrentBounds)| {
            format!("{}: {} … {}", goal.name, show(&known.lower), show(&known.upper))
        };
        let bounds: Vec<String> = self.goals.iter().zip(bounds).map(goal_bounds).collect();
        format!("         {}  (about {remaining_s:.0} s to go)", bounds.join("; "))
    }

    /// Prints a line above the status line, which stays at the bottom.
    fn print_line(&self, text: &str) {
        match &self.bar {
            _ if self.quiet => {}
            Some(bar) => bar.println(standard::for_stderr(text)),
            None => standard::print_to_stderr(text),
        }
    }

    /// Replaces the text of the status line; without a terminal, does nothing.
    fn set_status(&self, text: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(standard::printable_lines(text).into_owned());
        }
    }
}

/// For how many seconds the trial starts requests; `None` without a fixed duration.
fn length_s(plan: &HttpPlan) -> Option<f64> {
    plan.duration_ns.map(|ns| ns as f64 / 1e9)
}

/// The evidence up to its first `; `. The rest is advice, which the report gives once.
fn brief(evidence: &str) -> String {
    evidence.split("; ").next().unwrap_or(evidence).to_owned()
}

/// By how much a trial missed a goal, such as ` (0.2 % of requests failed, unanswered or never sent)`.
fn loss_text(goal: &Goal, loss: f64, trial: &Trial) -> String {
    let counted = match goal.quantity {
        GoalQuantity::Errors if trial.command().is_some() => "programs failed",
        GoalQuantity::Errors => "requests failed, unanswered or never sent",
        GoalQuantity::ResponseTime { .. } => "requests over it",
        GoalQuantity::ConnectTime { .. } => "connections over it",
        GoalQuantity::Lost => "events lost",
        GoalQuantity::Duplicated => "events duplicated",
        GoalQuantity::Corrupt => "events corrupt",
        // Such a goal is met or missed as a whole, so there is no share to show.
        GoalQuantity::Declared { .. } => return String::new(),
    };
    let percent = format!("{:.3}", loss * 100.0);
    format!(" ({} % of {counted})", percent.trim_end_matches('0').trim_end_matches('.'))
}
