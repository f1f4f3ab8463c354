//! The list of percentiles that tables, goals, quantities, options, formats and schemas share.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A percentile of times.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Percentile {
    /// The share of the times that the percentile does not exceed (0 to 1).
    pub quantile: f64,
    /// Its name: `p99.9`.
    pub name: &'static str,
    /// Its key in files, and in names of quantities: `p99_9`.
    pub key: &'static str,
    /// The key of a goal for the connect time: `connect_p99_9`.
    pub connect_key: &'static str,
    /// Whether tables of times have a column for it.
    pub has_column: bool,
}

/// Declares the list of percentiles, and a type with a field for each.
macro_rules! percentiles {
    ($($quantile:literal, $name:literal, $key:literal, $field:ident, $has_column:literal;)*) => {
        /// The percentiles in ascending order.
        pub const PERCENTILES: [Percentile; [$($quantile),*].len()] = [$(Percentile {
            quantile: $quantile,
            name: $name,
            key: $key,
            connect_key: concat!("connect_", $key),
            has_column: $has_column,
        }),*];

        /// Each percentile of a histogram, in microseconds; none for an empty histogram.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[allow(missing_docs, reason = "each name says its percentile and its unit")]
        pub struct PercentilesUs {
            $(pub $field: Option<f64>,)*
        }

        impl PercentilesUs {
            // Computes each percentile by `quantile_us`.
            pub(crate) fn of(quantile_us: impl Fn(f64) -> Option<f64>) -> Self {
                Self { $($field: quantile_us($quantile),)* }
            }
        }
    };
}

percentiles! {
    0.5, "p50", "p50", p50_us, true;
    0.75, "p75", "p75", p75_us, false;
    0.9, "p90", "p90", p90_us, true;
    0.95, "p95", "p95", p95_us, true;
    0.99, "p99", "p99", p99_us, true;
    0.999, "p99.9", "p99_9", p99_9_us, true;
    0.9999, "p99.99", "p99_99", p99_99_us, false;
}

/// The percentiles that tables of times show.
pub fn columns() -> impl DoubleEndedIterator<Item = Percentile> {
    PERCENTILES.into_iter().filter(|percentile| percentile.has_column)
}

/// The percentiles up to p99: trials of a few thousand requests cannot resolve higher ones.
pub fn usual() -> impl DoubleEndedIterator<Item = Percentile> {
    columns().filter(|percentile| percentile.quantile <= 0.99)
}
