//! A chart: two axes and the layers between them.

use maud::{Markup, html};

use super::{
    Axis, Scale, Shape,
    labels::{pushed_apart, thinned, width},
    mark::round,
};

/// Width of every chart, in the page's pixels.
pub(super) const WIDTH: f64 = 880.0;
/// Height of a line of labels.
const LINE: f64 = 16.0;
const LEFT: f64 = 70.0;

/// A chart that is rendered as SVG.
pub(crate) struct Chart {
    /// The title, as alternative text.
    pub title: String,
    /// Height of the plot area, in pixels.
    pub height: f64,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The layers from back to front.
    pub layers: Vec<Layer>,
}

/// A layer of a chart.
pub(crate) enum Layer {
    /// A line through points.
    Line(Line),
    /// Points alone.
    Points(Points),
    /// A horizontal line at a value of the vertical axis, with its label at the right end.
    Horizontal(Rule),
    /// A vertical line at a value of the horizontal axis, with its label at the top.
    Vertical(Rule),
    /// Vertical lines between two values.
    Whiskers {
        /// CSS class of the colour.
        class: String,
        /// The horizontal value and both vertical values.
        ends: Vec<(f64, f64, f64)>,
    },
}

/// A line through points; `None` is a gap.
pub(crate) struct Line {
    /// The name in the legend; empty for no entry.
    pub name: String,
    /// CSS class of the colour.
    pub class: String,
    /// The points in units of the axes, in the order of the line.
    pub points: Vec<Option<(f64, f64)>>,
    /// Whether the line has steps: a value applies until the next one.
    pub steps: bool,
    /// The mark at the points, if any.
    pub mark: Option<Shape>,
    /// Only one in this many points has the mark.
    pub mark_every: usize,
}

/// Points alone.
pub(crate) struct Points {
    /// The name in the legend; empty for no entry.
    pub name: String,
    /// CSS class of the colour.
    pub class: String,
    /// The mark of the points.
    pub shape: Shape,
    /// The points with their tooltips.
    pub points: Vec<(f64, f64, String)>,
}

/// A horizontal or vertical line at a value.
pub(crate) struct Rule {
    /// The value, in units of the axis.
    pub at: f64,
    /// The text at the end of the line.
    pub label: String,
    /// CSS class of the colour and the dashes.
    pub class: String,
}

impl Layer {
    /// The horizontal values of its points, or of the rule.
    pub(crate) fn xs(&self) -> Vec<f64> {
        match self {
            Self::Line(line) => line.points.iter().flatten().map(|(x, _)| *x).collect(),
            Self::Points(points) => points.points.iter().map(|(x, ..)| *x).collect(),
            Self::Vertical(rule) => vec![rule.at],
            Self::Horizontal(_) | Self::Whiskers { .. } => Vec::new(),
        }
    }

    /// The vertical values of its points or ends, or of the rule.
    pub(crate) fn ys(&self) -> Vec<f64> {
        match self {
            Self::Line(line) => line.points.iter().flatten().map(|(_, y)| *y).collect(),
            Self::Points(points) => points.points.iter().map(|(_, y, _)| *y).collect(),
            Self::Horizontal(rule) => vec![rule.at],
            Self::Whiskers { ends, .. } => ends.iter().flat_map(|(_, low, high)| [*low, *high]).collect(),
            Self::Vertical(_) => Vec::new(),
        }
    }
}

impl Line {
    /// A line without marks.
    pub(crate) fn new(
        name: impl Into<String>,
        class: impl Into<String>,
        points: impl IntoIterator<Item = Option<(f64, f64)>>,
    ) -> Self {
        let points = points.into_iter().collect();
        Self { name: name.into(), class: class.into(), points, steps: false, mark: None, mark_every: 1 }
    }
}

impl Points {
    /// Marks of a shape.
    pub(crate) fn new(
        name: &str,
        class: &str,
        shape: Shape,
        points: impl IntoIterator<Item = (f64, f64, String)>,
    ) -> Self {
        let points = points.into_iter().collect();
        Self { name: name.to_owned(), class: class.to_owned(), shape, points }
    }
}

/// The position and size of the plot area.
struct Frame {
    left: f64,
    top: f64,
    width: f64,
    height: f64,
}

impl Frame {
    fn x(&self, scale: &Scale, value: f64) -> Option<f64> {
        scale.position(value).map(|position| self.left + position * self.width)
    }

    fn y(&self, scale: &Scale, value: f64) -> Option<f64> {
        scale.position(value).map(|position| self.top + (1.0 - position) * self.height)
    }

    fn right(&self) -> f64 {
        self.left + self.width
    }

    fn bottom(&self) -> f64 {
        self.top + self.height
    }
}

