//! Standard output.

use std::io::{self, Write};

/// Writes text to standard output. Whoever reads it may stop early (`| head`): the exit status stays that of the
/// result.
pub fn print(text: &str) {
    let mut output = io::stdout().lock();
    let _ = output.write_all(text.as_bytes()).and_then(|()| output.flush());
}
