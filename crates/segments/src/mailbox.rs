//! A queue from many threads to one reader, which takes all items at once.

use std::{
    mem,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// The queue. It is never locked during disk access, so adding an item takes only nanoseconds.
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
    /// Whether pauses end immediately.
    no_pauses: bool,
}

impl<T> Default for Mailbox<T> {
    fn default() -> Self {
        let inner = Inner { items: Vec::new(), woken: false, closed: false, no_pauses: false };
        Self { inner: Mutex::new(inner), arrived: Condvar::new() }
    }
}

impl<T> Mailbox<T> {
    /// Adds an item.
    ///
    /// # Errors
    /// Returns the item when the mailbox is closed.
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

    /// Wakes the reader without an item.
    pub(crate) fn wake(&self) {
        self.lock().woken = true;
        self.arrived.notify_one();
    }

    /// Refuses further items. The reader can still take the present ones.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.arrived.notify_one();
    }

    /// Ends the current pause and all later ones.
    pub(crate) fn end_pauses(&self) {
        self.lock().no_pauses = true;
        self.arrived.notify_one();
    }

    /// Makes the reader wait for `time`, so that more items collect. New items do not end the pause.
    pub(crate) fn pause(&self, time: Duration) {
        drop(self.arrived.wait_timeout_while(self.lock(), time, |inner| !inner.no_pauses && !inner.closed));
    }

    /// Waits for an item, for [`wake`](Self::wake), for [`close`](Self::close) or until `wait` is over, and moves all
    /// items to `items`. Returns false if the mailbox is closed.
    pub(crate) fn take(&self, items: &mut Vec<T>, wait: Duration) -> bool {
        let has_nothing = |inner: &mut Inner<T>| inner.items.is_empty() && !inner.woken && !inner.closed;
        let waited = self.arrived.wait_timeout_while(self.lock(), wait, has_nothing);
        let (mut inner, _) = waited.unwrap_or_else(PoisonError::into_inner);
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
