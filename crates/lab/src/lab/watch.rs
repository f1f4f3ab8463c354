//! Waits for a lab's processes to be ready and watches for their failures.

use std::{
    net::{IpAddr, Ipv4Addr},
    time::{Duration, Instant},
};

use super::{Error, Lab};
use crate::{
    error::ProcessFailure,
    network::link_log,
    plan::{self, Flood, Ready},
    process::{Process, describe, log, ready},
};

/// Interval between two checks whether a process is ready.
const READY_POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Interval between two checks whether the links still run.
const LINK_POLL_INTERVAL: Duration = Duration::from_millis(100);

impl Lab {
    /// Waits for a failure: a process of the plan ended although it may not, or its output exceeded the limit, or the
    /// process of a link ended. None if there is no failure within `timeout`.
    pub fn watch(&self, timeout: Duration) -> Option<ProcessFailure> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(failure) = self.link_failure() {
                return Some(failure);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if let Ok(name) = self.events.1.recv_timeout(left.min(LINK_POLL_INTERVAL)) {
                if let Some(failure) = self.process_failure(&name) {
                    return Some(failure);
                }
            } else if left <= LINK_POLL_INTERVAL {
                return None;
            }
        }
    }

    pub(super) fn wait_until_ready(&self, planned: &plan::Process, process: &Process) -> Result<(), Error> {
        let Some(wanted) = &planned.ready else { return Ok(()) };
        let host_address = self.plan.address_of(planned.host).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let network = self.hosts[planned.host].handle();
        let deadline = Instant::now() + planned.ready_timeout;
        let mut reason;
        loop {
            self.options.check_not_cancelled()?;
            if let Some(failure) = failure(planned, process) {
                return Err(Error::Process(failure));
            }
            // If a process that was ready before has ended meanwhile, its end may be the cause, so it is reported
            // instead.
            let others = || self.events.1.try_recv().ok();
            if let Some(failure) = std::iter::from_fn(others).find_map(|name| self.process_failure(&name)) {
                return Err(Error::Process(failure));
            }
            reason = match wanted {
                Ready::Log(text) if !process.has_seen_text() => format!("its output lacks '{text}'"),
                Ready::Exit if process.ended().is_none() => "it has not ended".to_owned(),
                _ => match ready::check(wanted, &network, self.hosts[planned.host].mounts(), host_address) {
                    // The process may have failed between the check above and this one.
                    Ok(()) => {
                        let failure = failure(planned, process);
                        return failure.map_or(Ok(()), |failure| Err(Error::Process(failure)));
                    }
                    Err(error) => error.to_string(),
                },
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            process.wait_for_change(READY_POLL_INTERVAL.min(left));
        }
        Err(Error::Process(ProcessFailure {
            name: planned.name.clone(),
            why: format!("did not get ready within {:?}: {reason}", planned.ready_timeout),
            last_lines: process.last_lines(),
        }))
    }

    fn process_failure(&self, name: &str) -> Option<ProcessFailure> {
        let planned = self.plan.processes.iter().find(|planned| planned.name == name)?;
        failure(planned, self.process(name)?)
    }

    fn link_failure(&self) -> Option<ProcessFailure> {
        let (name, _) = self.links.iter().find(|(_, link)| !link.is_running())?;
        let output = std::fs::read(link_log(&self.run_folder, name)).unwrap_or_default();
        Some(ProcessFailure {
            name: format!("link {name}"),
            why: "has lost its process".to_owned(),
            last_lines: log::last_lines(&output),
        })
    }
}

/// The failure of a process; none if it has not failed.
fn failure(planned: &plan::Process, process: &Process) -> Option<ProcessFailure> {
    let why = match process.ended() {
        Some(status) if planned.may_end && status.success() => return None,
        Some(status) => describe(status),
        None if planned.flood == Flood::Fail && process.flooded() => {
            format!("wrote more than {} bytes (log_limit)", planned.log_limit_bytes)
        }
        None => return None,
    };
    Some(ProcessFailure { name: planned.name.clone(), why, last_lines: process.last_lines() })
}
