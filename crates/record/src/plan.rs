//! The plan of an HTTP trial: what is sent, when, and from where.

mod connection;
mod guard;
mod script;
mod tls;

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    str::FromStr,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use connection::{ConnectionPlan, NamePlan, TunnelPlan};
pub use guard::AbortRule;
pub use script::{FeederPlan, LogPlan, RequestPlan, RowOrder, ScriptPlan, StepAction, StepPlan, TextRequest};
pub use tls::TlsPlan;

use crate::{
    distribution::Distribution,
    receipt::EventPlan,
    text::encoding,
    units::{UnitError, parse_rate, parse_time},
};

/// The complete plan of an HTTP trial. The same plan repeats the same trial.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HttpPlan {
    /// The requested URL. In results, secrets are masked here and in the request.
    pub url: String,
    /// Addresses that connections are made to, in rotation: of the target, or of the proxy before it. None if `connection` names
    /// a Unix socket.
    pub targets: Vec<SocketAddr>,
    /// The request to send.
    pub request: Request,
    /// The numbered events that requests carry instead of the body of `request`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<EventPlan>,
    /// The steps of each iteration, with requests of templates, instead of `request`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<ScriptPlan>,
    /// How TLS is used; none for plain HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsPlan>,
    /// The load model.
    pub load: LoadModel,
    /// Time after the start at which new sends stop, in nanoseconds.
    pub duration_ns: Option<u64>,
    /// Total number of requests after which new sends stop.
    pub requests: Option<u64>,
    /// How connections are made, and how long they are used.
    #[serde(default, skip_serializing_if = "ConnectionPlan::is_plain")]
    pub connection: ConnectionPlan,
    /// Whether a connection carries more than one request.
    pub keepalive: bool,
    /// Largest number of requests in flight on a connection; 1 means no pipelining.
    pub pipeline: u32,
    /// The statuses that mean success.
    pub expect: StatusSet,
    /// Largest duration of a request, including its connect, in nanoseconds. A longer one fails.
    pub timeout_ns: u64,
    /// Drain time: how long the generator waits for responses (with an open load, also for connections) after the last
    /// request is due, in nanoseconds. Requests still open then are censored. A load bounded only by requests or loops
    /// waits for every response, up to its timeout.
    pub drain_ns: u64,
    /// Number of worker threads per process.
    pub threads: u32,
    /// Number of worker processes.
    pub processes: u32,
    /// Processors that the worker threads are pinned to, in rotation; if empty, the kernel chooses.
    pub cpus: Vec<u32>,
    /// Local addresses of the connections, in rotation; if empty, the kernel chooses.
    pub sources: Vec<IpAddr>,
    /// Longest time before a send for which the loop polls instead of sleeping, in nanoseconds; 0 means no polling.
    pub spin_ns: u64,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Whether the trial ran although the pre-flight check refused it.
    pub forced: bool,
    /// Why this machine may provide fewer connections on demand than the load needs, and how to raise the limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool_limit: Option<String>,
    /// The bounds of the goals, if the trial is run for goals: validity rules consider only what could change their outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decides: Option<Decision>,
    /// When the trial is aborted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abort_if: Option<AbortRule>,
    /// A deliberate fault of the instrument, to prove that the validity rules detect it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
}

impl HttpPlan {
    /// Largest number of connections that are open at the same time.
    pub fn connections(&self) -> u64 {
        match &self.load {
            LoadModel::Closed { users, .. } => *users,
            LoadModel::Open { connections, .. } => connections.most,
        }
    }

    /// Whether connections are opened on demand, up to an automatic limit.
    pub fn is_on_demand(&self) -> bool {
        matches!(&self.load, LoadModel::Open { connections, .. } if connections.initial < connections.most)
    }

    /// Time for which requests are sent, in nanoseconds: the duration, or the length of all stages of an open load.
    /// `None` if only the responses decide.
    pub fn sending_ns(&self) -> Option<u64> {
        let by_stages = || match &self.load {
            LoadModel::Open { stages, .. } => Some(stages.iter().map(|stage| stage.duration_ns).sum()),
            LoadModel::Closed { .. } => None,
        };
        self.duration_ns.or_else(by_stages)
    }

    /// Length of the intervals of the time series, in nanoseconds: 1 s, or 0.1 s for an open load shorter than 4 s,
    /// because too few intervals show no trend.
    pub fn interval_ns(&self) -> u64 {
        let is_short =
            self.load.is_open() && self.sending_ns().is_some_and(|sending| sending < SHORT_LOAD_NS);
        if is_short { 100_000_000 } else { 1_000_000_000 }
    }
}

/// Open loads shorter than this, in nanoseconds, have a time series in tenths of a second.
const SHORT_LOAD_NS: u64 = 4_000_000_000;

