//! Decides whether B is within the allowed deterioration. A comparison that proves no difference does not pass for that reason alone.

use schemars::JsonSchema;
use search::statistics::{Better, Comparison, Scale, Verdict};
use serde::{Deserialize, Serialize};

/// Whether B is no worse than allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Gate {
    /// Even the worse end of the interval is within the limit.
    Passed,
    /// The runs are too few or too noisy to say.
    Undecided,
    /// B is shown to be worse, and by more than the limit.
    Failed,
}

impl Gate {
    /// `limit` is how much worse B may be: 0.05 for 5 %, or in the quantity's unit if differences are compared.
    pub fn of(row: &Comparison, limit: f64) -> Self {
        let worse_than_allowed = |effect: f64| match (row.scale, row.better) {
            (Scale::Ratio, Better::More) => effect < 1.0 - limit,
            (Scale::Ratio, Better::Less) => effect > 1.0 + limit,
            (Scale::Difference, Better::More) => effect < -limit,
            (Scale::Difference, Better::Less) => effect > limit,
        };
        let worse_end = match row.better {
            Better::More => row.low,
            Better::Less => row.high,
        };
        // Runs without any spread have no usable interval; but if all values are equal, there is no difference.
        let all_the_same = row.noise == Some(0.0) && row.low == row.high;
        let bounded = row.confidence >= row.wanted_confidence - 1e-9 || all_the_same;
        match row.verdict {
            Verdict::ABetter if worse_than_allowed(row.effect) => Self::Failed,
            Verdict::CannotTell => Self::Undecided,
            _ if bounded && !worse_than_allowed(worse_end) => Self::Passed,
            _ => Self::Undecided,
        }
    }

    /// Fails if any row fails, passes if all rows pass; none without rows.
    pub fn over(rows: impl Iterator<Item = Self>) -> Option<Self> {
        rows.max()
    }
}
