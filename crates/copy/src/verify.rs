//! Verifies that the files on both machines are equal.
//!
//! A shell on the other machine computes checksums. If a checksum differs, the file is read again over SFTP, because
//! some servers show different files to a shell and to SFTP.

use std::{fs::File, io, rc::Rc, sync::Arc};

use tokio::task::spawn_blocking;

use crate::{
    carrier::Carrier,
    channel::Channel,
    error::{Error, Result},
    file::{FileCopy, Prepared},
    hash::Sum,
    location::shown,
    options::Direction,
    remote::to_read,
    report::Verified,
};

/// Bit that marks the number of a handle for reading back.
pub(crate) const READING: u64 = 1 << 63;

impl Carrier {
    pub(crate) async fn local_hash(&self, file: &Arc<File>, begin: u64, length: u64) -> Result<Sum> {
        let file = Arc::clone(file);
        let hashed = spawn_blocking(move || Sum::of_part(&file, begin, length)).await;
        hashed.map_err(io::Error::other).flatten().map_err(|error| Error::local("read the file here", &error))
    }

    /// Whether a chunk of a file is the same on both machines; `here` is its checksum on this machine. For a chunk of
    /// an earlier run, `was` is the checksum from that run.
    pub(crate) async fn is_same(
        &self,
        channel: &Channel,
        file: &FileCopy,
        prepared: &Prepared,
        (begin, here, was): (u64, Sum, Option<&str>),
    ) -> Result<bool> {
        let is_up = self.options.direction == Direction::Up;
        if was.is_some_and(|was| was != here.to_string()) {
            return Ok(false);
        }
        if was.is_none() && !self.options.verify {
            return Ok(true);
        }
        let path = if is_up { &prepared.temporary } else { &file.item.source };
        let there = self.hashers.hash_chunk(path, begin, here).await;
        if !is_up && was.is_some() {
            // A chunk of an earlier run may come from another source with the same size and time.
            return Ok(there == Some(here.to_string()));
        }
        if let Some(is_same) = self.shell_agrees(channel, file, path, (begin, here), there).await? {
            return Ok(is_same);
        }
        file.lacks_hash.set(true);
        // Without a shell, a chunk that this run has downloaded counts as correct, because SSH has authenticated its
        // data.
        Ok(!is_up || self.read_there(channel, file, path, (begin, here)).await? == here)
    }

    /// Verifies a small file: `local` is on this machine, `path` on the other.
    pub(crate) async fn verify_small(
        &self,
        channel: &Channel,
        file: &FileCopy,
        (local, path): (&Arc<File>, &[u8]),
    ) -> Result<Verified> {
        if !self.options.verify {
            return Ok(Verified::No);
        }
        let here = self.local_hash(local, 0, file.item.size_bytes).await?;
        let there = self.hashers.hash(path, None, here.bytes).await;
        let verified = match self.shell_agrees(channel, file, path, (0, here), there).await? {
            Some(true) => Verified::ByChecksum,
            None if self.options.direction == Direction::Down => Verified::HereOnly,
            None if self.read_there(channel, file, path, (0, here)).await? == here => Verified::ReadBack,
            _ => return Err(Error::Differs { offset: 0 }),
        };
        Ok(verified)
    }

    /// Whether a checksum from a shell is equal; `None` if no shell on the other machine can compute one.
    async fn shell_agrees(
        &self,
        channel: &Channel,
        file: &FileCopy,
        path: &[u8],
        (begin, here): (u64, Sum),
        there: Option<String>,
    ) -> Result<Option<bool>> {
        let Some(there) = there else { return Ok(None) };
        if there == here.to_string() {
            return Ok(Some(true));
        }
        if self.read_there(channel, file, path, (begin, here)).await? != here {
            return Ok(Some(false));
        }
        self.hashers.distrust(format!(
            "the shell there and SFTP see different contents of {}; checksums need the same root folder for both",
            shown(path)
        ));
        Ok(None)
    }

    /// The checksum of the data that SFTP reads on the other machine. At the end of a file, it includes data beyond the
    /// expected end.
    async fn read_there(
        &self,
        channel: &Channel,
        file: &FileCopy,
        path: &[u8],
        (begin, here): (u64, Sum),
    ) -> Result<Sum> {
        let number = file.number | READING;
        let handle: Rc<_> = channel.handle(number, &to_read(path)).await?;
        let end = begin + here.bytes;
        let behind = u64::from(end == file.item.size_bytes);
        let bytes = self.read(channel, &handle, begin..end + behind).await;
        // If a small file is carried again, it gets another partial file, so the handle is not kept.
        if file.is_small() {
            drop(handle);
            let _ = channel.close(number)?;
        }
        Ok(Sum::of(&mut bytes?))
    }
}