impl Chart {
    /// Renders the chart.
    pub(crate) fn svg(&self) -> Markup {
        let legend = self.legend();
        let horizontal: Vec<&Rule> = self.rules(true);
        let right = horizontal.iter().map(|rule| width(&rule.label) + 14.0).fold(16.0, f64::max);
        let mut frame = Frame { left: LEFT, top: 0.0, width: WIDTH - LEFT - right, height: self.height };
        let labels = self.vertical_labels(&frame);
        let rows = labels.iter().map(|(.., row)| row + 1).max().unwrap_or(0);
        let legend_bottom = legend.last().map_or(0.0, |key| key.1 + LINE + 4.0);
        frame.top = legend_bottom + 24.0 + rows as f64 * LINE;
        let height = frame.bottom() + if self.x.label.is_empty() { 26.0 } else { 44.0 };
        html! {
            svg viewBox={ "0 0 " (WIDTH) " " (round(height)) } width=(WIDTH) height=(round(height))
                role="img" aria-label=(self.title) {
                @for (name, y, x, key) in &legend {
                    (key.svg(*x, y + 8.0))
                    text class="key" x=(round(x + 30.0)) y=(round(y + 12.0)) { (name) }
                }
                (self.axes(&frame, legend_bottom + 12.0))
                @for layer in &self.layers { (self.layer(layer, &frame)) }
                (self.horizontal_labels(&horizontal, &frame))
                @for (label, class, x, row) in &labels {
                    @let y = frame.top - 6.0 - *row as f64 * LINE;
                    text class={ "rule-name " (class) } x=(round(*x)) y=(round(y)) text-anchor="middle" { (label) }
                }
            }
        }
    }

    fn axes(&self, frame: &Frame, label_y: f64) -> Markup {
        let x_ticks: Vec<(f64, String)> = thinned(
            self.x.ticks(8).into_iter().filter_map(|(at, label)| Some((frame.x(&self.x.scale, at)?, label))),
        );
        let y_ticks = self.y.ticks((self.height / 44.0) as usize).into_iter();
        let y_ticks = y_ticks.filter_map(|(at, label)| Some((frame.y(&self.y.scale, at)?, label)));
        html! {
            text class="axis-name" x="0" y=(round(label_y)) { (self.y.label) }
            @for (y, label) in y_ticks {
                path class="grid" d={ "M" (round(frame.left)) " " (round(y)) "H" (round(frame.right())) } {}
                text class="tick" x=(round(frame.left - 8.0)) y=(round(y + 4.0)) text-anchor="end" { (label) }
            }
            path class="axis" d={ "M" (round(frame.left)) " " (round(frame.bottom())) "H" (round(frame.right())) } {}
            @for (x, label) in x_ticks {
                path class="axis" d={ "M" (round(x)) " " (round(frame.bottom())) "v5" } {}
                @let half = width(&label) / 2.0;
                @let y = frame.bottom() + 19.0;
                text class="tick" x=(round(x.min(WIDTH - half))) y=(round(y)) text-anchor="middle" { (label) }
            }
            text class="axis-name" x=(round(frame.right())) y=(round(frame.bottom() + 38.0)) text-anchor="end" {
                (self.x.label)
            }
        }
    }

    fn layer(&self, layer: &Layer, frame: &Frame) -> Markup {
        let position = |x: f64, y: f64| Some((frame.x(&self.x.scale, x)?, frame.y(&self.y.scale, y)?));
        match layer {
            Layer::Line(line) => {
                let placed: Vec<Option<(f64, f64)>> =
                    line.points.iter().map(|point| point.and_then(|(x, y)| position(x, y))).collect();
                html! {
                    path class={ "line " (line.class) } d=(path_of(&placed, line.steps)) {}
                    @if let Some(mark) = line.mark {
                        @for &(x, y) in placed.iter().step_by(line.mark_every.max(1)).flatten() {
                            (mark.svg(x, y, &line.class))
                        }
                    }
                }
            }
            Layer::Points(points) => html! {
                @for (x, y, tooltip) in &points.points {
                    @if let Some((x, y)) = position(*x, *y) {
                        @if tooltip.is_empty() { (points.shape.svg(x, y, &points.class)) }
                        @else { g { title { (tooltip) } (points.shape.svg(x, y, &points.class)) } }
                    }
                }
            },
            Layer::Horizontal(rule) => html! {
                @if let Some(y) = frame.y(&self.y.scale, rule.at) {
                    path class={ "rule " (rule.class) }
                        d={ "M" (round(frame.left)) " " (round(y)) "H" (round(frame.right())) } {}
                }
            },
            Layer::Vertical(rule) => html! {
                @if let Some(x) = frame.x(&self.x.scale, rule.at) {
                    path class={ "rule " (rule.class) }
                        d={ "M" (round(x)) " " (round(frame.top)) "V" (round(frame.bottom())) } {}
                }
            },
            Layer::Whiskers { class, ends } => html! {
                @for &(x, low, high) in ends {
                    @if let (Some((x, low)), Some((_, high))) = (position(x, low), position(x, high)) {
                        path class={ "whisker " (class) }
                            d={ "M" (round(x - 5.0)) " " (round(low)) "h10m-5 0V" (round(high)) "m-5 0h10" } {}
                    }
                }
            },
        }
    }

    fn rules(&self, is_horizontal: bool) -> Vec<&Rule> {
        let rules = self.layers.iter().filter_map(|layer| match (layer, is_horizontal) {
            (Layer::Horizontal(rule), true) | (Layer::Vertical(rule), false) => Some(rule),
            _ => None,
        });
        rules.collect()
    }

