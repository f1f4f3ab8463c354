//! Access to files and folders that other users may have manipulated.
//!
//! Opening a file never waits for another program. The checks apply to the open descriptor, because the name may refer
//! to another file a moment later. A [`Folder`] stays open as a descriptor: names are looked up beneath it, and links
//! are not followed.

use std::{
    fs::{File, Metadata, OpenOptions},
    io,
    os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt},
    path::Path,
};

use rustix::{
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    process::geteuid,
};

pub use elsewhere::{are_elsewhere, create_elsewhere, is_elsewhere, written_elsewhere};
pub use folder::{Folder, Trust};
pub use input::{read, read_here};
pub use named::{MAX_LINKS, claim, first_claimed, is_read, is_stdout, reads, word_reads};
pub use output::written;
pub use watched::{Watched, stop};
pub use way::keeps_names;

mod elsewhere;
mod folder;
mod input;
mod named;
mod output;
mod watched;
mod way;

/// Opens a regular file that a user named for reading, and records that it [is read](reads). Links are followed. If a
/// FIFO has replaced the file meanwhile, the call does not block.
///
/// # Errors
/// If it cannot be opened, is no regular file, or an option writes to it.
pub fn open(path: &Path) -> io::Result<File> {
    if let Some(opened) = elsewhere::open_elsewhere(path) {
        return opened;
    }
    let file = open_with(OpenOptions::new().read(true), path)?;
    reads(path)?;
    Ok(file)
}

/// Opens a regular file with these options, without waiting for another program.
///
/// # Errors
/// When it cannot be opened, or is no regular file.
pub fn open_with(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    regular(options.custom_flags(flags.bits().cast_signed()).open(path)?)
}

/// Returns the file if it is a regular one. Its reads and writes block again, as usual for regular files.
fn regular(file: File) -> io::Result<File> {
    let kind = file.metadata()?.file_type();
    if kind.is_file() {
        return waiting(file);
    }
    let what = match kind {
        kind if kind.is_dir() => "a folder",
        kind if kind.is_fifo() => "a FIFO",
        kind if kind.is_socket() => "a socket",
        _ => "a device",
    };
    Err(refused(&format!("is {what}, not a regular file")))
}

/// Makes reads and writes block again for a file that was opened as nonblocking.
fn waiting(file: File) -> io::Result<File> {
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why.to_owned())
}

/// Refuses a file or folder that another user (except root) owns or may write to.
fn check_owners(about: &Metadata) -> io::Result<()> {
    if !is_owned(about) {
        return Err(refused(&format!("belongs to user {}", about.uid())));
    }
    if others_may_write(about) { Err(refused("can be written to by other users")) } else { Ok(()) }
}

/// Whether this user or root owns the file or folder.
pub fn is_owned(about: &Metadata) -> bool {
    [0, geteuid().as_raw()].contains(&about.uid())
}

/// Whether the group or all users may write to the file or folder.
fn others_may_write(about: &Metadata) -> bool {
    about.mode() & 0o022 != 0
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn only_regular_files_are_opened_and_a_fifo_holds_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let [file, link, fifo] = ["file", "link", "fifo"].map(|name| folder.path().join(name));
        std::fs::write(&file, "x").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        assert!(open(&file).is_ok() && open(&link).is_ok());
        assert!(open(&fifo).unwrap_err().to_string().contains("is a FIFO"));
        assert!(open(folder.path()).unwrap_err().to_string().contains("is a folder"));
        assert!(open(Path::new("/dev/zero")).unwrap_err().to_string().contains("is a device"));
        // Opening a FIFO for writing succeeds only if it has a reader; without one, it fails at once.
        assert!(open_with(OpenOptions::new().write(true), &fifo).is_err());
    }
}
