//! Registry of the files that this process reads and writes by name. No file may be both read and written, or written
//! twice.

use std::{
    collections::BTreeSet,
    fs::{self, Metadata},
    io::{self, IsTerminal, stdout},
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf, absolute},
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::refused;

/// Maximum number of links that the kernel follows in one path.
pub const MAX_LINKS: u32 = 40;

static NAMED: Mutex<Named> = Mutex::new(Named { read: BTreeSet::new(), claimed: Vec::new() });

/// Paths are resolved again for each comparison, because files may be created and links may change meanwhile.
struct Named {
    read: BTreeSet<PathBuf>,
    /// The claimed files, each with the option (or the key of a study) that names it.
    claimed: Vec<(String, PathBuf)>,
}

impl Named {
    fn lock() -> MutexGuard<'static, Self> {
        NAMED.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn writers(&self) -> impl Iterator<Item = (&str, Place)> {
        self.claimed.iter().filter_map(|(option, path)| Some((option.as_str(), Place::of(path)?)))
    }

    fn reader(&self, place: &Place) -> Option<&Path> {
        self.read.iter().map(PathBuf::as_path).find(|read| Place::of(read).as_ref() == Some(place))
    }
}

/// Claims a file, or standard output (`-`), as the output of an option. The same option may claim it again.
///
/// # Errors
/// If the file has been read, or another option has claimed it.
pub fn claim(option: &str, path: &Path) -> io::Result<()> {
    let Some(place) = Place::of(path) else { return Ok(()) };
    let mut named = Named::lock();
    let other = named.writers().find(|(other, claimed)| *other != option && *claimed == place);
    if let Some((other, _)) = other {
        return Err(refused(&match place {
            Place::Stdout => format!("{other} writes to standard output, too: give one of them a file"),
            Place::File { .. } => format!("{other} writes to it, too: give each a file of its own"),
        }));
    }
    if let Some(read) = named.reader(&place) {
        let read = read.display();
        return Err(refused(&format!("it is also read, as {read}: give another file to write to")));
    }
    let path = if place == Place::Stdout { "-".into() } else { absolute(path)? };
    let claimed = (option.to_owned(), path);
    if !named.claimed.contains(&claimed) {
        named.claimed.push(claimed);
    }
    Ok(())
}

/// Records that this file is read, by this process or by another program on its behalf.
///
/// # Errors
/// If an option has claimed it.
pub fn reads(path: &Path) -> io::Result<()> {
    if let Some((_, option)) = first_claimed([path]) {
        return Err(refused(&format!("it is written by {option}: give another file to write to")));
    }
    if path.is_file() {
        Named::lock().read.insert(absolute(path)?);
    }
    Ok(())
}

/// Records the files that a program's argument may name: the whole word, its parts after `=`, `:` or `@`, and the words
/// of a shell command.
///
/// # Errors
/// As for [`reads`].
pub fn word_reads(word: &str) -> io::Result<()> {
    let parts = word
        .split(|c: char| c.is_whitespace() || "=:@,;|&<>()'\"".contains(c))
        .filter(|part| !part.is_empty());
    parts.chain([word]).try_for_each(|part| reads(Path::new(part)))
}

/// Whether this file has been read.
pub fn is_read(path: &Path) -> bool {
    Place::of(path).is_some_and(|place| Named::lock().reader(&place).is_some())
}

/// The first of these files that an option has claimed, with that option. For file lists too long to record each with
/// [`reads`].
pub fn first_claimed<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> Option<(P, String)> {
    let named = Named::lock();
    let writers: Vec<_> = named.writers().filter(|(_, place)| *place != Place::Stdout).collect();
    paths.into_iter().take_while(|_| !writers.is_empty()).find_map(|path| {
        let place = Place::of(path.as_ref());
        let writer = writers.iter().find(|(_, claimed)| place.as_ref() == Some(claimed));
        writer.map(|(option, _)| (path, (*option).to_owned()))
    })
}

/// The place that a path leads to: an existing file, or an existing folder plus the missing names in it.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    Stdout,
    File { device: u64, inode: u64, missing: PathBuf },
}

