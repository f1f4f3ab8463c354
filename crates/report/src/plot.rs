//! Charts as SVG, so that the page needs no scripts.
//!
//! No charting library is used: the page needs CSS classes instead of colours (for light, dark and print styles), marks
//! that can be distinguished without colour, and gaps where nothing was measured.

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
