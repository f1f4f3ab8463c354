//! Words for a shell on the other machine, and its lines.

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};

/// The longest line that is read of a shell.
const MAX_LINE_BYTES: u64 = 64 << 10;

/// The next line of a shell, without its end; none at the end of the output, or if the line is too long for a sound shell.
pub(crate) async fn next_line(said: &mut (impl AsyncBufRead + Unpin)) -> Option<String> {
    let mut line = Vec::new();
    said.take(MAX_LINE_BYTES).read_until(b'\n', &mut line).await.ok()?;
    (line.pop() == Some(b'\n')).then(|| String::from_utf8_lossy(&line).into_owned())
}

/// A path as one word for a shell, which no program takes for an option.
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
