//! Removes stored lines while a listener runs, as a program that ships its files does.
//!
//! Under a hypervisor that allocates memory on first use, new pages fill at a tenth of the speed of used ones, and a short
//! run would measure that. Punching holes into the files returns their pages, so that the listener gets used pages.

use std::{
    fs::{self, File, OpenOptions},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use rustix::fs::{FallocateFlags, fallocate};

/// How often the files are checked.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Bytes at the end of a file that stay, so that writes in progress are not affected.
const KEPT_BYTES: u64 = 1 << 20;

/// Punches holes into files until it is dropped.
#[derive(Debug)]
pub(crate) struct Consumer {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Consumer {
    /// Starts to punch holes into the files of a folder. Their lengths stay the same.
    pub(crate) fn of(folder: &Path) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (folder, stopped) = (folder.to_owned(), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            let mut files: Vec<(PathBuf, File, u64)> = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                std::thread::sleep(POLL_INTERVAL);
                open_new(&folder, &mut files);
                for (_, file, taken) in &mut files {
                    let length = file.metadata().map_or(0, |metadata| metadata.len());
                    let until = length.saturating_sub(KEPT_BYTES) & !0xfff;
                    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                    // Ignored if the filesystem does not support it.
                    if until > *taken && fallocate(&*file, flags, *taken, until - *taken).is_ok() {
                        *taken = until;
                    }
                }
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The thread does not panic, and a panic would change nothing here.
            let _ = thread.join();
        }
    }
}

fn open_new(folder: &Path, files: &mut Vec<(PathBuf, File, u64)>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|ending| ending == "log")
            && !files.iter().any(|(known, ..)| *known == path)
            && let Ok(file) = OpenOptions::new().write(true).open(&path)
        {
            files.push((path, file, 0));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn files_keep_their_length_and_their_end() {
        let folder = proofload_tests::temporary::TemporaryFolder::new().unwrap();
        let path = folder.path().join("x.log");
        fs::write(&path, vec![b'x'; 4 << 20]).unwrap();
        File::open(&path).unwrap().sync_all().unwrap();
        let before = path.metadata().unwrap().blocks();
        let consumer = Consumer::of(folder.path());
        testing::until("pages are returned", || path.metadata().unwrap().blocks() < before);
        drop(consumer);
        assert_eq!(path.metadata().unwrap().len(), 4 << 20);
        assert_eq!(fs::read(&path).unwrap().last(), Some(&b'x'));
    }
}
