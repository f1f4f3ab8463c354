//! A number that several threads increase and decrease.

use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(Debug, Default)]
pub(crate) struct Gauge(AtomicUsize);

impl Gauge {
    pub(crate) fn add(&self, amount: usize) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    pub(crate) fn remove(&self, amount: usize) {
        self.0.fetch_sub(amount, Ordering::Relaxed);
    }

    pub(crate) fn value(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}
