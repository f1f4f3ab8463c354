//! Determines what exists at the destination before anything is copied.

use std::{fs, path::Path};

use sftp::FileType;

use crate::{
    channel::Channel,
    error::{Error, Result},
};

/// What exists at the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Destination {
    Folder,
    File,
    /// Nothing exists there, but its parent folder does.
    Free,
    /// Neither it nor its parent folder exists.
    Nowhere,
    /// Something exists that a copy does not replace.
    Other,
}

impl Destination {
    /// Looks up a path on this machine.
    pub(crate) fn here(path: &Path) -> Self {
        match fs::metadata(path) {
            Ok(known) if known.is_dir() => Self::Folder,
            Ok(known) if known.is_file() => Self::File,
            Ok(_) => Self::Other,
            Err(_) => match path.parent() {
                Some(above) if above != Path::new("") && !above.is_dir() => Self::Nowhere,
                _ => Self::Free,
            },
        }
    }
}

/// Looks up a path on the other machine.
pub(crate) async fn stated(channel: &Channel, path: &[u8]) -> Result<Destination> {
    let slash = path.iter().rposition(|byte| *byte == b'/').filter(|slash| *slash > 0);
    let above = slash.map_or(&b"."[..], |slash| &path[..slash]);
    // Both requests are sent together: the second is seldom needed, but a separate round trip may take long.
    let (attributes, above) = tokio::join!(channel.stat(path), channel.stat(above));
    Ok(match attributes? {
        Some(known) => match known.file_type() {
            Some(FileType::Directory) => Destination::Folder,
            Some(FileType::Regular) | None => Destination::File,
            Some(_) => Destination::Other,
        },
        // Without permission to look at the parent folder, assume that the parent folder exists.
        None if Error::unless_lost(above)?.is_ok_and(|above| above.is_none()) => Destination::Nowhere,
        None => Destination::Free,
    })
}
