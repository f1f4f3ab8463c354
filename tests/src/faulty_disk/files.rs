//! The folder behind the mount, as a file system.

use std::{
    ffi::OsStr,
    fs::{self, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, FileExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use fuser::{
    AccessFlags, BsdFileFlags, Errno, FileAttr, FileHandle, Filesystem, FopenFlags, Generation, INodeNo,
    LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, TimeOrNow, WriteFlags,
};
use rustix::fs::{OFlags, statvfs};

use super::{
    Request, State,
    nodes::{Nodes, open_file},
};

/// How long the kernel may cache attributes: not at all, because tests may write to the store directly.
const FRESH: Duration = Duration::ZERO;

/// Serves the files of a folder, as the disk's mood allows.
pub(super) struct Files {
    state: Arc<State>,
    nodes: Nodes,
}

impl Files {
    /// Serves the files of this folder.
    pub(super) fn new(folder: PathBuf, state: Arc<State>) -> Self {
        Self { state, nodes: Nodes::new(folder) }
    }
}

/// Replies with a value or with the error.
macro_rules! answer {
    ($reply:ident, $result:expr, $value:pat => $good:expr) => {{
        match $result {
            Ok($value) => $good,
            Err(errno) => $reply.error(errno),
        }
    }};
}

#[allow(clippy::too_many_arguments, reason = "the trait's")]
impl Filesystem for Files {
    fn lookup(&self, _: &fuser::Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let look = || self.nodes.enter(self.nodes.path(parent)?.join(name));
        answer!(reply, look(), attributes => reply.entry(&FRESH, &attributes, Generation(0)));
    }

    fn getattr(&self, _: &fuser::Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        answer!(reply, self.nodes.look(node), attributes => reply.attr(&FRESH, &attributes));
    }

    fn setattr(
        &self,
        _: &fuser::Request,
        node: INodeNo,
        mode: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        handle: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let change = || -> Result<FileAttr, Errno> {
            if let Some(mode) = mode {
                fs::set_permissions(self.nodes.path(node)?, fs::Permissions::from_mode(mode & 0o7777))?;
            }
            if let Some(size) = size {
                self.state.undergo(Request::Change)?;
                match handle {
                    Some(handle) => self.nodes.file(handle)?.set_len(size)?,
                    None => OpenOptions::new().write(true).open(self.nodes.path(node)?)?.set_len(size)?,
                }
            }
            self.nodes.look(node)
        };
        answer!(reply, change(), attributes => reply.attr(&FRESH, &attributes));
    }

    fn readlink(&self, _: &fuser::Request, node: INodeNo, reply: ReplyData) {
        let read = || Ok(fs::read_link(self.nodes.path(node)?)?);
        answer!(reply, read(), target => reply.data(target.as_os_str().as_encoded_bytes()));
    }

    fn symlink(&self, _: &fuser::Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let make = || {
            self.state.undergo(Request::Change)?;
            let path = self.nodes.path(parent)?.join(name);
            symlink(target, &path)?;
            self.nodes.enter(path)
        };
        answer!(reply, make(), attributes => reply.entry(&FRESH, &attributes, Generation(0)));
    }

    fn mkdir(
        &self,
        _: &fuser::Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let make = || {
            self.state.undergo(Request::Change)?;
            let path = self.nodes.path(parent)?.join(name);
            fs::DirBuilder::new().mode(mode & !umask).create(&path)?;
            self.nodes.enter(path)
        };
        answer!(reply, make(), attributes => reply.entry(&FRESH, &attributes, Generation(0)));
    }

    fn unlink(&self, _: &fuser::Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let remove = || {
            self.state.undergo(Request::Change)?;
            Ok(fs::remove_file(self.nodes.path(parent)?.join(name))?)
        };
        answer!(reply, remove(), () => reply.ok());
    }

    fn rmdir(&self, _: &fuser::Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let remove = || {
            self.state.undergo(Request::Change)?;
            Ok(fs::remove_dir(self.nodes.path(parent)?.join(name))?)
        };
        answer!(reply, remove(), () => reply.ok());
    }

    fn rename(
        &self,
        _: &fuser::Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let rename = || {
            self.state.undergo(Request::Change)?;
            if !flags.is_empty() {
                return Err(Errno::EINVAL);
            }
            let (from, to) =
                (self.nodes.path(parent)?.join(name), self.nodes.path(new_parent)?.join(new_name));
            fs::rename(&from, &to)?;
            self.nodes.moved(&from, &to);
            Ok(())
        };
        answer!(reply, rename(), () => reply.ok());
    }

    fn open(&self, _: &fuser::Request, node: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let open = || Ok(open_file(&self.nodes.path(node)?, flags, OFlags::empty(), 0)?);
        answer!(reply, open(), file => reply.opened(self.nodes.keep(file), FopenFlags::empty()));
    }

    fn create(
        &self,
        _: &fuser::Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let create = || {
            self.state.undergo(Request::Change)?;
            let path = self.nodes.path(parent)?.join(name);
            let more = OFlags::from_bits_retain(flags as u32) | OFlags::CREATE;
            let file = open_file(&path, OpenFlags(flags), more, mode & !umask)?;
            Ok((self.nodes.enter(path)?, file))
        };
        answer!(reply, create(), (attributes, file) => {
            reply.created(&FRESH, &attributes, Generation(0), self.nodes.keep(file), FopenFlags::empty());
        });
    }

    fn read(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let read = || {
            let mut bytes = vec![0; size as usize];
            let length = self.nodes.file(handle)?.read_at(&mut bytes, offset)?;
            bytes.truncate(length);
            Ok(bytes)
        };
        answer!(reply, read(), bytes => reply.data(&bytes));
    }

    fn write(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let write = || {
            self.state.undergo(Request::Write)?;
            Ok(self.nodes.file(handle)?.write_all_at(data, offset)?)
        };
        answer!(reply, write(), () => reply.written(data.len() as u32));
    }

    fn flush(&self, _: &fuser::Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.nodes.forget(handle);
        reply.ok();
    }

    fn fsync(&self, _: &fuser::Request, _: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        let sync = || {
            self.state.undergo(Request::Sync)?;
            Ok(self.nodes.file(handle)?.sync_data()?)
        };
        answer!(reply, sync(), () => reply.ok());
    }

    fn fsyncdir(&self, _: &fuser::Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        answer!(reply, self.state.undergo(Request::Sync), () => reply.ok());
    }

    fn readdir(
        &self,
        _: &fuser::Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let list = || {
            let mut entries = Vec::new();
            for entry in fs::read_dir(self.nodes.path(node)?)? {
                let entry = entry?;
                entries.push((entry.file_name(), self.nodes.attributes(&entry.metadata()?)));
            }
            entries.sort_by(|a, b| a.0.cmp(&b.0));
            Ok(entries)
        };
        answer!(reply, list(), entries => {
            for (place, (name, attributes)) in entries.into_iter().enumerate().skip(offset as usize) {
                if reply.add(attributes.ino, place as u64 + 1, attributes.kind, name) {
                    break;
                }
            }
            reply.ok();
        });
    }

    fn statfs(&self, _: &fuser::Request, _: INodeNo, reply: ReplyStatfs) {
        let ask = || {
            let root = self.nodes.path(INodeNo(1))?;
            Ok(statvfs(root).map_err(io::Error::from)?)
        };
        answer!(reply, ask(), s => {
            let (block, fragment) = (s.f_bsize as u32, s.f_frsize as u32);
            reply.statfs(s.f_blocks, s.f_bfree, s.f_bavail, s.f_files, s.f_ffree, block, 255, fragment);
        });
    }

    fn access(&self, _: &fuser::Request, _: INodeNo, _: AccessFlags, reply: ReplyEmpty) {
        reply.ok();
    }
}
