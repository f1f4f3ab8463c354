//! Chosen trials, second by second.

use maud::{Markup, html};
use record::Interval;

use super::{
    Page, Section,
    chosen::{Chosen, chosen},
    parts::{Column, details, folded, left_out, table},
};
use crate::{
    plot::{Axis, Chart, Layer, Line, Scale, short_number, short_seconds, short_time_us},
    reading::median,
    text,
};

/// Trials that are shown at once; the others are folded.
const OPEN: usize = 2;

pub(super) fn section(page: &Page) -> Option<Section> {
    let all: Vec<Chosen> = chosen(page).into_iter().filter(|chosen| !intervals(chosen).is_empty()).collect();
    if all.is_empty() {
        return None;
    }
    let body = html! {
        p { "The course of single trials. Of a search: the last trial at the lower bound and the first that \
         did not meet the goal at the upper one; of any other setting: the trial nearest to its median; and \
         the first void one. The result folder has the seconds of all trials." }
        (folded(&all, (OPEN, page.limits.figures), ("trial", "chosen trial"), |chosen| one(page, chosen)))
    };
    Some(Section { anchor: "series", heading: "Second by second", body })
}

/// The seconds of a trial of requests; none of another kind.
fn intervals<'a>(chosen: &Chosen<'a>) -> &'a [Interval] {
    chosen.entry.trial.http().map_or(&[], |http| &http.series)
}

/// A stretch of a trial: one interval, or several taken together.
struct Stretch {
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

fn one(page: &Page, chosen: &Chosen) -> Markup {
    let series = intervals(chosen);
    let together = series.len().div_ceil(page.limits.points.max(1)).max(1);
    let stretches = stretches(series, together);
    let void = chosen.entry.trial.validity.is_void();
    let errors = series.iter().any(|interval| interval.failed > 0);
    html! {
        h3 { "Trial " (chosen.entry.index) @if void { " (void)" } ": " bdi { (chosen.why) } }
        @if void {
            ul {
                @for reason in chosen.entry.trial.validity.reasons().iter().take(page.limits.lines) {
                    li { bdi { (page.text(&reason.evidence)) } }
                }
            }
        }
        figure {
            div.wide { (rates(&stretches)) }
            div.wide { (times(&stretches)) }
            @if errors { div.wide { (failures(&stretches)) } }
            div.wide { (connections(&stretches)) }
            figcaption {
                @if !errors { "No request failed in any second. " }
                @if together > 1 {
                    "Each step stands for " (together) " intervals: rates are their means, p50 is the \
                     median of their p50, p99 and max are the largest of theirs, connections are those open \
                     at the end."
                } @else { "Each step is an interval of the trial; where nothing was completed, times have a \
                 gap. Connections are those open at its end." }
            }
        }
        (details("The figures as a table", numbers(page, &stretches)))
    }
}

fn stretches(series: &[Interval], together: usize) -> Vec<Stretch> {
    let mut start_s = 0.0;
    let chunks = series.chunks(together);
    chunks
        .map(|chunk| {
            let end_s = chunk.last().map_or(start_s, |last| last.end_s);
            let begun_s = std::mem::replace(&mut start_s, end_s);
            let seconds = end_s - begun_s;
            let per_s = |of: fn(&Interval) -> u64| {
                let sum: u64 = chunk.iter().map(of).sum();
                (seconds > 0.0).then(|| sum as f64 / seconds)
            };
            let timed = || chunk.iter().filter(|interval| interval.completed > 0);
            let largest = |of: fn(&Interval) -> Option<f64>| timed().filter_map(of).reduce(f64::max);
            Stretch {
                start_s: begun_s,
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

fn line(stretches: &[Stretch], name: &str, class: &str, of: fn(&Stretch) -> Option<f64>) -> Layer {
    // A value holds for its whole stretch.
    let ends = stretches.iter().flat_map(|stretch| {
        [stretch.start_s, stretch.end_s].map(|at_s| of(stretch).map(|value| (at_s, value)))
    });
    Layer::Line(Line::new(name, class, ends))
}

fn seconds(stretches: &[Stretch], label: &str) -> Axis {
    let high = stretches.last().map_or(1.0, |last| last.end_s).max(1e-3);
    Axis::new(label, Scale::Linear { low: 0.0, high }, short_seconds)
}

fn values(stretches: &[Stretch], of: &[fn(&Stretch) -> Option<f64>]) -> Vec<f64> {
    stretches.iter().flat_map(|stretch| of.iter().filter_map(move |of| of(stretch))).collect()
}

fn rates(stretches: &[Stretch]) -> Markup {
    let scale = Scale::from_zero(values(stretches, &[|s| s.sent_per_s, |s| s.completed_per_s]));
    let chart = Chart {
        title: "Requests sent and completed per second".to_owned(),
        height: 120.0,
        x: seconds(stretches, ""),
        y: Axis::new("requests per second", scale, short_number),
        layers: vec![
            line(stretches, "completed", "s0", |s| s.completed_per_s),
            line(stretches, "sent", "s1", |s| s.sent_per_s),
        ],
    };
    chart.svg()
}

fn times(stretches: &[Stretch]) -> Markup {
    let all = values(stretches, &[|s| s.p50_us, |s| s.p99_us, |s| s.max_us]);
    if all.is_empty() {
        return html! { p.note { "No request was completed: there are no times to show." } };
    }
    let chart = Chart {
        title: "Response time of the requests completed in each second".to_owned(),
        height: 150.0,
        x: seconds(stretches, ""),
        y: Axis::new("response time", Scale::log(all), short_time_us),
        layers: vec![
            line(stretches, "p50", "s0", |s| s.p50_us),
            line(stretches, "p99", "s1", |s| s.p99_us),
            line(stretches, "max", "s5", |s| s.max_us),
        ],
    };
    chart.svg()
}

fn failures(stretches: &[Stretch]) -> Markup {
    let chart = Chart {
        title: "Requests failed per second".to_owned(),
        height: 80.0,
        x: seconds(stretches, ""),
        y: Axis::new(
            "failed requests per second",
            Scale::from_zero(values(stretches, &[|s| s.failed_per_s])),
            short_number,
        ),
        layers: vec![line(stretches, "", "not-met", |s| s.failed_per_s)],
    };
    chart.svg()
}

fn connections(stretches: &[Stretch]) -> Markup {
    let chart = Chart {
        title: "Open connections at the end of each second".to_owned(),
        height: 80.0,
        x: seconds(stretches, "seconds since the trial's start"),
        y: Axis::new(
            "open connections",
            Scale::from_zero(values(stretches, &[|s| Some(s.open_connections)])),
            short_number,
        ),
        layers: vec![line(stretches, "", "s2 plain", |s| Some(s.open_connections))],
    };
    chart.svg()
}

fn numbers(page: &Page, stretches: &[Stretch]) -> Markup {
    let columns = [
        (Column::Number, "until, s"),
        (Column::Number, "sent/s"),
        (Column::Number, "completed/s"),
        (Column::Number, "failed/s"),
        (Column::Number, "p50"),
        (Column::Number, "p99"),
        (Column::Number, "max"),
        (Column::Number, "open connections"),
    ];
    let shown = stretches.len().min(page.limits.lines);
    let rate = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |rate| text::number(rate.round()));
    let time = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |us| text::quantity("_us", us));
    let rows: Vec<Vec<String>> = stretches[..shown]
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
        (left_out(shown, stretches.len(), "line"))
    }
}
