//! Actions during a trial.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Something that was done to a host during a trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ActionRecord {
    /// The host.
    pub host: String,
    /// What was done, such as `kill nginx`.
    pub what: String,
    /// When it was to begin, in seconds after the load began.
    pub planned_s: f64,
    /// When it began; none if the load ended before.
    pub began_s: Option<f64>,
    /// How long it took, in seconds.
    pub took_s: f64,
    /// Why it failed; none if it succeeded.
    pub error: Option<String>,
}
