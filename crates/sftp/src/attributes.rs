//! Attributes of files (draft, section 5).

use crate::Error;
use crate::fields::{Fields, put_u32, put_u64};

const SIZE: u32 = 1;
const OWNER: u32 = 2;
const PERMISSIONS: u32 = 4;
const TIMES: u32 = 8;
const EXTENDED: u32 = 1 << 31;

/// Attributes of a file, as reported by a server or to be set. A field that is `None` was not reported, or stays
/// unchanged. Extended attributes are skipped.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Attributes {
    /// Size in bytes.
    pub size: Option<u64>,
    /// User and group.
    pub owner: Option<Owner>,
    /// `st_mode`: permissions in the lower 12 bits and, from a server, the file type in the bits above them. To set
    /// permissions, leave the type bits 0.
    pub permissions: Option<u32>,
    /// Times of the last access and the last change of the contents.
    pub times: Option<Times>,
}

/// User and group of a file, as numbers of the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner {
    /// Number of the user.
    pub uid: u32,
    /// Number of the group.
    pub gid: u32,
}

/// Times of a file, in whole seconds since 1970. The format ends in February 2106.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Times {
    /// Last access.
    pub accessed_s: u32,
    /// Last change of the contents.
    pub modified_s: u32,
}

/// The type of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileType {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A device, a socket, a pipe, or any other type of the server's system.
    Other,
}

impl Attributes {
    /// The type of the file. `None` if the server reports no permissions, or permissions without type bits.
    pub fn file_type(&self) -> Option<FileType> {
        match self.permissions? & 0o170_000 {
            0 => None,
            0o100_000 => Some(FileType::Regular),
            0o040_000 => Some(FileType::Directory),
            0o120_000 => Some(FileType::Symlink),
            _ => Some(FileType::Other),
        }
    }

    pub(crate) fn read(fields: &mut Fields<'_>) -> Result<Self, Error> {
        let flags = fields.u32("attribute flags")?;
        let has = |flag| flags & flag != 0;
        let mut attributes = Attributes::default();
        if has(SIZE) {
            attributes.size = Some(fields.u64("size")?);
        }
        if has(OWNER) {
            attributes.owner = Some(Owner { uid: fields.u32("uid")?, gid: fields.u32("gid")? });
        }
        if has(PERMISSIONS) {
            attributes.permissions = Some(fields.u32("permissions")?);
        }
        if has(TIMES) {
            let (accessed_s, modified_s) = (fields.u32("atime")?, fields.u32("mtime")?);
            attributes.times = Some(Times { accessed_s, modified_s });
        }
        if has(EXTENDED) {
            // A wrong count costs no memory: reading fails at the end of the packet.
            for _ in 0..fields.u32("number of extended attributes")? {
                fields.string("extended type")?;
                fields.string("extended data")?;
            }
        }
        Ok(attributes)
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        put_u32(
            out,
            flag(self.size.is_some(), SIZE)
                | flag(self.owner.is_some(), OWNER)
                | flag(self.permissions.is_some(), PERMISSIONS)
                | flag(self.times.is_some(), TIMES),
        );
        if let Some(size) = self.size {
            put_u64(out, size);
        }
        if let Some(Owner { uid, gid }) = self.owner {
            put_u32(out, uid);
            put_u32(out, gid);
        }
        if let Some(permissions) = self.permissions {
            put_u32(out, permissions);
        }
        if let Some(Times { accessed_s, modified_s }) = self.times {
            put_u32(out, accessed_s);
            put_u32(out, modified_s);
        }
    }
}
