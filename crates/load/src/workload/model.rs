//! The load model of a workload, closed or open, and its duration.

use record::{Arrivals, Connections, Distribution, LoadModel, Stage, units::show_time_ns};

use super::{HttpWorkload, Rate, text::Mistakes};
use crate::pool::MAX_ON_DEMAND;

/// Default duration, in nanoseconds; in a closed load, after the ramp-up.
const DEFAULT_DURATION_NS: u64 = 10_000_000_000;

impl HttpWorkload {
    /// The load model, and the duration in which requests begin, in nanoseconds.
    pub(super) fn load(&self, requests: Option<u64>, mistakes: &mut Mistakes) -> (LoadModel, Option<u64>) {
        let mut duration_ns = mistakes.time_ns("duration", &self.duration);
        if duration_ns.take_if(|ns| *ns == 0).is_some() {
            mistakes.add("duration", "0 leaves no time to measure; give a time such as 10s");
        }
        let connections = mistakes.count("connections", &self.connections);
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
        let users = mistakes.count("users", &self.users);
        let loops = mistakes.count("loops", &self.loops);
        if let (Some(users), Some(connections)) = (users, connections)
            && users != connections
        {
            let message = format!(
                "each of the {users} users has its own connection; leave the connections out, or give a rate for a load \
                 that shares {connections} connections"
            );
            mistakes.add("connections", message);
        }
        let ramp_up_ns = mistakes.time_ns("ramp_up", &self.ramp_up).unwrap_or(0);
        match duration_ns {
            // The last user begins shortly before the end of the ramp-up, so the duration must be longer.
            Some(ns) if ramp_up_ns > 0 && ramp_up_ns >= ns => {
                mistakes.add("ramp_up", ramp_up_too_long(ramp_up_ns, ns))
            }
            None if loops.is_none() && requests.is_none() => {
                duration_ns = Some(ramp_up_ns.saturating_add(DEFAULT_DURATION_NS));
            }
            _ => {}
        }
        let think_time =
            mistakes.typed("think_time", &self.think_time).unwrap_or(Distribution::Fixed { ns: 0 });
        let users = users.or(connections).unwrap_or(10);
        (LoadModel::Closed { users, loops, ramp_up_ns, think_time }, duration_ns)
    }

    /// Refuses a load above the ceiling.
    pub(super) fn check_ceiling(&self, load: &LoadModel, mistakes: &mut Mistakes) {
        let Some(Rate(ceiling)) = mistakes.typed("ceiling", &self.ceiling) else { return };
        let field = match load {
            LoadModel::Closed { .. } => "users",
            LoadModel::Open { .. } if self.stages.is_empty() => "rate",
            LoadModel::Open { .. } => "stages",
        };
        let planned = load.peak();
        if planned > ceiling {
            mistakes.add(field, format!("a load of {planned} is above the ceiling of {ceiling}"));
        }
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
        let rate = mistakes.typed("rate", &self.rate).map(|Rate(rate)| rate);
        let arrivals = mistakes.typed("arrivals", &self.arrivals).unwrap_or(Arrivals::Constant);
        // Random arrivals take a random time, so without a duration only their number ends them.
        let timed = arrivals == Arrivals::Constant || duration_ns.is_some() || requests.is_none();
        let mut stages: Vec<Stage> =
            self.stages.iter().filter_map(|stage| mistakes.value("stages", stage)).collect();
        match rate {
            Some(_) if !self.stages.is_empty() => {
                let message = "the stages set the rate, too: leave out one (a stage holds a rate as 10s:500)";
                mistakes.add("rate", message);
            }
            Some(rate) => {
                let duration_ns = match (duration_ns, requests) {
                    (Some(ns), _) => ns,
                    (None, Some(n)) => (n as f64 / rate * 1e9).ceil() as u64,
                    (None, None) => DEFAULT_DURATION_NS,
                };
                stages.push(Stage { duration_ns, from_rate_per_s: rate, to_rate_per_s: rate });
            }
            // A wrong rate has its own mistake, so the duration is not reported as well.
            None if duration_ns.is_some() && self.rate.is_none() => {
                mistakes.add("duration", "the stages set the duration of the trial; leave this out");
            }
            None => {}
        }
        let planned: f64 = stages
            .iter()
            .map(|s| (s.from_rate_per_s + s.to_rate_per_s) / 2.0 * s.duration_ns as f64 / 1e9)
            .sum();
        if !stages.is_empty() && planned < 1.0 {
            mistakes.add("rate", "at this rate no request is due within the duration");
        }
        let connections = match connections {
            Some(n) => Connections { initial: n, most: n },
            None => Connections { initial: 0, most: MAX_ON_DEMAND },
        };
        let duration_ns = stages.iter().map(|stage| stage.duration_ns).sum();
        let timed = timed || !self.stages.is_empty();
        (LoadModel::Open { arrivals, stages, connections }, timed.then_some(duration_ns))
    }
}

fn ramp_up_too_long(ramp_up_ns: u64, duration_ns: u64) -> String {
    let (ramp_up, duration) = (show_time_ns(ramp_up_ns), show_time_ns(duration_ns));
    format!(
        "the users start over {ramp_up}, but the duration is only {duration}: some users would never start; give a duration \
         longer than the ramp-up, or a shorter ramp-up"
    )
}
