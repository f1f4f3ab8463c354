//! Reading files that users name, with limits of size and time.

use std::{
    fs::OpenOptions,
    io::{self, ErrorKind, Read},
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

/// Reads a text file.
///
/// # Errors
/// As for [`read`], or when the text is not UTF-8.
pub fn read_text(path: &Path) -> Result<String, String> {
    let text = String::from_utf8(read(path, MAX_TEXT_BYTES)?);
    text.map_err(|error| format!("cannot read {}: it is not text in UTF-8: {error}", path.display()))
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
