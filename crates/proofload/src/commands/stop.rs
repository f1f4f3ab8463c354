//! Ctrl-C and SIGTERM: the first asks for a clean end, the second ends at once.

use std::sync::{Arc, atomic::AtomicBool};

use signal_hook::{
    consts::{SIGINT, SIGTERM},
    flag,
};

use crate::exit::Refusal;

/// A flag that the first SIGINT or SIGTERM sets. The second one ends the program with status 130.
pub fn on_signal() -> Result<Arc<AtomicBool>, Refusal> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // The order matters: the shutdown looks at the flag before the same signal sets it.
        flag::register_conditional_shutdown(signal, 130, Arc::clone(&stop))
            .and_then(|_| flag::register(signal, Arc::clone(&stop)))
            .map_err(|e| Refusal::one(format_args!("cannot handle signal {signal}: {e}")))?;
    }
    Ok(stop)
}
