//! Packets that a client sends (draft, section 6).

use std::ops::BitOr;

use crate::fields::{put_string, put_u32, put_u64};
use crate::version::VERSION;
use crate::{Attributes, Extension};

/// A request. Paths refer to the server; handles come from its HANDLE answers. A path that does not begin with `/`
/// starts in the user's home directory, unless the server is configured otherwise. WRITE has the function
/// [`write_header`], INIT [`write_init`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request<'a> {
    /// Opens a file. Answer: a handle.
    Open {
        /// The file.
        path: &'a [u8],
        /// Mode in which the file is opened.
        flags: OpenFlags,
        /// Attributes of a new file. OpenSSH uses only the permissions.
        attributes: Attributes,
    },
    /// Closes a file or a directory. The answer may report that earlier writes failed.
    Close(&'a [u8]),
    /// Reads from a file. Answer: data, or the end of the file.
    Read {
        /// The file.
        handle: &'a [u8],
        /// Offset of the first byte, in bytes.
        offset: u64,
        /// Maximum number of bytes to read.
        length: u32,
    },
    /// Requests the attributes of a path itself, even if it is a link.
    Lstat(&'a [u8]),
    /// Requests the attributes of a file. Links are followed.
    Stat(&'a [u8]),
    /// Requests the attributes of an open file.
    Fstat(&'a [u8]),
    /// Sets attributes of a file. Links are followed.
    Setstat {
        /// The file.
        path: &'a [u8],
        /// The attributes to set.
        attributes: Attributes,
    },
    /// Sets attributes of an open file.
    Fsetstat {
        /// The file.
        handle: &'a [u8],
        /// The attributes to set.
        attributes: Attributes,
    },
    /// Opens a directory. Answer: a handle.
    Opendir(&'a [u8]),
    /// Reads the next entries of a directory. Answer: names, or the end of the directory.
    Readdir(&'a [u8]),
    /// Removes a file other than a directory.
    Remove(&'a [u8]),
    /// Creates a directory.
    Mkdir {
        /// The directory.
        path: &'a [u8],
        /// Attributes of the new directory. OpenSSH uses only the permissions.
        attributes: Attributes,
    },
    /// Requests the absolute path without links. Answer: one name.
    Realpath(&'a [u8]),
    /// Renames a file. Fails if the new name exists.
    Rename {
        /// The current name.
        from: &'a [u8],
        /// The new name.
        to: &'a [u8],
    },
    /// Requests the target of a symbolic link. Answer: one name.
    Readlink(&'a [u8]),
    /// Creates a symbolic link. The target is sent first, as in OpenSSH; the draft has the other order. Most other
    /// servers follow OpenSSH.
    Symlink {
        /// The target of the link.
        target: &'a [u8],
        /// The link.
        link: &'a [u8],
    },
    /// [`Extension::Limits`]. Answer: see [`crate::Limits::read`].
    Limits,
    /// [`Extension::Fsync`]: writes a file to the disk. The answer comes when this is done.
    Fsync {
        /// The file.
        handle: &'a [u8],
    },
    /// [`Extension::PosixRename`]: renames a file. An existing file of the new name is replaced.
    PosixRename {
        /// The current name.
        from: &'a [u8],
        /// The new name.
        to: &'a [u8],
    },
    /// [`Extension::Lsetstat`]: sets attributes of a path itself, even if it is a link.
    Lsetstat {
        /// The path.
        path: &'a [u8],
        /// The attributes to set, without a size.
        attributes: Attributes,
    },
}

/// Mode in which a file is opened. `|` combines flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenFlags(u32);

impl OpenFlags {
    /// Opens the file for reading.
    pub const READ: OpenFlags = OpenFlags(1);
    /// Opens the file for writing.
    pub const WRITE: OpenFlags = OpenFlags(2);
    /// Creates the file if it does not exist.
    pub const CREATE: OpenFlags = OpenFlags(8);
    /// Fails if the file exists. Needs [`OpenFlags::CREATE`].
    pub const EXCLUSIVE: OpenFlags = OpenFlags(0x20);
}

impl BitOr for OpenFlags {
    type Output = OpenFlags;

    fn bitor(self, other: OpenFlags) -> OpenFlags {
        OpenFlags(self.0 | other.0)
    }
}

/// Appends INIT, the first packet. Answer: [`crate::Reply::Version`].
pub fn write_init(out: &mut Vec<u8>) {
    put_u32(out, 5);
    out.push(1);
    put_u32(out, VERSION);
}

/// Appends a WRITE without its data. The caller must send `length` bytes of data after it; the server writes them at
/// `offset` in the file. Answer: a status.
///
/// # Panics
/// If the packet would be longer than 4 GiB.
pub fn write_header(out: &mut Vec<u8>, id: u32, handle: &[u8], offset: u64, length: u32) {
    packet(out, 6, id, length, |out| {
        put_string(out, handle);
        put_u64(out, offset);
        put_u32(out, length);
    });
}

impl Request<'_> {
    /// Appends the packet. Its answer has the same `id`, so two pending requests must not share an `id`.
    ///
    /// # Panics
    /// If the packet would be longer than 4 GiB.
    pub fn write(&self, id: u32, out: &mut Vec<u8>) {
        match *self {
            Request::Open { path, flags, attributes } => packet(out, 3, id, 0, |out| {
                put_string(out, path);
                put_u32(out, flags.0);
                attributes.write(out);
            }),
            Request::Close(handle) => strings(out, 4, id, &[handle]),
            Request::Read { handle, offset, length } => packet(out, 5, id, 0, |out| {
                put_string(out, handle);
                put_u64(out, offset);
                put_u32(out, length);
            }),
            Request::Lstat(path) => strings(out, 7, id, &[path]),
            Request::Fstat(handle) => strings(out, 8, id, &[handle]),
            Request::Setstat { path, attributes } => with_attributes(out, 9, id, path, &attributes),
            Request::Fsetstat { handle, attributes } => with_attributes(out, 10, id, handle, &attributes),
            Request::Opendir(path) => strings(out, 11, id, &[path]),
            Request::Readdir(handle) => strings(out, 12, id, &[handle]),
            Request::Remove(path) => strings(out, 13, id, &[path]),
            Request::Mkdir { path, attributes } => with_attributes(out, 14, id, path, &attributes),
            Request::Realpath(path) => strings(out, 16, id, &[path]),
            Request::Stat(path) => strings(out, 17, id, &[path]),
            Request::Rename { from, to } => strings(out, 18, id, &[from, to]),
            Request::Readlink(path) => strings(out, 19, id, &[path]),
            Request::Symlink { target, link } => strings(out, 20, id, &[target, link]),
            Request::Limits => extended(out, id, Extension::Limits, |_| {}),
            Request::Fsync { handle } => extended(out, id, Extension::Fsync, |out| put_string(out, handle)),
            Request::PosixRename { from, to } => extended(out, id, Extension::PosixRename, |out| {
                put_string(out, from);
                put_string(out, to);
            }),
            Request::Lsetstat { path, attributes } => extended(out, id, Extension::Lsetstat, |out| {
                put_string(out, path);
                attributes.write(out);
            }),
        }
    }
}

fn strings(out: &mut Vec<u8>, kind: u8, id: u32, strings: &[&[u8]]) {
    packet(out, kind, id, 0, |out| strings.iter().for_each(|string| put_string(out, string)));
}

fn with_attributes(out: &mut Vec<u8>, kind: u8, id: u32, file: &[u8], attributes: &Attributes) {
    packet(out, kind, id, 0, |out| {
        put_string(out, file);
        attributes.write(out);
    });
}

fn extended(out: &mut Vec<u8>, id: u32, extension: Extension, body: impl FnOnce(&mut Vec<u8>)) {
    packet(out, 200, id, 0, |out| {
        put_string(out, extension.name().as_bytes());
        body(out);
    });
}

/// Appends a packet. `following` is the number of its bytes that the caller sends later.
fn packet(out: &mut Vec<u8>, kind: u8, id: u32, following: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let begin = out.len();
    put_u32(out, 0);
    out.push(kind);
    put_u32(out, id);
    body(out);
    let written = u32::try_from(out.len() - begin - 4).ok();
    let length = written.and_then(|written| written.checked_add(following));
    let length = length.expect("a packet of SFTP is shorter than 4 GiB");
    out[begin..][..4].copy_from_slice(&length.to_be_bytes());
}
