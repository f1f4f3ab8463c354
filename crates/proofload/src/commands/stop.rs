//! Ctrl-C, SIGTERM and a terminal that goes away (SIGHUP): the first asks for a clean end.

use std::{
    fs,
    sync::{Arc, atomic::AtomicBool},
};

use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    flag,
};

use crate::exit::Refusal;

/// A flag that the first SIGINT, SIGTERM or SIGHUP sets. A second SIGINT or SIGTERM ends the program with status 130.
pub(super) fn on_signal() -> Result<Arc<AtomicBool>, Refusal> {
    let stop = Arc::new(AtomicBool::new(false));
    let failed = |signal, e| Refusal::one(format_args!("cannot handle signal {signal}: {e}"));
    for signal in [SIGINT, SIGTERM] {
        // The order matters: the shutdown looks at the flag before the same signal sets it.
        flag::register_conditional_shutdown(signal, 130, Arc::clone(&stop))
            .and_then(|_| flag::register(signal, Arc::clone(&stop)))
            .map_err(|e| failed(signal, e))?;
    }
    // A terminal that goes away tells so twice, by the kernel and by the shell: only the first one means anything.
    if !is_ignored(SIGHUP) {
        flag::register(SIGHUP, Arc::clone(&stop)).map_err(|e| failed(SIGHUP, e))?;
    }
    Ok(stop)
}

/// Whether this program was started so that a signal does nothing, as `nohup` does.
fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}
