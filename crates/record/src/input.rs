//! Reads files that users name, with limits of size and time.

use std::{
    fmt::Display,
    io::{self, BufRead, ErrorKind, Read},
    path::Path,
};

use rustix::process::{Resource, getrlimit};

/// Largest size of a text file, in bytes.
const MAX_TEXT_BYTES: u64 = 16 << 20;
/// Largest size of a body file, in bytes.
pub const MAX_BODY_BYTES: u64 = 256 << 20;
/// Largest record, in bytes. A plan contains the body of its requests in base64.
const MAX_RECORD_BYTES: u64 = 2 * MAX_BODY_BYTES;

/// Reads a file. Reads a pipe (`/dev/stdin`, `<(command)`) to its end.
///
/// # Errors
/// When the file cannot be read, holds more than `max_bytes`, gives no data for 5 s, or is the output file of an
/// option.
pub fn read(path: &Path, max_bytes: u64) -> Result<Vec<u8>, String> {
    files::read(path, max_bytes).map_err(|error| {
        let why = match error.kind() {
            ErrorKind::FileTooLarge => too_large(max_bytes),
            _ => error.to_string(),
        };
        format!("cannot read {}: {why}", path.display())
    })
}

/// Number of copies of the request body in memory when a trial ends and is serialized.
const BODY_COPIES: u64 = 12;

/// Reads the body of requests.
///
/// # Errors
/// As for [`read`], and when a memory limit of the process is too low for a trial with this body.
pub fn read_body(path: &Path) -> Result<Vec<u8>, String> {
    let size = path.metadata().map_or(0, |about| about.len()).min(MAX_BODY_BYTES + 1);
    // Reserved memory costs nothing until it is used.
    let mut room = Vec::<u8>::new();
    let is_scarce = size <= MAX_BODY_BYTES && room.try_reserve((size * BODY_COPIES) as usize).is_err();
    drop(std::hint::black_box(room));
    let limit = getrlimit(Resource::As).current.filter(|_| is_scarce);
    let Some([size, limit]) = limit.map(|limit| [size, limit].map(crate::units::show_bytes)) else {
        return read(path, MAX_BODY_BYTES);
    };
    Err(format!(
        "cannot read {}: it has {size}, and a trial needs {BODY_COPIES} times that in memory, but `ulimit -v` allows only {limit}: raise the limit, or use a smaller file",
        path.display()
    ))
}

/// Reads a text file, without a byte order mark and with LF in place of the line ends of Windows. All text files are
/// read this way.
///
/// # Errors
/// As for [`read`], or when the file is not UTF-8 text.
pub fn read_text(path: &Path) -> Result<String, String> {
    let bytes = read(path, MAX_TEXT_BYTES)?;
    let text = decode(&bytes).map_err(|why| format!("cannot read {}: {why}", path.display()))?;
    Ok(text.replace("\r\n", "\n"))
}

/// Largest number of lines in an error message about one file.
const MAX_TOLD: usize = 100;

/// Reads each numbered line of a file with `read`.
///
/// # Errors
/// All lines that `read` refuses, as `FILE:LINE: why`.
pub fn each_line<L, T, E: Display>(
    file: impl Display,
    lines: impl IntoIterator<Item = (usize, L)>,
    mut read: impl FnMut(L) -> Result<T, E>,
) -> Result<Vec<T>, String> {
    let (mut read_lines, mut mistakes) = (Vec::new(), Vec::new());
    for (number, line) in lines {
        match read(line) {
            Ok(line) => read_lines.push(line),
            Err(why) => mistakes.push(format!("{file}:{number}: {why}")),
        }
    }
    match mistakes.len() {
        0 => return Ok(read_lines),
        MAX_TOLD.. => {
            let omitted = mistakes.split_off(MAX_TOLD - 1).len();
            mistakes.push(format!("{file}: {omitted} more mistakes are not shown"));
        }
        _ => {}
    }
    Err(mistakes.join("\n"))
}

/// The byte order mark. Some editors write it at the beginning of UTF-8 text.
pub const MARK: char = '\u{feff}';

/// Decodes untrusted bytes as text, without the byte order mark (RFC 8259, 8.1).
///
/// # Errors
/// When the bytes are not UTF-8.
pub fn decode(bytes: &[u8]) -> Result<&str, NotText> {
    utf8(bytes).map(|text| text.strip_prefix(MARK).unwrap_or(text))
}

