//! Charts of latency over load, with the goals, the bounds and the knee.

use maud::{Markup, html};
use record::{
    GoalQuantity, Purpose, Span,
    quantity::{RESPONSE_P50, RESPONSE_P99, THROUGHPUT},
};

use super::{
    Page, Section,
    parts::{self, details, figure, left_out, table},
    percentiles::WHISKERS,
};
use crate::{
    loads::{Curve, LoadPoint, axis_label, curves},
    plot::{Axis, Chart, Layer, Line, Points, Rule, SERIES, Scale, Shape, short_number, short_time_us},
    reading::Reading,
    setting::outcome,
    text,
};

pub(super) fn section(page: &Page) -> Option<Section> {
    let curves = curves(page.results, &page.readings);
    if curves.is_empty() {
        return None;
    }
    let body = html! {
        @if let [curve] = &curves[..] { (single_curve(page, curve)) } @else { (several_curves(page, &curves)) }
        (details("The figures as a table", numbers(page, &curves)))
    };
    Some(Section { anchor: "load-latency", heading: "Load against latency", body })
}

const LOWER_BOUND_KEY: &str = "≥: some requests were unanswered";

fn single_curve(page: &Page, curve: &Curve) -> Markup {
    let trials: Vec<&Reading> = page
        .readings
        .iter()
        .filter(|reading| curve.settings.contains(&reading.setting) && reading.purpose != Purpose::WarmUp)
        .take(page.limits.trials)
        .collect();
    let mut layers = vec![
        dots(page, &trials, "s0", RESPONSE_P50),
        dots(page, &trials, "s1", RESPONSE_P99),
        line(curve, "p50", 0, |point| point.p50),
        line(curve, "p99", 1, |point| point.p99),
        whiskers(curve, 0, |point| point.p50),
        whiskers(curve, 1, |point| point.p99),
        at_least(
            &[curve],
            &[("p50", |point| point.p50), ("p99", |point| point.p99)],
            censored_dots(page, &trials),
        ),
        void(page, &trials),
    ];
    layers.extend(goal_lines(page));
    layers.extend(bound_lines(page, curve));
    let knees = knees(page, curve);
    let has_knee = !knees.is_empty();
    let is_wide = |time: Option<Span>| time.is_some_and(|time| time.is_wide());
    let has_wide = curve.points.iter().any(|point| is_wide(point.p50) || is_wide(point.p99));
    layers.extend(knees);
    let caption = html! {
        "Response time, from when a request was due, over load. Small dots are single trials. Marks are the medians at \
         each load; in a search, only over full trials. "
        @if has_wide { (WHISKERS) " " }
        @if has_knee {
            "The knee is the load above which response time rises faster than the load."
        } @else if page.results.plan.search.is_some() {
            "The trials show no knee."
        }
    };
    figure(&chart(page, "p50 and p99 of response time against load", "response time", layers), caption)
}

fn several_curves(page: &Page, curves: &[Curve]) -> Markup {
    let figures = curves.len().div_ceil(SERIES).min((page.limits.figures / 2).max(1));
    let shown = curves.len().min(figures * SERIES);
    let (first, others) = curves[..shown].split_at(shown.min(SERIES));
    html! {
        (chart_of_curves(page, first))
        @if !others.is_empty() {
            (details(&format!("{} more", text::counted(others.len(), "curve")),
                html! { @for curves in others.chunks(SERIES) { (chart_of_curves(page, curves)) } }))
        }
        (left_out(shown, curves.len(), "curve"))
    }
}

fn chart_of_curves(page: &Page, curves: &[Curve]) -> Markup {
    let refs: Vec<&Curve> = curves.iter().collect();
    let chart_of = |name: &str, of: fn(&LoadPoint) -> Option<Span>| {
        let lines = curves.iter().enumerate();
        let mut layers: Vec<Layer> =
            lines.map(|(number, curve)| line(curve, &text::clipped(&curve.name, 60), number, of)).collect();
        layers.extend(curves.iter().enumerate().map(|(number, curve)| whiskers(curve, number, of)));
        layers.push(at_least(&refs, &[(name, of)], Vec::new()));
        if name == "p99" {
            layers.extend(goal_lines(page));
            layers.extend(curves.iter().flat_map(|curve| knees(page, curve)));
        }
        let title = format!("{name} of response time against load, a line for each group of settings");
        let caption =
            html! { (name) " of response time against load: medians over the valid trials at each load." };
        figure(&chart(page, &title, &format!("response time, {name}"), layers), caption)
    };
    html! {
        (chart_of("p99", |point| point.p99))
        (chart_of("p50", |point| point.p50))
    }
}

fn chart(page: &Page, title: &str, y_label: &str, layers: Vec<Layer>) -> Chart {
    // The axes include all measured values, the bounds and the knee.
    let y = Scale::log(layers.iter().flat_map(Layer::ys).collect::<Vec<f64>>());
    let x = Scale::from_zero(layers.iter().flat_map(Layer::xs).collect::<Vec<f64>>());
    Chart {
        title: title.to_owned(),
        height: 320.0,
        x: Axis::new(axis_label(page.results), x, short_number),
        y: Axis::new(y_label, y, short_time_us),
        layers,
    }
}

fn load_of(page: &Page, reading: &Reading) -> Option<f64> {
    if page.results.plan.search.is_some() { reading.load } else { Some(reading.figure(THROUGHPUT)?.value) }
}

fn line(curve: &Curve, name: &str, series: usize, of: impl Fn(&LoadPoint) -> Option<Span>) -> Layer {
    let points = curve.points.iter().map(|point| of(point).map(|time| (point.load, time.value)));
    let line = Line::new(name, format!("s{}", series % SERIES), points);
    Layer::Line(Line { mark: Some(Shape::Series(series)), ..line })
}

