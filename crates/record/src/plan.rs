//! The plan of one HTTP trial: everything that decides what is sent, when, and from where.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    str::FromStr,
};

use base64::engine::general_purpose::STANDARD as BASE64;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    distribution::Distribution,
    receipt::EventPlan,
    units::{UnitError, parse_rate, parse_time},
};

/// One HTTP trial, complete: a trial is repeated by running the same plan again.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HttpPlan {
    /// The URL as asked for. In what is written, secrets are masked here and in the request.
    pub url: String,
    /// Addresses the connections go to, taken in turn; at least one.
    pub targets: Vec<SocketAddr>,
    /// What every user sends.
    pub request: Request,
    /// The numbered events that requests carry, in place of `request`'s body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<EventPlan>,
    /// Who sends when.
    pub load: LoadModel,
    /// New sends stop this long after the start, in nanoseconds.
    pub duration_ns: Option<u64>,
    /// New sends stop after this many requests in all.
    pub requests: Option<u64>,
    /// Whether a connection carries more than one request.
    pub keepalive: bool,
    /// Requests in flight at once on a connection; 1 is no pipelining.
    pub pipeline: u32,
    /// Which statuses are a success.
    pub expect: StatusSet,
    /// A request (its connection included) that takes longer is a failure, in nanoseconds.
    pub timeout_ns: u64,
    /// How long answers (and, in an open load, connections) are waited for once the last request is due,
    /// in nanoseconds. What is still missing then is censored. Loads bounded by requests or loops alone
    /// wait for every answer, up to its timeout.
    pub drain_ns: u64,
    /// Worker threads in each process.
    pub threads: u32,
    /// Worker processes.
    pub processes: u32,
    /// Processors that the worker threads are pinned to, in turn; empty leaves it to the kernel.
    pub cpus: Vec<u32>,
    /// Local addresses that connections start from, in turn; empty leaves it to the kernel.
    pub sources: Vec<IpAddr>,
    /// Longest time before a send that the loop polls instead of sleeping, in nanoseconds; 0 never
    /// polls.
    pub spin_ns: u64,
    /// Seed of everything random.
    pub seed: u64,
    /// Run although the pre-flight check refused.
    pub forced: bool,
    /// Why connections on demand can be fewer on this machine than the load may need, and what gives more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool_limit: Option<String>,
    /// What the trial is to decide about, if it is run for a goal: it is judged by what could change that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decides: Option<Decision>,
    /// A deliberate fault in the instrument, to prove that the validity rules catch it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
}

impl HttpPlan {
    /// Connections that are open at once at the most.
    pub fn connections(&self) -> u64 {
        match &self.load {
            LoadModel::Closed { users, .. } => *users,
            LoadModel::Open { connections, .. } => connections.most,
        }
    }

    /// Whether connections are opened on demand, up to a number that nobody asked for.
    pub fn is_on_demand(&self) -> bool {
        matches!(&self.load, LoadModel::Open { connections, .. } if connections.initial < connections.most)
    }

    /// How long requests are begun, in nanoseconds, as far as the plan knows: the duration; of an open load that its
    /// requests end, what its rate takes for them.
    pub fn sending_ns(&self) -> Option<u64> {
        let by_stages = || match &self.load {
            LoadModel::Open { stages, .. } => Some(stages.iter().map(|stage| stage.duration_ns).sum()),
            LoadModel::Closed { .. } => None,
        };
        self.duration_ns.or_else(by_stages)
    }

    /// Length of the intervals in which the trial's course is kept, in nanoseconds: a second; of an open load of less than
    /// four seconds a tenth, because a few intervals show no trend.
    pub fn interval_ns(&self) -> u64 {
        let is_short =
            self.load.is_open() && self.sending_ns().is_some_and(|sending| sending < SHORT_LOAD_NS);
        if is_short { 100_000_000 } else { 1_000_000_000 }
    }
}

/// Of open loads that are shorter, the course is kept in tenths of a second, in nanoseconds.
const SHORT_LOAD_NS: u64 = 4_000_000_000;

