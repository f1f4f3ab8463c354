//! Which tests may run beside each other in this process.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Tests that look for what labs leave lock it for writing, all that make labs, namespaces, mounts or interfaces for reading.
static LABS: RwLock<()> = RwLock::new(());

/// For tests that look for what a lab leaves: they would find other labs, too.
pub(crate) fn without_other_labs() -> RwLockWriteGuard<'static, ()> {
    // A test that failed leaves nothing half done behind a lock.
    LABS.write().unwrap_or_else(PoisonError::into_inner)
}

/// For tests that make labs.
pub(crate) fn beside_others() -> RwLockReadGuard<'static, ()> {
    LABS.read().unwrap_or_else(PoisonError::into_inner)
}
