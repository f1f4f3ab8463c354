//! Requests of templates, in the steps of each user's iterations.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use http1::{Error, Fed, Response, ResponseReader};
use record::{ErrorClass, Iterations, Origin, ScriptResult, StepResult};
use script::{Advance, Outcome, Script, User, WorkerState};

use super::{Concluded, Exchange, ExchangeContext, Judgement, Next};
use crate::{
    recorder::{InFlight, ReceiveTime},
    request_log::{LogEntry, LogSender},
    source::numbering,
    wire::{SlotId, Wire},
};

/// The users of a worker, each with the request that it sends next. In an open load, a slot is a user too.
#[derive(Debug)]
pub struct Scripted {
    script: Arc<Script>,
    state: WorkerState,
    users: Vec<ScriptedUser>,
    result: ScriptResult,
    causes: BTreeMap<ErrorClass, String>,
    log: Option<LogSender>,
    /// Number of completed requests, of which the log keeps a share.
    completed: u64,
    /// Offset from the wire's clock to the time since 1970, in nanoseconds.
    to_unix_ns: i128,
}

#[derive(Debug)]
struct ScriptedUser {
    user: User,
    /// The request that is being sent, or was sent last.
    bytes: Vec<u8>,
    in_iteration: bool,
    /// The local address of the last connection, for the log.
    connection: Option<SocketAddr>,
}

impl Scripted {
    /// Logs a request that ended at `ended_ns`; `None` if the trial ended first.
    fn write_down(
        &mut self,
        slot: SlotId,
        request: &InFlight,
        ended_ns: Option<u64>,
        status: Option<u16>,
        error: Option<ErrorClass>,
    ) {
        let Some(log) = &self.log else { return };
        if status.is_some() && error.is_none() {
            self.completed += 1;
            let due = |completed: u64| (completed as f64 * log.sample_ratio) as u64;
            if due(self.completed) == due(self.completed - 1) {
                return;
            }
        }
        let ScriptedUser { user, connection, .. } = &self.users[slot as usize];
        let (number, iteration) = user.numbers();
        let sent_ns = (request.sent_ns != 0).then_some(request.sent_ns);
        let unix_ns = |ns: u64| self.to_unix_ns + i128::from(ns);
        let was_written = log.send(LogEntry {
            step: user.step(),
            user: number,
            iteration,
            target: user.shown_target().into(),
            trace: user.trace().into(),
            due_ns: unix_ns(request.intended_ns),
            connection: connection.filter(|_| sent_ns.is_some()),
            sent_ns: sent_ns.map(unix_ns),
            ended_ns: ended_ns.map(unix_ns),
            status,
            error,
        });
        self.result.log_lines_dropped += u64::from(!was_written);
    }

    fn step_mut(&mut self, slot: SlotId) -> &mut StepResult {
        &mut self.result.steps[self.users[slot as usize].user.step()]
    }
}

/// Offset from the monotonic clock to the time since 1970, in nanoseconds: the most precise of several pairs of readings.
fn to_unix_ns() -> i128 {
    let readings = (0..8).map(|_| {
        let before_ns = clock::monotonic_ns();
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let took_ns = clock::monotonic_ns() - before_ns;
        (took_ns, since_1970.as_nanos() as i128 - i128::from(before_ns + took_ns / 2))
    });
    readings.min_by_key(|(took_ns, _)| *took_ns).map_or(0, |(_, offset_ns)| offset_ns)
}

impl Exchange for Scripted {
    const HAS_STEPS: bool = true;

    fn new(context: &ExchangeContext<'_>) -> Self {
        let ExchangeContext { plan, share, first_slot, slots, script, log } = *context;
        let script = Arc::clone(script.expect("the script is compiled before workers start"));
        let steps =
            script.step_names().map(|name| StepResult { name: name.to_owned(), ..StepResult::default() });
        let to_unix_ns = to_unix_ns();
        let users = (0..slots).map(|slot| ScriptedUser {
            user: User::new(&script, first_slot + slot + 1),
            bytes: Vec::new(),
            in_iteration: false,
            connection: None,
        });
        Self {
            state: WorkerState::new(
                plan.seed,
                (share.index, share.of),
                numbering(plan, share, script.rows_in_order()),
            ),
            users: users.collect(),
            result: ScriptResult { steps: steps.collect(), ..ScriptResult::default() },
            causes: BTreeMap::new(),
            log: log.cloned(),
            completed: 0,
            to_unix_ns,
            script,
        }
    }

