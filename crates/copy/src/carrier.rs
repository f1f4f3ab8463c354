//! The state that all channels of a copy share, including its partial files and their journals.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
    fs::File,
    io,
    path::Path,
    rc::Rc,
    sync::Arc,
};

use rustix::fs::{SeekFrom, seek};
use tokio::{sync::Semaphore, task::spawn_blocking};

use crate::{
    channel::Channel,
    error::{Error, Result},
    file::{CHUNK_BYTES, FileCopy},
    governor::Governor,
    hasher::Hashers,
    journal::{Identity, Journal, Known},
    options::CarryOptions,
    partial_files::{PartialFile, part_name},
    place::OpenFolders,
    queue::Queue,
    report::FileReport,
};

/// Maximum number of chunks that are verified concurrently. Their files stay open, and a server limits the number of
/// handles.
const MAX_SETTLING: usize = 64;

/// The state that all channels share.
#[derive(Debug)]
pub(crate) struct Carrier {
    pub(crate) options: CarryOptions,
    pub(crate) queue: Queue,
    pub(crate) governor: Rc<Governor>,
    pub(crate) hashers: Rc<Hashers>,
    pub(crate) done_bytes: Cell<u64>,
    pub(crate) reports: RefCell<Vec<FileReport>>,
    /// Requests that could not be fulfilled, for example for times and permissions, although all data was copied.
    pub(crate) warnings: RefCell<BTreeSet<String>>,
    /// Partial files that no later run can use, by file number.
    pub(crate) parts: RefCell<BTreeMap<u64, PartialFile>>,
    /// The open target folders on this machine.
    pub(crate) held: OpenFolders,
    /// The channels in use.
    pub(crate) channels: RefCell<Vec<Rc<Channel>>>,
    pub(crate) settling: Arc<Semaphore>,
}

impl Carrier {
    pub(crate) fn new(options: CarryOptions, governor: Rc<Governor>) -> Rc<Self> {
        Rc::new(Self {
            options,
            queue: Queue::default(),
            governor,
            hashers: Rc::default(),
            done_bytes: Cell::new(0),
            reports: RefCell::default(),
            warnings: RefCell::default(),
            parts: RefCell::default(),
            held: OpenFolders::default(),
            channels: RefCell::default(),
            settling: Arc::new(Semaphore::new(MAX_SETTLING)),
        })
    }

    /// The identity of a file.
    pub(crate) fn identity(&self, file: &FileCopy) -> Identity {
        let words = |path: &[u8]| path.escape_ascii().to_string();
        Identity {
            source: format!("{:?} {}", self.options.direction, words(&file.item.source)),
            target: format!("{}:{}", self.options.machine, words(&file.item.target)),
            size_bytes: file.item.size_bytes,
            modified_ns: file.item.modified_ns,
            chunk_bytes: CHUNK_BYTES,
        }
    }

    /// The contents of a file's journal from an earlier run.
    pub(crate) fn known(&self, identity: &Identity) -> Known {
        let Some(folder) = &self.options.journals else { return Known::default() };
        Journal::known(folder, &self.options.token, identity).unwrap_or_else(|error| {
            self.warn_of_journal(folder.path(), &error);
            Known::default()
        })
    }

    /// Begins the journal of a file whose partial file has this name and these chunks. On failure, the copy continues
    /// without a journal.
    pub(crate) fn journal(
        &self,
        identity: &Identity,
        part: &str,
        chunks: &BTreeMap<u64, String>,
    ) -> Option<Journal> {
        let folder = self.options.journals.as_ref()?;
        let journal = Journal::begin(folder, &self.options.token, identity, part, chunks);
        journal.inspect_err(|error| self.warn_of_journal(folder.path(), error)).ok()
    }

    pub(crate) fn warn_of_journal(&self, folder: &Path, error: &impl Display) {
        self.warn(format!(
            "cannot write a journal in {}: {error}; after an interruption, files are copied from the start",
            folder.display()
        ));
    }

    pub(crate) fn warn(&self, words: String) {
        self.warnings.borrow_mut().insert(words);
    }

    /// Records a partial file that no later run can use.
    pub(crate) fn part(&self, file: &FileCopy, part: PartialFile) {
        self.parts.borrow_mut().insert(file.number, part);
    }

    /// Removes the partial files that no later run can use, if a connection is left for this. Returns whether all of
    /// them are gone.
    pub(crate) async fn remove_parts(&self) -> bool {
        let other = self.channels.borrow().first().cloned();
        let mut are_gone = true;
        let mut asked = Vec::new();
        for part in self.parts.take().into_values() {
            let is_there = matches!(part, PartialFile::There(..));
            let removed = part.begin_remove(other.as_ref());
            are_gone &= !is_there || removed.is_some();
            asked.extend(removed);
        }
        for removed in asked {
            are_gone &= !matches!(removed.done().await, Err(Error::Lost(_)));
        }
        are_gone
    }

    /// The name of a file's partial file. Other users cannot guess it, because it is derived from the random secret of
    /// the run.
    pub(crate) fn part_name(&self, file: &FileCopy) -> String {
        part_name(&self.options.secret, &self.identity(file))
    }

    /// The names of the file's partial files in runs that were killed.
    pub(crate) fn former_names(&self, file: &FileCopy) -> Vec<String> {
        let identity = self.identity(file);
        self.options.former_secrets.iter().map(|secret| part_name(secret, &identity)).collect()
    }
}

/// Writes a file of this machine to its disk (fsync).
pub(crate) async fn sync_local(file: &Arc<File>) -> Result {
    let file = Arc::clone(file);
    let synced = spawn_blocking(move || file.sync_data()).await;
    synced.map_err(io::Error::other).flatten().map_err(|error| Error::local("sync the file to disk", &error))
}

/// Whether a range of a file is a hole.
pub(crate) fn is_hole(file: &File, begin: u64, length: u64) -> bool {
    match seek(file, SeekFrom::Data(begin)) {
        Ok(data) => data >= begin + length,
        // The kernel reports that there is no data from here to the end of the file.
        Err(rustix::io::Errno::NXIO) => true,
        Err(_) => false,
    }
}

/// Whether a file has no holes. All of its bytes were then written.
pub(crate) fn is_hole_free(file: &File, size_bytes: u64) -> bool {
    seek(file, SeekFrom::Hole(0)).is_ok_and(|hole| hole >= size_bytes)
}
