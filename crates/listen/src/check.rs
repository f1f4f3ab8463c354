//! Mistakes of a configuration that no type rules out.

use rustix::thread::sched_getaffinity;

use crate::{Compat, Config, Credential, Error};

impl Config {
    /// All mistakes, each naming the setting and what it may be. `handed` is how many sockets are handed in.
    ///
    /// # Errors
    /// The mistakes, if there are any.
    pub fn check(&self, handed: usize) -> Result<(), Vec<String>> {
        let mut mistakes = Vec::new();
        let mut must = |holds: bool, mistake: &str| {
            if !holds {
                mistakes.push(mistake.to_owned());
            }
        };
        let Self { limits, timeouts, .. } = self;
        must(handed > 0 || !self.listen.is_empty(), "there is no address to listen on: give one");
        must((1..=1024).contains(&self.threads), "threads must be 1 to 1024");
        must(self.backlog > 0, "the backlog must be at least 1");
        must(limits.body_bytes > 0, "the limit of a body must be at least 1 byte");
        must(limits.inflated_bytes > 0, "the limit of an inflated body must be at least 1 byte");
        must(
            limits.budget_bytes >= limits.body_bytes && limits.budget_bytes >= limits.inflated_bytes,
            "the budget must hold the largest body, also inflated: raise it, or lower those limits",
        );
        must(
            (1024..=1 << 20).contains(&limits.head_bytes),
            "the limit of a request's head must be 1 KiB to 1 MiB",
        );
        must(limits.connections != Some(0), "the limit of connections must be at least 1");
        must(
            limits.requests_per_connection != Some(0),
            "the limit of requests of a connection must be at least 1",
        );
        must(matches!(limits.overload_status, 429 | 503), "the status of overload must be 429 or 503");
        let times = [timeouts.head, timeouts.body, timeouts.idle, timeouts.store, timeouts.drain];
        must(times.iter().all(|time| !time.is_zero()), "no timeout may be zero");
        let year = std::time::Duration::from_secs(366 * 24 * 3600);
        must(
            times.iter().chain([&limits.idempotency_window]).all(|time| *time <= year),
            "no timeout may be longer than a year",
        );
        must(timeouts.body_bytes_per_s > 0, "the least rate of a body must be at least 1 byte a second");
        for credential in &self.credentials {
            match credential {
                Credential::Bearer(token) => must(
                    !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic()),
                    "a bearer token must be printable ASCII without spaces",
                ),
                Credential::Basic { user, .. } => {
                    must(!user.contains(':'), "the name of a basic credential has no colon")
                }
            }
        }
        must(
            self.added == crate::Added::default() || matches!(self.compat, Compat::Fluentd { .. }),
            "headers, query parameters and addresses are only added to records as Fluentd does",
        );
        if mistakes.is_empty() { Ok(()) } else { Err(mistakes) }
    }

    /// Whether this process may use the processors asked for.
    pub(crate) fn check_processors(&self) -> Result<(), Error> {
        if self.cpus.is_empty() {
            return Ok(());
        }
        // Where the kernel does not tell, pinning itself will show.
        let Ok(set) = sched_getaffinity(None) else { return Ok(()) };
        let most = rustix::thread::CpuSet::MAX_CPU as u32;
        let allowed: Vec<u32> = (0..most).filter(|&cpu| set.is_set(cpu as usize)).collect();
        let missing: Vec<u32> = self.cpus.iter().copied().filter(|cpu| !allowed.contains(cpu)).collect();
        if missing.is_empty() { Ok(()) } else { Err(Error::Processors { missing, allowed }) }
    }
}
