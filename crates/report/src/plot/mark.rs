//! Marks that can be distinguished without colour.

use maud::{Markup, html};

/// The shape of a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// A goal was met.
    Met,
    /// A goal was not met.
    NotMet,
    /// A void trial.
    Void,
    /// A warm-up trial.
    WarmUp,
    /// The true value may be larger: an arrow above the point.
    AtLeast,
    /// A series of a chart, by its index.
    Series(usize),
    /// A single trial.
    Dot,
}

/// Number of series with different marks.
pub(crate) const SERIES: usize = 6;

impl Shape {
    /// Draws the mark at a point. The class sets its colour.
    pub(crate) fn svg(self, x: f64, y: f64, class: &str) -> Markup {
        let (x, y) = (round(x), round(y));
        let at = |path: &str| format!("M{x} {y}{path}");
        match self {
            Self::Met => html! { circle class={ "fill " (class) } cx=(x) cy=(y) r="4" {} },
            Self::NotMet => html! { path class={ "cross " (class) } d=(at("m-4 -4l8 8m0 -8l-8 8")) {} },
            Self::Void => {
                html! { path class={ "hollow " (class) } d=(at("m0 -5.5l5.5 5.5l-5.5 5.5l-5.5 -5.5z")) {} }
            }
            Self::WarmUp => html! { circle class={ "hollow " (class) } cx=(x) cy=(y) r="2.5" {} },
            Self::AtLeast => {
                html! { path class={ "cross " (class) } d=(at("m0 -6v-9m-3.5 3.5l3.5 -3.5l3.5 3.5")) {} }
            }
            Self::Dot => html! { circle class={ "dot " (class) } cx=(x) cy=(y) r="2.2" {} },
            Self::Series(series) => match series % SERIES {
                0 => html! { circle class={ "fill " (class) } cx=(x) cy=(y) r="3.6" {} },
                1 => html! { path class={ "fill " (class) } d=(at("m-3.6 -3.6h7.2v7.2h-7.2z")) {} },
                2 => html! { path class={ "fill " (class) } d=(at("m-4.4 -3.4h8.8l-4.4 8z")) {} },
                3 => html! { circle class={ "hollow " (class) } cx=(x) cy=(y) r="3.8" {} },
                4 => html! { path class={ "hollow " (class) } d=(at("m-3.6 -3.6h7.2v7.2h-7.2z")) {} },
                _ => html! { path class={ "hollow " (class) } d=(at("m-4.4 -3.4h8.8l-4.4 8z")) {} },
            },
        }
    }
}

/// Rounds to a tenth of a pixel, which keeps the page small.
pub(super) fn round(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}