impl Place {
    /// The place of a path; none if writing to it cannot destroy data, as for `/dev/null`.
    fn of(path: &Path) -> Option<Self> {
        if path == Path::new("-") {
            return Some(Self::Stdout);
        }
        let mut path = absolute(path).ok()?;
        // Writing through a dangling link would create its target, so the target is the place.
        for _ in 0..MAX_LINKS {
            match fs::read_link(&path) {
                Ok(to) if !path.exists() => path = path.parent()?.join(to),
                _ => break,
            }
        }
        let mut missing = Vec::new();
        loop {
            let Ok(about) = fs::metadata(&path) else {
                missing.push(path.file_name()?.to_owned());
                path.pop();
                continue;
            };
            let kept = missing.is_empty() && about.file_type().is_char_device();
            return match is_stdout(&about) {
                true if missing.is_empty() && (!kept || stdout().is_terminal()) => Some(Self::Stdout),
                _ if kept => None,
                _ => Some(Self::File {
                    device: about.dev(),
                    inode: about.ino(),
                    missing: missing.iter().rev().collect(),
                }),
            };
        }
    }
}

/// Whether standard output goes to this file.
pub fn is_stdout(about: &Metadata) -> bool {
    rustix::fs::fstat(stdout()).is_ok_and(|own| (own.st_dev, own.st_ino) == (about.dev(), about.ino()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::{open, read};

    #[test]
    fn nothing_is_both_read_and_written_or_written_twice_by_whatever_name() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["read", "noted", "plain"] {
            fs::write(at(name), "x").unwrap();
        }
        fs::hard_link(at("read"), at("second")).unwrap();
        symlink("read", at("link")).unwrap();
        symlink("made", at("dangling")).unwrap();
        symlink(folder.path(), at("here")).unwrap();
        open(&at("read")).unwrap();
        reads(&at("noted")).unwrap();
        for name in ["read", "second", "link", "here/read", "noted"] {
            let refused = claim("--json", &at(name)).unwrap_err().to_string();
            assert!(refused.contains("it is also read, as "), "{refused}");
        }
        assert!(is_read(&at("second")) && !is_read(&at("plain")));
        for (first, second) in [("new", "here/new"), ("dangling", "made"), ("no/plan", "here/no/plan")] {
            claim("--json", &at(first)).unwrap();
            claim("--json", &at(first)).unwrap();
            let refused = claim("--html", &at(second)).unwrap_err().to_string();
            assert!(refused.contains("--json writes to it, too"), "{refused}");
        }
        // A claimed file is recognized even if it was created later and has another name.
        fs::write(at("made"), "x").unwrap();
        fs::hard_link(at("made"), at("third")).unwrap();
        for refused in [open(&at("third")).map(drop), read(&at("third"), 9).map(drop), reads(&at("third"))] {
            let refused = refused.unwrap_err().to_string();
            assert!(refused.contains("is written by --json: give another file"), "{refused}");
        }
        let claimed = first_claimed([at("plain"), at("third"), at("made")]);
        assert_eq!(claimed, Some((at("third"), "--json".to_owned())));
        // These uses are allowed.
        assert_eq!(first_claimed([at("plain"), at("read")]), None);
        claim("--json", &at("plain")).unwrap();
        open(&at("link")).unwrap();
        for option in ["--json", "--html", "--hlog"] {
            claim(option, Path::new("/dev/null")).unwrap();
        }
        open(&at("read")).unwrap();
        // Arguments of programs name files in several forms.
        for (index, form) in
            ["FILE", "--delay=file:FILE", "cat FILE", "sh -c 'cat <FILE >/dev/null'", "a=@FILE"]
                .iter()
                .enumerate()
        {
            let file = at(&format!("word{index}"));
            fs::write(&file, "x").unwrap();
            word_reads(&form.replace("FILE", &file.display().to_string())).unwrap();
            assert!(is_read(&file), "{form}");
        }
    }

    #[test]
    fn standard_output_is_written_once() {
        claim("--own", Path::new("-")).unwrap();
        claim("--own", Path::new("-")).unwrap();
        let refused = claim("--other", Path::new("-")).unwrap_err().to_string();
        assert!(refused.contains("--own writes to standard output, too"), "{refused}");
    }
}
