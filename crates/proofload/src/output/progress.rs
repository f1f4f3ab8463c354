//! Live progress on standard error, a line a second. It is fed from the seconds that the workers hand in
//! anyway, so it costs the measuring threads nothing.

use std::{io::IsTerminal, time::Duration};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use load::Tick;
use record::{
    HttpPlan,
    units::{show_count, show_rate, show_time_ns},
};

use super::standard;

/// Shows how a trial goes.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    quiet: bool,
    total_s: Option<f64>,
    failed: u64,
    last_end_ns: u64,
}

/// The line of a terminal that changes; none where standard error is no terminal, or is to be quiet.
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

/// Where no terminal shows a line that changes, one is printed every so many seconds.
const LINE_EVERY_S: u64 = 5;

impl Progress {
    /// Progress of a trial of this plan; silent if `quiet`.
    pub(crate) fn new(plan: &HttpPlan, quiet: bool) -> Self {
        let total_s = plan.duration_ns.map(|ns| ns as f64 / 1e9);
        let bar = bar(quiet).inspect(|bar| bar.set_message("connecting"));
        Self { bar, quiet, total_s, failed: 0, last_end_ns: 0 }
    }

    /// One second has passed.
    pub(crate) fn show(&mut self, tick: &Tick) {
        self.failed += tick.failed;
        // The last part of a second may end before another worker's late end of the second before it.
        let length_s = tick.end_ns.saturating_sub(self.last_end_ns) as f64 / 1e9;
        let begun_s = self.last_end_ns / 1_000_000_000;
        self.last_end_ns = self.last_end_ns.max(tick.end_ns);
        if self.quiet || length_s <= 0.0 {
            return;
        }
        let times = &tick.response_time;
        let shown = |ns| if times.is_empty() { "–".to_owned() } else { show_time_ns(ns) };
        let of = self.total_s.map_or(String::new(), |total| format!("/{total:.0}"));
        let line = format!(
            "{:.0}{of} s  {}  p50 {}  p99 {}  max {}  failed {}  open {}  in flight {}",
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
            None if begun_s / LINE_EVERY_S < tick.end_ns / 1_000_000_000 / LINE_EVERY_S => {
                standard::tell(line)
            }
            None => {}
        }
    }

    /// The trial is over: the line goes.
    pub(crate) fn end(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}
