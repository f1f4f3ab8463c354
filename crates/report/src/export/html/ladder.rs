//! The bounds of every goal, one above the other on the same axis.

use maud::{Markup, html};
use record::{BoundKind, GoalOutcome};

use super::{Page, parts::figure_of};
use crate::{
    answer::searches_of,
    loads::axis_label,
    plot::{SERIES, Scale, label_width, short_number},
    text,
};

const WIDTH: f64 = 880.0;
const ROW: f64 = 26.0;
const LONGEST_NAME: usize = 42;

/// The ladder; nothing where no search was made, or a single bracket says no more than its sentence.
pub(super) fn figure(page: &Page) -> Markup {
    let rungs = rungs(page);
    let loads = rungs.iter().flat_map(|rung| [rung.lower, rung.upper]).flatten();
    let scale = Scale::from_zero(loads.clone());
    if rungs.len() < 2 || loads.count() == 0 {
        return html! {};
    }
    let caption = html! {
        "Each bar reaches from the lower bound (the largest load that meets the goal) to the upper bound \
         (the smallest that does not). An arrow means that the true limit lies further that way: the search \
         ran out of load first."
    };
    let shown = rungs.len().min(page.limits.lines);
    html! {
        (figure_of(picture(page, &rungs[..shown], scale), caption))
        (super::parts::left_out(shown, rungs.len(), "bar"))
    }
}

struct Rung {
    name: String,
    goal: usize,
    lower: Option<f64>,
    upper: Option<f64>,
    /// No upper bound is to be drawn: the generator ended first.
    generator_bound: bool,
    label: String,
}

fn rungs(page: &Page) -> Vec<Rung> {
    let mut rungs = Vec::new();
    for answer in &page.answers {
        let searches = searches_of(page.results, answer.setting);
        let search = searches.iter().find(|search| answer.block.is_none_or(|block| search.block == block));
        let Some(outcome) = search.and_then(|search| search.goals.get(answer.goal)) else { continue };
        let mut name = Vec::new();
        if page.several_settings() {
            name.push(page.setting(answer.setting));
        }
        if page.results.plan.goals.len() > 1 || !page.several_settings() {
            name.push(text::printable(&answer.goal_name));
        }
        name.extend(answer.block.map(text::block));
        rungs.push(rung(page, text::clipped(&name.join(", "), LONGEST_NAME), answer.goal, outcome));
    }
    rungs
}

fn rung(page: &Page, name: String, goal: usize, outcome: &GoalOutcome) -> Rung {
    let generator_bound = matches!(outcome.kind, BoundKind::GeneratorBound { .. });
    let [(lower, lower_shown), (upper, upper_shown)] = page.bounds_shown(outcome);
    let label = match (lower, upper) {
        (Some(_), Some(_)) => format!("{lower_shown} to {upper_shown}"),
        (None, None) => "nothing known".to_owned(),
        _ => lower_shown + &upper_shown,
    };
    Rung { name, goal, lower, upper, generator_bound, label }
}

fn picture(page: &Page, rungs: &[Rung], scale: Scale) -> Markup {
    let widest =
        |of: fn(&Rung) -> &String| rungs.iter().map(|rung| label_width(of(rung))).fold(0.0, f64::max);
    let left = (widest(|rung| &rung.name) + 16.0).min(WIDTH * 0.38);
    let right = WIDTH - (widest(|rung| &rung.label) + 46.0).min(WIDTH * 0.38);
    let bottom = rungs.len() as f64 * ROW + 8.0;
    let x = |load: f64| (left + scale.place(load).unwrap_or(0.0) * (right - left)).round();
    html! {
        svg viewBox={ "0 0 " (WIDTH) " " (bottom + 44.0) } width=(WIDTH) height=(bottom + 44.0) role="img"
            aria-label="Lower and upper bound of every goal" {
            @for tick in scale.ticks(5) {
                path class="grid" d={ "M" (x(tick)) " 0V" (bottom) } {}
                text class="tick" x=(x(tick)) y=(bottom + 18.0) text-anchor="middle" { (short_number(tick)) }
            }
            text class="axis-name" x=(right) y=(bottom + 38.0) text-anchor="end" { (axis_label(page.results)) }
            @for (number, rung) in rungs.iter().enumerate() {
                @let y = number as f64 * ROW + 18.0;
                text x="0" y=(y + 4.0) { (rung.name) }
                g class={ "s" (rung.goal % SERIES) } { (bracket(rung, y, x, right)) }
                text x=(label_x(rung, x, right)) y=(y + 4.0) {
                    (rung.label)
                    @if rung.generator_bound { tspan class="tick" { " *" } }
                }
            }
        }
        @if rungs.iter().any(|rung| rung.generator_bound) {
            p.note { "* generator-bound: the generator could not make more load." }
        }
    }
}

fn label_x(rung: &Rung, x: impl Fn(f64) -> f64, right: f64) -> f64 {
    match (rung.lower, rung.upper) {
        (_, Some(upper)) => x(upper) + 12.0,
        (Some(lower), None) => (x(lower) + 44.0).min(right + 32.0),
        (None, None) => x(0.0) + 8.0,
    }
}

fn bracket(rung: &Rung, y: f64, x: impl Fn(f64) -> f64, right: f64) -> Markup {
    html! {
        @match (rung.lower, rung.upper) {
            (Some(lower), Some(upper)) => {
                path class="open" d={ "M" (x(0.0)) " " (y) "H" (x(lower)) } stroke-opacity="0.35" {}
                path class="open" d={ "M" (x(lower)) " " (y - 8.0) "v16M" (x(upper)) " " (y - 8.0) "v16" } {}
                path class="bar" d={ "M" (x(lower)) " " (y) "H" (x(upper)) } stroke-opacity="0.55" {}
            }
            (Some(lower), None) => {
                @let end = (x(lower) + 34.0).min(right + 26.0);
                path class="open" d={ "M" (x(0.0)) " " (y) "H" (x(lower)) } stroke-opacity="0.35" {}
                path class="open" d={ "M" (x(lower)) " " (y - 8.0) "v16m0 -8H" (end) "m-6 -5l6 5l-6 5" } {}
            }
            (None, Some(upper)) => {
                path class="open" d={ "M" (x(upper)) " " (y - 8.0) "v16m0 -8H" (x(0.0)) "m6 -5l-6 5l6 5" } {}
            }
            (None, None) => {}
        }
    }
}
