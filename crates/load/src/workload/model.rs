//! The load model of a workload: closed or open, and how long.

use record::{
    Arrivals, Connections, Distribution, LoadModel, Stage,
    units::{parse_count, parse_rate, show_time_ns},
};

use super::{
    HttpWorkload,
    text::{Mistakes, positive, time_ns},
};
use crate::pool::MOST_ON_DEMAND;

/// Time that requests are begun for when nothing else ends a trial; of a closed load, once all users have started.
const DURATION_NS: u64 = 10_000_000_000;

impl HttpWorkload {
    /// The load model, and how long requests are begun in nanoseconds.
    pub(super) fn load(&self, requests: Option<u64>, mistakes: &mut Mistakes) -> (LoadModel, Option<u64>) {
        let duration_ns =
            mistakes.optional("duration", self.duration.as_deref(), |text| match time_ns(text) {
                Ok(0) => Err("0 is no time to measure in; give one such as 10s".to_owned()),
                result => result,
            });
        let connections = mistakes.optional("connections", self.connections.as_deref(), positive);
        if self.rate.is_some() || !self.stages.is_empty() {
            self.open_load(requests, duration_ns, connections, mistakes)
        } else {
            self.closed_load(requests, duration_ns, connections, mistakes)
        }
    }

    fn closed_load(
        &self,
        requests: Option<u64>,
        mut duration_ns: Option<u64>,
        connections: Option<u64>,
        mistakes: &mut Mistakes,
    ) -> (LoadModel, Option<u64>) {
        let users = mistakes.optional("users", self.users.as_deref(), positive);
        let loops = mistakes.optional("loops", self.loops.as_deref(), positive);
        if let (Some(users), Some(connections)) = (users, connections)
            && users != connections
        {
            let message = format!(
                "each of the {users} users has its own connection; leave the connections out, or give a rate for a load \
                 that shares {connections} connections"
            );
            mistakes.add("connections", message);
        }
        let ramp_up_ns = mistakes.optional("ramp_up", self.ramp_up.as_deref(), time_ns).unwrap_or(0);
        match duration_ns {
            // The last user begins a little before the ramp-up is over.
            Some(ns) if ramp_up_ns > 0 && ramp_up_ns >= ns => {
                mistakes.add("ramp_up", too_slow(ramp_up_ns, ns))
            }
            None if loops.is_none() && requests.is_none() => {
                duration_ns = Some(ramp_up_ns.saturating_add(DURATION_NS));
            }
            _ => {}
        }
        let think_time = mistakes
            .optional("think_time", self.think_time.as_deref(), str::parse)
            .unwrap_or(Distribution::Fixed { ns: 0 });
        let users = users.or(connections).unwrap_or(10);
        (LoadModel::Closed { users, loops, ramp_up_ns, think_time }, duration_ns)
    }

    fn open_load(
        &self,
        requests: Option<u64>,
        duration_ns: Option<u64>,
        connections: Option<u64>,
        mistakes: &mut Mistakes,
    ) -> (LoadModel, Option<u64>) {
        for (field, given) in [
            ("users", self.users.is_some()),
            ("loops", self.loops.is_some()),
            ("ramp_up", self.ramp_up.is_some()),
            ("think_time", self.think_time.is_some()),
        ] {
            if given {
                let message = "it belongs to a closed load (users that wait for their answers), a rate or stages to an \
                               open one: choose";
                mistakes.add(field, message);
            }
        }
        let rate = mistakes.optional("rate", self.rate.as_deref(), read_rate);
        let arrivals =
            mistakes.optional("arrivals", self.arrivals.as_deref(), str::parse).unwrap_or(Arrivals::Constant);
        // How long so many random arrivals take is chance: their number alone ends them.
        let timed = arrivals == Arrivals::Constant || duration_ns.is_some() || requests.is_none();
        let mut stages: Vec<Stage> = self
            .stages
            .iter()
            .filter_map(|text| mistakes.optional("stages", Some(text), str::parse))
            .collect();
        match rate {
            Some(_) if !self.stages.is_empty() => {
                let message = "stages say the rate too: leave out one (a stage holds a rate as 10s:500)";
                mistakes.add("rate", message);
            }
            Some(rate) => {
                let duration_ns = match (duration_ns, requests) {
                    (Some(ns), _) => ns,
                    (None, Some(n)) => (n as f64 / rate * 1e9).ceil() as u64,
                    (None, None) => DURATION_NS,
                };
                stages.push(Stage { duration_ns, from_rate_per_s: rate, to_rate_per_s: rate });
            }
            // A rate that could not be read takes the duration all the same.
            None if duration_ns.is_some() && self.rate.is_none() => {
                mistakes.add("duration", "the stages say how long the trial is; leave it out");
            }
            None => {}
        }
        let planned: f64 = stages
            .iter()
            .map(|s| (s.from_rate_per_s + s.to_rate_per_s) / 2.0 * s.duration_ns as f64 / 1e9)
            .sum();
        if !stages.is_empty() && planned < 1.0 {
            mistakes.add("rate", "at this rate not one request is due within the duration");
        }
        let connections = match connections {
            Some(n) => Connections { initial: n, most: n },
            None => Connections { initial: 0, most: MOST_ON_DEMAND },
        };
        let duration_ns = stages.iter().map(|stage| stage.duration_ns).sum();
        let timed = timed || !self.stages.is_empty();
        (LoadModel::Open { arrivals, stages, connections }, timed.then_some(duration_ns))
    }
}

fn too_slow(ramp_up_ns: u64, duration_ns: u64) -> String {
    let (ramp_up, duration) = (show_time_ns(ramp_up_ns), show_time_ns(duration_ns));
    format!(
        "the users start over {ramp_up}, and requests are begun for {duration} only (duration): not all would ever \
         start; give a duration longer than the ramp-up, or a shorter ramp-up"
    )
}

fn read_rate(text: &str) -> Result<f64, String> {
    match parse_count(text.strip_suffix("/s").unwrap_or(text)) {
        Ok(0) => Err(format!("'{text}' must be above 0: a rate per second such as 500, 5k or 1.5M")),
        _ => parse_rate(text).map_err(|error| error.to_string()),
    }
}