/// What a trial is to decide about.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Decision {
    /// The least response time that a goal asks about, in nanoseconds: below the time that answers are waited
    /// for, a generator without processor time may have made the difference.
    pub response_time_ns: u64,
    /// The largest response time that any goal allows, in nanoseconds; the time that answers are waited for at the end
    /// where one has no bound.
    pub longest_ns: u64,
    /// The largest share of requests that a goal allows to be lost: once the target itself has refused more, no
    /// want of processor time at the generator can change the answer.
    pub loss_ratio: f64,
}

/// One request, sent as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Request {
    /// The method, such as `GET`.
    pub method: String,
    /// The request target: path and query.
    pub target: String,
    /// Header fields in order, `Host` included; framing fields (`Content-Length`, `Connection`) are
    /// added where they are missing.
    pub headers: Vec<(String, String)>,
    /// The body.
    #[serde(with = "body")]
    #[schemars(with = "String")]
    pub body: Vec<u8>,
}

/// How load is offered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "model", rename_all = "snake_case")]
pub enum LoadModel {
    /// Users, each of which sends, waits for the answer, thinks, and sends again.
    Closed {
        /// How many, each with its own connection.
        users: u64,
        /// Requests of each user.
        loops: Option<u64>,
        /// Time over which the users start evenly, in nanoseconds.
        ramp_up_ns: u64,
        /// Pause between an answer and the next request.
        think_time: Distribution,
    },
    /// Requests arrive when the schedule says, whatever the target does.
    Open {
        /// How arrivals are spaced.
        arrivals: Arrivals,
        /// The rate over time; at least one stage.
        stages: Vec<Stage>,
        /// The connections that carry them.
        connections: Connections,
    },
}

impl LoadModel {
    /// Whether requests arrive by a schedule rather than by users that wait.
    pub fn is_open(&self) -> bool {
        matches!(self, Self::Open { .. })
    }
}

impl Default for LoadModel {
    /// Nobody sends anything: the load of a trial whose plan is yet to be put there.
    fn default() -> Self {
        Self::Closed { users: 0, loops: None, ramp_up_ns: 0, think_time: Distribution::Fixed { ns: 0 } }
    }
}

/// How the arrivals of an open load are spaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Arrivals {
    /// Evenly.
    Constant,
    /// As a Poisson process: independent of each other.
    Poisson,
}

/// A stretch of an open load whose rate changes linearly.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Stage {
    /// How long, in nanoseconds.
    pub duration_ns: u64,
    /// Rate at its start, per second.
    pub from_rate_per_s: f64,
    /// Rate at its end, per second.
    pub to_rate_per_s: f64,
}

/// Connections of an open load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Connections {
    /// Opened before the first arrival.
    pub initial: u64,
    /// Opened at the most; more than `initial` only when all open ones are busy.
    pub most: u64,
}

/// A set of statuses, such as `200`, `2xx,304` or `200-299`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct StatusSet {
    ranges: Vec<(u16, u16)>,
}

impl StatusSet {
    /// What is taken for a success unless told otherwise: 2xx and 3xx, as wrk does.
    pub fn success() -> Self {
        Self { ranges: vec![(200, 399)] }
    }

    /// What is taken for an acknowledgement: 2xx.
    pub fn acknowledged() -> Self {
        Self { ranges: vec![(200, 299)] }
    }

    /// Whether a status is in the set.
    #[inline]
    pub fn contains(&self, status: u16) -> bool {
        self.ranges.iter().any(|&(low, high)| (low..=high).contains(&status))
    }
}

/// A deliberate fault in the instrument.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Fault {
    /// Every so many sends, the loop stalls.
    LateSends {
        /// Every how many sends.
        every: u64,
        /// For how long, in nanoseconds.
        by_ns: u64,
    },
    /// Every so many completions are not recorded.
    DropSamples {
        /// Every how many completions.
        every: u64,
    },
    /// Every so many completions are recorded twice.
    DoubleCount {
        /// Every how many completions.
        every: u64,
    },
    /// Every so many arrivals are silently not sent.
    NeverSend {
        /// Every how many arrivals.
        every: u64,
    },
    /// Every request costs the loop this much processor time more.
    Burn {
        /// How much, in nanoseconds.
        ns: u64,
    },
}

