//! Output files that the user names with an option.

use std::{
    ffi::OsString,
    fs::{self, File, Metadata},
    io::{self, BufWriter, Write},
    os::unix::fs::{MetadataExt, fchown},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use files::{Folder, Trust, Watched};
use record::printable::{PrintableWriter, printable_json};
use rustix::fs::{AtFlags, StatxFlags, statx};
use serde::Serialize;

use crate::{
    exit::{Refusal, Result},
    output::standard,
};

/// A file or standard output. It is opened before the measurement, so that an unusable path is reported at once.
pub(crate) struct Destination {
    option: String,
    /// The path as the user wrote it, for messages.
    path: PathBuf,
    method: WriteMethod,
}

/// How the output is written.
enum WriteMethod {
    /// Standard output: `-`, or a path that names the same file.
    Stdout,
    /// A new file with a temporary name in the same folder, which then replaces the old file.
    Beside(Box<Beside>),
    /// A file that cannot be replaced, so it is overwritten in place: a pipe, a device, a file in another user's
    /// folder, or a mount point.
    AsItIs {
        /// The existing file.
        file: File,
        /// Whether the output is appended to the existing content.
        is_appended: bool,
    },
}

/// A regular file, which may not exist yet.
struct Beside {
    folder: Folder,
    name: OsString,
    /// The metadata of the existing file; `None` if there is none.
    old: Option<Metadata>,
}

impl Destination {
    /// Claims `path` and checks that it can be written; `-` is standard output. The existing content stays until
    /// [`write`](Self::write).
    ///
    /// # Errors
    /// If the file cannot be written, is an input, or is an output of another option; the message names the option and
    /// the path.
    pub(crate) fn open(option: &str, path: &Path) -> Result<Self, String> {
        Self::tried(option, path, false)
    }

    /// Like [`open`](Self::open), but appends to the existing content.
    ///
    /// # Errors
    /// As for [`Destination::open`].
    pub(crate) fn open_appended(option: &str, path: &Path) -> Result<Self, String> {
        Self::tried(option, path, true)
    }

    fn tried(option: &str, path: &Path, is_appended: bool) -> Result<Self, String> {
        let method = files::claim(option, path).and_then(|()| WriteMethod::of(path, is_appended));
        let method = method.map_err(|error| format!("{option}: cannot write {}: {error}", path.display()))?;
        Ok(Self { option: option.to_owned(), path: path.to_owned(), method })
    }

    /// Like [`open`](Self::open) for an option that the user may omit.
    ///
    /// # Errors
    /// As for [`Destination::open`].
    pub(crate) fn open_optional(option: &str, path: Option<&Path>) -> Result<Option<Self>> {
        path.map(|path| Self::open(option, path)).transpose().map_err(Refusal::one)
    }

    /// Whether the destination is standard output. If so, the command must write nothing else there.
    pub(crate) fn is_stdout(&self) -> bool {
        matches!(self.method, WriteMethod::Stdout)
    }

    /// Calls `write` with the opened output.
    ///
    /// # Errors
    /// If writing fails; the message names the file.
    pub(crate) fn write(self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result {
        // The command may have opened this file as an input since `open`; it must not be overwritten then.
        let is_stdout = self.is_stdout();
        let claimed = files::claim(&self.option, &self.path);
        let written = claimed.and_then(|()| match self.method {
            WriteMethod::Stdout => {
                let output = PrintableWriter::new(
                    BufWriter::new(Watched::of(io::stdout().lock())),
                    standard::printable_lines,
                );
                write_and_flush(output, write)
            }
            WriteMethod::Beside(beside) => beside.write(write),
            WriteMethod::AsItIs { file, is_appended } => {
                // Pipes and devices cannot be truncated.
                let is_replaced = !is_appended && file.metadata().is_ok_and(|about| about.is_file());
                let truncate = || if is_replaced { file.set_len(0) } else { Ok(()) };
                let written =
                    truncate().and_then(|()| write_and_flush(BufWriter::new(Watched::of(&file)), write));
                // Readers could take a partial file for a complete one, so it is emptied. Only the first error is
                // reported.
                written.inspect_err(|_| drop(truncate()))
            }
        });
        written.map_err(|error| match is_stdout {
            true => standard::write_failed(&error),
            false => Refusal::one(format_args!("cannot write {}: {error}", self.path.display())),
        })
    }

    /// Writes a value as indented JSON with a final newline.
    ///
    /// # Errors
    /// As for [`Destination::write`].
    pub(crate) fn write_json(self, value: &impl Serialize) -> Result {
        self.write(|output| {
            serde_json::to_writer_pretty(PrintableWriter::new(&mut *output, printable_json), value)?;
            output.write_all(b"\n")
        })
    }
}

impl WriteMethod {
    fn of(path: &Path, is_appended: bool) -> io::Result<Self> {
        if path == Path::new("-") {
            return Ok(Self::Stdout);
        }
        let as_it_is = || {
            let file = File::options().write(true).append(is_appended).create(is_appended).open(path)?;
            Ok(Self::AsItIs { file, is_appended })
        };
        let old = fs::metadata(path).ok();
        match &old {
            Some(about) if files::is_stdout(about) => return Ok(Self::Stdout),
            Some(about) if !about.is_file() => return as_it_is(),
            _ => {}
        }
        // Renaming would replace even a file that this user may not write, so writing is tested first.
        old.as_ref().map_or(Ok(()), |_| files::open_with(File::options().write(true), path).map(drop))?;
        // Resolves symbolic links, except in a folder where another user could have created the link.
        let (mut real, mut links) = (path.to_owned(), 0);
        let folder = loop {
            let folder = Folder::open(above(&real), Trust::Anybody)?;
            links += 1;
            match fs::read_link(&real) {
                Ok(_) if links > files::MAX_LINKS => return Err(io::Error::other("it is a link to itself")),
                Ok(_) if folder.is_shared()? => {
                    return Err(io::Error::other("it is a link in a folder that other users may write to"));
                }
                Ok(to) => real = above(&real).join(to),
                Err(_) => break folder,
            }
        };
        let name = real.file_name().ok_or_else(|| io::Error::other("it does not name a file"))?.to_owned();
        let mounts = [Path::new("."), Path::new(&name)].map(|name| mount(&folder, name));
        if is_appended || mounts[1].is_some_and(|file| Some(file) != mounts[0]) {
            return as_it_is();
        }
        let beside = Beside { folder, name, old };
        match beside.try_folder() {
            Err(_) if beside.old.is_some() && !beside.folder.is_shared()? => as_it_is(),
            tried => tried.map(|()| Self::Beside(Box::new(beside))),
        }
    }
}

impl Beside {
    /// Checks that new files can be created in the folder.
    fn try_folder(&self) -> io::Result<()> {
        let name = new_name();
        drop(self.folder.create(&name, 0o600)?);
        self.folder.remove(&name)
    }

    fn write(&self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        let name = new_name();
        let file = self.folder.create(&name, 0o666)?;
        let kept = self.old.as_ref().map_or(Ok(()), |old| {
            // Root gives the new file to the old owner. Other users cannot, but they are already the new file's
            // owner.
            let _ = fchown(&file, Some(old.uid()), Some(old.gid()));
            file.set_permissions(old.permissions())
        });
        let written = kept.and_then(|()| write_and_flush(BufWriter::new(&file), write));
        let put = written.and_then(|()| self.folder.rename(&name, &self.name));
        put.inspect_err(|_| drop(self.folder.remove(&name)))
    }
}

/// A name for the temporary file until its content is complete.
fn new_name() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    format!(".proofload-{}-{}.new", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
}

fn above(path: &Path) -> &Path {
    path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The ID of the mount that contains a name in a folder.
fn mount(folder: &Folder, name: &Path) -> Option<u64> {
    let about = statx(folder, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::MNT_ID).ok()?;
    Some(about.stx_mnt_id)
}

/// Writes the result as JSON to `json`, if given. Then prints `text`, unless `is_quiet` or the JSON went to standard
/// output.
///
/// # Errors
/// As for [`Destination::write`].
pub(crate) fn write_result(
    json: Option<Destination>,
    result: &impl Serialize,
    is_quiet: bool,
    text: impl FnOnce() -> String,
) -> Result {
    let is_shown = !is_quiet && !json.as_ref().is_some_and(Destination::is_stdout);
    if let Some(json) = json {
        json.write_json(result)?;
    }
    if is_shown { standard::print_wrapped(&text()) } else { Ok(()) }
}

fn write_and_flush(
    mut output: impl Write,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    write(&mut output)?;
    output.flush()
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::fs::{PermissionsExt, symlink},
        process::Command,
        thread,
    };

    use super::*;

    fn open(path: &Path) -> Destination {
        Destination::open("--json", path).unwrap()
    }

    fn put(path: &Path, text: &str) {
        open(path).write(|output| output.write_all(text.as_bytes())).unwrap();
    }

    fn names(folder: &Path) -> usize {
        fs::read_dir(folder).unwrap().count()
    }

    #[test]
    fn a_command_that_writes_nothing_or_fails_leaves_no_file_and_harms_none() {
        let folder = tempfile::tempdir().unwrap();
        let [new, old] = ["new", "old"].map(|name| folder.path().join(name));
        fs::write(&old, "whole").unwrap();
        drop((open(&new), open(&old)));
        assert!(!new.exists());
        let failed = open(&old).write(|output| {
            output.write_all(b"half")?;
            Err(io::Error::other("full"))
        });
        assert!(failed.is_err() && fs::read(&old).unwrap() == b"whole" && names(folder.path()) == 1);
        put(&new, "x");
        drop(open(&new));
        assert_eq!((fs::read(&new).unwrap(), names(folder.path())), (b"x".to_vec(), 2));
        assert!(Destination::open("--json", &folder.path().join("none/x")).is_err());
        assert!(Destination::open("--json", folder.path()).is_err());
    }

    #[test]
    fn what_is_read_meanwhile_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let [json, other] = ["json", "other"].map(|name| folder.path().join(name));
        for path in [&json, &other] {
            fs::write(path, "mine").unwrap();
        }
        let output = open(&json);
        // After the claim, `json` becomes a link to a file that the command reads.
        files::open(&other).unwrap();
        fs::remove_file(&json).unwrap();
        fs::hard_link(&other, &json).unwrap();
        let refused = format!("{:?}", output.write(|output| output.write_all(b"x")).unwrap_err());
        assert!(refused.contains("it is also read, as "), "{refused}");
        assert_eq!(fs::read(&json).unwrap(), b"mine");
    }

    #[test]
    fn a_file_is_replaced_with_its_mode_and_behind_its_own_link() {
        let folder = tempfile::tempdir().unwrap();
        let [file, link, second, nowhere] =
            ["file", "link", "second", "nowhere"].map(|name| folder.path().join(name));
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        fs::hard_link(&file, &second).unwrap();
        symlink("file", &link).unwrap();
        symlink("made", &nowhere).unwrap();
        put(&link, "new");
        put(&nowhere, "made");
        assert!(link.is_symlink() && fs::read(&file).unwrap() == b"new");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(fs::read(&second).unwrap(), b"old", "another name of what was there keeps it");
        assert_eq!(fs::read(folder.path().join("made")).unwrap(), b"made");
        let appended = Destination::open_appended("--json", &file).unwrap();
        assert!(matches!(appended.method, WriteMethod::AsItIs { .. }));
        appended.write(|output| output.write_all(b"er")).unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"newer");
    }

    #[test]
    fn in_a_folder_of_others_no_link_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let shared = folder.path().join("shared");
        let victim = folder.path().join("victim");
        fs::create_dir(&shared).unwrap();
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).unwrap();
        fs::write(&victim, "secret").unwrap();
        symlink(&victim, shared.join("link")).unwrap();
        symlink(folder.path().join("made"), shared.join("nowhere")).unwrap();
        for name in ["link", "nowhere"] {
            let refused = Destination::open("--json", &shared.join(name)).err().unwrap();
            assert!(refused.contains("is a link in a folder"), "{refused}");
        }
        // Another user creates the link after the file was tried.
        let planted = open(&shared.join("later"));
        symlink(&victim, shared.join("later")).unwrap();
        planted.write(|output| output.write_all(b"x")).unwrap();
        assert_eq!(fs::read(&victim).unwrap(), b"secret");
        assert!(!folder.path().join("made").exists() && !shared.join("later").is_symlink());
        put(&shared.join("plain"), "x");
        assert_eq!(fs::read(shared.join("plain")).unwrap(), b"x");
    }

    #[test]
    fn pipes_and_devices_are_written_as_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let reader = thread::spawn({
            let fifo = fifo.clone();
            move || fs::read(fifo).unwrap()
        });
        put(&fifo, "x");
        assert_eq!(reader.join().unwrap(), b"x");
        put(Path::new("/dev/null"), "x");
        assert!(fs::metadata("/dev/null").unwrap().permissions().mode() & 0o666 == 0o666);
    }
}
