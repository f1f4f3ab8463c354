//! The content of a worker's connections: the bytes of the next request, and the judgement of its answer.
//!
//! * [`Fixed`]: the same request, judged by its status.
//! * [`Numbered`]: numbered events, which are acknowledged, retried or given up.
//! * [`Scripted`]: requests of templates, in the steps of each user's iterations.

mod fixed;
mod numbered;
mod scripted;

use std::{collections::BTreeMap, sync::Arc};

use http1::{Error, Fed, Response, ResponseReader};
use record::{ErrorClass, HttpPlan, ScriptResult};
use script::Script;

use crate::{
    events::Ledger,
    recorder::{InFlight, PendingRetry, ReceiveTime},
    request_log::LogSender,
    share::Share,
    wire::{SlotId, Wire},
};

pub use fixed::Fixed;
pub use numbered::Numbered;
pub use scripted::Scripted;

/// A compiled script, and its log of requests if it has one, for all workers of a process.
#[derive(Debug, Clone)]
pub struct RunningScript {
    pub(crate) script: Arc<Script>,
    pub(crate) log: Option<LogSender>,
}

impl RunningScript {
    /// A script without a log.
    pub fn new(script: Script) -> Self {
        Self { script: Arc::new(script), log: None }
    }
}

/// The inputs of [`Exchange::new`].
#[derive(Debug)]
pub struct ExchangeContext<'a> {
    pub(crate) plan: &'a HttpPlan,
    pub(crate) share: Share,
    /// Index of the worker's first slot among those of all workers.
    pub(crate) first_slot: u64,
    /// Number of slots of the worker.
    pub(crate) slots: u64,
    /// The compiled script, if the plan has one.
    pub(crate) script: Option<&'a Arc<Script>>,
    /// The log of requests, if there is one.
    pub(crate) log: Option<&'a LogSender>,
}

/// The judgement of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judgement {
    /// The request is completed.
    Good,
    /// The request failed.
    Failed(ErrorClass),
    /// The request has not ended: it is sent again at this time, in nanoseconds.
    Retried(u64),
}

/// A slot's next action after a request has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Another request of the same iteration, after this pause in nanoseconds; `None` for the load's think time.
    Step(Option<u64>),
    /// The iteration has ended; the next one begins after this pause.
    End(Option<u64>),
}

/// The results of an exchange at the end.
#[derive(Debug, Default)]
pub struct Concluded {
    pub(crate) ledger: Option<Ledger>,
    pub(crate) script: Option<ScriptResult>,
    /// The cause of the first failure of each class, if more than the class is known.
    pub(crate) causes: BTreeMap<ErrorClass, String>,
}

/// The requests of one worker, and their answers. A slot has one request at a time, unless all requests are the same.
pub trait Exchange: Sized {
    /// Whether iterations can have several requests.
    const HAS_STEPS: bool = false;

    /// The exchange of a worker.
    fn new(context: &ExchangeContext<'_>) -> Self;

    /// Whether a further iteration can begin.
    #[inline]
    fn has_more(&self) -> bool {
        true
    }

    /// Prepares the next request of a slot. `now_ns`: time on the wire's clock.
    #[inline]
    fn prepare(&mut self, slot: SlotId, now_ns: u64) {
        let _ = (slot, now_ns);
    }

    /// Bytes of a slot's unsent requests: as many requests as one system call should send. `sent`: bytes of the first request
    /// that were already sent.
    fn bytes(&mut self, slot: SlotId, unsent: usize, sent: usize) -> &[u8];

    /// Length in bytes of a slot's first unsent request.
    fn length(&self, slot: SlotId) -> usize;

    /// Whether a slot's current request is a retry.
    #[inline]
    fn is_retry(&self, slot: SlotId) -> bool {
        let _ = slot;
        false
    }

    /// Feeds received bytes to the reader of a slot's answers.
    ///
    /// # Errors
    /// When the answer is not HTTP.
    fn feed(
        &mut self,
        slot: SlotId,
        reader: &mut ResponseReader,
        bytes: &[u8],
    ) -> Result<Fed<Response>, Error>;

    /// Whether the body of the answer that a slot receives must be read.
    #[inline]
    fn reads_body(&self, slot: SlotId) -> bool {
        let _ = slot;
        false
    }

    /// Judges the answer to a slot's request.
    fn answered(
        &mut self,
        slot: SlotId,
        request: &InFlight,
        response: &Response,
        time: ReceiveTime,
    ) -> Judgement;

    /// Handles a slot's request that failed without an answer. Returns when it is sent again, or `None`.
    #[inline]
    fn failed(&mut self, slot: SlotId, request: &InFlight, class: ErrorClass, now_ns: u64) -> Option<u64> {
        let _ = (slot, request, class, now_ns);
        None
    }

    /// The slot's next action after a request has ended.
    #[inline]
    fn next(&mut self, slot: SlotId) -> Next {
        let _ = slot;
        Next::End(None)
    }

    /// Takes the pending retry of a slot.
    #[inline]
    fn take_pending_retry(&mut self, slot: SlotId) -> Option<PendingRetry> {
        let _ = slot;
        None
    }

    /// Handles a slot's request whose pending retry is dropped.
    #[inline]
    fn given_up(&mut self, slot: SlotId) {
        let _ = slot;
    }

    /// Handles a slot's opened connection.
    #[inline]
    fn connected<W: Wire>(&mut self, slot: SlotId, wire: &W) {
        let _ = (slot, wire);
    }

    /// Handles a slot's request that is unanswered when the trial ends.
    #[inline]
    fn trial_ended(&mut self, slot: SlotId, request: &InFlight) {
        let _ = (slot, request);
    }

    /// The results at the end.
    fn conclude(self) -> Concluded {
        Concluded::default()
    }
}
