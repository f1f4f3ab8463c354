//! Reads files that a user named, with limits on size and time.

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

use crate::{elsewhere::sent_elsewhere, reads};

/// Maximum wait for data from a pipe or a terminal.
const MAX_WAIT: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };

/// Reads a file that a user named and records that it [is read](reads). A pipe (`/dev/stdin`, `<(command)`) is read to
/// its end.
///
/// # Errors
/// If it cannot be read, an option writes to it, or it gives no data for 5 s; [`ErrorKind::FileTooLarge`] if it
/// contains more than `max_bytes`.
pub fn read(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    match sent_elsewhere(path) {
        Some(Ok(bytes)) if bytes.len() as u64 > max_bytes => Err(ErrorKind::FileTooLarge.into()),
        Some(sent) => sent.map(<[u8]>::to_vec),
        None => read_here(path, max_bytes),
    }
}

/// Like [`read`], but the file is always one of this machine.
///
/// # Errors
/// As for [`read`].
pub fn read_here(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    read_within(path, max_bytes, &MAX_WAIT)
}

fn read_within(path: &Path, max_bytes: u64, wait: &Timespec) -> io::Result<Vec<u8>> {
    // Without this flag, opening a pipe would block until a writer opens it.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let mut file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    reads(path)?;
    if file.metadata()?.len() > max_bytes {
        return Err(ErrorKind::FileTooLarge.into());
    }
    let (mut bytes, mut chunk) = (Vec::new(), vec![0; 1 << 16]);
    loop {
        if poll(&mut [PollFd::new(&file, PollFlags::IN)], Some(wait))? == 0 {
            let seconds = wait.tv_sec;
            return Err(io::Error::other(format!("it has sent no data for {seconds} s; use a file")));
        }
        match file.read(&mut chunk) {
            Ok(0) => return Ok(bytes),
            Ok(read) => {
                bytes.try_reserve(read)?;
                bytes.extend_from_slice(&chunk[..read]);
            }
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
            Err(error) => return Err(error),
        }
        if bytes.len() as u64 > max_bytes {
            return Err(ErrorKind::FileTooLarge.into());
        }
    }
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
        assert_eq!(read(&file, 3).unwrap_err().kind(), ErrorKind::FileTooLarge);
        assert_eq!(read(Path::new("/dev/zero"), 1 << 20).unwrap_err().kind(), ErrorKind::FileTooLarge);
        assert_eq!(read(Path::new("/dev/null"), 4).unwrap(), b"");
        assert!(read(folder.path(), 4).is_err());

        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        assert!(read_within(&pipe, 4, &at_once).unwrap_err().to_string().contains("it has sent no data"));
        let writer = thread::spawn({
            let pipe = pipe.clone();
            move || {
                let mut pipe = OpenOptions::new().write(true).open(pipe).unwrap();
                for chunk in ["ab", "cd"] {
                    io::Write::write_all(&mut pipe, chunk.as_bytes()).unwrap();
                    // The reader must wait between the pieces, as for a slow command.
                    thread::sleep(Duration::from_millis(50));
                }
            }
        });
        let minutes = Timespec { tv_sec: 300, tv_nsec: 0 };
        assert_eq!(read_within(&pipe, 4, &minutes).unwrap(), b"abcd");
        writer.join().unwrap();
    }
}
