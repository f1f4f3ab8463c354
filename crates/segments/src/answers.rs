//! Answers on their way to the ports.

use std::sync::Arc;

use crate::{Done, Failure, health::PANICKED, port::ReplyQueue};

/// Collected answers by port. When dropped, it hands over the remaining answers.
#[derive(Debug)]
pub(crate) struct Answers {
    reply_queues: Vec<Arc<ReplyQueue>>,
    waiting: Vec<Vec<Done>>,
}

impl Answers {
    pub(crate) fn new(reply_queues: &[Arc<ReplyQueue>]) -> Self {
        let waiting = reply_queues.iter().map(|_| Vec::new()).collect();
        Self { reply_queues: reply_queues.to_vec(), waiting }
    }

    pub(crate) fn push(&mut self, port: usize, done: Done) {
        self.waiting[port].push(done);
    }

    /// Hands the answers over, with at most one wake-up per port.
    pub(crate) fn post(&mut self) {
        for (replies, waiting) in self.reply_queues.iter().zip(&mut self.waiting) {
            replies.post(waiting);
        }
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        self.post();
    }
}

/// The answer to a part that waits for a sync. If it is dropped before the sync, the part fails.
#[derive(Debug)]
pub(crate) struct PendingAnswer {
    port: usize,
    done: Option<Done>,
    replies: Arc<ReplyQueue>,
}

impl PendingAnswer {
    pub(crate) fn new(reply_queues: &[Arc<ReplyQueue>], port: usize, done: Done) -> Self {
        Self { port, done: Some(done), replies: reply_queues[port].clone() }
    }

    pub(crate) fn answer(mut self, synced: Result<(), Failure>, answers: &mut Answers) {
        if let Some(Done { token, result }) = self.done.take() {
            answers.push(self.port, Done { token, result: synced.and(result) });
        }
    }
}

impl Drop for PendingAnswer {
    fn drop(&mut self) {
        if let Some(Done { token, .. }) = self.done.take() {
            self.replies.post(&mut vec![Done { token, result: Err(Failure::Io(PANICKED.raw_os_error())) }]);
        }
    }
}
