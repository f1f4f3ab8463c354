//! Goals and methods by the names people know them under.

use std::{fmt, str::FromStr};

use crate::{
    goal::SearchGoal,
    plan::{Method, Midpoint, Start, WarmUp},
};

/// Another name of [`Preset::Mlrsearch`], for studies that compare it with methods that are not.
const NOISE_AWARE: &str = "noise-aware";

/// A way of searching that has a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preset {
    /// Ours: MLRsearch from the smallest load up, 5 s trials, 15 s a load, a majority decides, 5 % apart.
    Mlrsearch,
    /// RFC 2544 throughput: 60 s trials, no loss, one trial decides; found by MLRsearch.
    Rfc2544,
    /// ETSI GS NFV-TST 009 with loss verification: 60 s trials, 120 s a load, no loss in half of them.
    Tst009,
    /// FD.io CSIT, no drop rate: 1 s trials, 21 s a load, no loss in half of them, 0.5 % apart.
    CsitNdr,
    /// FD.io CSIT, partial drop rate: the same with 0.5 % loss.
    CsitPdr,
    /// The JMeter habit: bisection, 3 runs a load, one bad run fails it.
    Jmeter,
}

impl Preset {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Mlrsearch, Self::Rfc2544, Self::Tst009, Self::CsitNdr, Self::CsitPdr, Self::Jmeter];

    /// Its name on the command line and in study files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mlrsearch => "mlrsearch",
            Self::Rfc2544 => "rfc2544",
            Self::Tst009 => "tst009",
            Self::CsitNdr => "csit-ndr",
            Self::CsitPdr => "csit-pdr",
            Self::Jmeter => "jmeter",
        }
    }

    /// The goal it stands for, with this loss ratio; [`Preset::loss_ratio`] is its own.
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
            surely_not: None,
        };
        match self {
            Self::Mlrsearch => goal(1.0, 5.0, 15.0, 0.5, 0.05),
            Self::Rfc2544 => goal(1.0, 60.0, 60.0, 0.0, 0.005),
            Self::Tst009 => goal(1.0, 60.0, 120.0, 0.5, 0.005),
            Self::CsitNdr | Self::CsitPdr => goal(1.0, 1.0, 21.0, 0.5, 0.005),
            Self::Jmeter => goal(5.0, 5.0, 15.0, 0.0, 0.005),
        }
    }

    /// The loss ratio of its own goal.
    pub fn loss_ratio(self) -> f64 {
        if self == Self::CsitPdr { 0.005 } else { 0.0 }
    }

    /// How it chooses loads.
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
        let name_of = if name == NOISE_AWARE { Self::Mlrsearch.name() } else { name };
        let found = Self::ALL.into_iter().find(|preset| preset.name() == name_of);
        found.ok_or_else(|| UnknownPreset(name.to_owned()))
    }
}

/// No preset has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no search preset {0:?}: use {names}", names = Preset::ALL.map(Preset::name).join(", "))]
pub struct UnknownPreset(pub String);
