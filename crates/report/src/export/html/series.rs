//! Charts over time for representative trials.

use maud::{Markup, html};
use record::{Interval, TrialEntry};

use super::{
    Page, Section,
    parts::{Column, details, left_out, table},
    representative::{RepresentativeTrial, section_of_trials},
};
use crate::{
    plot::{Axis, Chart, Layer, Line, Scale, short_number, short_seconds, short_time_us},
    reading::median,
    text,
};

pub(super) fn section(page: &Page) -> Option<Section> {
    let introduction = "Single trials over time. For a search: the last trial at the lower bound and the first missed one at the upper \
         bound; for other settings: the trial nearest to the median; and the first void trial of the study. The result \
         folder has these data for all trials.";
    let (texts, counts) = (("series", "Second by second", introduction), (2, page.limits.figures));
    section_of_trials(page, texts, counts, intervals, |selected, series| trial_charts(page, selected, series))
}

/// The time series of a trial of requests.
fn intervals(entry: &TrialEntry) -> Option<&[Interval]> {
    Some(&entry.trial.http()?.series[..]).filter(|series| !series.is_empty())
}

/// A step of the charts: one interval of the trial, or several merged ones.
struct TimeStep {
    start_s: f64,
    end_s: f64,
    sent_per_s: Option<f64>,
    completed_per_s: Option<f64>,
    failed_per_s: Option<f64>,
    p50_us: Option<f64>,
    p99_us: Option<f64>,
    max_us: Option<f64>,
    open_connections: f64,
}

fn trial_charts(page: &Page, selected: &RepresentativeTrial, series: &[Interval]) -> Markup {
    let together = series.len().div_ceil(page.limits.points.max(1)).max(1);
    let steps = steps(series, together);
    let void = selected.entry.trial.validity.is_void();
    let errors = series.iter().any(|interval| interval.failed > 0);
    html! {
        h3 { "Trial " (selected.entry.index) @if void { " (void)" } ": " bdi { (selected.why) } }
        @if void {
            ul {
                @for reason in selected.entry.trial.validity.reasons().iter().take(page.limits.lines) {
                    li { bdi { (page.text(&reason.evidence)) } }
                }
            }
        }
        figure {
            div.wide { (rates(&steps)) }
            div.wide { (times(&steps)) }
            @if errors { div.wide { (failures(&steps)) } }
            div.wide { (connections(&steps)) }
            figcaption {
                @if !errors { "No request failed in any second. " }
                @if together > 1 {
                    "Each step is " (together) " intervals: rates are means, p50 is the median of their p50, p99 and max are the \
                     largest values, and connections are those open at the end."
                } @else { "Each step is an interval of the trial. Times have a gap if no request was completed. \
                 Connections are those open at the end of the interval." }
            }
        }
        (details("The figures as a table", numbers(page, &steps)))
    }
}

fn steps(series: &[Interval], together: usize) -> Vec<TimeStep> {
    let mut start_s = 0.0;
    let chunks = series.chunks(together);
    chunks
        .map(|chunk| {
            let end_s = chunk.last().map_or(start_s, |last| last.end_s);
            let begin_s = std::mem::replace(&mut start_s, end_s);
            let seconds = end_s - begin_s;
            let per_s = |of: fn(&Interval) -> u64| {
                let sum: u64 = chunk.iter().map(of).sum();
                (seconds > 0.0).then(|| sum as f64 / seconds)
            };
            let timed = || chunk.iter().filter(|interval| interval.completed > 0);
            let largest = |of: fn(&Interval) -> Option<f64>| timed().filter_map(of).reduce(f64::max);
            TimeStep {
                start_s: begin_s,
                end_s,
                sent_per_s: per_s(|interval| interval.sent),
                completed_per_s: per_s(|interval| interval.completed),
                failed_per_s: per_s(|interval| interval.failed),
                p50_us: median(timed().filter_map(|interval| interval.p50_us)),
                p99_us: largest(|interval| interval.p99_us),
                max_us: largest(|interval| interval.max_us),
                open_connections: chunk.last().map_or(0.0, |last| last.open_connections as f64),
            }
        })
        .collect()
}

