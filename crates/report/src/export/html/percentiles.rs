//! Charts of latency by percentile, for response time and service time.

use maud::{Markup, html};
use record::{CensoredTimes, Span, TrialEntry, percentile::columns};

use super::{
    Page, Section,
    parts::{self, figure, folded, table},
};
use crate::{
    plot::{Axis, Chart, Layer, Line, Points, Scale, Shape, short_share, short_time_us},
    reading::{is_decisive, quantile},
    text,
};

/// The explanation of the whiskers of times.
pub(super) const WHISKERS: &str = "Whiskers show the range of the true time: the generator may have lengthened the \
                                      measured one.";
/// Maximum number of settings shown unfolded.
const MAX_UNFOLDED: usize = 3;

pub(super) fn section(page: &Page) -> Option<Section> {
    let all: Vec<Group> =
        (0..page.results.plan.settings.len()).filter_map(|number| group(page, number)).collect();
    if all.is_empty() {
        return None;
    }
    let body = html! {
        p { "The share of requests on the horizontal axis took no longer than the time on the vertical axis. At each \
         label after 90 %, ten times fewer requests took longer. Response time starts when a request is due, service \
         time when it is sent. The gap between the lines is waiting time, which a closed load would not show." }
        (folded(&all, (MAX_UNFOLDED, page.limits.figures), ("setting", "setting"), |group| group_figure(page, group)))
    };
    Some(Section { anchor: "percentiles", heading: "Latency by percentile", body })
}

/// The distributions in one chart.
struct Group {
    name: String,
    /// The goal whose bounds are shown, in a search.
    goal: Option<String>,
    distributions: Vec<Distribution>,
}

/// The merged times of several trials.
struct Distribution {
    name: String,
    trials: usize,
    response: CensoredTimes,
    /// `None` if it equals response time.
    service: Option<CensoredTimes>,
}

fn group(page: &Page, setting: usize) -> Option<Group> {
    let (goal, distributions) = if page.results.plan.settings[setting].searched {
        at_bounds(page, setting)?
    } else {
        let valid: Vec<&TrialEntry> =
            page.results.trials_of(setting).filter(|entry| is_decisive(entry)).collect();
        (None, merged("all valid trials".to_owned(), &valid).into_iter().collect::<Vec<_>>())
    };
    let name = if page.several_settings() { page.setting(setting) } else { String::new() };
    (!distributions.is_empty()).then_some(Group { name, goal, distributions })
}

/// The goal and the merged trials at the bounds, for the first goal that has bounds.
fn at_bounds(page: &Page, setting: usize) -> Option<(Option<String>, Vec<Distribution>)> {
    let searches = page.results.searches_of(setting).iter();
    let mut outcomes = searches.flat_map(|search| search.goals.iter().map(move |goal| (search.block, goal)));
    let (block, outcome) = outcomes.find(|(_, goal)| goal.lower.is_some() || goal.upper.is_some())?;
    let [lower, upper] = page.bounds_shown(outcome);
    let bounds = [("lower", lower), ("upper", upper)];
    let merged_at_bound = |(which, (load, shown)): (&str, (Option<f64>, String))| {
        let load = load?;
        let trials: Vec<&TrialEntry> = page
            .results
            .trials_of(setting)
            .filter(|entry| entry.block == block && entry.load == Some(load))
            .filter(|entry| is_decisive(entry) && !entry.is_short(&page.results.plan))
            .collect();
        merged(format!("{which} bound, {shown}"), &trials)
    };
    Some((Some(page.text(&outcome.goal)), bounds.into_iter().filter_map(merged_at_bound).collect()))
}

fn merged(name: String, trials: &[&TrialEntry]) -> Option<Distribution> {
    let mut response = CensoredTimes::default();
    let mut service = CensoredTimes::default();
    for http in trials.iter().filter_map(|entry| entry.trial.http()) {
        response.merge(&http.response_time);
        service.merge(&http.service_time);
    }
    quantile(&response, 0.5)?;
    let service = (service != response).then_some(service);
    Some(Distribution { name, trials: trials.len(), response, service })
}

