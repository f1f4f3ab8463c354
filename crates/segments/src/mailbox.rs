//! A queue from many threads to one, which takes all of it at once.

use std::{
    mem,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Never held while anything is read or written, so that to put something in is a matter of nanoseconds
/// whatever the disk does.
#[derive(Debug)]
pub(crate) struct Mailbox<T> {
    inner: Mutex<Inner<T>>,
    arrived: Condvar,
}

#[derive(Debug)]
struct Inner<T> {
    items: Vec<T>,
    woken: bool,
    closed: bool,
    /// The reader has no time to pause.
    no_pauses: bool,
}

impl<T> Default for Mailbox<T> {
    fn default() -> Self {
        let inner = Inner { items: Vec::new(), woken: false, closed: false, no_pauses: false };
        Self { inner: Mutex::new(inner), arrived: Condvar::new() }
    }
}

impl<T> Mailbox<T> {
    /// # Errors
    /// Gives the item back when the mailbox is closed.
    pub(crate) fn put(&self, item: T) -> Result<(), T> {
        let mut inner = self.lock();
        if inner.closed {
            return Err(item);
        }
        let first = inner.items.is_empty();
        inner.items.push(item);
        drop(inner);
        if first {
            self.arrived.notify_one();
        }
        Ok(())
    }

    /// Wakes the reader although nothing came.
    pub(crate) fn wake(&self) {
        self.lock().woken = true;
        self.arrived.notify_one();
    }

    /// Nothing more comes in. What is in can still be taken.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.arrived.notify_one();
    }

    /// From now on the reader does not pause.
    pub(crate) fn end_pauses(&self) {
        self.lock().no_pauses = true;
        self.arrived.notify_one();
    }

    /// The reader's wait for more to come: the whole time, whatever comes, unless there is none to lose.
    pub(crate) fn pause(&self, time: Duration) {
        let until = Instant::now() + time;
        let mut inner = self.lock();
        while !inner.no_pauses && !inner.closed {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            inner = self.arrived.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits for something, a ring, the end of `wait` or the mailbox's; moves all there is to `items`.
    /// Says whether more may come.
    pub(crate) fn take(&self, items: &mut Vec<T>, wait: Duration) -> bool {
        let until = Instant::now() + wait;
        let mut inner = self.lock();
        while inner.items.is_empty() && !inner.woken && !inner.closed {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            inner = self.arrived.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        inner.woken = false;
        if items.is_empty() {
            mem::swap(&mut inner.items, items);
        } else {
            items.append(&mut inner.items);
        }
        !inner.closed
    }

    fn lock(&self) -> MutexGuard<'_, Inner<T>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
