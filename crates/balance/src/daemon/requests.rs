//! What a running daemon is asked and told.

use std::time::Instant;

use tracing::info;

use super::{Daemon, RETRY, now_ns};
use crate::{
    Config, Error, Reason,
    balancer::nanoseconds,
    changes,
    control::{Answer, Request},
    statistics::{self, Statistics, SweepStatistics},
};

impl Daemon {
    pub(super) fn answer(&mut self, request: Request) -> Answer {
        match request {
            Request::Statistics => match self.statistics() {
                Ok(statistics) => Answer::Statistics(Box::new(statistics)),
                Err(error) => Answer::Refused { why: vec![error.to_string()] },
            },
            Request::Server { server, change } => {
                let mut config = self.config.clone();
                match changes::apply(&mut config, &server, change) {
                    Ok(what) => self.change_to(config, what),
                    Err(why) => Answer::Refused { why },
                }
            }
            Request::Reload => self.reload(),
            // The loop has taken it.
            Request::Stop { .. } => Answer::Refused { why: Vec::new() },
        }
    }

    /// Reads the file again. What commands have changed is as the file says it then.
    pub(super) fn reload(&mut self) -> Answer {
        let name = self.file.display().to_string();
        let text = match record::input::read_text(&self.file) {
            Ok(text) => text,
            Err(why) => return Answer::Refused { why: vec![why] },
        };
        let config = match Config::read(&name, &text) {
            Ok(config) => config,
            Err(why) => return Answer::Refused { why: why.iter().map(ToString::to_string).collect() },
        };
        let changed = config.fixed_changes(&self.config).into_iter();
        let why: Vec<String> = changed
            .map(|key| {
                format!("{name}: {key} has changed, which takes another start: `proofload balance stop --keep`, then start it")
            })
            .collect();
        if !why.is_empty() {
            return Answer::Refused { why };
        }
        self.text = text;
        self.change_to(config, format!("read {name} again"))
    }

    /// Goes over to another configuration.
    fn change_to(&mut self, config: Config, what: String) -> Answer {
        if let Err(error) = self.balancer.configure(&config) {
            return Answer::Refused { why: vec![error.to_string()] };
        }
        self.config = config;
        self.sweeps
            .set_timeouts(nanoseconds(self.config.idle_timeout), nanoseconds(self.config.closing_timeout));
        if let Err(error) = self.write_settings().and_then(|()| self.settle()) {
            self.retry = Some(Instant::now() + RETRY);
            return Answer::Refused { why: vec![format!("{error}; it is tried again")] };
        }
        info!("{what}");
        Answer::Done { what }
    }

    fn statistics(&self) -> Result<Statistics, Error> {
        let swept = &self.swept;
        let age_ns = if swept.begun_ns == 0 { 0 } else { now_ns().saturating_sub(swept.begun_ns) };
        Ok(Statistics {
            name: self.instance.name.clone(),
            device: self.device.name.clone(),
            hook: self.hook.name().to_owned(),
            process: std::process::id(),
            uptime_s: self.started.elapsed().as_secs_f64(),
            sweep: SweepStatistics {
                age_s: age_ns as f64 / 1e9,
                took_s: swept.took.as_secs_f64(),
                flows: swept.flows,
                forgotten: swept.forgotten,
            },
            unreadable_frames: self.table.vip_counts(0)?.of(Reason::Malformed),
            vips: statistics::vips(&self.balancer, &self.table)?,
        })
    }
}
