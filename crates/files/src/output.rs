//! Output files that are written while a command runs.

use std::{
    fs::{File, Permissions},
    io::{self, ErrorKind, Write},
    os::{
        fd::AsRawFd,
        unix::fs::{FileExt, MetadataExt, PermissionsExt},
    },
    path::Path,
};

use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, openat, statat},
    io::Errno,
    process::geteuid,
};

use crate::{Folder, Trust, Watched, create_elsewhere, refused, waiting};

/// Opens a file that a user named, to replace it or, with `append`, to append lines to it. With mode 600, only this
/// user can read the file. A replaced file is a new file, so programs that have the old one open do not see the output.
/// A pipe or a device is opened as it is, without waiting for a reader.
///
/// In a folder that other users may write to, links are not followed, and nothing is appended to another user's file.
///
/// # Errors
/// If it cannot be opened or created, is a pipe without a reader, or `option` cannot [claim](crate::claim) it.
pub fn written(option: &str, path: &Path, append: bool, mode: u32) -> io::Result<Watched<File>> {
    if let Some(created) = create_elsewhere(path) {
        return created.map(Watched::of);
    }
    opened(option, path, append, mode).map(Watched::of)
}

fn opened(option: &str, path: &Path, append: bool, mode: u32) -> io::Result<File> {
    crate::claim(option, path)?;
    let name = path.file_name().ok_or_else(|| io::Error::from(ErrorKind::IsADirectory))?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = Folder::open(parent, Trust::Anybody)?;
    let is_shared = folder.is_shared()?;
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC;
    let mut flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY;
    flags.set(OFlags::NOFOLLOW, is_shared);
    let opened = match openat(&folder, name, flags, Mode::from_raw_mode(mode)) {
        Ok(opened) => File::from(opened),
        Err(Errno::LOOP) if is_shared && append => {
            return Err(refused("is a link, in a folder that other users may write to"));
        }
        Err(Errno::LOOP) if is_shared => return anew(&folder, path, mode),
        Err(Errno::NXIO) => return Err(refused("nobody reads this pipe")),
        Err(cause) => return Err(cause.into()),
    };
    let about = opened.metadata()?;
    if !about.is_file() {
        return Ok(opened);
    }
    let mut opened = waiting(opened)?;
    if append && is_shared && (about.uid() != geteuid().as_raw() || about.nlink() > 1) {
        return Err(refused("has another owner or a second hard link, in a folder that others may write to"));
    }
    let named = statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let is_link = FileType::from_raw_mode(named.st_mode) == FileType::Symlink;
    if !append && !is_link {
        return anew(&folder, path, mode);
    }
    // All users may have had access to an existing file.
    if mode == 0o600 {
        opened.set_permissions(Permissions::from_mode(mode))?;
    }
    if !append {
        opened.set_len(0)?;
    }
    // A full disk may have cut off the last line, and the next line must not be joined to it.
    let (mut last, end) = ([b'\n'], opened.metadata()?.len());
    let old = File::open(format!("/proc/self/fd/{}", opened.as_raw_fd()));
    if end > 0 && old.is_ok_and(|old| old.read_at(&mut last, end - 1).is_ok()) && last != *b"\n" {
        opened.write_all(b"\n")?;
    }
    Ok(opened)
}

/// Creates a new file, replacing any file with this name.
fn anew(folder: &Folder, path: &Path, mode: u32) -> io::Result<File> {
    let name = Path::new(path.file_name().unwrap_or_default());
    let (file, beside) = folder.create_beside(name, mode)?;
    folder.rename(&beside, name).inspect_err(|_| drop(folder.remove(&beside)))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        io::{Read, Write},
        os::unix::fs::symlink,
        process::Command,
    };

    use super::*;

    fn secret(option: &str, path: &Path, append: bool) -> io::Result<Watched<File>> {
        written(option, path, append, 0o600)
    }

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().mode() & 0o777
    }

    #[test]
    fn who_has_the_former_file_open_reads_no_secret() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let mut reader = File::open(&path).unwrap();
        secret("--log", &path, false).unwrap().write_all(b"secret").unwrap();
        let mut read = String::new();
        reader.read_to_string(&mut read).unwrap();
        assert_eq!((read.as_str(), mode(&path)), ("old", 0o600));
        secret("--log", &path, true).unwrap().write_all(b" more").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "secret\n more");
        fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        drop(secret("--log", &path, true).unwrap());
        assert_eq!((mode(&path), fs::read_dir(folder.path()).unwrap().count()), (0o600, 1));
    }

    #[test]
    fn links_are_followed_only_where_nobody_else_can_make_them() {
        let place = tempfile::tempdir().unwrap();
        let [shared, own, far] = ["shared", "own", "far"].map(|name| place.path().join(name));
        for (folder, mode) in [(&shared, 0o1777), (&own, 0o755)] {
            fs::create_dir(folder).unwrap();
            fs::set_permissions(folder, Permissions::from_mode(mode)).unwrap();
            symlink(&far, folder.join("out")).unwrap();
        }
        fs::write(&far, "precious").unwrap();
        assert!(secret("--log", &shared.join("out"), true).unwrap_err().to_string().contains("is a link"));
        secret("--log", &shared.join("out"), false).unwrap().write_all(b"ours").unwrap();
        assert_eq!(fs::read(&far).unwrap(), b"precious");
        assert_eq!(fs::read(shared.join("out")).unwrap(), b"ours");
        secret("--log", &own.join("out"), true).unwrap().write_all(b"!").unwrap();
        assert_eq!(fs::read(&far).unwrap(), b"precious\n!");
        secret("--log", &own.join("out"), false).unwrap().write_all(b"ours").unwrap();
        assert_eq!((fs::read(&far).unwrap(), mode(&far)), (b"ours".to_vec(), 0o600));
        // Both folders accept a new file, and devices can still be opened.
        for folder in [&shared, &own] {
            assert!(
                secret("--log", &folder.join("new"), true).is_ok()
                    && secret("--log", &folder.join("newer"), false).is_ok()
            );
        }
        secret("--log", Path::new("/dev/null"), false).unwrap().write_all(b"x").unwrap();
        let second = shared.join("second");
        fs::hard_link(&far, &second).unwrap();
        assert!(secret("--log", &second, true).unwrap_err().to_string().contains("second hard link"));
    }

    #[test]
    fn a_pipe_without_a_reader_holds_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        for append in [true, false] {
            let refused = secret("--log", &fifo, append).unwrap_err();
            assert!(refused.to_string().contains("nobody reads this pipe"), "{refused}");
        }
        let _reader = rustix::fs::open(&fifo, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).unwrap();
        secret("--log", &fifo, false).unwrap().write_all(b"x").unwrap();
    }
}
