//! An HTTP workload as users write it, on a command line or in a study file, and the plan it makes.
//!
//! Every quantity is still text here (`5k`, `300ms`), so that it can be put together from factors. All mistakes
//! are told at once, each with the field it belongs to.

mod events;
mod fields;
mod model;
mod request;
mod text;

use std::net::{SocketAddr, ToSocketAddrs};

use record::{HttpPlan, LoadModel, StatusSet, units::parse_cpus};
use url::Url;

use crate::{Host, preflight::Asked};
use text::{Mistakes, parse_addresses, parse_url, positive, time_ns};

/// Rate that one worker thread is trusted with when the number of threads is left open.
const RATE_PER_THREAD: f64 = 50_000.0;
/// Longest polling before a send when none was asked for.
const SPIN_NS: u64 = 500_000;

/// What is wrong with a field of a workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldMistake {
    /// The field, as it is called in [`HttpWorkload`].
    pub field: &'static str,
    /// What is wrong with it, and what was expected.
    pub message: String,
}

/// An HTTP workload, as written. Fields that are none have the defaults that their comments give.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HttpWorkload {
    /// What requests are sent to: `http://127.0.0.1:8080/path`; the scheme may be left out.
    pub url: String,

    /// Users of a closed load, each with a connection of its own; 10.
    pub users: Option<String>,
    /// Requests of each user.
    pub loops: Option<String>,
    /// Time over which the users start evenly, shorter than the duration; at once.
    pub ramp_up: Option<String>,
    /// Distribution of the pause between an answer and the next request; none.
    pub think_time: Option<String>,
    /// Requests per second of an open load.
    pub rate: Option<String>,
    /// How arrivals of an open load are spaced: `constant` (default) or `poisson`.
    pub arrivals: Option<String>,
    /// Stages of an open load: `10s:500`, `30s:0..5k`.
    pub stages: Vec<String>,
    /// Connections of an open load, opened before the start; on demand. Of a closed one, the same as users.
    pub connections: Option<String>,
    /// How long requests are begun; if nothing else ends the trial, 10 s, of a closed load beyond its `ramp_up`.
    pub duration: Option<String>,
    /// Requests in all.
    pub requests: Option<String>,
    /// A new connection for every request.
    pub no_keepalive: bool,
    /// Requests in flight at once on a connection; 1. Users that think pause behind each of them; an open load sends
    /// behind others only what finds no free connection.
    pub pipeline: Option<String>,

    /// Method; GET, or POST with a body.
    pub method: Option<String>,
    /// Header fields: `Accept: text/html`, or `@FILE` for those of a file, one a line. Like the URL and the body's text,
    /// they may name variables of the environment: `${TOKEN}`.
    pub headers: Vec<String>,
    /// The body: text, `@FILE`, or `@-` for standard input.
    pub body: Option<String>,
    /// Numbered events in place of a body: the event as a JSON object, `@FILE`, or `default` for that of the
    /// published test of an HTTP data listener.
    pub events: Option<String>,
    /// Events in each request; 1.
    pub events_per_request: Option<String>,
    /// How events stand in the body (`as`): `json` (one), `ndjson` (default for several) or `array`.
    pub events_as: Option<String>,
    /// How often a request that failed is made again, at the most; 0.
    pub retries: Option<String>,
    /// The level of acknowledgement asked for: `accepted`, `written` or `synced`; the receiver's own.
    pub ack: Option<String>,
    /// An `Idempotency-Key` with every request, the same for its retries.
    pub idempotency: bool,
    /// Folder for what becomes of every event; none.
    pub receipts: Option<String>,
    /// Statuses that are a success; `2xx,3xx`, of events `2xx`.
    pub expect: Option<String>,
    /// A request that takes longer, its connection included, has failed; 30 s.
    pub timeout: Option<String>,
    /// How long answers are waited for at the end of a load with a duration; 2 s.
    pub drain: Option<String>,

    /// Worker threads of each process; half the processors, as far as the load can use them.
    pub threads: Option<String>,
    /// Worker processes; as many as the descriptor limit makes necessary.
    pub processes: Option<String>,
    /// Processors that worker threads are pinned to: `1`, `0,2-3`.
    pub cpus: Option<String>,
    /// Local addresses to connect from: `10.0.0.5-10.0.0.9`.
    pub source: Option<String>,
    /// Connect to these instead of the URL's host, in turn.
    pub connect_to: Option<String>,
    /// Longest polling before a send is due; 500 µs.
    pub spin: Option<String>,
    /// Seed of everything random.
    pub seed: u64,
    /// Run even though the plan does not fit this machine.
    pub force: bool,
    /// A deliberate fault in the instrument.
    pub fault: Option<String>,
}

