//! Large bodies are read and rendered by a thread beside the loop, so that they do not hold up the loop's other clients.
//!
//! Each loop has one helper, pinned as the loop is. A body waits for it in its share of the budget. What it becomes goes to
//! the storage in pieces, few at a time, for lines of others would wait behind a large one there too.

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

/// A body larger than this is read by the helper: at most 5,500 events.
const LARGE_BYTES: usize = 16 << 10;
/// And one that may become more lines than this.
const MANY_LINES_BYTES: usize = 1 << 20;

/// The loop reads no more bodies larger than this
const SMALL_BYTES: usize = 4 << 10;
/// in a round that has read so many events: many clients may send at once.
const MANY_EVENTS: usize = 10_000;

/// Whether reading that body takes so long that others would wait, in a round that has read so many events.
#[inline]
pub(super) fn is_large(incoming: &IncomingRequest<'_>, events_read: usize) -> bool {
    // An event takes three bytes at least, and gets these.
    let max_extra_bytes =
        (incoming.body.len() / 3).saturating_mul(incoming.tag.len() + incoming.extra_members.len());
    incoming.body.len() > LARGE_BYTES
        || max_extra_bytes > MANY_LINES_BYTES
        || (events_read > MANY_EVENTS && incoming.body.len() > SMALL_BYTES)
}

/// A request whose body is to be read.
#[derive(Debug)]
pub(super) struct Job<'a> {
    /// Its place among those that wait.
    pub request: Token,
    pub connection: Token,
    pub incoming: Box<IncomingRequest<'a>>,
    /// The time of its events that bear none.
    pub now: EventTime,
    pub now_ns: u64,
    /// Its client was told that it was not read in time.
    pub cancelled: Arc<AtomicBool>,
}

/// A request whose body was read.
#[derive(Debug)]
pub(crate) struct ReadBody<'a> {
    /// Its place among those that waited.
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

/// Where the loop leaves bodies for its helper, and gets them back.
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
    /// A desk, and the helper behind it, which is to be run.
    ///
    /// # Errors
    /// When there is no descriptor left.
    pub(crate) fn new(shared: &'a Shared) -> std::io::Result<(Self, BodyReader<'a>)> {
        let event = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let ((jobs, taken), (done, read)) = (channel(), channel());
        let renderer = Renderer::new(&shared.config);
        let helper = BodyReader { shared, renderer, jobs: taken, read: done, event: Arc::clone(&event) };
        Ok((Self { jobs, read, event }, helper))
    }

    /// Readable while bodies were read.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// Gives the job back if nobody is there to do it.
    pub(super) fn submit(&self, job: Job<'a>) -> Option<Job<'a>> {
        self.jobs.send(job).err().map(|SendError(job)| job)
    }

    /// Appends what was read since the last call.
    pub(super) fn drain(&self, bodies: &mut Vec<ReadBody<'a>>) {
        // Before the channel is emptied: what comes in between makes it readable anew.
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
        bodies.extend(self.read.try_iter());
    }
}

impl BodyReader<'_> {
    /// Reads bodies until the desk of loop `number` is gone.
    pub(crate) fn run(mut self, number: usize) {
        sockets::pin(&self.shared.config.cpus, number);
        while self.read_next().is_ok() {}
    }

    /// Waits for a body and reads it, unless it was given up.
    ///
    /// # Errors
    /// When the desk is gone.
    pub(crate) fn read_next(&mut self) -> Result<(), ()> {
        let job = self.jobs.recv().map_err(drop)?;
        let (request, connection) = (job.request, job.connection);
        let (result, pieces) = if job.cancelled.load(Ordering::Relaxed) {
            (Err(Refusal::NotReadInTime), VecDeque::new())
        } else {
            // A mistake of ours costs the client that found it an answer, not all others of this loop theirs.
            let read = catch_unwind(AssertUnwindSafe(|| read(self.shared, &mut self.renderer, job)));
            read.unwrap_or_else(|_| {
                self.renderer = Renderer::new(&self.shared.config);
                (Err(Refusal::InternalError), VecDeque::new())
            })
        };
        self.read.send(ReadBody { request, connection, result, pieces }).map_err(drop)?;
        // It cannot fail: the counter would have to be written 2^64 times unread.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        Ok(())
    }
}

/// What becomes of a body.
fn read<'a>(
    shared: &'a Shared,
    renderer: &mut Renderer,
    job: Job<'a>,
) -> (Result<Prepared<'a>, Refusal>, VecDeque<Piece>) {
    let Job { connection, mut incoming, now, now_ns, .. } = job;
    let mut data = Vec::new();
    renderer.now = Some(now);
    let result = prepare(shared, renderer, &mut incoming, connection, now_ns, &mut data);
    // To give so much memory back takes time, too.
    drop(incoming);
    let runs = std::mem::take(&mut renderer.runs);
    let pieces = if result.is_ok() { split_into_pieces(data, runs) } else { VecDeque::new() };
    (result, pieces)
}

/// Puts runs, which stand in their order, into pieces. From the end, so that no more than one piece is in memory twice.
fn split_into_pieces(mut data: Vec<u8>, mut runs: Vec<Run>) -> VecDeque<Piece> {
    let mut pieces = VecDeque::new();
    while let Some(last) = runs.last() {
        let end = last.range.end;
        let fits = |run: &Run| end - run.range.start <= PIECE_BYTES;
        // A line may be longer than a piece.
        let first = runs.iter().rposition(|run| !fits(run)).map_or(0, |at| at + 1).min(runs.len() - 1);
        let mut own = runs.split_off(first);
        let start = own[0].range.start;
        own.iter_mut().for_each(|run| run.range = run.range.start - start..run.range.end - start);
        data.truncate(end);
        let lines = if start == 0 { std::mem::take(&mut data) } else { data.split_off(start) };
        data.shrink_to_fit();
        pieces.push_front(Piece { data: lines, runs: own });
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
