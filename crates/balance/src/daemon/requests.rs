//! What a running daemon is asked and told.

use std::time::Instant;

use clock::monotonic_ns;

use super::Daemon;
use crate::{
    Config, Error, Reason, changes,
    control::{Answer, PendingRequest, Request},
    statistics::{self, Statistics, SweepStatistics},
};

impl Daemon {
    /// Tells what was counted, at once; what is to be changed is changed after what was to be changed before.
    pub(super) fn take_request(&mut self, asked: PendingRequest) {
        if asked.request != Request::Statistics {
            return self.waiting.push_back(asked);
        }
        self.last_read = Instant::now();
        asked.answer(match self.statistics() {
            Ok(statistics) => Answer::Statistics(Box::new(statistics)),
            Err(error) => Answer::Refused { why: vec![error.to_string()] },
        });
    }

    /// What a request wants: the configuration, the text of its file, and what is done then, in words.
    pub(super) fn wanted(&self, request: &Request) -> Result<(Config, String, String), Vec<String>> {
        match request {
            Request::Server { server, change } => {
                let mut config = self.config.clone();
                let what = changes::apply(&mut config, server, change.clone())?;
                Ok((config, self.text.clone(), what))
            }
            Request::Reload => self.read_again(),
            // The loop has taken these.
            Request::Stop { .. } | Request::Statistics => Err(Vec::new()),
        }
    }

    /// Reads the file again. What commands have changed is as the file says it then.
    fn read_again(&self) -> Result<(Config, String, String), Vec<String>> {
        let name = self.file.display().to_string();
        let text = record::input::read_text(&self.file).map_err(|why| vec![why])?;
        let config = Config::read(&name, &text);
        let config = config.map_err(|why| why.iter().map(ToString::to_string).collect::<Vec<_>>())?;
        let changed = config.fixed_changes(&self.config).into_iter();
        let why: Vec<String> = changed
            .map(|(key, stop)| {
                format!(
                    "{name}: a change of '{key}' needs a restart: run {stop}, then start the balancer again"
                )
            })
            .collect();
        if why.is_empty() { Ok((config, text, format!("read {name} again"))) } else { Err(why) }
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
