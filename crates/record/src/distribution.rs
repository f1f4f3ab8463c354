//! Distributions of times, such as think times or delays of a target.

use std::{fmt, path::Path, str::FromStr, sync::Arc};

use rand::Rng;
use rand_distr::{Distribution as _, Exp1, StandardNormal};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::{UnitError, parse_time};

const EXPECTED: &str = "a distribution: 300ms, uniform:10ms..50ms, exp:20ms (mean), lognormal:20ms,0.5 (median, sigma) or file:PATH";

/// A distribution of times. Samples are whole nanoseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Distribution {
    /// A constant time.
    Fixed {
        /// The time, in nanoseconds.
        ns: u64,
    },
    /// All times between two bounds are equally likely.
    Uniform {
        /// Smallest time, in nanoseconds.
        min_ns: u64,
        /// Largest time, in nanoseconds; at least `min_ns`.
        max_ns: u64,
    },
    /// Exponential: memoryless.
    Exponential {
        /// Mean, in nanoseconds.
        mean_ns: u64,
    },
    /// Log-normal: typical for the times of services.
    LogNormal {
        /// Median, in nanoseconds.
        median_ns: u64,
        /// Standard deviation of the logarithm; 0 to 10.
        sigma: f64,
    },
    /// Random samples of measured values, with replacement.
    Empirical {
        /// The values, in nanoseconds; at least one.
        #[serde(with = "values")]
        #[schemars(with = "Vec<u64>")]
        values_ns: Arc<[u64]>,
    },
}

impl Distribution {
    /// Draws one time, in nanoseconds. Times beyond 10 years saturate.
    pub fn sample_ns(&self, rng: &mut impl Rng) -> u64 {
        const MAX_NS: f64 = 3.2e17;
        let float: f64 = match self {
            Self::Fixed { ns } => return *ns,
            Self::Uniform { min_ns, max_ns } => {
                return rand_distr::Uniform::new_inclusive(min_ns, max_ns)
                    .expect("parsing put the bounds in order")
                    .sample(rng);
            }
            Self::Empirical { values_ns } => {
                let index = rand_distr::Uniform::new(0, values_ns.len()).expect("never empty").sample(rng);
                return values_ns[index];
            }
            Self::Exponential { mean_ns } => {
                let unit: f64 = Exp1.sample(rng);
                unit * *mean_ns as f64
            }
            Self::LogNormal { median_ns, sigma } => {
                let normal: f64 = StandardNormal.sample(rng);
                (normal * sigma).exp() * *median_ns as f64
            }
        };
        float.clamp(0.0, MAX_NS).round() as u64
    }

    /// The mean, in nanoseconds.
    pub fn mean_ns(&self) -> f64 {
        match self {
            Self::Fixed { ns } => *ns as f64,
            Self::Uniform { min_ns, max_ns } => (*min_ns as f64 + *max_ns as f64) / 2.0,
            Self::Exponential { mean_ns } => *mean_ns as f64,
            Self::LogNormal { median_ns, sigma } => *median_ns as f64 * (sigma * sigma / 2.0).exp(),
            Self::Empirical { values_ns } => {
                values_ns.iter().map(|&v| v as f64).sum::<f64>() / values_ns.len() as f64
            }
        }
    }

    /// Whether every sample is zero.
    pub fn is_zero(&self) -> bool {
        *self == Self::Fixed { ns: 0 }
    }

    /// Reads measured times from a file, one per line (`#` starts a comment), with units as in [`parse_time`].
    ///
    /// # Errors
    /// When the file cannot be read or has no times, or when lines are not times; the error names all of them.
    fn from_file(path: &Path) -> Result<Self, String> {
        let text = crate::input::read_text(path)?;
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
        let lines = (1..).zip(lines).filter(|(_, value)| !value.is_empty());
        let values = crate::input::each_line(path.display(), lines, |value| {
            parse_time(value).map(|time| time.as_nanos() as u64)
        })?;
        if values.is_empty() {
            return Err(format!("{} holds no times; write one per line, such as 20ms", path.display()));
        }
        Ok(Self::Empirical { values_ns: values.into() })
    }
}