fn dots(page: &Page, trials: &[&Reading], class: &str, time: &str) -> Layer {
    let valid = trials.iter().filter(|reading| !reading.void);
    let point =
        |reading: &&Reading| Some((load_of(page, reading)?, reading.figure(time)?.value, String::new()));
    Layer::Points(Points::new("", class, Shape::Dot, valid.filter_map(point)))
}

/// Whiskers from the smallest to the largest possible value of each median.
fn whiskers(curve: &Curve, series: usize, of: impl Fn(&LoadPoint) -> Option<Span>) -> Layer {
    let wide = curve.points.iter().filter_map(|point| Some((point.load, of(point).filter(Span::is_wide)?)));
    let ends = wide.map(|(load, time)| (load, time.least.max(1.0), time.most)).collect();
    Layer::Whiskers { class: format!("s{}", series % SERIES), ends }
}

type Times<'a> = (&'a str, fn(&LoadPoint) -> Option<Span>);

/// An arrow at each median that is only a lower bound, and at each of the points `others`.
fn at_least(curves: &[&Curve], times: &[Times], others: Vec<(f64, f64, String)>) -> Layer {
    let points = curves.iter().flat_map(|curve| &curve.points);
    let censored = points.flat_map(|point| {
        times.iter().filter_map(|(name, of)| Some(arrow(point.load, name, of(point).filter(|t| t.at_least)?)))
    });
    Layer::Points(Points::new(LOWER_BOUND_KEY, "ink", Shape::AtLeast, censored.chain(others)))
}

fn arrow(load: f64, name: &str, time: Span) -> (f64, f64, String) {
    (load, time.value, format!("{name} {}", text::value(RESPONSE_P50, Some(time))))
}

/// Arrows for short trials, which the medians exclude.
fn censored_dots(page: &Page, trials: &[&Reading]) -> Vec<(f64, f64, String)> {
    let short = trials.iter().filter(|reading| reading.short && !reading.void);
    let times = short.flat_map(|reading| {
        [("p50", RESPONSE_P50), ("p99", RESPONSE_P99)].map(|(head, name)| {
            Some(arrow(load_of(page, reading)?, head, reading.figure(name).filter(|t| t.at_least)?))
        })
    });
    times.flatten().collect()
}

fn void(page: &Page, trials: &[&Reading]) -> Layer {
    let void = trials.iter().filter(|reading| reading.void);
    let points = void.filter_map(|reading| {
        let time = reading.figure(RESPONSE_P99)?;
        Some((load_of(page, reading)?, time.value, format!("trial {}: void", reading.index)))
    });
    Layer::Points(Points::new("p99 of a void trial", "void", Shape::Void, points))
}

fn goal_lines(page: &Page) -> Vec<Layer> {
    let goals = page.results.plan.goals.iter().take(page.limits.lines);
    let bounds = goals.filter_map(|goal| {
        let GoalQuantity::ResponseTime { bound_ns } = goal.quantity else { return None };
        let (at, label) = (bound_ns as f64 / 1e3, text::clipped(&goal.name, 24));
        Some(Layer::Horizontal(Rule { at, label, class: "goal-line".to_owned() }))
    });
    bounds.collect()
}

/// The bounds of a single search. The bounds of several would overlap here, so only the chart of
/// bounds shows them.
fn bound_lines(page: &Page, curve: &Curve) -> Vec<Layer> {
    let searches: Vec<_> =
        curve.settings.iter().flat_map(|&number| page.results.searches_of(number)).collect();
    let [search] = &searches[..] else { return Vec::new() };
    let several = search.goals.len() > 1;
    let goals = search.goals.iter().take(2).flat_map(|goal| {
        let rule = |(load, shown): (Option<f64>, String), what: &str| {
            let name = if several { format!("{}: ", text::clipped(&goal.goal, 24)) } else { String::new() };
            Some(Layer::Vertical(Rule {
                at: load?,
                label: format!("{name}{what} bound {shown}"),
                class: what.to_owned(),
            }))
        };
        let [lower, upper] = page.bounds_shown(goal);
        [rule(lower, "lower"), rule(upper, "upper")]
    });
    goals.flatten().collect()
}

fn knees(page: &Page, curve: &Curve) -> Vec<Layer> {
    let knees = curve.settings.iter().filter_map(|&number| outcome(page.results, number)?.knee);
    let rule = |knee: record::Knee| {
        Layer::Vertical(Rule {
            at: knee.load,
            label: format!("knee {}", page.load(knee.load)),
            class: "knee".to_owned(),
        })
    };
    knees.map(rule).collect()
}

fn numbers(page: &Page, curves: &[Curve]) -> Markup {
    // A single curve has no name, so its column is left out.
    let single = curves.iter().all(|curve| curve.name.is_empty());
    let all: Vec<Vec<String>> = curves
        .iter()
        .flat_map(|curve| curve.points.iter().map(move |point| (curve, point)))
        .map(|(curve, point)| {
            let name = if curve.name.is_empty() { page.load(point.load) } else { page.text(&curve.name) };
            let LoadPoint { load, p50, p99, trials } = point;
            let [p50, p99] = [p50, p99].map(|time| text::value(RESPONSE_P50, *time));
            let load = (!single).then(|| page.load(*load));
            [name].into_iter().chain(load).chain([p50, p99, trials.to_string()]).collect()
        })
        .collect();
    let shown = all.len().min(page.limits.settings);
    let columns = match single {
        true => parts::numbers("load", &["p50", "p99", "valid trials"]),
        false => parts::numbers("curve", &["load", "p50", "p99", "valid trials"]),
    };
    html! {
        (table("Medians over the valid trials at each load", &columns, &all[..shown]))
        (left_out(shown, all.len(), "point"))
    }
}
