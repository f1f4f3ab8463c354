//! The log of a process's output, limited in size. A file holds the beginning; memory holds the end until the process
//! ends. Secrets that this process knows are masked in both.

use std::{
    collections::VecDeque,
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use secrets::mask::mask_learned;

/// Bytes of the output's end that are kept in addition to the beginning.
const TAIL_BYTES: usize = 64 * 1024;
/// A longer unfinished line is masked and written, except its last [`MAX_SECRET_BYTES`], which may contain the
/// beginning of a secret.
const MAX_LINE_BYTES: usize = 64 * 1024;
const MAX_SECRET_BYTES: usize = 8 * 1024;
/// Maximum number of lines of output in an error message.
const EXCERPT_LINES: usize = 20;
const EXCERPT_LINE_CHARS: usize = 400;

/// The log of one process.
#[derive(Debug)]
pub(crate) struct Log {
    file: File,
    limit_bytes: u64,
    written_bytes: u64,
    seen_bytes: u64,
    tail: VecDeque<u8>,
    /// The unfinished last line.
    line: Vec<u8>,
    awaited: Option<AwaitedText>,
}

/// A text that the output must contain for the process to be ready.
#[derive(Debug)]
struct AwaitedText {
    text: Vec<u8>,
    /// End of the earlier output. It may contain the beginning of the text.
    carry: Vec<u8>,
    seen: bool,
}

impl Log {
    /// Creates a log that keeps the first `limit_bytes` and the last 64 KiB.
    pub(crate) fn create(path: &Path, limit_bytes: u64, awaited: Option<&str>) -> io::Result<Self> {
        let awaited = awaited.map(|text| AwaitedText { text: text.into(), carry: Vec::new(), seen: false });
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        Ok(Self {
            file,
            limit_bytes,
            written_bytes: 0,
            seen_bytes: 0,
            tail: VecDeque::new(),
            line: Vec::new(),
            awaited,
        })
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if let Some(awaited) = self.awaited.as_mut().filter(|awaited| !awaited.seen) {
            awaited.scan(bytes);
        }
        self.line.extend(bytes);
        let whole = self.line.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        if !secrets::mask::has_learned() {
            let lines = std::mem::take(&mut self.line);
            self.keep(&lines);
        } else if whole > 0 {
            let rest = self.line.split_off(whole);
            let lines = std::mem::replace(&mut self.line, rest);
            self.keep(&mask_learned(&lines));
        } else if self.line.len() > MAX_LINE_BYTES {
            let mut masked = mask_learned(&self.line).into_owned();
            self.line = masked.split_off(masked.len().saturating_sub(MAX_SECRET_BYTES));
            self.keep(&masked);
        }
    }

    /// Adds output in which secrets are already masked.
    fn keep(&mut self, bytes: &[u8]) {
        self.seen_bytes += bytes.len() as u64;
        let room = (self.limit_bytes - self.written_bytes).min(bytes.len() as u64) as usize;
        if room > 0 {
            // A full disk must not stop the process. The end in memory needs no disk.
            let _ = self.file.write_all(&bytes[..room]);
            self.written_bytes += room as u64;
        }
        self.tail.extend(&bytes[bytes.len().saturating_sub(TAIL_BYTES)..]);
        self.tail.drain(..self.tail.len().saturating_sub(TAIL_BYTES));
    }

    /// Appends the end of the output to the file when the process has ended.
    pub(crate) fn finish(&mut self) {
        let line = std::mem::take(&mut self.line);
        self.keep(&mask_learned(&line));
        let missing = self.seen_bytes - self.written_bytes;
        let tail = (self.tail.len() as u64).min(missing);
        let left_out = missing - tail;
        if left_out > 0 {
            let _ = writeln!(self.file, "\n… {left_out} bytes left out …");
        }
        let start = self.tail.len() - tail as usize;
        let _ = self.file.write_all(&self.tail.make_contiguous()[start..]);
        self.written_bytes = self.limit_bytes;
        self.seen_bytes = self.seen_bytes.max(self.limit_bytes);
    }

    /// Whether the output exceeded the limit.
    pub(crate) fn flooded(&self) -> bool {
        self.seen_bytes > self.limit_bytes
    }

    pub(crate) fn has_seen_text(&self) -> bool {
        self.awaited.as_ref().is_some_and(|awaited| awaited.seen)
    }

    pub(crate) fn last_lines(&self) -> Vec<String> {
        let (one, other) = self.tail.as_slices();
        last_lines(&[one, other, &mask_learned(&self.line)].concat())
    }
}

/// The last lines of an output, for an error message.
pub(crate) fn last_lines(output: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(output);
    let lines: Vec<&str> = text.lines().collect();
    let last = &lines[lines.len().saturating_sub(EXCERPT_LINES)..];
    // Control characters could change the terminal's state.
    let clean = |line: &&str| {
        line.chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .take(EXCERPT_LINE_CHARS)
            .collect::<String>()
    };
    last.iter().map(clean).collect()
}

impl AwaitedText {
    fn scan(&mut self, bytes: &[u8]) {
        self.carry.extend(bytes);
        self.seen =
            self.text.is_empty() || self.carry.windows(self.text.len()).any(|window| window == self.text);
        let keep = self.text.len().saturating_sub(1).min(self.carry.len());
        self.carry.drain(..self.carry.len() - keep);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(limit: u64, awaited: Option<&str>) -> (tempfile::TempDir, std::path::PathBuf, Log) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let log = Log::create(&path, limit, awaited).unwrap();
        (folder, path, log)
    }

    #[test]
    fn a_short_log_is_kept_whole() {
        let (_folder, path, mut log) = log(100, None);
        log.push(b"one\n");
        log.push(b"two");
        assert!(!log.flooded());
        log.finish();
        assert_eq!(std::fs::read(&path).unwrap(), b"one\ntwo");
        assert_eq!(log.last_lines(), ["one", "two"]);
    }

    #[test]
    fn of_a_flood_the_beginning_and_the_end_are_kept() {
        let (_folder, path, mut log) = log(1_000, None);
        log.push(b"first\n");
        (0..100_000).for_each(|i| log.push(format!("line {i}\n").as_bytes()));
        assert!(log.flooded());
        log.finish();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(
            text.starts_with("first\n") && text.ends_with("line 99999\n") && text.contains("bytes left out")
        );
        assert!(text.len() < 1_100 + TAIL_BYTES, "{}", text.len());
        assert_eq!(log.last_lines().last().unwrap(), "line 99999");
    }

    #[test]
    fn secrets_are_masked_however_they_are_read() {
        secrets::mask::learn("log-secret-1");
        let (_folder, path, mut log) = log(1 << 20, Some("log-secret-1"));
        log.push(b"got log-sec");
        assert_eq!(std::fs::read(&path).unwrap(), b"");
        log.push(b"ret-1\nand log-sec");
        assert!(log.has_seen_text());
        assert_eq!(log.last_lines(), ["got ***", "and log-sec"]);
        log.push(b"ret-1");
        log.push(&b"log-secret-1 ".repeat(20_000));
        log.finish();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("got ***\nand ***") && !text.contains("log-"), "{text:.100}");
    }

    #[test]
    fn a_text_is_found_across_reads() {
        let (_folder, _, mut log) = log(10, Some("ready now"));
        log.push(b"not rea");
        assert!(!log.has_seen_text());
        log.push(b"dyrea");
        log.push(b"dy no");
        log.push(b"w\n");
        assert!(log.has_seen_text());
    }
}
