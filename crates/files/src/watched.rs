//! Outputs that may be a pipe or a terminal which nobody reads.

use std::{
    fs::File,
    io::{self, ErrorKind, Write},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::FileTypeExt,
    },
    path::Path,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{FileType, Mode, OFlags, fstat, open},
    io::Errno,
};

/// As much as a pipe that can be written to takes without waiting (pipe(7)), in bytes.
const AT_ONCE: usize = 4_096;
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// For so long, a process that was asked to end waits for somebody to read on.
const UNREAD_TIMEOUT: Duration = Duration::from_secs(2);

static STOP: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// The flag that is set when this process is asked to end.
pub fn stop() -> Arc<AtomicBool> {
    Arc::clone(&STOP)
}

/// An output that holds no process that was asked to end. A regular file gets what is written at once; others get it in pieces, of whole
/// lines where they can be.
#[derive(Debug)]
pub struct Watched<W> {
    output: W,
    at_once: usize,
    stop: Arc<AtomicBool>,
    /// Since when nothing was read though the process was asked to end.
    unread_since: Option<Instant>,
}

impl<W: Write + AsFd> Watched<W> {
    /// Watches this output.
    pub fn of(output: W) -> Self {
        let is_file =
            |about: rustix::fs::Stat| FileType::from_raw_mode(about.st_mode) == FileType::RegularFile;
        let at_once = if fstat(&output).is_ok_and(is_file) { usize::MAX } else { AT_ONCE };
        Self { output, at_once, stop: stop(), unread_since: None }
    }

    fn await_reader(&mut self) -> io::Result<()> {
        let wait = Timespec::try_from(LOOK_AGAIN).unwrap_or_default();
        while let Ok(0) | Err(Errno::INTR) =
            poll(&mut [PollFd::new(&self.output, PollFlags::OUT)], Some(&wait))
        {
            let is_over = |since: &mut Instant| since.elapsed() > UNREAD_TIMEOUT;
            if self.stop.load(Ordering::Relaxed)
                && is_over(self.unread_since.get_or_insert_with(Instant::now))
            {
                return Err(unread());
            }
        }
        self.unread_since = None;
        Ok(())
    }
}

impl<W: Write + AsFd> Write for Watched<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let piece = &bytes[..bytes.len().min(self.at_once)];
        let whole = piece.iter().rposition(|&byte| byte == b'\n').filter(|_| piece.len() < bytes.len());
        let piece = &piece[..whole.map_or(piece.len(), |end| end + 1)];
        loop {
            self.await_reader()?;
            match self.output.write(piece) {
                // Another writer was faster.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                written => return self.output.flush().and(written),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<W: AsFd> AsFd for Watched<W> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.output.as_fd()
    }
}

fn unread() -> io::Error {
    io::Error::new(ErrorKind::TimedOut, "nobody reads it")
}

/// Opens what is no regular file, to write to it: waits for a reader of a pipe until this process is asked to end.
///
/// # Errors
/// When it cannot be opened, or nobody reads it.
pub fn open_to_write(path: &Path) -> io::Result<File> {
    loop {
        match open(path, OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())
        {
            Err(Errno::NXIO) if STOP.load(Ordering::Relaxed) => return Err(unread()),
            Err(Errno::NXIO) if path.metadata()?.file_type().is_fifo() => thread::sleep(LOOK_AGAIN),
            opened => return Ok(opened?.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Read, process::Command};

    use rustix::pipe::{PipeFlags, fcntl_getpipe_size, pipe_with};

    use super::*;

    /// A pipe, of which the side to write to is watched for a flag of its own.
    fn piped() -> (File, Watched<File>, Arc<AtomicBool>) {
        let (read, write) = pipe_with(PipeFlags::NONBLOCK).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let watched = Watched { stop: Arc::clone(&stop), ..Watched::of(File::from(write)) };
        (File::from(read), watched, stop)
    }

    #[test]
    fn what_nobody_reads_is_given_up_only_when_the_process_is_to_end() {
        let (read, mut watched, stop) = piped();
        let more = vec![b'x'; fcntl_getpipe_size(&read).unwrap() + 1];
        stop.store(true, Ordering::Relaxed);
        watched.write_all(&more[1..]).unwrap();
        assert_eq!(watched.write_all(b"x").unwrap_err().kind(), ErrorKind::TimedOut);
        // Somebody reads on.
        stop.store(false, Ordering::Relaxed);
        let mut read = read;
        read.read_exact(&mut vec![0; more.len() - 1]).unwrap();
        watched.write_all(b"whole").unwrap();
        let mut left = [0; 5];
        read.read_exact(&mut left).unwrap();
        assert_eq!(&left, b"whole");
    }

    #[test]
    fn a_pipe_gets_whole_lines_at_once_and_a_file_everything() {
        let (_read, mut watched, _) = piped();
        let lines = "a line of twenty-one \n".repeat(1_000);
        assert_eq!(watched.write(lines.as_bytes()).unwrap(), AT_ONCE / 22 * 22);
        assert_eq!(watched.write(&vec![b'x'; 10_000]).unwrap(), AT_ONCE);
        assert_eq!(Watched::of(tempfile::tempfile().unwrap()).write(lines.as_bytes()).unwrap(), lines.len());
    }

    #[test]
    fn a_reader_may_come_later() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let writer = thread::spawn({
            let fifo = fifo.clone();
            move || Watched::of(open_to_write(&fifo).unwrap()).write_all(b"late").unwrap()
        });
        let mut text = String::new();
        File::open(&fifo).unwrap().read_to_string(&mut text).unwrap();
        writer.join().unwrap();
        assert_eq!(text, "late");
    }
}