impl HttpWorkload {
    /// What was given and may not be changed by the pre-flight check.
    pub fn asked(&self) -> Asked {
        Asked { processes: self.processes.is_some(), sources: self.source.is_some() }
    }

    /// The plan of a trial.
    ///
    /// # Errors
    /// Every mistake.
    pub fn plan(&self, host: &Host) -> Result<HttpPlan, Vec<FieldMistake>> {
        let mut mistakes = Mistakes::default();
        let url = mistakes.read("url", parse_url(&self.url).map(Some));
        let targets = self.targets(url.as_ref(), &mut mistakes);
        let request = self.request(url.as_ref(), &mut mistakes);
        let events = self.events(&mut mistakes);
        let requests = mistakes.optional("requests", self.requests.as_deref(), positive);
        let (load, duration_ns) = self.load(requests, &mut mistakes);
        let threads = mistakes
            .optional("threads", self.threads.as_deref(), positive)
            .unwrap_or_else(|| default_threads(&load, host))
            .min(u64::from(u16::MAX)) as u32;
        let processes =
            mistakes.optional("processes", self.processes.as_deref(), positive).unwrap_or(1) as u32;
        let pipeline =
            mistakes.optional("pipeline", self.pipeline.as_deref(), positive).unwrap_or(1).clamp(1, 10_000)
                as u32;
        if pipeline > 1 && self.no_keepalive {
            mistakes
                .add("pipeline", "it needs kept connections: leave out the pipeline, or keep connections");
        }
        let timeout = |text: &str| match time_ns(text) {
            Ok(0) => Err("0 would fail every request; give a time such as 30s".to_owned()),
            read => read,
        };
        let plan = HttpPlan {
            url: self.url.clone(),
            targets,
            request,
            events,
            load,
            duration_ns,
            requests,
            keepalive: !self.no_keepalive,
            pipeline,
            expect: mistakes
                .optional("expect", self.expect.as_deref(), str::parse)
                .unwrap_or_else(|| self.default_expect()),
            timeout_ns: mistakes
                .optional("timeout", self.timeout.as_deref(), timeout)
                .unwrap_or(30_000_000_000),
            drain_ns: mistakes.optional("drain", self.drain.as_deref(), time_ns).unwrap_or(2_000_000_000),
            threads,
            processes,
            cpus: mistakes.optional("cpus", self.cpus.as_deref(), parse_cpus).unwrap_or_default(),
            sources: mistakes.optional("source", self.source.as_deref(), parse_addresses).unwrap_or_default(),
            spin_ns: mistakes.optional("spin", self.spin.as_deref(), time_ns).unwrap_or(SPIN_NS),
            seed: self.seed,
            forced: self.force,
            pool_limit: None,
            decides: None,
            fault: mistakes.optional("fault", self.fault.as_deref(), str::parse),
        };
        mistakes.none_or(plan)
    }

    /// An event that was redirected is stored nowhere.
    fn default_expect(&self) -> StatusSet {
        match self.events {
            Some(_) => StatusSet::acknowledged(),
            None => StatusSet::success(),
        }
    }

    fn targets(&self, url: Option<&Url>, mistakes: &mut Mistakes) -> Vec<SocketAddr> {
        if let Some(list) = &self.connect_to {
            let parsed: Result<Vec<SocketAddr>, _> = list.split(',').map(|a| a.trim().parse()).collect();
            return parsed.unwrap_or_else(|_| {
                let message = format!("'{list}' is not a list of ADDRESS:PORT such as 10.0.0.3:80");
                mistakes.add("connect_to", message);
                Vec::new()
            });
        }
        let Some(url) = url else { return Vec::new() };
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        let port = url.port().unwrap_or(80);
        match (host, port).to_socket_addrs() {
            // The first, as every client takes; connect_to spreads over several.
            Ok(mut addresses) => addresses.next().into_iter().collect(),
            Err(error) => {
                let message = format!(
                    "cannot find the address of '{host}': {error}; say where to connect to instead: add --connect-to \
                     ADDRESS:PORT, in a study connect_to"
                );
                mistakes.add("url", message);
                Vec::new()
            }
        }
    }
}

fn default_threads(load: &LoadModel, host: &Host) -> u64 {
    let most = (u64::from(host.cpus) / 2).clamp(1, 8);
    match load {
        LoadModel::Closed { users, .. } => users.div_ceil(16).clamp(1, most),
        LoadModel::Open { stages, connections, .. } => {
            let peak = stages.iter().flat_map(|s| [s.from_rate_per_s, s.to_rate_per_s]).fold(0.0, f64::max);
            ((peak / RATE_PER_THREAD).ceil() as u64).min(connections.most).clamp(1, most)
        }
    }
}

#[cfg(test)]
mod tests;
