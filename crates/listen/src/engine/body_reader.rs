//! A thread beside each loop reads and renders large bodies, so that they do not delay the loop's other clients.
//!
//! The thread has the same processor affinity as its loop. Bodies in the queue count towards the budget. Their lines go
//! to the storage in pieces, a few at a time, because a single large write would delay the lines of other requests.

use std::{
    collections::VecDeque,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, SendError, Sender, channel},
    },
};

use events::EventTime;
use rustix::event::{EventfdFlags, eventfd};
use sockets::Token;

use super::{
    prepare::{Prepared, prepare},
    render::{PIECE_BYTES, Renderer, Run},
};
use crate::{incoming::IncomingRequest, refusal::Refusal, shared::Shared};

/// Bodies of more than this many bytes go to the body reader. A body of this size has at most 5,500 events.
const LARGE_BYTES: usize = 16 << 10;
/// Bodies whose lines may exceed this many bytes also go to the body reader.
const MANY_LINES_BYTES: usize = 1 << 20;

/// Replaces [`LARGE_BYTES`] once the loop has parsed more than [`MANY_EVENTS`] events in a round.
const SMALL_BYTES: usize = 4 << 10;
/// Number of events parsed in a round above which [`SMALL_BYTES`] applies, because many clients may send at once.
const MANY_EVENTS: usize = 10_000;

/// Whether reading the body in the loop would delay other clients. `events_read` is the number of events parsed in this
/// round.
#[inline]
pub(super) fn is_large(incoming: &IncomingRequest<'_>, events_read: usize) -> bool {
    // An event takes at least three bytes of the body, and its line also contains the tag and the extra members.
    let max_extra_bytes =
        (incoming.body.len() / 3).saturating_mul(incoming.tag.len() + incoming.extra_members.len());
    incoming.body.len() > LARGE_BYTES
        || max_extra_bytes > MANY_LINES_BYTES
        || (events_read > MANY_EVENTS && incoming.body.len() > SMALL_BYTES)
}

/// A request whose body the body reader must read.
#[derive(Debug)]
pub(super) struct Job<'a> {
    /// The request's token in [`crate::pending::PendingTable`].
    pub request: Token,
    pub connection: Token,
    pub incoming: Box<IncomingRequest<'a>>,
    /// The time for events without a time.
    pub now: EventTime,
    pub now_ns: u64,
    /// Set when the loop has refused the request, because its body was not read in time.
    pub cancelled: Arc<AtomicBool>,
}

/// A request whose body the body reader has read.
#[derive(Debug)]
pub(crate) struct ReadBody<'a> {
    /// The request's token in [`crate::pending::PendingTable`].
    pub request: Token,
    pub connection: Token,
    pub result: Result<Prepared<'a>, Refusal>,
    pub(super) pieces: VecDeque<Piece>,
}

/// Lines of one request that go to the storage together.
#[derive(Debug, Default)]
pub(super) struct Piece {
    pub data: Vec<u8>,
    pub runs: Vec<Run>,
}

/// The loop's side of the two channels to its body reader.
#[derive(Debug)]
pub(crate) struct BodyReaderQueue<'a> {
    jobs: Sender<Job<'a>>,
    read: Receiver<ReadBody<'a>>,
    event: Arc<OwnedFd>,
}

/// The thread that reads large bodies.
#[derive(Debug)]
pub(crate) struct BodyReader<'a> {
    shared: &'a Shared,
    renderer: Renderer,
    jobs: Receiver<Job<'a>>,
    read: Sender<ReadBody<'a>>,
    event: Arc<OwnedFd>,
}

impl<'a> BodyReaderQueue<'a> {
    /// Creates the queue and its body reader, which the caller must run.
    ///
    /// # Errors
    /// The error of eventfd(2), if no descriptor is free.
    pub(crate) fn new(shared: &'a Shared) -> std::io::Result<(Self, BodyReader<'a>)> {
        let event = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let ((jobs, taken), (done, read)) = (channel(), channel());
        let renderer = Renderer::new(&shared.config);
        let helper = BodyReader { shared, renderer, jobs: taken, read: done, event: Arc::clone(&event) };
        Ok((Self { jobs, read, event }, helper))
    }

    /// A descriptor that is readable when the body reader has finished bodies.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// Submits a job; returns it if the body reader has ended.
    pub(super) fn submit(&self, job: Job<'a>) -> Option<Job<'a>> {
        self.jobs.send(job).err().map(|SendError(job)| job)
    }

    /// Appends the bodies finished since the last call.
    pub(super) fn drain(&self, bodies: &mut Vec<ReadBody<'a>>) {
        // Resets the event before the channel is emptied, so that a body that arrives in between sets it again.
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
        bodies.extend(self.read.try_iter());
    }
}

impl BodyReader<'_> {
    /// Reads bodies until the queue of loop `number` is dropped.
    pub(crate) fn run(mut self, number: usize) {
        sockets::pin(&self.shared.config.cpus, number);
        while self.read_next().is_ok() {}
    }

