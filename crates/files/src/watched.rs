//! Outputs that may be a pipe or a terminal that nobody reads.

use std::{
    io::{self, ErrorKind, Write},
    os::fd::AsFd,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{FileType, fstat},
    io::Errno,
};

/// Number of bytes that a writable pipe accepts without blocking (pipe(7)).
const AT_ONCE: usize = 4_096;
const LOOK_AGAIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// Maximum time that a process waits for its reader after it was asked to end.
const UNREAD_TIMEOUT: Duration = Duration::from_secs(2);

static STOP: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// The flag that is set when this process is asked to end.
pub fn stop() -> Arc<AtomicBool> {
    Arc::clone(&STOP)
}

/// An output that does not block a process that was asked to end. Outputs other than regular files are written in
/// pieces.
#[derive(Debug)]
pub struct Watched<W> {
    output: W,
    at_once: usize,
    /// Time at which the output was first found blocked after the process was asked to end.
    unread_since: Option<Instant>,
}

impl<W: Write + AsFd> Watched<W> {
    /// Watches this output.
    pub fn of(output: W) -> Self {
        let is_file =
            |about: rustix::fs::Stat| FileType::from_raw_mode(about.st_mode) == FileType::RegularFile;
        let at_once = if fstat(&output).is_ok_and(is_file) { usize::MAX } else { AT_ONCE };
        Self { output, at_once, unread_since: None }
    }

    fn await_reader(&mut self) -> io::Result<()> {
        loop {
            let found = poll(&mut [PollFd::new(&self.output, PollFlags::OUT)], Some(&LOOK_AGAIN));
            if !matches!(found, Ok(0) | Err(Errno::INTR)) {
                self.unread_since = None;
                return Ok(());
            }
            let is_asked = STOP.load(Ordering::Relaxed);
            if is_asked && self.unread_since.get_or_insert_with(Instant::now).elapsed() > UNREAD_TIMEOUT {
                return Err(io::Error::new(ErrorKind::TimedOut, "nobody reads it"));
            }
        }
    }
}

impl<W: Write + AsFd> Write for Watched<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let piece = &bytes[..bytes.len().min(self.at_once)];
        loop {
            self.await_reader()?;
            match self.output.write(piece) {
                // Another writer has filled the pipe since the poll, so the write is tried again.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                written => return self.output.flush().and(written),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Read};

    use rustix::pipe::{PipeFlags, fcntl_getpipe_size, pipe_with};

    use super::*;

    #[test]
    fn what_nobody_reads_is_given_up_only_when_the_process_is_to_end() {
        let (read, write) = pipe_with(PipeFlags::NONBLOCK).unwrap();
        let (mut read, mut watched) = (File::from(read), Watched::of(File::from(write)));
        let more = vec![b'x'; fcntl_getpipe_size(&read).unwrap() + 1];
        assert_eq!(watched.write(&more).unwrap(), AT_ONCE, "a pipe gets pieces");
        stop().store(true, Ordering::Relaxed);
        watched.write_all(&more[AT_ONCE + 1..]).unwrap();
        assert_eq!(watched.write_all(b"x").unwrap_err().kind(), ErrorKind::TimedOut);
        stop().store(false, Ordering::Relaxed);
        // The reader continues.
        read.read_exact(&mut vec![0; more.len() - 1]).unwrap();
        watched.write_all(b"whole").unwrap();
        let mut left = [0; 5];
        read.read_exact(&mut left).unwrap();
        assert_eq!(&left, b"whole");
        let at_once = Watched::of(tempfile::tempfile().unwrap()).write(&more).unwrap();
        assert_eq!(at_once, more.len(), "a file gets everything");
    }
}
