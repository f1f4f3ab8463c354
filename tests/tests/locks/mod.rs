//! Which tests may run beside each other in this process.

use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

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

/// For tests with balancers that look for what one of them leaves in its host. What is left on the machine shows at the end of all tests.
pub(crate) fn without_other_balancers() -> (MutexGuard<'static, ()>, RwLockReadGuard<'static, ()>) {
    static BALANCERS: Mutex<()> = Mutex::new(());
    (BALANCERS.lock().unwrap_or_else(PoisonError::into_inner), beside_others())
}