impl FromStr for Distribution {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || UnitError::new(text, EXPECTED).to_string();
        let time = |t: &str| parse_time(t.trim()).map(|d| d.as_nanos() as u64).map_err(|_| refuse());
        match text.split_once(':') {
            None => Ok(Self::Fixed { ns: time(text)? }),
            Some(("fixed", t)) => Ok(Self::Fixed { ns: time(t)? }),
            Some(("exp" | "exponential", t)) => Ok(Self::Exponential { mean_ns: time(t)? }),
            Some(("uniform", bounds)) => {
                let (min, max) = bounds.split_once("..").ok_or_else(refuse)?;
                let (min_ns, max_ns) = (time(min)?, time(max)?);
                if min_ns > max_ns { Err(refuse()) } else { Ok(Self::Uniform { min_ns, max_ns }) }
            }
            Some(("lognormal", parameters)) => {
                let (median, sigma) = parameters.split_once(',').ok_or_else(refuse)?;
                match sigma.trim().parse::<f64>() {
                    Ok(sigma) if (0.0..=10.0).contains(&sigma) => {
                        Ok(Self::LogNormal { median_ns: time(median)?, sigma })
                    }
                    _ => Err(refuse()),
                }
            }
            Some(("file", path)) => Self::from_file(Path::new(path)),
            Some(_) => Err(refuse()),
        }
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use crate::units::show_time_ns as show;
        match self {
            Self::Fixed { ns } => write!(f, "{}", show(*ns)),
            Self::Uniform { min_ns, max_ns } => write!(f, "uniform {} to {}", show(*min_ns), show(*max_ns)),
            Self::Exponential { mean_ns } => write!(f, "exponential, mean {}", show(*mean_ns)),
            Self::LogNormal { median_ns, sigma } => {
                write!(f, "log-normal, median {}, sigma {sigma}", show(*median_ns))
            }
            Self::Empirical { values_ns } => write!(f, "drawn from {} measured values", values_ns.len()),
        }
    }
}

mod values {
    use super::Arc;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(values: &Arc<[u64]>, s: S) -> Result<S::Ok, S::Error> {
        values.as_ref().serialize(s)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Arc<[u64]>, D::Error> {
        let values = Vec::<u64>::deserialize(d)?;
        if values.is_empty() {
            return Err(serde::de::Error::custom("an empirical distribution needs a value"));
        }
        Ok(values.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::SeedableRng;

    fn mean_of_samples(distribution: &Distribution) -> f64 {
        let mut rng = rand_pcg::Pcg64Mcg::seed_from_u64(1);
        (0..200_000).map(|_| distribution.sample_ns(&mut rng) as f64).sum::<f64>() / 200_000.0
    }

    #[test]
    fn samples_have_the_mean_of_the_formula() {
        for text in ["20ms", "uniform:10ms..50ms", "exp:20ms", "lognormal:20ms,0.5"] {
            let distribution: Distribution = text.parse().unwrap();
            let (sampled, formula) = (mean_of_samples(&distribution), distribution.mean_ns());
            assert!((sampled / formula - 1.0).abs() < 0.01, "{text}: {sampled} against {formula}");
        }
    }

    #[test]
    fn distributions_are_read_and_shown() {
        for (text, shown) in [
            ("20ms", "20.0 ms"),
            ("fixed: 20ms", "20.0 ms"),
            ("exponential:20ms", "exponential, mean 20.0 ms"),
            ("uniform:10ms..10ms", "uniform 10.0 ms to 10.0 ms"),
            ("lognormal:20ms, 10", "log-normal, median 20.0 ms, sigma 10"),
        ] {
            let distribution: Distribution = text.parse().unwrap();
            assert_eq!((distribution.to_string().as_str(), distribution.is_zero()), (shown, false), "{text}");
        }
        for bad in
            ["", "x:20ms", "uniform:2s..1s", "uniform:2s", "lognormal:2s", "lognormal:2s,10.1", "exp:x"]
        {
            assert!(bad.parse::<Distribution>().is_err(), "{bad}");
        }
        assert!("0s".parse::<Distribution>().unwrap().is_zero());
        let drawn = Distribution::Empirical { values_ns: vec![1_u64, 2].into() };
        assert_eq!(drawn.to_string(), "drawn from 2 measured values");
        let json = serde_json::to_string(&drawn).unwrap();
        assert_eq!(serde_json::from_str::<Distribution>(&json).unwrap(), drawn);
        assert!(serde_json::from_str::<Distribution>(&json.replace("1,2", "")).is_err(), "{json}");
    }

    #[test]
    fn samples_come_from_a_file_of_times_and_all_its_mistakes_are_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path();
        std::fs::write(path, "10ms # warm\n\n30ms\n").unwrap();
        let drawn = Distribution::from_file(path).unwrap();
        assert_eq!(drawn.mean_ns(), 20e6);
        std::fs::write(path, "10ms\nsoon\n3 days\n").unwrap();
        let mistakes = Distribution::from_file(path).unwrap_err();
        assert!(mistakes.contains(":2:") && mistakes.contains(":3:"), "{mistakes}");
    }

    proptest! {
        #[test]
        fn no_text_panics_and_what_parses_can_be_sampled(text in "(fixed|exp|uniform|lognormal|x)?:?[0-9.,msu]{0,12}") {
            if let Ok(distribution) = text.parse::<Distribution>() {
                let mut rng = rand_pcg::Pcg64Mcg::seed_from_u64(7);
                distribution.sample_ns(&mut rng);
            }
        }
    }
}
