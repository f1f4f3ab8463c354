//! Handles the requests to a running daemon.

use std::{path::Path, thread, time::Instant};

use clock::monotonic_ns;

use super::{Daemon, Message};
use crate::{
    Config, Error, Reason, changes,
    control::{Answer, PendingRequest, Request},
    statistics::{self, Statistics, SweepStatistics},
};

/// The configuration in a file and the text of the file, or all mistakes in it.
pub(crate) type FileRead = Result<(Config, String), Vec<String>>;

impl Daemon {
    /// Answers a request for statistics at once and queues a change behind earlier changes. A separate thread reads
    /// files, so that a slow file does not delay the handling of checks.
    pub(super) fn take_request(&mut self, asked: PendingRequest) {
        match asked.request {
            Request::Statistics => {
                self.last_read = Instant::now();
                asked.answer(match self.statistics() {
                    Ok(statistics) => Answer::Statistics(Box::new(statistics)),
                    Err(error) => Answer::Refused { why: vec![error.to_string()] },
                });
            }
            Request::Reload => {
                let (file, sender) = (self.file.clone(), self.sender.clone());
                // If no thread can be started, the request is dropped, which the caller notices.
                let _ = thread::Builder::new().name("file".to_owned()).spawn(move || {
                    let read = read(&file);
                    // Sending fails only if the daemon has ended.
                    let _ = sender.send(Message::Read(asked, read));
                });
            }
            _ => self.waiting.push_back((asked, None)),
        }
    }

    /// The configuration that a request leads to, the text of its file, and a description of the change.
    pub(super) fn wanted(
        &self,
        request: &Request,
        read: Option<FileRead>,
    ) -> Result<(Config, String, String), Vec<String>> {
        match (request, read) {
            (Request::Server { server, change }, _) => {
                let mut config = self.config.clone();
                let what = changes::apply(&mut config, server, change.clone())?;
                Ok((config, self.text.clone(), what))
            }
            (_, Some(read)) => self.read_again(read?),
            // `run` and `take_request` handle all other requests.
            _ => Err(Vec::new()),
        }
    }

    /// Adopts the configuration of the file that was read again. The changes of commands are lost.
    fn read_again(&self, (config, text): (Config, String)) -> Result<(Config, String, String), Vec<String>> {
        let name = self.file.display();
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

fn read(file: &Path) -> FileRead {
    let text = record::input::read_text(file).map_err(|why| vec![why])?;
    let config = Config::read(&file.display().to_string(), &text);
    let config = config.map_err(|why| why.iter().map(ToString::to_string).collect::<Vec<_>>())?;
    Ok((config, text))
}
