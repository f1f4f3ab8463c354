//! Figures as SVG, drawn here and not in the reader's browser: the page needs no script.
//!
//! Own code because the charting libraries write colours and pixels, where the page wants classes (light, dark and
//! paper are one stylesheet), marks that are told apart without colour, and gaps where nothing was measured.

mod axis;
mod chart;
mod labels;
mod mark;
mod scale;

pub(crate) use axis::{Axis, short_number, short_seconds, short_share, short_time_us};
pub(crate) use chart::{Chart, Layer, Line, Points, Rule};
pub(crate) use labels::width as label_width;
pub(crate) use mark::{SERIES, Shape};
pub(crate) use scale::Scale;