    fn has_more(&self) -> bool {
        self.state.has_rows(&self.script)
    }

    fn prepare(&mut self, slot: SlotId, now_ns: u64) {
        self.state.set_now(self.to_unix_ns + i128::from(now_ns));
        let scripted = &mut self.users[slot as usize];
        if !scripted.in_iteration {
            // The caller has checked `has_more`, so a row is left for the iteration.
            let _ = scripted.user.begin(&self.script, &mut self.state);
            scripted.in_iteration = true;
            self.result.iterations.begun += 1;
        }
        scripted.bytes.clear();
        scripted.user.render(&self.script, &mut self.state, &mut scripted.bytes);
    }

    fn bytes(&mut self, slot: SlotId, _: usize, sent: usize) -> &[u8] {
        &self.users[slot as usize].bytes[sent..]
    }

    fn length(&self, slot: SlotId) -> usize {
        self.users[slot as usize].bytes.len()
    }

    fn feed(
        &mut self,
        slot: SlotId,
        reader: &mut ResponseReader,
        bytes: &[u8],
    ) -> Result<Fed<Response>, Error> {
        let user = &mut self.users[slot as usize].user;
        let is_head_request = user.is_head_request(&self.script);
        reader.feed(bytes, is_head_request, &mut user.sink(&self.script))
    }

    fn reads_body(&self, slot: SlotId) -> bool {
        self.users[slot as usize].user.reads_body(&self.script)
    }

    fn answered(
        &mut self,
        slot: SlotId,
        request: &InFlight,
        response: &Response,
        time: ReceiveTime,
    ) -> Judgement {
        self.state.set_now(self.to_unix_ns + i128::from(time.read_ns));
        let outcome = self.users[slot as usize].user.answered(&self.script, response, &self.state);
        let error = if let Outcome::Failed(class) = outcome { Some(class) } else { None };
        self.write_down(slot, request, Some(time.received_ns), Some(response.status), error);
        let step = self.step_mut(slot);
        match outcome {
            Outcome::Good => {
                step.completed += 1;
                step.response_time.record_ns(time.received_ns.saturating_sub(request.intended_ns));
                Judgement::Good
            }
            Outcome::Failed(class) => {
                step.failed += 1;
                step.errors.add(class, 1);
                if let Some(cause) = self.users[slot as usize].user.cause() {
                    self.causes.entry(class).or_insert_with(|| cause.to_owned());
                }
                Judgement::Failed(class)
            }
        }
    }

    fn failed(&mut self, slot: SlotId, request: &InFlight, class: ErrorClass, now_ns: u64) -> Option<u64> {
        self.users[slot as usize].user.failed(&self.script);
        // Same as in the recorder: an attempt that this machine could not send is not a request.
        if class.origin() == Origin::Local && request.sent_ns == 0 {
            return None;
        }
        self.write_down(slot, request, Some(now_ns), None, Some(class));
        let step = self.step_mut(slot);
        step.failed += 1;
        step.errors.add(class, 1);
        None
    }

    fn next(&mut self, slot: SlotId) -> Next {
        let scripted = &mut self.users[slot as usize];
        match scripted.user.advance(&self.script) {
            Advance::Request { pause_ns } => Next::Step(pause_ns),
            Advance::Ended { pause_ns, has_failed } => {
                scripted.in_iteration = false;
                let Iterations { completed, failed, .. } = &mut self.result.iterations;
                *(if has_failed { failed } else { completed }) += 1;
                Next::End(pause_ns)
            }
        }
    }

    fn connected<W: Wire>(&mut self, slot: SlotId, wire: &W) {
        if self.log.is_some() {
            self.users[slot as usize].connection = wire.local_address(slot);
        }
    }

    fn trial_ended(&mut self, slot: SlotId, request: &InFlight) {
        self.write_down(slot, request, None, None, None);
    }

    fn conclude(self) -> Concluded {
        Concluded { script: Some(self.result), causes: self.causes, ..Concluded::default() }
    }
}
