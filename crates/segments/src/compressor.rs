//! Packs ended segments.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, ErrorKind, Read, Write},
    os::unix::fs::MetadataExt,
    time::{Duration, Instant},
};

use files::Folder;
use rustix::{
    fs::{AtFlags, OFlags, RenameFlags, fsync, linkat, renameat_with},
    io::Errno,
};

use crate::{
    Compression, folders::about, inode::Inode, journal::Entry, locator::packed_name, requests::PackJob,
    shared::Shared,
};

/// Interval between attempts after a failure, usually a full disk.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// Runs until the mailbox is closed. Segments that are not packed by then are packed after the next start.
pub(crate) fn run(shared: &Shared) {
    let mut jobs = Vec::new();
    let mut later: Vec<(Instant, PackJob)> = Vec::new();
    while shared.packs.take(&mut jobs, Duration::from_secs(1)) {
        let now = Instant::now();
        jobs.extend(later.extract_if(.., |(due, _)| *due <= now).map(|(_, pack)| pack));
        for mut job in jobs.drain(..) {
            if shared.is_stopping() {
                return;
            }
            match pack(shared, &mut job) {
                Ok(()) => shared.release(&job.path),
                Err(_) if shared.is_stopping() => return,
                Err(_) => later.push((now + RETRY_INTERVAL, job)),
            }
        }
    }
}

/// Packs a segment: writes the packed file under a hidden name, syncs and renames it, and then removes the plain file.
/// After a kill at any time, the journal and the hidden file show the remaining work: the hidden file is created before
/// the journal records it, and removed only after the journal records that packing has failed.
fn pack(shared: &Shared, job: &mut PackJob) -> io::Result<()> {
    let PackJob { id, path, inode, renamed } = job;
    let gone = || shared.journal.append(&[Entry::Gone { id: *id }], false);
    let compression = shared.config.compress;
    let Some((folder, plain)) = shared.base.holder(path)? else { return gone() };
    if *renamed {
        remove_plain(&folder, plain, *inode)?;
        return gone();
    }
    let packed = packed_name(plain, compression.suffix());
    // Nothing to do: the file is empty, renamed, removed or packed by another process.
    let ours = about(&folder, plain)?.is_some_and(|found| inode.is(&found) && found.len() > 0);
    if compression == Compression::None || !ours || folder.has(&packed) {
        return gone();
    }
    let recorded = shared.journal.relative_name(&path.with_file_name(&packed))?;
    let hidden = hidden_name(&packed);
    let into = create(&folder, &hidden)?;
    let begun = shared.journal.append(&[Entry::Packing { id: *id, packed: recorded }], true);
    let whole = begun.and_then(|()| write(shared, &folder, plain, *inode, &into));
    if let Err(cause) = whole.and_then(|()| rename(&folder, &hidden, &packed)) {
        // Frees the disk space. The hidden file must stay until the journal has the record. Without the hidden file,
        // recovery would take a foreign file with the packed name for the packed segment, and remove the plain file.
        let _ = into.set_len(0);
        shared.journal.append(&[Entry::Ended { id: *id }], true)?;
        let _ = folder.remove(&hidden);
        return Err(cause);
    }
    *renamed = true;
    remove_plain(&folder, plain, *inode)?;
    gone()
}

/// Creates the hidden file. Removes an existing file or link with this name.
fn create(folder: &Folder, hidden: &str) -> io::Result<File> {
    match folder.remove(hidden) {
        Err(cause) if cause.kind() != ErrorKind::NotFound => Err(cause),
        _ => folder.create(hidden, 0o600),
    }
}

fn rename(folder: &Folder, hidden: &str, packed: &OsStr) -> io::Result<()> {
    match renameat_with(folder, hidden, folder, packed, RenameFlags::NOREPLACE) {
        // Some filesystems do not support RENAME_NOREPLACE.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => link(folder, hidden, packed),
        renamed => Ok(renamed?),
    }
}

/// Renames with a hard link, which does not replace an existing file either.
fn link(folder: &Folder, hidden: &str, packed: &OsStr) -> io::Result<()> {
    linkat(folder, hidden, folder, packed, AtFlags::empty())?;
    // If this fails, both names lead to the same file, and recovery removes one of them.
    let _ = folder.remove(hidden);
    Ok(())
}

