//! Live progress of a trial on standard error. It shows the figures that the workers report every second anyway, so it
//! costs the measuring threads nothing.

use std::{io::IsTerminal, time::Duration};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use load::Tick;
use record::{
    HttpPlan,
    units::{show_count, show_rate, show_time_ns},
};

use super::standard;

/// Shows the progress of a trial.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    quiet: bool,
    total_s: Option<f64>,
    failed: u64,
    last_end_ns: u64,
}

/// A line of the terminal that is updated in place; `None` if standard error is not a terminal or `quiet` is set.
pub(crate) fn bar(quiet: bool) -> Option<ProgressBar> {
    (std::io::stderr().is_terminal() && !quiet).then(|| {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(250));
        bar
    })
}

/// Interval in seconds between two lines without a terminal.
const LINE_INTERVAL_S: u64 = 5;

impl Progress {
    /// Starts the progress of a trial of `plan`; prints nothing if `quiet`.
    pub(crate) fn new(plan: &HttpPlan, quiet: bool) -> Self {
        let total_s = plan.duration_ns.map(|ns| ns as f64 / 1e9);
        let bar = bar(quiet).inspect(|bar| bar.set_message("connecting"));
        Self { bar, quiet, total_s, failed: 0, last_end_ns: 0 }
    }

    /// Shows the figures of one second.
    pub(crate) fn show(&mut self, tick: &Tick) {
        self.failed += tick.failed;
        // At a slow worker, the last, partial second may end before the previous one.
        let length_s = tick.end_ns.saturating_sub(self.last_end_ns) as f64 / 1e9;
        let start_s = self.last_end_ns / 1_000_000_000;
        self.last_end_ns = self.last_end_ns.max(tick.end_ns);
        if self.quiet || length_s <= 0.0 {
            return;
        }
        let times = &tick.response_time;
        let shown = |ns| if times.is_empty() { "–".to_owned() } else { show_time_ns(ns) };
        let total = self.total_s.map_or(String::new(), |total| format!("/{total:.0}"));
        let line = format!(
            "{:.0}{total} s  {}  p50 {}  p99 {}  max {}  failed {}  connections {}  in flight {}",
            tick.end_ns as f64 / 1e9,
            show_rate(tick.completed as f64 / length_s),
            shown(times.quantile_ns(0.5)),
            shown(times.quantile_ns(0.99)),
            shown(times.max_ns()),
            show_count(self.failed),
            show_count(tick.open_connections),
            show_count(tick.in_flight),
        );
        match &self.bar {
            Some(bar) => bar.set_message(line),
            None if start_s / LINE_INTERVAL_S < tick.end_ns / 1_000_000_000 / LINE_INTERVAL_S => {
                standard::print_to_stderr(line)
            }
            None => {}
        }
    }

    /// Removes the line from the terminal.
    pub(crate) fn end(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}
