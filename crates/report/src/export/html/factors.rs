//! The effect of the factors: a line chart for one factor, heat maps for several.

use std::{borrow::Cow, collections::BTreeSet};

use maud::{Markup, html};
use record::{
    Factor, Level,
    quantity::{THROUGHPUT, main_figures},
};

use super::{
    Page, Section,
    parts::{figure, left_out},
};
use crate::{
    answer::searches_of,
    plot::{Axis, Chart, Layer, Line, Points, Scale, Shape, short_number, short_time_us},
    setting::{self, Figure},
    text,
};

/// Most heat maps of one quantity.
const MAX_PANELS: usize = 8;
/// Most levels along a side of a heat map.
const MAX_LEVELS: usize = 24;
/// Number of colours of a heat map.
const SHADES: usize = 7;

pub(super) fn section(page: &Page) -> Option<Section> {
    let varied: Vec<&Factor> =
        page.results.plan.factors.iter().filter(|factor| factor.levels.len() > 1).collect();
    if varied.is_empty() || page.readings.is_empty() {
        return None;
    }
    let quantities: Vec<Quantity> = quantities(page).into_iter().filter(Quantity::is_known).collect();
    if quantities.is_empty() {
        return None;
    }
    let body = match &varied[..] {
        [factor] => html! { @for quantity in &quantities { (factor_chart(page, factor, quantity)) } },
        factors => html! {
            p { "Darker fields have larger values (in dark mode: lighter fields). " span.none { " – " } " \
             marks settings without a valid trial." }
            @for quantity in &quantities { (heat_maps(page, factors, quantity)) }
        },
    };
    Some(Section { anchor: "factors", heading: "Factors", body })
}

/// A quantity with a value for each setting.
struct Quantity {
    title: String,
    unit: Unit,
    /// One value for each setting of the plan.
    values: Vec<Value>,
}

#[derive(Clone, PartialEq)]
enum Unit {
    /// The unit of the quantity with this name.
    Of(Cow<'static, str>),
    /// The unit of the search's load.
    Load,
}

#[derive(Clone, Default)]
struct Value {
    median: Option<f64>,
    interval: Option<(f64, f64)>,
    at_least: bool,
}

impl Quantity {
    fn is_known(&self) -> bool {
        self.values.iter().any(|value| value.median.is_some())
    }
}

fn quantities(page: &Page) -> Vec<Quantity> {
    let settings = 0..page.results.plan.settings.len();
    if page.results.plan.search.is_some() {
        let goals = page.results.plan.goals.iter().enumerate().take(4);
        return goals
            .map(|(goal, plan)| Quantity {
                title: format!("Lower bound, {}", page.text(&plan.name)),
                unit: Unit::Load,
                values: settings.clone().map(|number| lower_bound(page, number, goal)).collect(),
            })
            .collect();
    }
    let quantities = page.results.quantities();
    let figures = |number| setting::figures(page.results, &page.readings, number).figures;
    let figures: Vec<Vec<Figure>> = settings.map(figures).collect();
    let plotted = main_figures(&quantities).enumerate().filter_map(|(index, (quantity, column))| {
        let value = |figures: &Vec<Figure>| {
            let Figure { median, interval, at_least, .. } = figures[index];
            Value { median, interval, at_least }
        };
        let (unit, values) = (Unit::Of(quantity.name.clone()), figures.iter().map(value).collect());
        Some(Quantity { title: page.text(column.figure.as_ref()?), unit, values })
    });
    plotted.collect()
}

/// The median of the blocks' lower bounds, with the smallest and largest as the interval.
fn lower_bound(page: &Page, setting: usize, goal: usize) -> Value {
    let outcomes: Vec<_> =
        searches_of(page.results, setting).iter().filter_map(|s| s.goals.get(goal)).collect();
    let loads: Vec<f64> = outcomes.iter().filter_map(|o| o.lower.as_ref()).map(|bound| bound.load).collect();
    let ends =
        loads.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), &load| (l.min(load), h.max(load)));
    let open = |o: &&record::GoalOutcome| {
        o.upper.is_none() || matches!(o.kind, record::BoundKind::GeneratorBound { .. })
    };
    Value {
        interval: (loads.len() > 1).then_some(ends),
        at_least: !loads.is_empty() && outcomes.iter().any(open),
        median: crate::reading::median(loads),
    }
}

fn show(page: &Page, unit: &Unit, value: &Value) -> String {
    let Some(median) = value.median else { return "–".to_owned() };
    let shown = match unit {
        // The title names the unit.
        Unit::Of(name) if name == THROUGHPUT => text::number(median.round()),
        Unit::Of(name) => text::quantity(name, median),
        Unit::Load => page.load(median),
    };
    format!("{}{shown}", if value.at_least { "≥ " } else { "" })
}

