//! Signals that stop a command: SIGINT (Ctrl-C), SIGTERM, and SIGHUP, which a closed terminal sends.

use std::{
    fs,
    sync::{Arc, atomic::AtomicBool},
};

use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    flag,
};

use crate::exit::{Refusal, Result};

/// Registers handlers that set the flag of [`files::stop`] on SIGINT, SIGTERM or SIGHUP, so that the command ends
/// cleanly. A second SIGINT ends the program at once with status 130. A second SIGTERM does not, because timeout(1)
/// sends it twice.
pub(crate) fn on_signal() -> Result<Arc<AtomicBool>> {
    let stop = files::stop();
    let failed = |signal, e| Refusal::one(format_args!("cannot handle signal {signal}: {e}"));
    // Registered first, because handlers run in order: this one must see the flag before the first SIGINT sets it.
    flag::register_conditional_shutdown(SIGINT, 130, Arc::clone(&stop)).map_err(|e| failed(SIGINT, e))?;
    for signal in [SIGINT, SIGTERM] {
        flag::register(signal, Arc::clone(&stop)).map_err(|e| failed(signal, e))?;
    }
    // When a terminal closes, the kernel and the shell each send a SIGHUP, so a second one must not end the program.
    if !is_ignored(SIGHUP) {
        flag::register(SIGHUP, Arc::clone(&stop)).map_err(|e| failed(SIGHUP, e))?;
    }
    Ok(stop)
}

/// Whether the program was started with a signal ignored, as `nohup` does.
fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}
