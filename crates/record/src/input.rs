//! Reading files that users name, with limits of size and time.

use std::{
    fs::OpenOptions,
    io::{self, BufRead, ErrorKind, Read},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::OFlags,
};

/// Largest size of a text file, in bytes.
const MAX_TEXT_BYTES: u64 = 16 << 20;
/// Largest size of a body file, in bytes.
pub const MAX_BODY_BYTES: u64 = 256 << 20;
/// Largest record, in bytes: a plan holds the body of its requests, in base64.
const MAX_RECORD_BYTES: u64 = 2 * MAX_BODY_BYTES;
/// Longest wait for data from a pipe or a terminal.
const MAX_WAIT: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };

/// Reads a file. A pipe (`/dev/stdin`, `<(command)`) is read to its end.
///
/// # Errors
/// When the file cannot be read, holds more than `max_bytes`, or gives no data for 5 s.
pub fn read(path: &Path, max_bytes: u64) -> Result<Vec<u8>, String> {
    read_within(path, max_bytes, &MAX_WAIT)
}

fn read_within(path: &Path, max_bytes: u64, wait: &Timespec) -> Result<Vec<u8>, String> {
    let refuse = |why: String| format!("cannot read {}: {why}", path.display());
    // Without this flag, opening a pipe would wait for a writer.
    let flags = OFlags::NONBLOCK.bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let mut file = file.map_err(|error| refuse(error.to_string()))?;
    let (mut bytes, mut chunk) = (Vec::new(), vec![0; 1 << 16]);
    loop {
        let ready = poll(&mut [PollFd::new(&file, PollFlags::IN)], Some(wait));
        if ready.map_err(|error| refuse(io::Error::from(error).to_string()))? == 0 {
            return Err(refuse(format!("it has given no data for {} s; use a file", wait.tv_sec)));
        }
        match file.read(&mut chunk) {
            Ok(0) => return Ok(bytes),
            Ok(read) => bytes.extend_from_slice(&chunk[..read]),
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
            Err(error) => return Err(refuse(error.to_string())),
        }
        if bytes.len() as u64 > max_bytes {
            return Err(refuse(too_large(max_bytes)));
        }
    }
}

/// Reads a text file, as all files of text are read: without a byte order mark, and with LF for the line ends of Windows.
///
/// # Errors
/// As for [`read`], or when it is not text in UTF-8.
pub fn read_text(path: &Path) -> Result<String, String> {
    let bytes = read(path, MAX_TEXT_BYTES)?;
    let text = decode(&bytes).map_err(|why| format!("cannot read {}: {why}", path.display()))?;
    Ok(text.replace("\r\n", "\n"))
}

/// The byte order mark, which some editors put before a text in UTF-8.
pub const MARK: char = '\u{feff}';

/// The text in bytes from outside, without its byte order mark (RFC 8259, 8.1).
///
/// # Errors
/// When they are not UTF-8.
pub fn decode(bytes: &[u8]) -> Result<&str, NotText> {
    utf8(bytes).map(|text| text.strip_prefix(MARK).unwrap_or(text))
}

/// The text in bytes from outside, with its byte order mark.
///
/// # Errors
/// When they are not UTF-8.
pub fn utf8(bytes: &[u8]) -> Result<&str, NotText> {
    let not_text = |at: usize, why| {
        let line = 1 + bytes[..at].iter().filter(|byte| **byte == b'\n').count();
        NotText { at, line, why }
    };
    const WIDE: &str = "it looks like UTF-16; convert it: iconv -f UTF-16 -t UTF-8";
    match bytes {
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] | [0, 0, 0xfe, 0xff, ..] => return Err(not_text(0, WIDE)),
        // Without a mark: every other byte of what most texts begin with is zero.
        [0, one, 0, other, ..] | [one, 0, other, 0, ..] if *one > 0 && *other > 0 => {
            return Err(not_text(0, WIDE));
        }
        _ => {}
    }
    std::str::from_utf8(bytes).map_err(|error| {
        let why = match error.error_len() {
            None => "it ends within a character",
            Some(_) => "it looks like Latin-1 or Windows-1252; convert it: iconv -f WINDOWS-1252 -t UTF-8",
        };
        not_text(error.valid_up_to(), why)
    })
}

/// Why bytes are not text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("line {line} is not text in UTF-8: {why}")]
pub struct NotText {
    /// Offset of the first byte that is not.
    pub at: usize,
    /// Its line, from 1.
    pub line: usize,
    /// What it looks like, and what to do.
    pub why: &'static str,
}

