//! Replaces the configuration step by step. Between the steps, the daemon handles deaths of servers and requests for
//! counts.

use std::{mem, time::Instant};

use tracing::info;

use super::{Daemon, RETRY, requests::FileRead, start::refuse_taken};
use crate::{
    Config, Error, Vip,
    control::{Answer, PendingRequest},
    layout::nanoseconds,
};

/// A change of the configuration in progress.
pub(super) struct Changing {
    asked: PendingRequest,
    /// The previous configuration and the text of its file.
    former: (Config, String),
    /// Description of the change, for the answer.
    what: String,
}

impl Daemon {
    /// Makes the next part of the current change. If there is none, begins the next waiting change.
    pub(super) fn go_on_changing(&mut self) {
        if self.changing.is_none()
            && let Some((asked, read)) = self.waiting.pop_front()
        {
            self.begin(asked, read);
        }
        let Some(changing) = self.changing.take() else { return };
        if changing.asked.is_given_up() {
            let why = Error::Refused("the request for the change was withdrawn".to_owned());
            return self.take_back(changing, &why);
        }
        match self.settle_tables() {
            Err(error) => self.take_back(changing, &error),
            Ok(()) if self.balancer.is_unfinished() => self.changing = Some(changing),
            Ok(()) => self.finish(changing),
        }
    }

    /// Begins a change, unless its caller no longer waits for the answer.
    fn begin(&mut self, asked: PendingRequest, read: Option<FileRead>) {
        if asked.is_given_up() {
            return;
        }
        let (config, text, what) = match self.wanted(&asked.request, read) {
            Ok(wanted) => wanted,
            Err(why) => return asked.answer(Answer::Refused { why }),
        };
        let is_new = |vip: &Vip| self.config.vips.iter().all(|current| current.address != vip.address);
        let vips = config.vips.iter().filter(|vip| is_new(vip)).cloned().collect();
        let taken = refuse_taken(&self.instance, &Config { vips, ..config.clone() });
        if let Err(error) = taken.and_then(|()| self.balancer.configure(&config)) {
            return asked.answer(Answer::Refused { why: vec![error.to_string()] });
        }
        let changing = Changing { asked, former: self.hold((config, text)), what };
        match self.write_settings() {
            Ok(()) => self.changing = Some(changing),
            Err(error) => self.take_back(changing, &error),
        }
    }

    fn finish(&mut self, Changing { asked, what, .. }: Changing) {
        if let Err(error) = self.settle() {
            self.retry_at = Some(Instant::now() + RETRY);
            return asked.answer(Answer::Refused { why: vec![format!("{error}; the balancer tries again")] });
        }
        info!("{what}");
        asked.answer(Answer::Done { what });
    }

    /// Returns to the former configuration.
    fn take_back(&mut self, Changing { asked, former, .. }: Changing, error: &Error) {
        let back = self.balancer.configure(&former.0);
        self.hold(former);
        self.retry_at = Some(Instant::now());
        let next = match back.and_then(|()| self.write_settings()) {
            Ok(()) => "the former configuration stays in effect".to_owned(),
            Err(error) => format!("the former configuration could not be restored: {error}"),
        };
        asked.answer(Answer::Refused { why: vec![format!("{error}; {next}")] });
    }

    /// Adopts a configuration and the text of its file. Returns the previous ones.
    fn hold(&mut self, (config, text): (Config, String)) -> (Config, String) {
        self.sweeps.set_timeouts(nanoseconds(config.idle_timeout), nanoseconds(config.closing_timeout));
        (mem::replace(&mut self.config, config), mem::replace(&mut self.text, text))
    }
}
