//! A chart of the bounds of every goal on a common axis.

use maud::{Markup, html};
use record::{BoundKind, GoalOutcome};

use super::{Page, parts::figure_of};
use crate::{
    loads::axis_label,
    plot::{SERIES, Scale, label_width, short_number},
    text,
};

const WIDTH: f64 = 880.0;
const ROW: f64 = 26.0;
/// Longest name of a row, in characters.
const MAX_NAME_CHARS: usize = 42;

/// The chart; empty with fewer than two searches, because a single bar says no more than the sentence.
pub(super) fn figure(page: &Page) -> Markup {
    let rows = rows(page);
    let loads = rows.iter().flat_map(|row| [row.lower, row.upper]).flatten();
    let scale = Scale::from_zero(loads.clone());
    if rows.len() < 2 || loads.count() == 0 {
        return html! {};
    }
    let caption = html! {
        "Each bar reaches from the lower bound (the largest load that meets the goal) to the upper bound (the smallest \
         that does not). An arrow means that one bound is missing and the limit lies in that direction."
    };
    let shown = rows.len().min(page.limits.lines);
    html! {
        (figure_of(picture(page, &rows[..shown], scale), caption))
        (super::parts::left_out(shown, rows.len(), "bar"))
    }
}

struct Row {
    name: String,
    goal: usize,
    lower: Option<f64>,
    upper: Option<f64>,
    /// Whether the generator was the limit, so that no upper bound is drawn.
    generator_bound: bool,
    label: String,
}

fn rows(page: &Page) -> Vec<Row> {
    let mut rows = Vec::new();
    for answer in &page.answers {
        let Some(outcome) = answer.outcome(page.results) else { continue };
        let mut name = Vec::new();
        if page.several_settings() {
            name.push(page.setting(answer.setting));
        }
        if page.results.plan.goals.len() > 1 || !page.several_settings() {
            name.push(text::printable(&answer.goal_name));
        }
        name.extend(answer.block.map(text::block));
        rows.push(row(page, text::clipped(&name.join(", "), MAX_NAME_CHARS), answer.goal, outcome));
    }
    rows
}

fn row(page: &Page, name: String, goal: usize, outcome: &GoalOutcome) -> Row {
    let generator_bound = matches!(outcome.kind, BoundKind::GeneratorBound { .. });
    let [(lower, lower_shown), (upper, upper_shown)] = page.bounds_shown(outcome);
    let label = match (lower, upper) {
        (Some(_), Some(_)) => format!("{lower_shown} to {upper_shown}"),
        (None, None) => "no bounds".to_owned(),
        _ => lower_shown + &upper_shown,
    };
    Row { name, goal, lower, upper, generator_bound, label }
}

fn picture(page: &Page, rows: &[Row], scale: Scale) -> Markup {
    let widest = |of: fn(&Row) -> &String| rows.iter().map(|row| label_width(of(row))).fold(0.0, f64::max);
    let left = (widest(|row| &row.name) + 16.0).min(WIDTH * 0.38);
    let right = WIDTH - (widest(|row| &row.label) + 46.0).min(WIDTH * 0.38);
    let bottom = rows.len() as f64 * ROW + 8.0;
    let x = |load: f64| (left + scale.position(load).unwrap_or(0.0) * (right - left)).round();
    html! {
        svg viewBox={ "0 0 " (WIDTH) " " (bottom + 44.0) } width=(WIDTH) height=(bottom + 44.0) role="img"
            aria-label="Lower and upper bound of every goal" {
            @for tick in scale.ticks(5) {
                path class="grid" d={ "M" (x(tick)) " 0V" (bottom) } {}
                text class="tick" x=(x(tick)) y=(bottom + 18.0) text-anchor="middle" { (short_number(tick)) }
            }
            text class="axis-name" x=(right) y=(bottom + 38.0) text-anchor="end" { (axis_label(page.results)) }
            @for (number, row) in rows.iter().enumerate() {
                @let y = number as f64 * ROW + 18.0;
                text x="0" y=(y + 4.0) { (row.name) }
                g class={ "s" (row.goal % SERIES) } { (bracket(row, y, x, right)) }
                text x=(label_x(row, x, right)) y=(y + 4.0) {
                    (row.label)
                    @if row.generator_bound { tspan class="tick" { " *" } }
                }
            }
        }
        @if rows.iter().any(|row| row.generator_bound) {
            p.note { "* generator-bound: the generator could not make more load." }
        }
    }
}

fn label_x(row: &Row, x: impl Fn(f64) -> f64, right: f64) -> f64 {
    match (row.lower, row.upper) {
        (_, Some(upper)) => x(upper) + 12.0,
        (Some(lower), None) => (x(lower) + 44.0).min(right + 32.0),
        (None, None) => x(0.0) + 8.0,
    }
}

fn bracket(row: &Row, y: f64, x: impl Fn(f64) -> f64, right: f64) -> Markup {
    html! {
        @match (row.lower, row.upper) {
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
