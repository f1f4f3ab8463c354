//! The files behind the mount, by inode and handle.

use std::{
    collections::HashMap,
    fs::{self, File, Metadata, OpenOptions},
    io,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use fuser::{Errno, FileAttr, FileHandle, FileType, INodeNo, OpenAccMode, OpenFlags};
use rustix::fs::OFlags;

/// The files that the kernel knows: by inode, which is that of the file in the folder (1 for the folder itself), and open files by handle.
pub(super) struct Nodes {
    root: u64,
    next_handle: AtomicU64,
    inner: Mutex<Inner>,
}

struct Inner {
    paths: HashMap<u64, PathBuf>,
    open: HashMap<u64, Arc<File>>,
}

impl Nodes {
    /// Begins with only this folder.
    pub(super) fn new(folder: PathBuf) -> Self {
        let root = fs::metadata(&folder).map_or(1, |metadata| metadata.ino());
        let inner = Inner { paths: HashMap::from([(1, folder)]), open: HashMap::new() };
        Self { root, next_handle: AtomicU64::new(1), inner: Mutex::new(inner) }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no thread panics while it holds this")
    }

    /// The path of a node.
    pub(super) fn path(&self, node: INodeNo) -> Result<PathBuf, Errno> {
        self.inner().paths.get(&node.0).cloned().ok_or(Errno::ENOENT)
    }

    /// The open file with this handle.
    pub(super) fn file(&self, handle: FileHandle) -> Result<Arc<File>, Errno> {
        self.inner().open.get(&handle.0).cloned().ok_or(Errno::EBADF)
    }

    /// The attributes of a file, in the form that the kernel expects.
    pub(super) fn attributes(&self, metadata: &Metadata) -> FileAttr {
        let time = |seconds: i64, nanos: i64| {
            SystemTime::UNIX_EPOCH + Duration::new(seconds.max(0) as u64, nanos as u32)
        };
        let ino = if metadata.ino() == self.root { 1 } else { metadata.ino() };
        FileAttr {
            ino: INodeNo(ino),
            size: metadata.size(),
            blocks: metadata.blocks(),
            atime: time(metadata.atime(), metadata.atime_nsec()),
            mtime: time(metadata.mtime(), metadata.mtime_nsec()),
            ctime: time(metadata.ctime(), metadata.ctime_nsec()),
            crtime: SystemTime::UNIX_EPOCH,
            kind: FileType::from_std(metadata.file_type()).unwrap_or(FileType::RegularFile),
            perm: (metadata.mode() & 0o7777) as u16,
            nlink: metadata.nlink() as u32,
            uid: metadata.uid(),
            gid: metadata.gid(),
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }

    /// The attributes of a node, read by its path or, if the path is gone, from an open file.
    pub(super) fn look(&self, node: INodeNo) -> Result<FileAttr, Errno> {
        let (path, open) = {
            let inner = self.inner();
            (inner.paths.get(&node.0).cloned(), inner.open.values().cloned().collect::<Vec<_>>())
        };
        let is_it = |attributes: &FileAttr| attributes.ino == node;
        let by_path = path.and_then(|path| fs::symlink_metadata(path).ok());
        if let Some(found) = by_path.map(|metadata| self.attributes(&metadata)).filter(is_it) {
            return Ok(found);
        }
        open.iter()
            .filter_map(|file| file.metadata().ok())
            .map(|metadata| self.attributes(&metadata))
            .find(is_it)
            .ok_or(Errno::ENOENT)
    }

    /// Remembers the node at a path, and returns its attributes.
    pub(super) fn enter(&self, path: PathBuf) -> Result<FileAttr, Errno> {
        let attributes = self.attributes(&fs::symlink_metadata(&path)?);
        self.inner().paths.insert(attributes.ino.0, path);
        Ok(attributes)
    }

    /// Keeps a file open, and returns its handle.
    pub(super) fn keep(&self, file: File) -> FileHandle {
        let handle = self.next_handle.fetch_add(1, Ordering::Relaxed);
        self.inner().open.insert(handle, Arc::new(file));
        FileHandle(handle)
    }

    /// Closes the file with this handle.
    pub(super) fn forget(&self, handle: FileHandle) {
        self.inner().open.remove(&handle.0);
    }

    /// Updates the paths after a rename, also those below a renamed folder.
    pub(super) fn moved(&self, from: &Path, to: &Path) {
        for path in self.inner().paths.values_mut() {
            if let Ok(rest) = path.strip_prefix(from) {
                *path = if rest.as_os_str().is_empty() { to.to_owned() } else { to.join(rest) };
            }
        }
    }
}

/// Opens a file of the folder with the flags of the kernel's request.
pub(super) fn open_file(path: &Path, flags: OpenFlags, more: OFlags, mode: u32) -> io::Result<File> {
    let (read, write) = match flags.acc_mode() {
        OpenAccMode::O_RDONLY => (true, false),
        OpenAccMode::O_WRONLY => (false, true),
        OpenAccMode::O_RDWR => (true, true),
    };
    OpenOptions::new()
        .read(read)
        .write(write)
        .create(more.contains(OFlags::CREATE))
        .mode(mode)
        .custom_flags((more & (OFlags::EXCL | OFlags::TRUNC)).bits() as i32)
        .open(path)
}