/// Whether `packed` is the renamed hidden file: the hidden name no longer exists, or leads to the same file.
pub(crate) fn is_renamed(folder: &Folder, packed: &OsStr) -> io::Result<bool> {
    let found =
        |name: &OsStr| Ok::<_, io::Error>(about(folder, name)?.map(|found| (found.dev(), found.ino())));
    let (packed, hidden) = (found(packed)?, found(hidden_name(packed).as_ref())?);
    Ok(packed.is_some() && (hidden.is_none() || hidden == packed))
}

/// Removes the plain file of a packed segment and syncs the folder before and after.
pub(crate) fn remove_plain(folder: &Folder, plain: &OsStr, inode: Inode) -> io::Result<()> {
    fsync(folder)?;
    if about(folder, plain)?.is_some_and(|found| inode.is(&found)) {
        folder.remove(plain)?;
    }
    Ok(fsync(folder)?)
}

/// Name of the packed file while it is being written.
pub(crate) fn hidden_name(packed: &OsStr) -> String {
    format!(".{}.proofload", packed.to_string_lossy())
}

fn write(shared: &Shared, folder: &Folder, name: &OsStr, inode: Inode, into: &File) -> io::Result<()> {
    let plain = folder.file(name, OFlags::RDONLY)?;
    let metadata = plain.metadata()?;
    if !inode.is(&metadata) {
        return Err(ErrorKind::NotFound.into());
    }
    into.set_permissions(metadata.permissions())?;
    let into = match shared.config.compress {
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

#[cfg(test)]
mod tests {
    use std::{fs, path::Path, sync::Arc};

    use files::Trust;

    use super::*;
    use crate::{
        Config,
        journal::{Journal, Phase, Segment},
    };

    fn ended(folder: &Path) -> (Arc<Shared>, PackJob) {
        let state = folder.join("state");
        fs::create_dir(&state).unwrap();
        let path = folder.join("x.log");
        fs::write(&path, "line\n").unwrap();
        let inode = Inode::of(&path.metadata().unwrap());
        let (journal, _) = Journal::open(&state).unwrap();
        let segment = Segment {
            path: "x.log".into(),
            inode,
            good_bytes: 5,
            binary: false,
            key: "x".into(),
            index: None,
            end: None,
        };
        journal.append(&[Entry::Opened { id: 0, segment }, Entry::Ended { id: 0 }], true).unwrap();
        let template = folder.join("x").to_str().unwrap().parse().unwrap();
        let config = Config { compress: Compression::Gzip, ..Config::new(template) };
        let shared = Arc::new(Shared::new(config, journal, Vec::new()));
        (shared, PackJob { id: 0, path, inode, renamed: false })
    }

    #[test]
    fn a_link_with_the_hidden_name_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (shared, mut job) = ended(folder.path());
        let elsewhere = folder.path().join("elsewhere");
        fs::write(&elsewhere, "precious").unwrap();
        std::os::unix::fs::symlink(&elsewhere, folder.path().join(".x.log.gz.proofload")).unwrap();
        pack(&shared, &mut job).unwrap();
        assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "precious");
        assert!(folder.path().join("x.log.gz").exists() && !job.path.exists());
        assert!(shared.journal.unfinished().is_empty());
    }

    #[test]
    fn renaming_never_replaces_another_file() {
        let folder = tempfile::tempdir().unwrap();
        let (hidden, packed) = (folder.path().join("hidden"), folder.path().join("packed"));
        let held = Folder::open(folder.path(), Trust::Anybody).unwrap();
        for naming in [rename, link] {
            fs::write(&hidden, "ours").unwrap();
            fs::write(&packed, "somebody's").unwrap();
            assert_eq!(
                naming(&held, "hidden", "packed".as_ref()).unwrap_err().kind(),
                ErrorKind::AlreadyExists
            );
            assert_eq!(fs::read_to_string(&packed).unwrap(), "somebody's");
            fs::remove_file(&packed).unwrap();
            naming(&held, "hidden", "packed".as_ref()).unwrap();
            assert_eq!(fs::read_to_string(&packed).unwrap(), "ours");
            assert!(!hidden.exists());
        }
    }

    #[test]
    fn the_journal_records_failed_packing() {
        let folder = tempfile::tempdir().unwrap();
        let (shared, mut job) = ended(folder.path());
        // Stopping the store interrupts packing.
        shared.stopping.store(true, std::sync::atomic::Ordering::Relaxed);
        pack(&shared, &mut job).unwrap_err();
        assert_eq!(shared.journal.unfinished()[0].1.phase, Phase::Ended);
        assert!(job.path.exists() && !folder.path().join(".x.log.gz.proofload").exists());
    }
}