    /// Waits for a body and reads it, unless the job was cancelled.
    ///
    /// # Errors
    /// If the queue was dropped.
    pub(crate) fn read_next(&mut self) -> Result<(), ()> {
        let job = self.jobs.recv().map_err(drop)?;
        let (request, connection) = (job.request, job.connection);
        let (result, pieces) = if job.cancelled.load(Ordering::Relaxed) {
            (Err(Refusal::NotReadInTime), VecDeque::new())
        } else {
            // A panic must fail only this request, not the body reader that other clients depend on.
            let read = catch_unwind(AssertUnwindSafe(|| read(self.shared, &mut self.renderer, job)));
            read.unwrap_or_else(|_| {
                self.renderer = Renderer::new(&self.shared.config);
                (Err(Refusal::InternalError), VecDeque::new())
            })
        };
        self.read.send(ReadBody { request, connection, result, pieces }).map_err(drop)?;
        // Cannot fail: the counter would overflow only after 2^64 writes without a read.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        Ok(())
    }
}

/// Reads and renders a body.
fn read<'a>(
    shared: &'a Shared,
    renderer: &mut Renderer,
    job: Job<'a>,
) -> (Result<Prepared<'a>, Refusal>, VecDeque<Piece>) {
    let Job { connection, mut incoming, now, now_ns, .. } = job;
    let mut data = Vec::new();
    renderer.now = Some(now);
    let result = prepare(shared, renderer, &mut incoming, connection, now_ns, &mut data);
    // Dropped in this thread, because freeing a large body would delay the loop.
    drop(incoming);
    let runs = std::mem::take(&mut renderer.runs);
    let pieces = if result.is_ok() { split_into_pieces(data, runs) } else { VecDeque::new() };
    (result, pieces)
}

/// Divides runs, which are in the order of `data`, into pieces. Starts at the end and truncates `data`, so that at most
/// one piece is in memory twice.
fn split_into_pieces(mut data: Vec<u8>, mut runs: Vec<Run>) -> VecDeque<Piece> {
    let mut pieces = VecDeque::new();
    while let Some(last) = runs.last() {
        let end = last.range.end;
        let fits = |run: &Run| end - run.range.start <= PIECE_BYTES;
        // At least one run, because a single line may exceed the size of a piece.
        let first = runs.iter().rposition(|run| !fits(run)).map_or(0, |at| at + 1).min(runs.len() - 1);
        let mut piece_runs = runs.split_off(first);
        let start = piece_runs[0].range.start;
        piece_runs.iter_mut().for_each(|run| run.range = run.range.start - start..run.range.end - start);
        data.truncate(end);
        let lines = if start == 0 { std::mem::take(&mut data) } else { data.split_off(start) };
        data.shrink_to_fit();
        pieces.push_front(Piece { data: lines, runs: piece_runs });
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;

    #[test]
    fn what_becomes_many_lines_is_large_though_it_is_short() {
        let budget = Budget::new(1 << 20);
        let mut incoming = IncomingRequest::new(budget.reservation());
        incoming.body = vec![b' '; LARGE_BYTES];
        incoming.tag = "t".repeat(100);
        assert!(!is_large(&incoming, MANY_EVENTS));
        assert!(is_large(&incoming, MANY_EVENTS + 1));
        incoming.extra_members = "a".repeat(200);
        assert!(is_large(&incoming, 0));
        incoming.body.truncate(LARGE_BYTES / 2);
        assert!(!is_large(&incoming, 0));
    }

    #[test]
    fn pieces_are_the_runs_in_their_order() {
        let folder = tempfile::TempDir::new().unwrap();
        let config = segments::Config::new(format!("{}/x", folder.path().display()).parse().unwrap());
        let (store, _ports, _) = segments::Store::open(config, 1).unwrap();
        let key = store.key("x", 0, &|_| None).unwrap();
        store.close().unwrap();
        let long = PIECE_BYTES + 7;
        let lengths = [3, long, 5, PIECE_BYTES - 5, 1];
        let mut runs = Vec::new();
        let mut data = Vec::new();
        for (number, length) in lengths.into_iter().enumerate() {
            let start = data.len();
            data.resize(start + length, number as u8);
            runs.push(Run { key: Arc::clone(&key), range: start..data.len(), number });
        }
        let pieces = split_into_pieces(data.clone(), runs);
        let whole: Vec<u8> = pieces.iter().flat_map(|piece| piece.data.clone()).collect();
        assert!(whole == data);
        let numbers = |piece: &Piece| piece.runs.iter().map(|run| run.number).collect::<Vec<_>>();
        assert_eq!(pieces.iter().map(numbers).collect::<Vec<_>>(), [vec![0], vec![1], vec![2], vec![3, 4]]);
        for piece in &pieces {
            for run in &piece.runs {
                assert!(piece.data[run.range.clone()].iter().all(|&byte| usize::from(byte) == run.number));
            }
        }
    }
}
