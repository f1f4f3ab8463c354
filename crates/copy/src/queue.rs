//! The queue of chunks and files. Each channel takes work when it has room, so that no channel waits for the slowest.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeSet, VecDeque},
    rc::Rc,
    time::Duration,
};

use tokio::sync::Notify;

use crate::{
    file::{CHUNK_BYTES, FileCopy},
    span::Span,
};

/// Minimum number of bytes left in a chunk that is split for another channel.
const WORTH_BYTES: u64 = 128 << 10;

/// A piece of work for a large file.
#[derive(Debug, Clone)]
pub(crate) struct Work {
    pub(crate) file: Rc<FileCopy>,
    pub(crate) step: Step,
}

#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// Carries a chunk or a part of it.
    Carry(u64, Rc<Span>),
    /// Gives the file its final name.
    Finish,
}

/// No new chunk is begun while the chunks in progress need this time at the current rate, in seconds: they are lost if
/// the copy is aborted.
const BEGUN_S: f64 = 2.0;
/// Number of round trips that are added to this time, for finding and opening a file and for answers.
const BEGUN_ROUND_TRIPS: f64 = 8.0;
/// Minimum of the limit on chunks in progress.
const LEAST_BEGUN: usize = 4;

/// Maximum number of large files in progress. A file that is read back is open twice, and a server limits the number of
/// handles.
const MAX_FILES: usize = 32;

/// Chunks of large files, and small files.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    large: RefCell<Vec<Rc<FileCopy>>>,
    small: RefCell<VecDeque<Rc<FileCopy>>>,
    /// Large files whose chunks have all arrived but that do not have their final names yet.
    complete: RefCell<VecDeque<Rc<FileCopy>>>,
    /// The work that the channels are carrying.
    active: RefCell<Vec<Work>>,
    /// Number of chunks in progress at which channels begin to help each other instead of beginning new chunks.
    most_begun: Cell<usize>,
    unfinished: Cell<usize>,
    is_endless: Cell<bool>,
    is_closed: Cell<bool>,
    changed: Notify,
}

impl Queue {
    /// Adds a file.
    pub(crate) fn add(&self, file: Rc<FileCopy>) {
        self.unfinished.set(self.unfinished.get() + 1);
        if file.is_small() {
            self.small.borrow_mut().push_back(file);
        } else {
            self.large.borrow_mut().push(file);
        }
    }

    /// Adds endless work without a file.
    pub(crate) fn add_endless(&self) {
        self.is_endless.set(true);
        self.unfinished.set(1);
    }

    pub(crate) fn is_endless(&self) -> bool {
        self.is_endless.get()
    }

    /// The next small file; `None` if no work is left.
    pub(crate) async fn take_small(&self) -> Option<Rc<FileCopy>> {
        self.when(|| self.small.borrow_mut().pop_front()).await
    }

    /// The next chunk of a large file, or half of the rest of a chunk that another channel carries; `None` if no work
    /// is left.
    pub(crate) async fn take_chunk(&self) -> Option<Work> {
        self.when(|| {
            let next = || self.next_step();
            let work = match self.finish_step() {
                Some(work) => work,
                None if self.has_many_begun() => self.rest_of_another().or_else(next)?,
                None => next().or_else(|| self.rest_of_another())?,
            };
            self.active.borrow_mut().push(work.clone());
            Some(work)
        })
        .await
    }

    /// Sets the rate of the path, in bytes per second, and its round trip.
    pub(crate) fn expect(&self, rate: f64, round_trip: Duration) {
        let time_s = BEGUN_S + BEGUN_ROUND_TRIPS * round_trip.as_secs_f64();
        self.most_begun.set((rate * time_s) as usize / CHUNK_BYTES as usize);
    }

    fn has_many_begun(&self) -> bool {
        let active = self.active.borrow();
        let chunks = active.iter().filter_map(|work| match &work.step {
            Step::Carry(chunk, _) => Some((work.file.number, *chunk)),
            Step::Finish => None,
        });
        chunks.collect::<BTreeSet<_>>().len() >= self.most_begun.get().max(LEAST_BEGUN)
    }

    fn finish_step(&self) -> Option<Work> {
        let mut complete = self.complete.borrow_mut();
        complete.retain(|file| !file.is_closed());
        // Late data of a chunk that was carried twice must not be written after the file has its final name.
        let active = self.active.borrow();
        let is_carried = |file: &Rc<FileCopy>| {
            active.iter().any(|work| Rc::ptr_eq(&work.file, file) && matches!(work.step, Step::Carry(..)))
        };
        let at = complete.iter().position(|file| !is_carried(file))?;
        complete.remove(at).map(|file| Work { file, step: Step::Finish })
    }

    fn next_step(&self) -> Option<Work> {
        let large = self.large.borrow();
        let mut open = large.iter().take(MAX_FILES);
        let (file, chunk) = open.find_map(|file| Some((Rc::clone(file), file.take_chunk()?)))?;
        let (begin, length) = file.range(chunk);
        Some(Work { file, step: Step::Carry(chunk, Span::new(begin, begin + length)) })
    }

    fn rest_of_another(&self) -> Option<Work> {
        let active = self.active.borrow();
        let part = |work: &Work| match &work.step {
            Step::Carry(chunk, span) => Some((Rc::clone(&work.file), *chunk, Rc::clone(span))),
            Step::Finish => None,
        };
        let parts = active.iter().filter_map(part).filter(|(.., span)| span.left() >= WORTH_BYTES);
        let (file, chunk, span) = parts.max_by_key(|(.., span)| span.left())?;
        Some(Work { file, step: Step::Carry(chunk, span.split()) })
    }

