//! The effect of the factors: a line chart for one factor, heat maps for several.

use std::{borrow::Cow, collections::BTreeSet};

use maud::{Markup, html};
use record::{
    Factor, Level, Span,
    quantity::{THROUGHPUT, main_figures},
};

use super::{
    Page, Section,
    parts::{figure, left_out},
};
use crate::{
    plot::{Axis, Chart, Layer, Line, Points, SERIES, Scale, Shape, short_number, short_time_us},
    setting::{self, Figure},
    text,
};

/// Maximum number of heat maps of one quantity.
const MAX_PANELS: usize = 8;
/// Maximum number of levels along a side of a heat map.
const MAX_LEVELS: usize = 24;
/// Values that differ by more than this ratio are shown on a logarithmic scale.
const MAX_LINEAR_RATIO: f64 = 8.0;
/// Number of colours of a heat map.
const SHADES: usize = 7;

pub(super) fn section(page: &Page) -> Option<Section> {
    let varied: Vec<&Factor> =
        page.results.plan.factors.iter().filter(|factor| factor.levels.len() > 1).collect();
    if varied.is_empty() || page.readings.is_empty() {
        return None;
    }
    let known = quantities(page).into_iter().filter(Quantity::varies);
    // `bounds` has the rates that socket buffers allow one connection; charts of rates show the first as a limit.
    let (bounds, quantities): (Vec<Quantity>, Vec<Quantity>) =
        known.partition(|quantity| quantity.is_of_link() && quantity.is_rate());
    let bound = bounds.first();
    if quantities.is_empty() {
        return None;
    }
    let body = match &varied[..] {
        [factor] => html! {
            @for quantity in &quantities {
                @let curves = curves(page, factor, quantity);
                @if !curves.is_empty() { (factor_chart(factor, quantity, &curves, None)) }
            }
        },
        factors => html! {
            p { "Darker fields have larger values (in dark mode: lighter fields). " span.none { " – " } " \
             marks settings without a valid trial." }
            @for quantity in &quantities {
                h3 { bdi { (quantity.title) } }
                (factor_charts(page, factors, quantity, bound.filter(|_| quantity.is_rate())))
                (heat_maps(page, factors, quantity))
            }
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
    median: Option<Span>,
    interval: Option<(f64, f64)>,
}

impl Value {
    fn median(&self) -> Option<f64> {
        self.median.map(|median| median.value)
    }
}

impl Quantity {
    /// Whether the chart of this quantity tells something: a value is known and, for a quantity of a link in several
    /// settings, the values differ.
    fn varies(&self) -> bool {
        let mut known = self.values.iter().filter_map(Value::median);
        let first = known.next();
        first.is_some()
            && (self.values.len() == 1 || !self.is_of_link() || known.any(|value| Some(value) != first))
    }

    fn has_name(&self, is_own: impl Fn(&str) -> bool) -> bool {
        matches!(&self.unit, Unit::Of(name) if is_own(name))
    }

    /// Whether the study's settings alone determine the quantity: a link's bandwidth-delay product, or the rate that
    /// the buffers allow over a link.
    fn is_of_link(&self) -> bool {
        self.has_name(|name| name.starts_with("link_"))
    }

    fn is_rate(&self) -> bool {
        self.has_name(|name| name.ends_with("_bit_per_s"))
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
            let Figure { median, interval, .. } = figures[index];
            Value { median, interval }
        };
        let (unit, values) = (Unit::Of(quantity.name.clone()), figures.iter().map(value).collect());
        Some(Quantity { title: page.text(column.figure.as_ref()?), unit, values })
    });
    plotted.collect()
}

