//! How a study goes, on standard error: a line for every trial, and on a terminal one that changes every second.

use std::time::Instant;

use indicatif::ProgressBar;
use record::{
    CurrentBounds, Goal, GoalQuantity, LoadUnit, Measured, Purpose, Trial, TrialEntry,
    units::{show_count, show_rate, show_time_ns},
};
use study::{Event, Study};

use super::{progress::bar, standard};

/// Shows how a study goes.
pub(crate) struct StudyProgress {
    bar: Option<ProgressBar>,
    quiet: bool,
    goals: Vec<Goal>,
    unit: Option<LoadUnit>,
    /// Trials that have ended, of all that are foreseen where that is known.
    done: usize,
    of: Option<usize>,
    /// How often a void trial is tried again.
    void_attempts: u32,
    begun: Instant,
    /// What runs, in words.
    running: String,
}

impl StudyProgress {
    /// Progress of this study; silent if `quiet`.
    pub(crate) fn new(study: &Study, quiet: bool) -> Self {
        Self {
            bar: bar(quiet),
            quiet,
            goals: study.goals.clone(),
            unit: study.search.as_ref().map(|search| search.unit.clone()),
            done: 0,
            of: None,
            void_attempts: study.trial.void_attempts,
            begun: Instant::now(),
            running: String::new(),
        }
    }

    /// Something has happened.
    pub(crate) fn show(&mut self, event: &Event<'_>) {
        match event {
            Event::Planned { plan, done, retried } => {
                self.done = *done;
                let searched = plan.settings.iter().any(|setting| setting.searched);
                self.of = (!searched).then(|| plan.blocks.iter().map(Vec::len).sum::<usize>() + retried);
                if *done > 0 {
                    self.line(&format!(
                        "{} trials of an earlier run are taken over",
                        show_count(*done as u64)
                    ));
                }
            }
            Event::SettingUp { name } => self.passing(&format!("bringing up hosts and targets  {name}")),
            Event::TrialBegins { name, purpose, load, .. } => {
                let what = match purpose {
                    Purpose::WarmUp => "warm-up",
                    Purpose::Search | Purpose::Repeat => "trial",
                    Purpose::Confirm => "confirming trial",
                };
                let number = match self.of {
                    Some(of) => format!("{} of {of}", self.done + 1),
                    None => (self.done + 1).to_string(),
                };
                let words = [Some(format!("{what} {number}")), load.clone(), Some((*name).to_owned())];
                let words = words.into_iter().flatten().filter(|word| !word.is_empty());
                self.running = words.collect::<Vec<_>>().join("  ");
                self.passing(&self.running.clone());
            }
            Event::Tick(tick) => {
                let times = &tick.response_time;
                let p99 = || show_time_ns(times.quantile_ns(0.99));
                let line = format!(
                    "{}  {:.0} s  {} completed, p99 {}, {} open",
                    self.running,
                    tick.end_ns as f64 / 1e9,
                    show_count(tick.completed),
                    if times.is_empty() { "–".to_owned() } else { p99() },
                    show_count(tick.open_connections),
                );
                self.passing(&line);
            }
            Event::TrialEnded(entry) => {
                self.done += 1;
                if entry.needs_retry(self.void_attempts) {
                    self.of = self.of.map(|of| of + 1);
                }
                let line = self.of_trial(entry);
                self.line(&line);
            }
            Event::SearchProgress { bounds, remaining_s } => {
                let line = self.of_bounds(bounds, *remaining_s);
                self.line(&line);
            }
            Event::Warning(message) => self.line(&format!("proofload: {}", secrets::mask(message))),
        }
    }

    /// The study is over: the line that changes goes.
    pub(crate) fn end(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    fn of_trial(&self, entry: &TrialEntry) -> String {
        let trial = &entry.trial;
        let verdict = match trial.validity.reasons() {
            [] if entry.growth_per_s.is_some() => "not met: answers grow slower and slower".to_owned(),
            [] => {
                match self.goals.iter().zip(&entry.loss_ratios).find(|(goal, loss)| **loss > goal.loss_ratio)
                {
                    Some((goal, loss)) => {
                        let share = format!("{:.3}", loss * 100.0);
                        let share = share.trim_end_matches('0').trim_end_matches('.');
                        format!("not met: {} ({share} {})", goal.name, counted_against(&goal.quantity, trial))
                    }
                    None if self.goals.is_empty() => "measured".to_owned(),
                    None => "met".to_owned(),
                }
            }
            [first, ..] => format!("not decided, void: {}", first.evidence),
        };
        let figures = match &trial.measured {
            Measured::Http(http) => {
                let p99 = show_time_ns(http.response_time.percentile(0.99).ns);
                format!("{}, p99 {p99}", show_rate(http.throughput_per_s))
            }
            Measured::Command(command) => show_time_ns((command.wall_s * 1e9) as u64),
        };
        format!("{:>5.0} s  {}  {figures}  {verdict}", self.begun.elapsed().as_secs_f64(), self.running)
    }

    fn of_bounds(&self, bounds: &[CurrentBounds], remaining_s: f64) -> String {
        let show = |load: &Option<f64>| match (load, &self.unit) {
            (Some(load), Some(unit)) => unit.show(*load),
            _ => "?".to_owned(),
        };
        let of = |(goal, known): (&Goal, &CurrentBounds)| {
            format!("{}: {} … {}", goal.name, show(&known.lower), show(&known.upper))
        };
        let bounds: Vec<String> = self.goals.iter().zip(bounds).map(of).collect();
        format!("         {}  (about {remaining_s:.0} s to go)", bounds.join("; "))
    }

    /// A line that stays.
    fn line(&self, text: &str) {
        match &self.bar {
            _ if self.quiet => {}
            Some(bar) => bar.println(standard::fitted(text)),
            None => standard::tell(text),
        }
    }

    /// A line that the next one replaces; only a terminal has room for it.
    fn passing(&self, text: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(standard::harmless(text).into_owned());
        }
    }
}

/// What is counted against a goal. Late is not lost.
fn counted_against(quantity: &GoalQuantity, trial: &Trial) -> &'static str {
    match quantity {
        GoalQuantity::Errors if trial.command().is_some() => "% of programs failed",
        GoalQuantity::Errors => "% of requests failed, unanswered or never sent",
        GoalQuantity::ResponseTime { .. } => "% of requests over it",
        GoalQuantity::ConnectTime { .. } => "% of connections over it",
        GoalQuantity::Lost => "% of events lost",
        GoalQuantity::Duplicated => "% of events duplicated",
        GoalQuantity::Corrupt => "% of events corrupt",
        GoalQuantity::Declared { .. } => "% of it missed",
    }
}