impl FromStr for Fault {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || {
            UnitError::new(text, "a fault: late:EVERY,TIME drop:EVERY double:EVERY skip:EVERY or burn:TIME")
        };
        let (kind, rest) = text.split_once(':').ok_or_else(refuse)?;
        let every = |t: &str| t.parse().ok().filter(|&n| n > 0).ok_or_else(refuse);
        let time_ns = |t: &str| parse_time(t).map(|d| d.as_nanos() as u64).map_err(|_| refuse());
        match kind {
            "late" => {
                let (n, by) = rest.split_once(',').ok_or_else(refuse)?;
                Ok(Self::LateSends { every: every(n)?, by_ns: time_ns(by)? })
            }
            "drop" => Ok(Self::DropSamples { every: every(rest)? }),
            "double" => Ok(Self::DoubleCount { every: every(rest)? }),
            "skip" => Ok(Self::NeverSend { every: every(rest)? }),
            "burn" => Ok(Self::Burn { ns: time_ns(rest)? }),
            _ => Err(refuse()),
        }
    }
}

impl FromStr for Arrivals {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "constant" | "uniform" => Ok(Self::Constant),
            "poisson" => Ok(Self::Poisson),
            _ => Err(UnitError::new(text, "constant or poisson")),
        }
    }
}

impl FromStr for Stage {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse =
            || UnitError::new(text, "a stage: DURATION:RATE (10s:500) or DURATION:FROM..TO (30s:0..5k)");
        let rate =
            |t: &str| if t.trim() == "0" { Ok(0.0) } else { parse_rate(t.trim()).map_err(|_| refuse()) };
        let (duration, rates) = text.split_once(':').ok_or_else(refuse)?;
        let duration_ns = parse_time(duration).map_err(|_| refuse())?.as_nanos() as u64;
        let (from_rate_per_s, to_rate_per_s) = match rates.split_once("..") {
            Some((from, to)) => (rate(from)?, rate(to)?),
            None => (rate(rates)?, rate(rates)?),
        };
        if duration_ns == 0 {
            return Err(refuse());
        }
        Ok(Self { duration_ns, from_rate_per_s, to_rate_per_s })
    }
}

impl FromStr for StatusSet {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || UnitError::new(text, "statuses such as 200, 2xx,304 or 200-299");
        let status = |t: &str| match t.parse::<u16>() {
            Ok(status) if (100..1000).contains(&status) => Ok(status),
            _ => Err(refuse()),
        };
        let mut ranges = Vec::new();
        for part in text.split(',').map(str::trim) {
            ranges.push(match (part.strip_suffix("xx"), part.split_once('-')) {
                (Some(hundreds), _) => {
                    let low = status(&format!("{hundreds}00"))?;
                    (low, low + 99)
                }
                (None, Some((low, high))) => (status(low)?, status(high)?),
                (None, None) => (status(part)?, status(part)?),
            });
        }
        if ranges.iter().any(|(low, high)| low > high) { Err(refuse()) } else { Ok(Self { ranges }) }
    }
}

impl fmt::Display for StatusSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, &(low, high)) in self.ranges.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            match high - low {
                0 => write!(f, "{comma}{low}")?,
                99 if low % 100 == 0 => write!(f, "{comma}{}xx", low / 100)?,
                _ => write!(f, "{comma}{low}-{high}")?,
            }
        }
        Ok(())
    }
}

/// Bodies are kept as base64: they need not be text.
mod body {
    use super::{BASE64, Deserialize};
    use base64::Engine as _;
    use serde::{Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(body: &[u8], s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&BASE64.encode(body))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<u8>, D::Error> {
        BASE64.decode(String::deserialize(d)?).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests;