    /// Labels at the right end of horizontal rules, moved apart if they would overlap.
    fn horizontal_labels(&self, rules: &[&Rule], frame: &Frame) -> Markup {
        let placed = rules.iter().filter_map(|rule| Some((frame.y(&self.y.scale, rule.at)?, *rule)));
        let mut placed: Vec<(f64, &Rule)> = placed.collect();
        placed.sort_by(|a, b| a.0.total_cmp(&b.0));
        let wanted: Vec<f64> = placed.iter().map(|(y, _)| *y).collect();
        let shown = pushed_apart(&wanted, LINE, frame.top, frame.bottom());
        html! {
            @for ((y, rule), shown) in placed.iter().zip(shown) {
                @if (shown - y).abs() > 1.0 {
                    @let end = frame.right() + 8.0;
                    path class="leader"
                        d={ "M" (round(frame.right())) " " (round(*y)) "L" (round(end)) " " (round(shown)) } {}
                }
                text class={ "rule-name " (rule.class) } x=(round(frame.right() + 10.0)) y=(round(shown + 4.0)) {
                    (rule.label)
                }
            }
        }
    }

    /// Labels at the top of vertical rules: text, class, x position, and the row (0 is next to the plot) where it fits.
    fn vertical_labels(&self, frame: &Frame) -> Vec<(String, String, f64, usize)> {
        let mut ends_of_rows: Vec<f64> = Vec::new();
        let placed = self.rules(false).into_iter();
        let placed = placed.filter_map(|rule| Some((frame.x(&self.x.scale, rule.at)?, rule)));
        let mut placed: Vec<(f64, &Rule)> = placed.collect();
        placed.sort_by(|a, b| a.0.total_cmp(&b.0));
        placed
            .into_iter()
            .map(|(x, rule)| {
                let half = width(&rule.label) / 2.0 + 4.0;
                let x = x.clamp(half.min(WIDTH / 2.0), (WIDTH - half).max(WIDTH / 2.0));
                let row = ends_of_rows.iter().position(|&end| end <= x - half).unwrap_or(ends_of_rows.len());
                if row == ends_of_rows.len() {
                    ends_of_rows.push(0.0);
                }
                ends_of_rows[row] = x + half;
                (rule.label.clone(), rule.class.clone(), x, row)
            })
            .collect()
    }

    /// Name, top, left and symbol of each entry of the legend.
    fn legend(&self) -> Vec<(String, f64, f64, Key)> {
        let (mut x, mut y) = (LEFT, 0.0);
        let named = self.layers.iter().filter_map(|layer| match layer {
            Layer::Line(line) if !line.name.is_empty() && line.points.iter().any(Option::is_some) => {
                Some((&line.name, Key { class: line.class.clone(), line: true, mark: line.mark }))
            }
            Layer::Points(points) if !points.name.is_empty() && !points.points.is_empty() => Some((
                &points.name,
                Key { class: points.class.clone(), line: false, mark: Some(points.shape) },
            )),
            _ => None,
        });
        named
            .map(|(name, key)| {
                let width = 30.0 + width(name) + 18.0;
                if x + width > WIDTH && x > LEFT {
                    (x, y) = (LEFT, y + LINE + 4.0);
                }
                let entry = (name.clone(), y, x, key);
                x += width;
                entry
            })
            .collect()
    }
}

/// The symbol of an entry in the legend.
struct Key {
    class: String,
    line: bool,
    mark: Option<Shape>,
}

impl Key {
    fn svg(&self, x: f64, y: f64) -> Markup {
        // This mark is drawn above its point.
        let lowered = if self.mark == Some(Shape::AtLeast) { 10.0 } else { 0.0 };
        html! {
            @if self.line { path class={ "line " (self.class) } d={ "M" (round(x)) " " (round(y)) "h24" } {} }
            @if let Some(mark) = self.mark { (mark.svg(x + 12.0, y + lowered, &self.class)) }
        }
    }
}

fn path_of(points: &[Option<(f64, f64)>], steps: bool) -> String {
    use std::fmt::Write;
    let mut path = String::new();
    let mut last: Option<(f64, f64)> = None;
    for point in points {
        if let &Some((x, y)) = point {
            // Writing to a string cannot fail.
            let _ = match last {
                Some(_) if steps => write!(path, "H{}V{}", round(x), round(y)),
                Some(_) => write!(path, "L{} {}", round(x), round(y)),
                // A line of zero length: its round ends make a single point between gaps visible.
                None => write!(path, "M{0} {1}L{0} {1}", round(x), round(y)),
            };
        }
        last = *point;
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_stay_gaps() {
        let points = [Some((0.0, 1.0)), Some((1.0, 2.0)), None, Some((3.0, 4.0))];
        assert_eq!(path_of(&points, false), "M0 1L0 1L1 2M3 4L3 4");
        assert_eq!(path_of(&points[..2], true), "M0 1L0 1H1V2");
    }
}