fn factor_chart(page: &Page, factor: &Factor, quantity: &Quantity) -> Markup {
    let settings = page.results.plan.settings.iter().enumerate();
    let mut placed: Vec<(usize, &Value)> = settings
        .filter_map(|(number, setting)| {
            let level = setting.levels.get(&factor.name)?;
            Some((factor.levels.iter().position(|other| other == level)?, &quantity.values[number]))
        })
        .take(page.limits.settings)
        .collect();
    placed.sort_by_key(|(level, _)| *level);
    let known: Vec<(f64, &Value, f64)> =
        placed.iter().filter_map(|&(level, value)| Some((level as f64, value, value.median?))).collect();
    if known.len() < 2 {
        return html! {};
    }
    let ends =
        known.iter().filter_map(|&(x, value, _)| value.interval.map(|(low, high)| (x, low, high))).collect();
    let tops =
        known.iter().flat_map(|(_, value, median)| [*median, value.interval.map_or(0.0, |(_, high)| high)]);
    let (scale, show_tick): (Scale, fn(f64) -> String) = match &quantity.unit {
        Unit::Of(name) if name.ends_with("_us") => (Scale::log(tops), short_time_us),
        Unit::Of(_) | Unit::Load => (Scale::from_zero(tops), short_number),
    };
    let censored = known.iter().filter(|(_, value, _)| value.at_least);
    let medians = placed.iter().map(|&(level, value)| value.median.map(|median| (level as f64, median)));
    let layers = vec![
        Layer::Line(Line { mark: Some(Shape::Series(0)), ..Line::new("", "s0 plain", medians) }),
        Layer::Whiskers { class: "s0".to_owned(), ends },
        Layer::Points(Points::new(
            "≥: the true value may be larger",
            "ink",
            Shape::AtLeast,
            censored.map(|(x, _, median)| (*x, *median, String::new())),
        )),
    ];
    let levels: Vec<String> =
        factor.levels.iter().map(|level| text::clipped(&level.to_string(), 14)).collect();
    let mut chart = Chart {
        title: format!("{} at each level of {}", quantity.title, text::clipped(&factor.name, 40)),
        height: 200.0,
        x: Axis::new(
            text::clipped(&factor.name, 60),
            Scale::Linear { low: -0.5, high: levels.len() as f64 - 0.5 },
            short_number,
        ),
        y: Axis::new(quantity.title.clone(), scale, show_tick),
        layers,
    };
    chart.x.names = Some(levels);
    let caption = html! {
        "Medians; the whiskers show "
        @if quantity.unit == Unit::Load { "the smallest and largest of the blocks." } @else { "their intervals." }
    };
    figure(&chart, caption)
}

fn heat_maps(page: &Page, factors: &[&Factor], quantity: &Quantity) -> Markup {
    // The factors with the most levels are the sides of the maps, so that there are few maps.
    let mut by_levels: Vec<&Factor> = factors.to_vec();
    by_levels.sort_by_key(|factor| std::cmp::Reverse(factor.levels.len()));
    let [across, down, others @ ..] = &by_levels[..] else { return html! {} };
    let panels = panels(page, others);
    let shown = panels.len().min(MAX_PANELS).min(page.limits.figures.max(2));
    let known: Vec<f64> = quantity.values.iter().filter_map(|value| value.median).collect();
    html! {
        h3 { bdi { (quantity.title) } }
        div.heats {
            @for panel in &panels[..shown] { (heat_map(page, across, down, panel, quantity, &known)) }
        }
        (left_out(shown, panels.len(), "map"))
        (left_out(MAX_LEVELS.min(across.levels.len()), across.levels.len(), "level"))
    }
}

/// Every combination of the levels of the factors that are not sides of the map.
fn panels(page: &Page, others: &[&Factor]) -> Vec<Vec<(String, Level)>> {
    let mut seen = BTreeSet::new();
    let settings = page.results.plan.settings.iter().map(|setting| {
        let levels =
            others.iter().filter_map(|f| Some((f.name.clone(), setting.levels.get(&f.name)?.clone())));
        levels.collect::<Vec<_>>()
    });
    settings.filter(|levels| seen.insert(format!("{levels:?}"))).collect()
}

fn heat_map(
    page: &Page,
    across: &Factor,
    down: &Factor,
    panel: &[(String, Level)],
    quantity: &Quantity,
    known: &[f64],
) -> Markup {
    let setting_at = |column: &Level, row: &Level| {
        page.results.plan.settings.iter().position(|setting| {
            let has = |name: &str, level: &Level| setting.levels.get(name) == Some(level);
            has(&across.name, column)
                && has(&down.name, row)
                && panel.iter().all(|(name, level)| has(name, level))
        })
    };
    let short = |level: &Level| text::clipped(&level.to_string(), 24);
    let name: Vec<String> = panel.iter().map(|(name, level)| page.text(&format!("{name}={level}"))).collect();
    let columns = &across.levels[..across.levels.len().min(MAX_LEVELS)];
    html! {
        table.heat {
            caption {
                (name.join(" ")) @if !name.is_empty() { "; " }
                (text::clipped(&down.name, 40)) " down, " (text::clipped(&across.name, 40)) " across"
            }
            thead { tr { td {} @for column in columns { th scope="col" { (short(column)) } } } }
            tbody {
                @for row in down.levels.iter().take(MAX_LEVELS) {
                    tr {
                        th scope="row" { (short(row)) }
                        @for column in columns {
                            @match setting_at(column, row).map(|number| &quantity.values[number]) {
                                Some(value) if value.median.is_some() => {
                                    @let shade = shade(value.median.unwrap_or_default(), known);
                                    td class={ "h" (shade) } { (show(page, &quantity.unit, value)) }
                                }
                                _ => td.none { "–" },
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The index of a value's colour: on a logarithmic scale if values differ by more than a factor of 8, else linear.
fn shade(value: f64, known: &[f64]) -> usize {
    let (low, high) =
        known.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), &v| (l.min(v), h.max(v)));
    let position = if low > 0.0 && high > low * 8.0 {
        (value / low).ln() / (high / low).ln()
    } else {
        (value - low) / (high - low)
    };
    if position.is_finite() { ((position * SHADES as f64) as usize).min(SHADES - 1) } else { 0 }
}
