//! Goals and methods by their common names.

use std::{fmt, str::FromStr};

use crate::{
    goal::SearchGoal,
    plan::{Method, Midpoint, Start, WarmUp},
};

/// Another name of [`Preset::Mlrsearch`], for studies that compare it with methods that ignore noise.
const NOISE_AWARE: &str = "noise-aware";

record::named_enum! {
    /// A named goal and search method.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Preset {
        /// The default: MLRsearch from the smallest load up, 5 s trials, 15 s per load, a majority decides, width 5 %.
        Mlrsearch "mlrsearch",
        /// RFC 2544 throughput: MLRsearch, 60 s trials, no loss, one trial decides.
        Rfc2544 "rfc2544",
        /// ETSI GS NFV-TST 009 with loss verification: 60 s trials, 120 s per load, no loss in half of the trials.
        Tst009 "tst009",
        /// FD.io CSIT, no drop rate: 1 s trials, 21 s per load, no loss in half of the trials, width 0.5 %.
        CsitNdr "csit-ndr",
        /// FD.io CSIT, partial drop rate: as [`Preset::CsitNdr`], with 0.5 % loss allowed.
        CsitPdr "csit-pdr",
        /// As JMeter users search: bisection, 3 runs per load, one bad run fails the load.
        Jmeter "jmeter",
    }
    /// The preset's name on the command line and in study files.
    pub fn name;
}

impl Preset {
    /// The preset's goal with this loss ratio instead of [`Preset::loss_ratio`].
    pub fn goal(self, name: impl Into<String>, loss_ratio: f64) -> SearchGoal {
        let goal = |initial_s, final_s, sum_s, exceed_ratio, width| SearchGoal {
            name: name.into(),
            loss_ratio,
            exceed_ratio,
            final_trial_duration_s: final_s,
            duration_sum_s: sum_s,
            initial_trial_duration_s: initial_s,
            width,
            preceding_targets: 2,
            expansion: 2,
            upper_bound_rule: None,
        };
        match self {
            Self::Mlrsearch => goal(1.0, 5.0, 15.0, 0.5, 0.05),
            Self::Rfc2544 => goal(1.0, 60.0, 60.0, 0.0, 0.005),
            Self::Tst009 => goal(1.0, 60.0, 120.0, 0.5, 0.005),
            Self::CsitNdr | Self::CsitPdr => goal(1.0, 1.0, 21.0, 0.5, 0.005),
            Self::Jmeter => goal(5.0, 5.0, 15.0, 0.0, 0.005),
        }
    }

    /// The loss ratio of the preset's goal.
    pub fn loss_ratio(self) -> f64 {
        if self == Self::CsitPdr { 0.005 } else { 0.0 }
    }

    /// The method by which the preset chooses loads.
    pub fn method(self) -> Method {
        match self {
            Self::Mlrsearch => Method::NoiseAware { factor: 2.0 },
            Self::Rfc2544 | Self::Tst009 | Self::CsitNdr | Self::CsitPdr => {
                Method::Mlrsearch { warm_up: WarmUp::Max { duration_s: 1.0 }, start: Start::Max }
            }
            Self::Jmeter => Method::Bisection { midpoint: Midpoint::Arithmetic },
        }
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Preset {
    type Err = UnknownPreset;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let canonical = if name == NOISE_AWARE { Self::Mlrsearch.name() } else { name };
        let found = Self::ALL.into_iter().find(|preset| preset.name() == canonical);
        found.ok_or_else(|| UnknownPreset(name.to_owned()))
    }
}

/// The error for a name that no preset has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no search preset {0:?}: use {names}", names = Preset::ALL.map(Preset::name).join(", "))]
pub struct UnknownPreset(pub String);