/// The median of the blocks' lower bounds, with the smallest and largest as the interval.
fn lower_bound(page: &Page, setting: usize, goal: usize) -> Value {
    let outcomes: Vec<_> =
        page.results.searches_of(setting).iter().filter_map(|s| s.goals.get(goal)).collect();
    let loads: Vec<f64> = outcomes.iter().filter_map(|o| o.lower.as_ref()).map(|bound| bound.load).collect();
    let ends =
        loads.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), &load| (l.min(load), h.max(load)));
    let open = |o: &&record::GoalOutcome| {
        o.upper.is_none() || matches!(o.kind, record::BoundKind::GeneratorBound { .. })
    };
    let at_least = outcomes.iter().any(open);
    Value {
        interval: (loads.len() > 1).then_some(ends),
        median: crate::reading::median(loads).map(|median| Span { at_least, ..Span::exact(median) }),
    }
}

fn show(page: &Page, unit: &Unit, value: &Value) -> String {
    let Some(median) = value.median else { return "–".to_owned() };
    median.in_words(|median| match unit {
        // The title names the unit.
        Unit::Of(name) if name == THROUGHPUT => text::number(median.round()),
        Unit::Of(name) => text::quantity(name, median),
        Unit::Load => page.load(median),
    })
}

/// Settings that differ only in one factor, by its levels.
struct Curve<'a> {
    /// The levels of the other factors.
    name: String,
    points: Vec<(usize, &'a Value)>,
}

fn curves<'a>(page: &Page, factor: &Factor, quantity: &'a Quantity) -> Vec<Curve<'a>> {
    let others: Vec<&Factor> = page
        .results
        .plan
        .factors
        .iter()
        .filter(|other| other.levels.len() > 1 && other.name != factor.name)
        .collect();
    let mut curves: Vec<Curve<'_>> = Vec::new();
    let settings = page.results.plan.settings.iter().enumerate().take(page.limits.settings);
    for (number, setting) in settings {
        let level = setting.levels.get(&factor.name);
        let Some(level) = factor.levels.iter().position(|other| Some(other) == level) else { continue };
        let others = others.iter().filter_map(|other| {
            setting.levels.get(&other.name).map(|level| format!("{}={level}", other.name))
        });
        let name = others.collect::<Vec<_>>().join(" ");
        let index = curves.iter().position(|curve| curve.name == name).unwrap_or_else(|| {
            curves.push(Curve { name, points: Vec::new() });
            curves.len() - 1
        });
        curves[index].points.push((level, &quantity.values[number]));
    }
    for curve in &mut curves {
        curve.points.sort_by_key(|(level, _)| *level);
    }
    curves.retain(|curve| curve.points.iter().filter(|(_, value)| value.median.is_some()).count() > 1);
    curves
}

/// The curves over the factor whose levels are numbers.
fn factor_charts(page: &Page, factors: &[&Factor], quantity: &Quantity, bound: Option<&Quantity>) -> Markup {
    let is_amount = |level: &Level| match level {
        Level::Number(_) => true,
        Level::Text(text) => text.starts_with(|c: char| c.is_ascii_digit()),
        Level::Flag(_) => false,
    };
    let Some(factor) = factors.iter().find(|factor| factor.levels.iter().all(is_amount)) else {
        return html! {};
    };
    let all = curves(page, factor, quantity);
    let shown = all.len().min(SERIES * page.limits.figures.max(1));
    let bound =
        bound.and_then(|bound| curves(page, factor, bound).into_iter().next().map(|curve| (bound, curve)));
    html! {
        @for curves in all[..shown].chunks(SERIES) {
            (factor_chart(factor, quantity, curves, bound.as_ref().map(|(bound, curve)| (bound.title.as_str(), curve))))
        }
        (left_out(shown, all.len(), "curve"))
    }
}

