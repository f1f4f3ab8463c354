//! Runs a trial over any transport.

use std::{
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use clock::monotonic_ns;
use load::{RunError, Tick, WorkerResult};

use crate::{error::FleetError, protocol::FromMember, trial::Trial};

/// How often a wait for members checks the stop flag.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The connections to the members of a trial, which were already told to prepare.
pub(crate) trait Transport {
    /// Tells all members to start at this time of this machine's CLOCK_MONOTONIC, in nanoseconds.
    fn start(&mut self, t0_ns: u64);
    /// Asks all members to stop. They still send their results.
    fn stop(&mut self);
    /// The next output of any member, with the member's number; `None` after `wait`, or earlier.
    fn receive(&mut self, wait: Duration) -> Option<(usize, Output)>;
}

/// An output of a member.
#[derive(Debug)]
pub(crate) enum Output {
    Message(FromMember),
    /// The connection has ended for this reason.
    Ended(String),
}

/// Runs a trial. `on_written` gets what members write to files of the controller's machine. Calls `start` when all members are ready; it returns the time of the start.
///
/// # Errors
/// If a member fails before the start, or the trial is cancelled; and those of `start`.
pub(crate) fn drive<T: Transport>(
    mut trial: Trial,
    members: &mut T,
    stop: &AtomicBool,
    mut start: impl FnMut(&mut T) -> Result<u64, FleetError>,
    on_tick: &mut impl FnMut(Tick),
    on_written: &mut impl FnMut(PathBuf, String),
) -> Result<WorkerResult, FleetError> {
    let mut is_stopping = false;
    while !trial.has_ended(monotonic_ns()) {
        if stop.load(Ordering::Relaxed) && !is_stopping {
            members.stop();
            if !trial.has_started() {
                return Err(FleetError::Run(RunError::Cancelled));
            }
            trial.stopped(monotonic_ns());
            is_stopping = true;
        }
        if trial.is_ready() {
            let t0_ns = match start(members) {
                Ok(t0_ns) => t0_ns,
                Err(error) => {
                    members.stop();
                    return Err(error);
                }
            };
            members.start(t0_ns);
            trial.starts(t0_ns);
        }
        let ticks = match members.receive(POLL_INTERVAL) {
            None => continue,
            Some((_, Output::Message(FromMember::Written { path, lines }))) => {
                on_written(path, lines);
                trial.is_heard(monotonic_ns());
                continue;
            }
            Some((member, Output::Message(message))) => trial.message(member, message),
            Some((member, Output::Ended(why))) => trial.ended(member, why),
        };
        match ticks {
            Ok(ticks) => ticks.into_iter().for_each(&mut *on_tick),
            Err(error) => {
                members.stop();
                return Err(error);
            }
        }
    }
    Ok(trial.conclude())
}