/// Decodes untrusted bytes as text, and keeps the byte order mark.
///
/// # Errors
/// When the bytes are not UTF-8.
pub fn utf8(bytes: &[u8]) -> Result<&str, NotText> {
    let not_text = |at: usize, why| {
        let line = 1 + bytes[..at].iter().filter(|byte| **byte == b'\n').count();
        NotText { at, line, why }
    };
    const WIDE: &str = "it looks like UTF-16; convert it: iconv -f UTF-16 -t UTF-8";
    match bytes {
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] | [0, 0, 0xfe, 0xff, ..] => return Err(not_text(0, WIDE)),
        // UTF-16 without a byte order mark: most texts begin with ASCII characters, so every other byte is zero.
        [0, one, 0, other, ..] | [one, 0, other, 0, ..] if *one > 0 && *other > 0 => {
            return Err(not_text(0, WIDE));
        }
        _ => {}
    }
    std::str::from_utf8(bytes).map_err(|error| {
        let why = match error.error_len() {
            None => "it ends in the middle of a UTF-8 character",
            Some(_) => "it looks like Latin-1 or Windows-1252; convert it: iconv -f WINDOWS-1252 -t UTF-8",
        };
        not_text(error.valid_up_to(), why)
    })
}

/// Why bytes are not text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("line {line} is not text in UTF-8: {why}")]
pub struct NotText {
    /// Offset of the first byte that is not UTF-8.
    pub at: usize,
    /// Its line, from 1.
    pub line: usize,
    /// What the text looks like instead, and how to convert it.
    pub why: &'static str,
}

/// Reads the next line of a file of records into `line`, with its line break. Returns false at the end of the file, and
/// for an incomplete last line, which a killed program leaves.
///
/// # Errors
/// When the file cannot be read, or when the line is longer than the largest record.
pub fn read_line(lines: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    let read = lines.take(MAX_RECORD_BYTES).read_until(b'\n', line)?;
    match line.ends_with(b"\n") {
        false if read as u64 == MAX_RECORD_BYTES => Err(io::Error::other(too_large(MAX_RECORD_BYTES))),
        is_whole => Ok(is_whole),
    }
}

/// Reads a file that holds a single record.
///
/// # Errors
/// When the file cannot be read, or when it is larger than the largest record.
pub(crate) fn read_record(file: impl Read) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    match file.take(MAX_RECORD_BYTES + 1).read_to_end(&mut text)? as u64 {
        0..=MAX_RECORD_BYTES => Ok(text),
        _ => Err(io::Error::other(too_large(MAX_RECORD_BYTES))),
    }
}

/// The message for an input of more than `max_bytes`.
pub fn too_large(max_bytes: u64) -> String {
    format!("it holds more than {}, the largest size that is read", crate::units::show_bytes(max_bytes))
}

#[cfg(test)]
mod tests {
    use std::fs;

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
        // A byte order mark, a zero byte and a CR within the text are ordinary characters.
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
        assert!(read(b"a\n\xc3").unwrap_err().contains("line 2 is not text in UTF-8: it ends in"));
        assert_eq!(utf8(b"ab\xff\xfe").unwrap_err().at, 2);
    }

    #[test]
    fn every_line_that_means_nothing_is_told() {
        let read = |text: &str| each_line("f", (1..).zip(text.lines()), str::parse::<u8>);
        assert_eq!(read("1\n2\n").unwrap(), [1, 2]);
        let wrong = read("1\nx\n300\n4\ny\n").unwrap_err();
        let begins: Vec<_> = wrong.lines().map(|line| &line[..4]).collect();
        assert_eq!(begins, ["f:2:", "f:3:", "f:5:"]);
        let many = read(&"x\n".repeat(1_000)).unwrap_err();
        assert_eq!((many.lines().count(), many.ends_with("f: 901 more mistakes are not shown")), (100, true));
    }

    #[test]
    fn a_file_that_is_too_large_is_refused_with_the_size() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(&file, "1234").unwrap();
        assert_eq!(read(file.path(), 4).unwrap(), b"1234");
        let refused = read(file.path(), 3).unwrap_err();
        assert!(refused.ends_with("more than 3 B, the largest size that is read"), "{refused}");
    }
}