fn group_figure(page: &Page, group: &Group) -> Markup {
    let counts =
        group.distributions.iter().map(|d| d.response.observed.count() + d.response.censored.count());
    let nines = (counts.max().unwrap_or(1) as f64).log10().clamp(1.0, 6.0);
    let mut layers = Vec::new();
    let (mut censored, mut has_wide) = (Vec::new(), false);
    for (number, distribution) in group.distributions.iter().enumerate() {
        let several = group.distributions.len() > 1;
        let name =
            |what: &str| if several { format!("{what}, {}", distribution.name) } else { what.to_owned() };
        let mut add = |times: &CensoredTimes, what: &str, dashes: &str, mark: Shape| {
            let points = points(times, nines, page.limits.points / 3);
            let at_least = points.iter().filter(|(_, time)| time.at_least).step_by(4);
            censored.extend(at_least.map(|(share, time)| (*share, time.value, String::new())));
            let line = points.iter().map(|(share, time)| Some((*share, time.value)));
            let line = Line::new(name(what), format!("s{number} {dashes}"), line);
            layers.push(Layer::Line(Line { mark: Some(mark), mark_every: 8, ..line }));
            let wide = points.iter().filter(|(_, time)| time.is_wide()).step_by(3);
            let ends: Vec<_> = wide.map(|(share, time)| (*share, time.least.max(1.0), time.most)).collect();
            has_wide |= !ends.is_empty();
            layers.push(Layer::Whiskers { class: format!("s{number}"), ends });
        };
        add(&distribution.response, "response time", "plain", Shape::Series(number));
        if let Some(service) = &distribution.service {
            add(service, "service time", "dashed", Shape::Series(number + 3));
        }
    }
    let y = Scale::log(layers.iter().flat_map(Layer::ys).collect::<Vec<f64>>());
    layers.push(Layer::Points(Points::new(
        "≥: some requests were unanswered",
        "ink",
        Shape::AtLeast,
        censored,
    )));
    let chart = Chart {
        title: format!("Times by percentile {}", group.name),
        height: 280.0,
        x: Axis::new("share of requests that took no longer", Scale::Nines { nines }, short_share),
        y: Axis::new("time", y, short_time_us),
        layers,
    };
    let same = group.distributions.iter().all(|distribution| distribution.service.is_none());
    let trials: Vec<String> = group.distributions.iter().map(|d| d.trials.to_string()).collect();
    let caption = html! {
        "Histograms of " (trials.join(" and ")) " valid trials"
        @if let Some(goal) = &group.goal { " at the bounds of " bdi { (goal) } }
        ", merged."
        @if same { " Response time and service time are the same." }
        @if has_wide { " " (WHISKERS) }
    };
    html! {
        @if !group.name.is_empty() { h3 { bdi { (group.name) } } }
        (figure(&chart, caption))
        (numbers(group))
    }
}

/// The points of the curve, at equal distances on the axis.
fn points(times: &CensoredTimes, nines: f64, max_points: usize) -> Vec<(f64, Span)> {
    let all = times.lower_bound();
    if all.is_empty() {
        return Vec::new();
    }
    // The curve ends at the percentile that one request exceeds; a higher one would have no sample.
    let nines = nines.min((all.count() as f64).log10());
    let shares = (0..=max_points).map(|i| 1.0 - 10_f64.powf(-nines * i as f64 / max_points as f64));
    let point = |share: f64| (share, times.percentile(share).map(|ns| ns / 1e3));
    shares.map(point).filter(|(_, time)| time.value > 0.0).collect()
}

fn numbers(group: &Group) -> Markup {
    let heads: Vec<&str> = columns().map(|column| column.name).chain(["max", "requests"]).collect();
    let heads = parts::numbers("", &heads);
    let row = |name: String, times: &CensoredTimes| {
        let cell = |share| quantile(times, share).map_or_else(|| "–".to_owned(), text::time);
        let count = times.observed.count() + times.censored.count();
        let mut row = vec![name];
        row.extend(columns().map(|column| column.quantile).chain([1.0]).map(cell));
        row.push(record::units::show_count(count));
        row
    };
    let rows: Vec<Vec<String>> = group
        .distributions
        .iter()
        .flat_map(|distribution| {
            let response = row(format!("response time, {}", distribution.name), &distribution.response);
            let service = distribution.service.as_ref();
            let service = service.map(|service| row(format!("service time, {}", distribution.name), service));
            std::iter::once(response).chain(service)
        })
        .collect();
    table("Times by percentile", &heads, &rows)
}
