//! Which tests may run beside each other in this process.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Measurements lock it for writing, all other tests for reading.
static QUIET: RwLock<()> = RwLock::new(());
/// Tests that look for what labs leave lock it for writing, all that make labs, namespaces, mounts or interfaces for reading. `QUIET` is
/// locked before it.
static LABS: RwLock<()> = RwLock::new(());

pub(crate) type Shared = RwLockReadGuard<'static, ()>;

/// For measurements.
pub(crate) fn alone() -> RwLockWriteGuard<'static, ()> {
    // A test that failed leaves nothing half done behind a lock.
    QUIET.write().unwrap_or_else(PoisonError::into_inner)
}

/// For tests that look for what a lab leaves: they would find other labs, too.
pub(crate) fn without_other_labs() -> (Shared, RwLockWriteGuard<'static, ()>) {
    (beside_all(), LABS.write().unwrap_or_else(PoisonError::into_inner))
}

/// For tests that may run beside all but measurements: they make nothing that an inventory lists.
pub(crate) fn beside_all() -> Shared {
    QUIET.read().unwrap_or_else(PoisonError::into_inner)
}

/// For tests that make labs.
pub(crate) fn beside_others() -> (Shared, Shared) {
    (beside_all(), LABS.read().unwrap_or_else(PoisonError::into_inner))
}