/// Reads the next line of records into `line`, with its end. Returns false at the end of the file, also if the last line has no end: a
/// killed program leaves one.
///
/// # Errors
/// When the file cannot be read, or the line is longer than any record.
pub fn read_line(lines: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    let read = lines.take(MAX_RECORD_BYTES).read_until(b'\n', line)?;
    match line.ends_with(b"\n") {
        false if read as u64 == MAX_RECORD_BYTES => Err(io::Error::other(too_large(MAX_RECORD_BYTES))),
        is_whole => Ok(is_whole),
    }
}

/// Reads a record that is a whole file.
///
/// # Errors
/// When the file cannot be read, or is larger than any record.
pub(crate) fn read_record(file: impl Read) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    match file.take(MAX_RECORD_BYTES + 1).read_to_end(&mut text)? as u64 {
        0..=MAX_RECORD_BYTES => Ok(text),
        _ => Err(io::Error::other(too_large(MAX_RECORD_BYTES))),
    }
}

/// The message that an input holds more than `max_bytes`.
pub fn too_large(max_bytes: u64) -> String {
    format!("it holds more than {}, the largest size that is read", crate::units::show_bytes(max_bytes))
}

#[cfg(test)]
mod tests {
    use std::{fs, process::Command, thread, time::Duration};

    use super::*;

    #[test]
    fn a_text_has_no_mark_and_another_encoding_is_named_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        let read = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            read_text(&path)
        };
        assert_eq!(read(b"\xef\xbb\xbfa\r\nb\r\n").unwrap(), "a\nb\n");
        // A mark within the text is a character, and so are a zero byte and a CR.
        for text in ["", "a", "a\u{feff}\n", "a\0b", "a\rb", "\u{e9}\n"] {
            assert_eq!(read(text.as_bytes()).unwrap(), text);
        }
        let wide = |text: &str, mark: &[u8], bytes: fn(u16) -> [u8; 2]| {
            [mark, &text.encode_utf16().flat_map(bytes).collect::<Vec<_>>()].concat()
        };
        for mark in [true, false] {
            let (big, little) = (
                wide("ab\n", if mark { &[0xfe, 0xff] } else { &[] }, u16::to_be_bytes),
                wide("ab\n", if mark { &[0xff, 0xfe] } else { &[] }, u16::to_le_bytes),
            );
            for bytes in [big, little] {
                assert!(
                    read(&bytes).unwrap_err().contains("line 1 is not text in UTF-8: it looks like UTF-16")
                );
            }
        }
        let why = read(b"a\nb\ncaf\xe9\n").unwrap_err();
        assert!(why.contains("line 3 is not text in UTF-8: it looks like Latin-1"), "{why}");
        assert!(read(b"a\n\xc3").unwrap_err().contains("line 2 is not text in UTF-8: it ends within"));
        assert_eq!(utf8(b"ab\xff\xfe").unwrap_err().at, 2);
    }

    #[test]
    fn endless_files_are_refused_and_pipes_are_read_to_their_end() {
        let folder = tempfile::tempdir().unwrap();
        let [file, pipe] = ["file", "pipe"].map(|name| folder.path().join(name));
        fs::write(&file, "1234").unwrap();
        assert_eq!(read(&file, 4).unwrap(), b"1234");
        assert!(read(&file, 3).unwrap_err().ends_with("more than 3 B, the largest size that is read"));
        assert!(read(Path::new("/dev/zero"), 1 << 20).unwrap_err().contains("the largest size that is read"));
        assert_eq!(read(Path::new("/dev/null"), 4).unwrap(), b"");
        assert!(read(folder.path(), 4).is_err());

        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        assert!(read_within(&pipe, 4, &at_once).unwrap_err().contains("it has given no data"));
        let writer = thread::spawn({
            let pipe = pipe.clone();
            move || {
                let mut pipe = OpenOptions::new().write(true).open(pipe).unwrap();
                for chunk in ["ab", "cd"] {
                    io::Write::write_all(&mut pipe, chunk.as_bytes()).unwrap();
                    // The reader must wait between the chunks, as with a slow command.
                    thread::sleep(Duration::from_millis(50));
                }
            }
        });
        let minutes = Timespec { tv_sec: 300, tv_nsec: 0 };
        assert_eq!(read_within(&pipe, 4, &minutes).unwrap(), b"abcd");
        writer.join().unwrap();
    }
}