fn line(steps: &[TimeStep], name: &str, class: &str, of: fn(&TimeStep) -> Option<f64>) -> Layer {
    // A value applies to the whole step.
    let ends = steps
        .iter()
        .flat_map(|step| [step.start_s, step.end_s].map(|at_s| of(step).map(|value| (at_s, value))));
    Layer::Line(Line::new(name, class, ends))
}

fn values(steps: &[TimeStep], of: &[fn(&TimeStep) -> Option<f64>]) -> Vec<f64> {
    steps.iter().flat_map(|step| of.iter().filter_map(move |of| of(step))).collect()
}

/// A chart of the given height over the steps. In a column of charts, only the last one labels the
/// seconds.
fn chart(steps: &[TimeStep], (title, height): (&str, f64), x: &str, y: Axis, layers: Vec<Layer>) -> Markup {
    let high = steps.last().map_or(1.0, |last| last.end_s).max(1e-3);
    let x = Axis::new(x, Scale::Linear { low: 0.0, high }, short_seconds);
    Chart { title: title.to_owned(), height, x, y, layers }.svg()
}

fn rates(steps: &[TimeStep]) -> Markup {
    let scale = Scale::from_zero(values(steps, &[|s| s.sent_per_s, |s| s.completed_per_s]));
    let y = Axis::new("requests per second", scale, short_number);
    let completed = line(steps, "completed", "s0", |s| s.completed_per_s);
    let sent = line(steps, "sent", "s1", |s| s.sent_per_s);
    chart(steps, ("Requests sent and completed per second", 120.0), "", y, vec![completed, sent])
}

fn times(steps: &[TimeStep]) -> Markup {
    let all = values(steps, &[|s| s.p50_us, |s| s.p99_us, |s| s.max_us]);
    if all.is_empty() {
        return html! { p.note { "No request was completed, so there are no times." } };
    }
    let y = Axis::new("response time", Scale::log(all), short_time_us);
    let p50 = line(steps, "p50", "s0", |s| s.p50_us);
    let p99 = line(steps, "p99", "s1", |s| s.p99_us);
    let max = line(steps, "max", "s5", |s| s.max_us);
    chart(
        steps,
        ("Response time of the requests completed in each second", 150.0),
        "",
        y,
        vec![p50, p99, max],
    )
}

fn failures(steps: &[TimeStep]) -> Markup {
    let scale = Scale::from_zero(values(steps, &[|s| s.failed_per_s]));
    let y = Axis::new("failed requests per second", scale, short_number);
    let failed = line(steps, "", "not-met", |s| s.failed_per_s);
    chart(steps, ("Requests failed per second", 80.0), "", y, vec![failed])
}

fn connections(steps: &[TimeStep]) -> Markup {
    let scale = Scale::from_zero(values(steps, &[|s| Some(s.open_connections)]));
    let y = Axis::new("open connections", scale, short_number);
    let open = line(steps, "", "s2 plain", |s| Some(s.open_connections));
    chart(
        steps,
        ("Open connections at the end of each second", 80.0),
        "seconds since the trial's start",
        y,
        vec![open],
    )
}

fn numbers(page: &Page, steps: &[TimeStep]) -> Markup {
    let heads = ["until, s", "sent/s", "completed/s", "failed/s", "p50", "p99", "max", "open connections"];
    let columns = heads.map(|head| (Column::Number, head));
    let shown = steps.len().min(page.limits.lines);
    let rate = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |rate| text::number(rate.round()));
    let time = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |us| text::quantity("_us", us));
    let rows: Vec<Vec<String>> = steps[..shown]
        .iter()
        .map(|s| {
            vec![
                text::number(s.end_s),
                rate(s.sent_per_s),
                rate(s.completed_per_s),
                rate(s.failed_per_s),
                time(s.p50_us),
                time(s.p99_us),
                time(s.max_us),
                text::number(s.open_connections),
            ]
        })
        .collect();
    html! {
        (table("The trial second by second", &columns, &rows))
        (left_out(shown, steps.len(), "line"))
    }
}