    /// Removes work that a channel has finished or given up.
    pub(crate) fn carried(&self, work: &Work) {
        let is_other = |other: &Work| match (&other.step, &work.step) {
            (Step::Carry(_, one), Step::Carry(_, another)) => !Rc::ptr_eq(one, another),
            (Step::Finish, Step::Finish) => !Rc::ptr_eq(&other.file, &work.file),
            _ => true,
        };
        self.active.borrow_mut().retain(is_other);
        if !self.complete.borrow().is_empty() {
            self.changed.notify_waiters();
        }
    }

    async fn when<T>(&self, take: impl Fn() -> Option<T>) -> Option<T> {
        loop {
            let changed = self.changed.notified();
            if self.is_closed.get() {
                return None;
            }
            if let Some(taken) = take() {
                return Some(taken);
            }
            changed.await;
        }
    }

    /// Puts back a small file whose connection was lost.
    pub(crate) fn put_back(&self, file: Rc<FileCopy>) {
        self.small.borrow_mut().push_front(file);
        self.changed.notify_waiters();
    }

    /// Adds a file whose chunks have all arrived and that needs its final name.
    pub(crate) fn complete(&self, file: Rc<FileCopy>) {
        self.complete.borrow_mut().push_back(file);
        self.changed.notify_waiters();
    }

    /// Wakes the channels, because there is work for them.
    pub(crate) fn wake(&self) {
        self.changed.notify_waiters();
    }

    /// Removes a file that is finished or was given up.
    pub(crate) fn finished(&self, file: &Rc<FileCopy>) {
        if !file.is_small() {
            self.large.borrow_mut().retain(|other| !Rc::ptr_eq(other, file));
        }
        self.unfinished.set(self.unfinished.get() - 1);
        self.changed.notify_waiters();
    }

    /// Waits until every file is finished, or the queue is closed.
    pub(crate) async fn all_finished(&self) {
        loop {
            let changed = self.changed.notified();
            if self.unfinished.get() == 0 || self.is_closed.get() {
                return;
            }
            changed.await;
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.get()
    }

    /// Whether chunks or files are waiting for a channel.
    pub(crate) fn has_more(&self) -> bool {
        self.is_endless.get()
            || !self.small.borrow().is_empty()
            || self.large.borrow().iter().any(|file| file.has_more())
    }

    /// Whether only small files are left.
    pub(crate) fn is_small(&self) -> bool {
        self.large.borrow().is_empty() && !self.is_endless.get()
    }

    /// Number of files that are not finished.
    pub(crate) fn unfinished(&self) -> usize {
        self.unfinished.get()
    }

    /// Closes the queue. After that, it gives out no more work.
    pub(crate) fn close(&self) {
        self.is_closed.set(true);
        self.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::item;

    #[tokio::test(flavor = "current_thread")]
    async fn a_complete_file_is_finished_once_and_a_closed_one_never() {
        let queue = Queue::default();
        let file = FileCopy::new(1, item("a", 2 * CHUNK_BYTES));
        queue.add(Rc::clone(&file));
        let first = queue.take_chunk().await.unwrap();
        assert!(matches!(first.step, Step::Carry(0, _)));
        queue.complete(Rc::clone(&file));
        // A part of the chunk is still in progress.
        let second = queue.take_chunk().await.unwrap();
        assert!(matches!(second.step, Step::Carry(1, _)) && queue.finish_step().is_none());
        queue.carried(&first);
        queue.carried(&second);
        assert!(matches!(queue.take_chunk().await, Some(Work { step: Step::Finish, .. })));
        queue.complete(Rc::clone(&file));
        file.close();
        queue.finished(&file);
        assert!(queue.finish_step().is_none() && queue.next_step().is_none() && queue.unfinished() == 0);
    }

    #[test]
    fn no_file_is_begun_while_as_many_as_a_server_opens_are_not_finished() {
        let queue = Queue::default();
        let files: Vec<_> =
            (1..).map(|number| FileCopy::new(number, item("a", CHUNK_BYTES))).take(40).collect();
        files.iter().for_each(|file| queue.add(Rc::clone(file)));
        let begun = || std::iter::from_fn(|| queue.next_step()).count();
        assert_eq!((begun(), begun()), (MAX_FILES, 0));
        files[..3].iter().for_each(|file| queue.finished(file));
        assert_eq!((begun(), begun()), (3, 0));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn channels_help_each_other_before_more_is_begun_than_the_path_carries_soon() {
        let queue = Queue::default();
        queue.add(FileCopy::new(1, item("a", 100 * CHUNK_BYTES)));
        let mut chunks = Vec::new();
        for _ in 0..12 {
            let work = queue.take_chunk().await.unwrap();
            let Step::Carry(chunk, _) = work.step else { panic!("nothing is complete") };
            chunks.push(chunk);
        }
        assert_eq!(chunks.iter().max(), Some(&3), "{chunks:?}");
        queue.expect(20.0 * CHUNK_BYTES as f64 / BEGUN_S, Duration::ZERO);
        let next = queue.take_chunk().await.unwrap();
        assert!(matches!(next.step, Step::Carry(4, _)));
    }
}
