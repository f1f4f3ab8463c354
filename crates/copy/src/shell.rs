//! Quotes words for a shell on the other machine and reads lines of its output.

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};

/// Maximum bytes of a line from a shell.
const MAX_LINE_BYTES: u64 = 64 << 10;

/// Reads a line of a shell's output, without its newline. `None` at the end of the output, or after [`MAX_LINE_BYTES`]
/// without a newline.
pub(crate) async fn next_line(said: &mut (impl AsyncBufRead + Unpin)) -> Option<String> {
    let mut line = Vec::new();
    said.take(MAX_LINE_BYTES).read_until(b'\n', &mut line).await.ok()?;
    (line.pop() == Some(b'\n')).then(|| String::from_utf8_lossy(&line).into_owned())
}

/// Quotes a path as one word for a shell. No program will mistake it for an option.
pub(crate) fn quoted(path: &[u8]) -> Vec<u8> {
    let mut word = b"'".to_vec();
    if path.first() == Some(&b'-') {
        word.extend_from_slice(b"./");
    }
    for &byte in path {
        if byte == b'\'' { word.extend_from_slice(b"'\\''") } else { word.push(byte) }
    }
    word.push(b'\'');
    word
}
