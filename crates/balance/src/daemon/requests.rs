//! What a running daemon is asked and told.

use std::time::Instant;

use clock::monotonic_ns;
use tracing::info;

use super::{Daemon, RETRY, start::refuse_taken};
use crate::{
    Config, Error, Reason, Vip, changes,
    control::{Answer, Request},
    layout::nanoseconds,
    statistics::{self, Statistics, SweepStatistics},
};

impl Daemon {
    pub(super) fn answer(&mut self, request: Request) -> Answer {
        match request {
            Request::Statistics => {
                self.last_read = Instant::now();
                match self.statistics() {
                    Ok(statistics) => Answer::Statistics(Box::new(statistics)),
                    Err(error) => Answer::Refused { why: vec![error.to_string()] },
                }
            }
            Request::Server { server, change } => {
                let mut config = self.config.clone();
                match changes::apply(&mut config, &server, change) {
                    Ok(what) => self.change_to(config, self.text.clone(), what),
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
            .map(|(key, stop)| {
                format!(
                    "{name}: a change of '{key}' needs a restart: run {stop}, then start the balancer again"
                )
            })
            .collect();
        if !why.is_empty() {
            return Answer::Refused { why };
        }
        self.change_to(config, text, format!("read {name} again"))
    }

    /// Goes over to another configuration, or stays with the one that there is.
    fn change_to(&mut self, config: Config, text: String, what: String) -> Answer {
        let refused = |why: String| Answer::Refused { why: vec![why] };
        let is_new = |vip: &Vip| self.config.vips.iter().all(|current| current.address != vip.address);
        let vips = config.vips.iter().filter(|vip| is_new(vip)).cloned().collect();
        let taken = refuse_taken(&self.instance, &Config { vips, ..config.clone() });
        if let Err(error) = taken.and_then(|()| self.balancer.configure(&config)) {
            return refused(error.to_string());
        }
        let former = self.hold((config, text));
        if let Err(error) = self.write_settings().and_then(|()| self.settle_tables()) {
            let back = self.balancer.configure(&former.0);
            self.hold(former);
            self.retry_at = Some(Instant::now());
            let next = match back.and_then(|()| self.write_settings()) {
                Ok(()) => "the former configuration stays in effect".to_owned(),
                Err(error) => format!("the former configuration could not be restored: {error}"),
            };
            return refused(format!("{error}; {next}"));
        }
        if let Err(error) = self.settle() {
            self.retry_at = Some(Instant::now() + RETRY);
            return refused(format!("{error}; the balancer tries again"));
        }
        info!("{what}");
        Answer::Done { what }
    }

    /// Takes a configuration and the text of its file, and gives the former ones.
    fn hold(&mut self, (config, text): (Config, String)) -> (Config, String) {
        self.sweeps.set_timeouts(nanoseconds(config.idle_timeout), nanoseconds(config.closing_timeout));
        (std::mem::replace(&mut self.config, config), std::mem::replace(&mut self.text, text))
    }

    fn statistics(&self) -> Result<Statistics, Error> {
        let swept = &self.swept;
        let age_ns = (swept.begun_ns > 0).then(|| monotonic_ns().saturating_sub(swept.begun_ns));
        Ok(Statistics {
            name: self.instance.name.clone(),
            device: self.device.name.clone(),
            hook: self.program.hook.name().to_owned(),
            process: std::process::id(),
            uptime_s: self.started.elapsed().as_secs_f64(),
            sweep: SweepStatistics {
                age_s: age_ns.map(|age_ns| age_ns as f64 / 1e9),
                took_s: swept.took.as_secs_f64(),
                flows: swept.flows,
                forgotten: swept.forgotten,
            },
            trouble: self.device_trouble.clone(),
            unreadable_frames: self.table.vip_counts(0)?.of(Reason::Malformed),
            vips: statistics::vips(&self.balancer, &self.table)?,
        })
    }
}
