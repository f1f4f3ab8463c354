//! Deliberately wrong reactions to a share of the requests.

use std::{fmt, str::FromStr};

use rand::{Rng, RngExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

macro_rules! misbehaviours {
    ($($variant:ident $name:literal $meaning:literal,)*) => {
        /// One way to misbehave. It takes the place of the answer at the time the answer is due.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
        pub enum Misbehaviour { $(#[doc = $meaning] #[serde(rename = $name)] $variant,)* }

        impl Misbehaviour {
            /// All kinds, in display order.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The name in options and in reports.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// A description of the misbehaviour.
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning,)* }
            }
        }
    };
}

misbehaviours! {
    Error "error" "a whole answer with the error status",
    Reset "reset" "a TCP reset (RST) instead of an answer",
    Close "close" "the connection closed (FIN) instead of an answer",
    Truncate "truncate" "half the body (half the head, if there is no body), then FIN",
    Malformed "malformed" "a head that is not HTTP, then FIN",
    BadFraming "bad-framing" "a chunk size that is not a number, then FIN",
    HugeHead "huge-head" "a correct answer whose head is larger than 64 KiB",
    Silent "silent" "no answer at all, on a connection that stays open",
    Unsolicited "unsolicited" "a correct answer followed by stray bytes",
}

impl Misbehaviour {
    /// Whether the request still gets a complete, correct answer.
    pub(crate) fn answers(self) -> bool {
        matches!(self, Self::Error | Self::Unsolicited)
    }
}

impl fmt::Display for Misbehaviour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Misbehaviour {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.iter().copied().find(|kind| kind.name() == text).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|kind| kind.name()).collect();
            format!("'{text}' is not a kind of misbehaviour; use one of {}", names.join(", "))
        })
    }
}

/// Selects the misbehaviour for each request with a single uniform draw, so that a request gets at most one kind.
#[derive(Debug, Clone)]
pub(crate) struct MisbehaviourPicker {
    /// The kinds, each with the upper end of its interval in [0, 1), ascending.
    shares: Vec<(f64, Misbehaviour)>,
}

impl MisbehaviourPicker {
    /// Creates the picker. `ratios` must be valid: each from 0 to 1, with a sum of at most 1.
    pub(crate) fn new(ratios: &[(Misbehaviour, f64)]) -> Self {
        let mut end = 0.0;
        let shares = ratios.iter().filter(|(_, ratio)| *ratio > 0.0).map(|&(kind, ratio)| {
            end += ratio;
            (end, kind)
        });
        let mut shares: Vec<_> = shares.collect();
        // If the shares sum to 1, rounding must not leave a gap below 1.
        if let Some(last) = shares.last_mut()
            && last.0 > 1.0 - 1e-9
        {
            last.0 = 1.0;
        }
        Self { shares }
    }

    /// The misbehaviour of the next request. Draws no random number if no kind has a share.
    #[inline]
    pub(crate) fn next(&self, rng: &mut impl Rng) -> Option<Misbehaviour> {
        if self.shares.is_empty() {
            return None;
        }
        let uniform: f64 = rng.random();
        self.shares.iter().find(|(end, _)| uniform < *end).map(|&(_, kind)| kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_pcg::Pcg64Mcg;

    fn counts(ratios: &[(Misbehaviour, f64)], draws: u32) -> Vec<(Misbehaviour, u32)> {
        let (picker, mut rng) = (MisbehaviourPicker::new(ratios), Pcg64Mcg::seed_from_u64(1));
        let mut counts = ratios.iter().map(|&(kind, _)| (kind, 0)).collect::<Vec<_>>();
        for _ in 0..draws {
            if let Some(kind) = picker.next(&mut rng) {
                counts.iter_mut().find(|(k, _)| *k == kind).unwrap().1 += 1;
            }
        }
        counts
    }

    #[test]
    fn each_kind_gets_its_share() {
        let ratios = [(Misbehaviour::Error, 0.1), (Misbehaviour::Reset, 0.02), (Misbehaviour::Silent, 0.5)];
        for ((kind, count), (_, ratio)) in counts(&ratios, 100_000).into_iter().zip(ratios) {
            // Allows four standard deviations of a binomial count.
            let bound = 4.0 * (100_000.0 * ratio * (1.0 - ratio)).sqrt();
            assert!((f64::from(count) - 100_000.0 * ratio).abs() < bound, "{kind}: {count}");
        }
    }

    #[test]
    fn shares_that_sum_to_one_leave_no_request_out() {
        let tenths: Vec<_> = Misbehaviour::ALL.iter().map(|&kind| (kind, 1.0 / 9.0)).collect();
        assert_eq!(counts(&tenths, 50_000).iter().map(|(_, n)| n).sum::<u32>(), 50_000);
        assert_eq!(counts(&[(Misbehaviour::Close, 1.0)], 1_000), [(Misbehaviour::Close, 1_000)]);
    }

    #[test]
    fn a_share_of_zero_never_befalls() {
        assert_eq!(counts(&[(Misbehaviour::Close, 0.0)], 1_000), [(Misbehaviour::Close, 0)]);
    }

    #[test]
    fn names_are_read_back() {
        for &kind in Misbehaviour::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("\"{kind}\""));
        }
        let refused = "explode".parse::<Misbehaviour>().unwrap_err();
        assert!(refused.contains("explode") && refused.contains("bad-framing"), "{refused}");
    }
}
