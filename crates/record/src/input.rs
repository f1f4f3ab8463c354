//! Files that users name: read within bounds of size and time, whatever stands in their place.

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

/// The most that a file of settings or of times may hold, in bytes.
pub const MAX_TEXT_BYTES: u64 = 16 << 20;
/// The most that a body may hold, in bytes.
pub const MAX_BODY_BYTES: u64 = 256 << 20;
/// How long a pipe or a terminal may give nothing.
const MAX_WAIT: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };

/// Reads a file whole. A pipe (`/dev/stdin`, `<(command)`) is read to its end, as long as it goes on giving something.
///
/// # Errors
/// Names the file and the reason: it cannot be read, holds more than `max_bytes`, or nothing comes.
pub fn read(path: &Path, max_bytes: u64) -> Result<Vec<u8>, String> {
    let refuse = |why: String| format!("cannot read {}: {why}", path.display());
    // Otherwise opening a pipe waits for somebody to write to it.
    let flags = OFlags::NONBLOCK.bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let mut file = file.map_err(|error| refuse(error.to_string()))?;
    let (mut bytes, mut chunk) = (Vec::new(), vec![0; 1 << 16]);
    loop {
        let ready = poll(&mut [PollFd::new(&file, PollFlags::IN)], Some(&MAX_WAIT));
        if ready.map_err(|error| refuse(io::Error::from(error).to_string()))? == 0 {
            return Err(refuse(format!("nothing has come from it for {} s; give a file", MAX_WAIT.tv_sec)));
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

/// The same of a text.
///
/// # Errors
/// As of [`read`], or it is no UTF-8.
pub fn read_text(path: &Path) -> Result<String, String> {
    let text = String::from_utf8(read(path, MAX_TEXT_BYTES)?);
    text.map_err(|error| format!("cannot read {}: it is no text: {error}", path.display()))
}

/// Why something of more than so many bytes is not read.
pub fn too_large(max_bytes: u64) -> String {
    format!("it holds more than {}, the most that is read", crate::units::show_bytes(max_bytes))
}

#[cfg(test)]
mod tests {
    use std::{fs, process::Command, thread, time::Duration};

    use super::*;

    #[test]
    fn what_has_no_end_is_refused_and_pipes_are_read_to_theirs() {
        let folder = std::env::temp_dir().join(format!("input-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (file, pipe) = (folder.join("file"), folder.join("pipe"));
        fs::write(&file, "1234").unwrap();
        assert_eq!(read(&file, 4).unwrap(), b"1234");
        assert!(read(&file, 3).unwrap_err().ends_with("more than 3 B, the most that is read"));
        assert!(read(Path::new("/dev/zero"), 1 << 20).unwrap_err().contains("the most that is read"));
        assert_eq!(read(Path::new("/dev/null"), 4).unwrap(), b"");
        assert!(read(&folder, 4).is_err());

        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert!(read(&pipe, 4).unwrap_err().contains("nothing has come from it"));
        let writer = thread::spawn({
            let pipe = pipe.clone();
            move || {
                let mut pipe = OpenOptions::new().write(true).open(pipe).unwrap();
                for chunk in ["ab", "cd"] {
                    io::Write::write_all(&mut pipe, chunk.as_bytes()).unwrap();
                    // The reader must wait between the two, as of a slow command.
                    thread::sleep(Duration::from_millis(50));
                }
            }
        });
        assert_eq!(read(&pipe, 4).unwrap(), b"abcd");
        writer.join().unwrap();
        fs::remove_dir_all(&folder).unwrap();
    }
}
