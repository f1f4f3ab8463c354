//! Charts of the path of a search: the load and outcome of each trial, and the bounds after it.

use maud::{Markup, html};

use super::{
    Page, Section,
    parts::{figure, folded},
};
use crate::{
    answer::Answer,
    bounds::{self, Step, StepOutcome},
    loads::axis_label,
    plot::{Axis, Chart, Layer, Line, Points, Rule, Scale, Shape, short_number},
    text,
};

/// Maximum number of searches shown unfolded.
const MAX_UNFOLDED: usize = 2;

pub(super) fn section(page: &Page) -> Option<Section> {
    let searched: Vec<(&Answer, Vec<Step>)> = page
        .answers
        .iter()
        .filter(|answer| page.results.plan.settings[answer.setting].searched)
        .flat_map(|answer| blocks(page, answer).into_iter().map(move |block| (answer, block)))
        .map(|(answer, block)| (answer, bounds::path(page.results, answer.setting, block, answer.goal)))
        .filter(|(_, steps)| !steps.is_empty())
        .collect();
    if searched.is_empty() {
        return None;
    }
    let render = |(answer, steps): &(&Answer, Vec<Step>)| path_charts(page, answer, steps);
    let body = folded(&searched, (MAX_UNFOLDED, page.limits.figures), ("search", "path"), render);
    Some(Section { anchor: "search", heading: "How the search went", body })
}

/// The answer's block, or every block with trials if there is no result yet.
fn blocks(page: &Page, answer: &Answer) -> Vec<usize> {
    if let Some(block) = answer.block {
        return vec![block];
    }
    let mut blocks: Vec<usize> = page.results.trials_of(answer.setting).map(|entry| entry.block).collect();
    blocks.sort_unstable();
    blocks.dedup();
    blocks
}

fn path_charts(page: &Page, answer: &Answer, steps: &[Step]) -> Markup {
    let mut name = Vec::new();
    if page.several_settings() {
        name.push(page.setting(answer.setting));
    }
    name.push(page.text(&answer.goal_name));
    name.extend(answer.block.map(text::block));
    let name = name.join(", ");
    // Keeps the last trials, because they decided the bounds.
    let left_out = steps.len().saturating_sub(page.limits.trials);
    let steps = &steps[left_out..];
    let warm_up = steps.iter().any(|step| step.outcome == StepOutcome::WarmUp);
    let caption = html! {
        "Each mark is a trial, at its number in the study and its load. The lines are the bounds after each trial; the \
         labels at the right are the final bounds."
        @if warm_up { " Warm-up trials decide nothing." }
        @if left_out > 0 { " The first " (left_out) " trials are left out, to keep this page small; the result folder has all of them." }
    };
    html! {
        h3 { bdi { (name) } }
        (figure(&chart(page, answer, steps, &name), caption))
        @if let Some(end) = near_the_bounds(page, answer, steps) {
            (figure(&chart(page, answer, &end, &format!("{name}, near its bounds")), html! {
                "The same chart for loads near the bounds: no further from them than five times the distance between them."
            }))
        }
    }
}

fn chart(page: &Page, answer: &Answer, steps: &[Step], name: &str) -> Chart {
    let loads = || steps.iter().map(|step| step.load).filter(|load| *load > 0.0);
    let (least, most) =
        loads().fold((f64::INFINITY, 0.0_f64), |(low, high), load| (low.min(load), high.max(load)));
    let scale = if most > least * 6.0 { Scale::log(loads()) } else { Scale::around(loads()) };
    let first = steps.first().map_or(0, |step| step.index) as f64;
    let last = steps.last().map_or(0, |step| step.index) as f64;
    let mut layers: Vec<Layer> = Vec::new();
    let bound = |name: &str, class: &str, of: fn(&Step) -> Option<f64>| {
        let points = steps.iter().map(|step| of(step).map(|load| (step.index as f64, load)));
        Layer::Line(Line { steps: true, ..Line::new(name, class, points) })
    };
    layers.push(bound("lower bound so far", "lower plain", |step| step.bounds.lower));
    layers.push(bound("upper bound so far", "upper", |step| step.bounds.upper));
    for (outcome, name, class, shape) in [
        (StepOutcome::WarmUp, "warm-up", "s5", Shape::WarmUp),
        (StepOutcome::Met, "met", "met", Shape::Met),
        (StepOutcome::NotMet, "not met", "not-met", Shape::NotMet),
        (StepOutcome::Undecided, "undecided", "void", Shape::Series(4)),
        (StepOutcome::Void, "void", "void", Shape::Void),
    ] {
        let points = steps.iter().filter(|step| step.outcome == outcome);
        let title = |step: &Step| format!("trial {}: {}, {name}", step.index, page.load(step.load));
        let points = points.map(|step| (step.index as f64, step.load, title(step)));
        layers.push(Layer::Points(Points::new(name, class, shape, points)));
    }
    layers.extend(final_bounds(page, answer));
    Chart {
        title: format!("Path of the search for {name}: load of each trial, and the bounds after it"),
        height: 250.0,
        x: Axis::of_trials(first, last),
        y: Axis::new(axis_label(page.results), scale, short_number),
        layers,
    }
}

/// The trials near the bounds, for a second chart: in the chart of all trials, the bounds may be too close together to
/// tell apart.
fn near_the_bounds(page: &Page, answer: &Answer, steps: &[Step]) -> Option<Vec<Step>> {
    let outcome = answer.outcome(page.results)?;
    let (lower, upper) = (outcome.lower.as_ref()?.load, outcome.upper.as_ref()?.load);
    let distance = (upper - lower) * 5.0;
    let near = |load: f64| load >= lower - distance && load <= upper + distance;
    let mut end: Vec<Step> = steps.iter().filter(|step| near(step.load)).copied().collect();
    for step in &mut end {
        step.bounds.lower = step.bounds.lower.filter(|&load| near(load));
        step.bounds.upper = step.bounds.upper.filter(|&load| near(load));
    }
    // Fewer than three trials show no path, and a chart of nearly all trials would repeat the first chart.
    (end.len() >= 3 && end.len() * 10 < steps.len() * 7).then_some(end)
}

fn final_bounds(page: &Page, answer: &Answer) -> Vec<Layer> {
    let Some(outcome) = answer.outcome(page.results) else { return Vec::new() };
    let rule = |load: Option<f64>, label: String, class: &str| {
        Some(Layer::Horizontal(Rule { at: load?, label, class: format!("{class} faint") }))
    };
    let [(lower, lower_shown), (upper, upper_shown)] = page.bounds_shown(outcome);
    [rule(lower, lower_shown, "lower"), rule(upper, upper_shown, "upper")].into_iter().flatten().collect()
}