/// The bounds of the goals that a trial decides about.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Decision {
    /// The smallest bound on a time of any goal, in nanoseconds; if it is below the drain time, a generator without CPU time
    /// may have changed the outcome.
    pub response_time_ns: u64,
    /// The largest bound on a time of any goal, in nanoseconds; the drain time if a goal has no such bound.
    pub longest_ns: u64,
    /// The largest loss ratio that a goal allows: once the target itself has refused more, a lack of CPU time at the
    /// generator cannot change the outcome.
    pub loss_ratio: f64,
}

/// An HTTP request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Request {
    /// The method, such as `GET`.
    pub method: String,
    /// The request target: path and query.
    pub target: String,
    /// Header fields in order, including `Host`. Missing framing fields (`Content-Length`, `Connection`) are added.
    pub headers: Vec<(String, String)>,
    /// The body.
    #[serde(with = "encoding")]
    #[schemars(with = "String")]
    pub body: Vec<u8>,
}

/// How requests are generated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "model", rename_all = "snake_case")]
pub enum LoadModel {
    /// Users who each send a request, wait for the response, think, and send again.
    Closed {
        /// Number of users, each with its own connection.
        users: u64,
        /// Number of requests per user.
        loops: Option<u64>,
        /// Time over which the starts of the users are spread evenly, in nanoseconds.
        ramp_up_ns: u64,
        /// Pause between a response and the next request.
        think_time: Distribution,
    },
    /// Requests arrive by a schedule, whatever the target does.
    Open {
        /// How arrivals are spaced.
        arrivals: Arrivals,
        /// The rate over time; at least one stage.
        stages: Vec<Stage>,
        /// The connections that carry the requests.
        connections: Connections,
    },
}

impl LoadModel {
    /// Whether requests arrive by a schedule. In the other model, users wait for responses.
    pub fn is_open(&self) -> bool {
        matches!(self, Self::Open { .. })
    }

    /// Whether the load may grow after its beginning.
    pub fn may_grow(&self) -> bool {
        match self {
            Self::Closed { ramp_up_ns, .. } => *ramp_up_ns > 0,
            Self::Open { stages, .. } => {
                stages.first().is_some_and(|first| first.from_rate_per_s < self.peak())
            }
        }
    }

    /// The largest load: the number of users of a closed load, or the highest rate of an open load in requests per
    /// second.
    pub fn peak(&self) -> f64 {
        match self {
            Self::Closed { users, .. } => *users as f64,
            Self::Open { stages, .. } => {
                stages.iter().flat_map(|s| [s.from_rate_per_s, s.to_rate_per_s]).fold(0.0, f64::max)
            }
        }
    }
}

impl Default for LoadModel {
    /// A load without requests, as a placeholder.
    fn default() -> Self {
        Self::Closed { users: 0, loops: None, ramp_up_ns: 0, think_time: Distribution::Fixed { ns: 0 } }
    }
}

/// How the arrivals of an open load are spaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Arrivals {
    /// At even intervals.
    Constant,
    /// As a Poisson process, independent of each other.
    Poisson,
}

/// A stage of an open load, in which the rate changes linearly.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Stage {
    /// Length in nanoseconds.
    pub duration_ns: u64,
    /// Rate at its start, per second.
    pub from_rate_per_s: f64,
    /// Rate at its end, per second.
    pub to_rate_per_s: f64,
}

/// The connections of an open load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Connections {
    /// Number of connections opened before the first arrival.
    pub initial: u64,
    /// Largest number of connections; more than `initial` are opened only while all open ones are busy.
    pub most: u64,
}

/// A set of statuses, such as `200`, `2xx,304` or `200-299`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct StatusSet {
    ranges: Vec<(u16, u16)>,
}

impl StatusSet {
    /// The default for success: 2xx and 3xx, as in wrk.
    pub fn success() -> Self {
        Self { ranges: vec![(200, 399)] }
    }

    /// The statuses of an acknowledgement: 2xx.
    pub fn acknowledged() -> Self {
        Self { ranges: vec![(200, 299)] }
    }

    /// Whether a status is in the set.
    #[inline]
    pub fn contains(&self, status: u16) -> bool {
        self.ranges.iter().any(|&(low, high)| (low..=high).contains(&status))
    }
}

/// A deliberate fault of the instrument.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Fault {
    /// The loop stalls at regular numbers of sends.
    LateSends {
        /// Number of sends between stalls.
        every: u64,
        /// Length of a stall, in nanoseconds.
        by_ns: u64,
    },
    /// One of `every` completions is not recorded.
    DropSamples {
        /// Number of completions per fault.
        every: u64,
    },
    /// One of `every` completions is recorded twice.
    DoubleCount {
        /// Number of completions per fault.
        every: u64,
    },
    /// One of `every` arrivals is silently not sent.
    NeverSend {
        /// Number of arrivals per fault.
        every: u64,
    },
    /// Every request costs the loop additional CPU time.
    Burn {
        /// The additional CPU time per request, in nanoseconds.
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

#[cfg(test)]
mod tests;