fn factor_chart(
    factor: &Factor,
    quantity: &Quantity,
    curves: &[Curve],
    bound: Option<(&str, &Curve)>,
) -> Markup {
    let known = || {
        let points = curves.iter().chain(bound.map(|(_, curve)| curve)).flat_map(|curve| &curve.points);
        points.filter_map(|&(level, value)| Some((level as f64, value, value.median()?)))
    };
    let tops: Vec<f64> = known()
        .flat_map(|(_, value, median)| [median, value.interval.map_or(0.0, |(_, high)| high)])
        .collect();
    let is_wide = || {
        let medians = || known().map(|(.., median)| median);
        medians().fold(0.0, f64::max) > MAX_LINEAR_RATIO * medians().fold(f64::INFINITY, f64::min)
    };
    let positive = || known().map(|(.., median)| median).filter(|median| *median > 0.0);
    let (scale, show_tick): (Scale, fn(f64) -> String) = match &quantity.unit {
        Unit::Of(name) if name.ends_with("_us") => (Scale::log(tops), short_time_us),
        _ if curves.len() > 1 && is_wide() => (Scale::log(positive().collect::<Vec<_>>()), short_number),
        Unit::Of(_) | Unit::Load => (Scale::from_zero(tops), short_number),
    };
    let medians = |curve: &Curve| -> Vec<_> {
        curve.points.iter().map(|&(level, value)| Some((level as f64, value.median()?))).collect()
    };
    let mut layers = Vec::new();
    for (number, curve) in curves.iter().enumerate() {
        let class = format!("s{number}");
        let plain = if curves.len() == 1 { format!("{class} plain") } else { class.clone() };
        let line = Line::new(text::clipped(&curve.name, 60), plain, medians(curve));
        layers.push(Layer::Line(Line { mark: Some(Shape::Series(number)), ..line }));
        let ends = curve.points.iter();
        let ends =
            ends.filter_map(|&(level, value)| value.interval.map(|(low, high)| (level as f64, low, high)));
        layers.push(Layer::Whiskers { class, ends: ends.collect() });
    }
    layers.extend(bound.map(|(name, curve)| Layer::Line(Line::new(name, "ink plain", medians(curve)))));
    layers.push(Layer::Points(Points::new(
        "≥: the true value may be larger",
        "ink",
        Shape::AtLeast,
        known()
            .filter(|(_, value, _)| value.median.is_some_and(|median| median.at_least))
            .map(|(x, _, median)| (x, median, String::new())),
    )));
    let levels: Vec<String> =
        factor.levels.iter().map(|level| text::clipped(&level.to_string(), 14)).collect();
    let mut chart = Chart {
        title: format!("{} at each level of {}", quantity.title, text::clipped(&factor.name, 40)),
        height: if curves.len() > 1 { 320.0 } else { 200.0 },
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
        @if let Some((name, _)) = bound { " The line " (name) " is the rate that the socket buffers allow one connection." }
    };
    figure(&chart, caption)
}

fn heat_maps(page: &Page, factors: &[&Factor], quantity: &Quantity) -> Markup {
    // The two factors with the most levels become the sides, so that the fewest maps are needed.
    let mut by_levels: Vec<&Factor> = factors.to_vec();
    by_levels.sort_by_key(|factor| std::cmp::Reverse(factor.levels.len()));
    let [across, down, others @ ..] = &by_levels[..] else { return html! {} };
    let panels = panels(page, others);
    let shown = panels.len().min(MAX_PANELS).min(page.limits.figures.max(2));
    let known: Vec<f64> = quantity.values.iter().filter_map(Value::median).collect();
    html! {
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
                                    @let shade = shade(value.median().unwrap_or_default(), known);
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

/// The index of a value's colour: on a logarithmic scale if the values differ by more than [`MAX_LINEAR_RATIO`],
/// otherwise linear.
fn shade(value: f64, known: &[f64]) -> usize {
    let (low, high) =
        known.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), &v| (l.min(v), h.max(v)));
    let position = if low > 0.0 && high > low * MAX_LINEAR_RATIO {
        (value / low).ln() / (high / low).ln()
    } else {
        (value - low) / (high - low)
    };
    if position.is_finite() { ((position * SHADES as f64) as usize).min(SHADES - 1) } else { 0 }
}
