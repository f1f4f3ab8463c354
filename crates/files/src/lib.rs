//! Files and folders that other users may have touched.
//!
//! What opens a file here never waits for it, and judges what the descriptor leads to, not a name that may lead elsewhere a moment
//! later. A [`Folder`] is held by its descriptor: names are looked up beneath it, links are not followed.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt},
    path::Path,
};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

pub use folder::{Folder, Trust};
pub use output::secret;

mod folder;
mod output;

/// Opens a regular file that a user named, to read it; links are followed. A FIFO that stands in its place meanwhile does not hold the
/// caller.
///
/// # Errors
/// When it cannot be opened, or is no regular file.
pub fn open(path: &Path) -> io::Result<File> {
    open_with(OpenOptions::new().read(true), path, OFlags::empty())
}

/// Opens a regular file with these options and flags, without waiting for another program.
///
/// # Errors
/// When it cannot be opened, or is no regular file.
pub fn open_with(options: &mut OpenOptions, path: &Path, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY;
    regular(options.custom_flags(flags.bits().cast_signed()).open(path)?)
}

/// The file, if it is a regular one. Reading and writing it wait again, as file systems expect.
fn regular(file: File) -> io::Result<File> {
    let kind = file.metadata()?.file_type();
    if kind.is_file() {
        fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
        return Ok(file);
    }
    let what = match kind {
        kind if kind.is_dir() => "a folder",
        kind if kind.is_fifo() => "a FIFO",
        kind if kind.is_socket() => "a socket",
        _ => "a device",
    };
    Err(refused(&format!("is {what}, not a regular file")))
}

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why.to_owned())
}

/// Whether other users than the owner and root may write to what has this mode and these flags of a folder's.
fn others_may_write(about: &std::fs::Metadata) -> bool {
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
        let no_link = open_with(OpenOptions::new().read(true), &link, OFlags::NOFOLLOW);
        assert!(no_link.is_err());
        // With a reader, a FIFO can be opened for writing; without one, the open fails at once.
        assert!(open_with(OpenOptions::new().write(true), &fifo, OFlags::empty()).is_err());
    }
}
