//! Reads the receiver's files line by line. They may be compressed.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::{Path, PathBuf},
};

use flate2::bufread::GzDecoder;
use memchr::memchr;

const CHUNK_BYTES: usize = 1 << 20;
/// Maximum length of a line in bytes. A longer line means that the file is damaged.
const MAX_LINE_BYTES: usize = 256 << 20;

/// A line of a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Line<'a> {
    /// The line without its end.
    pub bytes: &'a [u8],
    /// Line number, starting at 1.
    pub number: u64,
    /// Offset of the line in the decompressed file, in bytes.
    pub offset: u64,
    /// Whether the line has a line end. Only the last line of a file may lack it.
    pub is_ended: bool,
}

/// What is known after a file was read.
#[derive(Debug)]
pub(crate) struct FileEnd {
    pub bytes: u64,
    /// Why the rest of the file cannot be read; `None` if there is no rest.
    pub broken: Option<String>,
}

/// Splits off the suffix of a compressed file's path. Returns the plain path and the compression.
pub(crate) fn plain_name(path: &Path) -> (PathBuf, Compression) {
    let compression = match path.extension().and_then(|extension| extension.to_str()) {
        Some("gz") => Compression::Gzip,
        Some("zst") => Compression::Zstd,
        _ => return (path.to_owned(), Compression::None),
    };
    (path.with_extension(""), compression)
}

/// How a file is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compression {
    None,
    /// gzip (RFC 1952) with any number of members.
    Gzip,
    /// Zstandard (RFC 8878) with any number of frames.
    Zstd,
}

/// Passes every line of a file to `report`.
///
/// # Errors
/// If the file cannot be read. A truncated compressed file is not an error: see [`FileEnd::broken`].
pub(crate) fn lines(path: &Path, report: impl FnMut(Line<'_>)) -> io::Result<FileEnd> {
    lines_of(open(path)?, plain_name(path).1 != Compression::None, report)
}

/// Opens a file. Reading it yields decompressed bytes.
///
/// # Errors
/// If the file cannot be opened.
pub(crate) fn open(path: &Path) -> io::Result<Box<dyn Read>> {
    let file = File::open(path)?;
    ::files::reads(path)?;
    Ok(match plain_name(path).1 {
        Compression::None => Box::new(file),
        Compression::Gzip => Box::new(Gzip { member: Some(GzDecoder::new(BufReader::new(file))) }),
        Compression::Zstd => Box::new(zstd::stream::read::Decoder::new(file)?),
    })
}

/// Decompresses gzip members. Ignores zeros after the last member as padding, like `gzip -t`.
struct Gzip<R> {
    /// The current member; `None` after the last one.
    member: Option<GzDecoder<R>>,
}

impl<R: BufRead> Read for Gzip<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member {
            let read = member.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            let mut rest = self.member.take().expect("checked above").into_inner();
            let is_last = loop {
                let buffered = rest.fill_buf()?;
                match buffered.iter().take_while(|&&byte| byte == 0).count() {
                    0 => break buffered.is_empty(),
                    zeros => rest.consume(zeros),
                }
            };
            if !is_last {
                self.member = Some(GzDecoder::new(rest));
            }
        }
        Ok(0)
    }
}

fn lines_of(mut input: impl Read, compressed: bool, mut report: impl FnMut(Line<'_>)) -> io::Result<FileEnd> {
    let mut buffer = vec![0; CHUNK_BYTES];
    let (mut buffered, mut number, mut offset) = (0, 1, 0);
    let mut broken = None;
    loop {
        if buffered == buffer.len() {
            if buffered >= MAX_LINE_BYTES {
                broken = Some(format!("line {number} is longer than {MAX_LINE_BYTES} bytes"));
                break;
            }
            buffer.resize(buffered * 2, 0);
        }
        let received = match input.read(&mut buffer[buffered..]) {
            Ok(0) => break,
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if compressed => {
                broken = Some(error.to_string());
                break;
            }
            Err(error) => return Err(error),
        };
        // Only new bytes are searched, because the buffered ones contain no line end.
        let mut searched = buffered;
        buffered += received;
        let mut start = 0;
        while let Some(at) = memchr(b'\n', &buffer[searched..buffered]) {
            let end = searched + at;
            report(Line { bytes: &buffer[start..end], number, offset, is_ended: true });
            offset += (end + 1 - start) as u64;
            number += 1;
            start = end + 1;
            searched = start;
        }
        buffer.copy_within(start..buffered, 0);
        buffered -= start;
    }
    if buffered > 0 {
        report(Line { bytes: &buffer[..buffered], number, offset, is_ended: false });
    }
    Ok(FileEnd { bytes: offset + buffered as u64, broken })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::testing::Folder;

    #[test]
    fn zeros_after_gzip_are_padding_and_other_bytes_are_not() {
        let folder = Folder::new();
        let member = |text: &str| {
            let mut member = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            member.write_all(text.as_bytes()).unwrap();
            member.finish().unwrap()
        };
        let two = [member("a\n"), member("b\n")].concat();
        for (behind, is_whole) in [
            (vec![], true),
            (vec![0], true),
            (vec![0; 100_000], true),
            (vec![0, 1], false),
            (vec![1], false),
            (member("c\n")[..9].to_vec(), false),
        ] {
            let path = folder.write("x.gz", [two.clone(), behind.clone()].concat());
            let mut read = Vec::new();
            let end = lines(&path, |line| read.push(line.bytes.to_vec())).unwrap();
            assert_eq!(read, [b"a", b"b"], "{} bytes", behind.len());
            assert_eq!(end.broken.is_none(), is_whole, "{} bytes: {:?}", behind.len(), end.broken);
        }
        let empty = folder.write("empty.gz", "");
        assert!(lines(&empty, |_| {}).unwrap().broken.is_some());
    }

    #[test]
    fn a_long_line_takes_few_reads() {
        struct Counted(io::Take<io::Repeat>, usize);
        impl Read for &mut Counted {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                self.1 += 1;
                self.0.read(buffer)
            }
        }
        let mut input = Counted(io::repeat(b'x').take(16 << 20), 0);
        let end = lines_of(&mut input, false, |line| assert_eq!(line.bytes.len(), 16 << 20)).unwrap();
        assert_eq!((end.bytes, end.broken), (16 << 20, None));
        assert!(input.1 < 10, "{} reads", input.1);
    }
}
