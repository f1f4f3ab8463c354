//! Packs segments that have ended.

use std::{
    fs::{self, File},
    io::{self, ErrorKind, Read, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::{
    fs::{CWD, RenameFlags, renameat_with},
    io::Errno,
};

use crate::{
    Compression,
    journal::{Entry, sync_folder},
    place::packed_path,
    shared::Shared,
};

/// A segment to be packed.
#[derive(Debug, Clone)]
pub(crate) struct Pack {
    /// Its number in the journal.
    pub id: u64,
    pub path: PathBuf,
    pub inode: u64,
    /// The packed file has its name; only the plain one is left to remove.
    pub renamed: bool,
}

/// After a failure, mostly a full disk, it is tried again.
const RETRY: Duration = Duration::from_secs(60);

/// Runs until the mailbox is closed. What is not packed by then is packed after the next start.
pub(crate) fn run(shared: &Shared) {
    let mut came = Vec::new();
    let mut later: Vec<(Instant, Pack)> = Vec::new();
    while shared.packs.take(&mut came, Duration::from_secs(1)) {
        let now = Instant::now();
        came.extend(later.extract_if(.., |(due, _)| *due <= now).map(|(_, pack)| pack));
        for mut work in came.drain(..) {
            if shared.is_stopping() {
                return;
            }
            match pack(shared, &mut work) {
                Ok(()) => shared.release(&work.path),
                Err(_) if shared.is_stopping() => return,
                Err(_) => {
                    shared.counters.compress_failures.add(1);
                    later.push((now + RETRY, work));
                }
            }
        }
    }
}

/// Makes the packed file under a hidden name, gives it its own once it is whole and on disk, and only then
/// removes the plain one. Killed at any moment, [`finish`] tells from the journal what is left to do.
fn pack(shared: &Shared, work: &mut Pack) -> io::Result<()> {
    let Pack { id, path, inode, renamed } = work;
    let gone = || shared.journal.append(&[Entry::Gone { id: *id }], false);
    let compression = shared.config.compress;
    let packed = packed_path(path, compression.suffix());
    if *renamed {
        finish(path, *inode, &packed)?;
        return gone();
    }
    // Without lines, renamed, removed, or somebody has packed it himself: it stays as it is.
    let metadata = path.symlink_metadata();
    let ours = metadata.as_ref().is_ok_and(|found| found.ino() == *inode && found.len() > 0);
    if compression == Compression::None || !ours || packed.symlink_metadata().is_ok() {
        return gone();
    }
    let name = shared.journal.name(&packed)?;
    shared.journal.append(&[Entry::Packing { id: *id, packed: name }], true)?;
    let hidden = hidden(&packed);
    let whole = write(shared, path, &hidden, compression);
    if let Err(cause) = whole {
        let _ = fs::remove_file(&hidden);
        return Err(cause);
    }
    rename(&hidden, &packed)?;
    *renamed = true;
    finish(path, *inode, &packed)?;
    shared.counters.compressed_segments.add(1);
    gone()
}

fn rename(hidden: &Path, packed: &Path) -> io::Result<()> {
    match renameat_with(CWD, hidden, CWD, packed, RenameFlags::NOREPLACE) {
        // Not every filesystem has it. Nothing was there a moment ago.
        Err(Errno::INVAL) => fs::rename(hidden, packed),
        renamed => Ok(renamed?),
    }
}

/// The packed file is there: the plain one goes.
pub(crate) fn finish(path: &Path, inode: u64, packed: &Path) -> io::Result<()> {
    let folder = packed.parent().unwrap_or(Path::new("."));
    sync_folder(folder)?;
    match path.symlink_metadata() {
        Ok(found) if found.ino() == inode => fs::remove_file(path)?,
        Err(cause) if cause.kind() != ErrorKind::NotFound => return Err(cause),
        _ => {}
    }
    sync_folder(folder)
}

/// Where the packed file grows.
pub(crate) fn hidden(packed: &Path) -> PathBuf {
    let name = packed.file_name().unwrap_or_default().to_string_lossy();
    packed.with_file_name(format!(".{name}.proofload"))
}

fn write(shared: &Shared, path: &Path, hidden: &Path, compression: Compression) -> io::Result<()> {
    let plain = File::open(path)?;
    let metadata = plain.metadata()?;
    let into = File::create(hidden)?;
    into.set_permissions(metadata.permissions())?;
    let into = match compression {
        Compression::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(into, flate2::Compression::default());
            copy(shared, plain, &mut encoder)?;
            encoder.finish()?
        }
        Compression::Zstd | Compression::None => {
            let mut encoder = zstd::Encoder::new(into, zstd::DEFAULT_COMPRESSION_LEVEL)?;
            encoder.include_checksum(true)?;
            copy(shared, plain, &mut encoder)?;
            encoder.finish()?
        }
    };
    into.set_modified(metadata.modified()?)?;
    into.sync_all()
}

fn copy(shared: &Shared, mut plain: File, packed: &mut impl Write) -> io::Result<()> {
    let mut buffer = vec![0; 128 << 10];
    loop {
        if shared.is_stopping() {
            return Err(ErrorKind::Interrupted.into());
        }
        match plain.read(&mut buffer)? {
            0 => return Ok(()),
            count => packed.write_all(&buffer[..count])?,
        }
    }
}
