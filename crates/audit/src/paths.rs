//! Finds the files that paths, folders and patterns name.

use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    fs,
    io::{self, Read},
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
};

use glob::Pattern;

use crate::{
    AuditError,
    files::{Compression, open, plain_name},
};

/// Characters that make a name a pattern.
const WILDCARDS: [char; 3] = ['*', '?', '['];
/// Number of bytes that are compared at a time.
const CHUNK_BYTES: usize = 1 << 16;

/// Finds the files that `names` denote, each once and in a stable order. Hidden files, pipes and devices (`<(xz -dc …)`,
/// `/dev/stdin`) must be named explicitly. Leaves out a compressed copy beside its plain file.
///
/// # Errors
/// If a path does not exist, or a folder cannot be read.
pub(crate) fn find(names: &[String]) -> Result<Vec<PathBuf>, AuditError> {
    let mut found = Vec::new();
    for name in names {
        let path = Path::new(name);
        let metadata = fs::metadata(path);
        if metadata.as_ref().is_ok_and(|metadata| !metadata.is_dir()) {
            found.push(path.to_owned());
        } else if metadata.is_ok() || !name.contains(WILDCARDS) {
            collect_files(path, &mut found)?;
        } else {
            let root = if name.starts_with('/') { "/" } else { "" };
            walk(Path::new(root), &parts_of(name)?, &mut found)?;
        }
    }
    Ok(without_copies(distinct(found)?))
}

/// A component of a pattern.
#[derive(Debug)]
enum Part<'a> {
    Name(&'a str),
    Pattern(Pattern),
    /// `**`: any number of folders.
    Folders,
}

fn parts_of<'p>(pattern: &'p str) -> Result<Vec<Part<'p>>, AuditError> {
    let parse = |text: &str| {
        Pattern::new(text).map_err(|cause| AuditError::Pattern { pattern: pattern.to_owned(), cause })
    };
    // Parses the whole pattern first, so that an error has the position in it.
    parse(pattern)?;
    let part = |text: &'p str| match text {
        "**" => Ok(Part::Folders),
        text if text.contains(WILDCARDS) => parse(text).map(Part::Pattern),
        text => Ok(Part::Name(text)),
    };
    pattern.split('/').filter(|text| !text.is_empty()).map(part).collect()
}

/// Matches the rest of a pattern below a folder. Does not use `glob`'s own walk, which skips names that are not UTF-8,
/// so that the audit would report their events as lost.
fn walk(folder: &Path, parts: &[Part<'_>], found: &mut Vec<PathBuf>) -> Result<(), AuditError> {
    let Some((part, rest)) = parts.split_first() else { return collect_files(folder, found) };
    match part {
        Part::Name(name) => {
            let path = folder.join(name);
            if exists(&path)? {
                walk(&path, rest, found)?;
            }
        }
        Part::Pattern(pattern) => {
            let takes_hidden = pattern.as_str().starts_with('.');
            for (name, path) in entries(folder)? {
                let hidden = is_hidden(&name) && !takes_hidden;
                // Bytes that are not UTF-8 are replaced by a character that only `*`, `?` and `[!…]` match.
                if !hidden && pattern.matches(&name.to_string_lossy()) && exists(&path)? {
                    walk(&path, rest, found)?;
                }
            }
        }
        Part::Folders if rest.is_empty() => collect_files(folder, found)?,
        Part::Folders => {
            walk(folder, rest, found)?;
            for (name, path) in entries(folder)? {
                // Does not follow links: with a link to a parent folder, the walk would never end.
                let is_folder = fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_dir());
                if is_folder && !is_hidden(&name) {
                    walk(&path, parts, found)?;
                }
            }
        }
    }
    Ok(())
}

/// Whether a path exists. Dangling links do not count.
fn exists(path: &Path) -> Result<bool, AuditError> {
    match fs::metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(false)
        }
        Err(cause) => Err(AuditError::Read { path: path.to_owned(), cause }),
    }
}

/// The entries of a folder; empty if the path is not a folder.
fn entries(folder: &Path) -> Result<Vec<(OsString, PathBuf)>, AuditError> {
    let here = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let failed = |cause| AuditError::Read { path: here.to_owned(), cause };
    if !fs::metadata(here).map_err(failed)?.is_dir() {
        return Ok(Vec::new());
    }
    let named = |entry: io::Result<fs::DirEntry>| -> Result<(OsString, PathBuf), AuditError> {
        let name = entry.map_err(failed)?.file_name();
        let path = folder.join(&name);
        Ok((name, path))
    };
    fs::read_dir(here).map_err(failed)?.map(named).collect()
}

fn is_hidden(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b".")
}

fn collect_files(path: &Path, found: &mut Vec<PathBuf>) -> Result<(), AuditError> {
    let metadata = fs::metadata(path).map_err(|cause| AuditError::Read { path: path.to_owned(), cause })?;
    if metadata.is_file() {
        found.push(path.to_owned());
        return Ok(());
    }
    for (name, path) in entries(path)? {
        // Skips links to folders, which may be parents, and dangling links, which are not files.
        let is_link = fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_symlink());
        if is_hidden(&name) || (is_link && !fs::metadata(&path).is_ok_and(|metadata| metadata.is_file())) {
            continue;
        }
        collect_files(&path, found)?;
    }
    Ok(())
}

/// Keeps each file once. Prefers a file's own path to links, because receipts contain only that path.
fn distinct(found: Vec<PathBuf>) -> Result<Vec<PathBuf>, AuditError> {
    let is_link = |path: &Path| fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink());
    let mut named: Vec<(bool, PathBuf)> = found.into_iter().map(|path| (is_link(&path), path)).collect();
    named.sort();
    let mut seen = BTreeSet::new();
    let mut distinct = Vec::with_capacity(named.len());
    for (_, path) in named {
        let metadata = fs::metadata(&path).map_err(|cause| AuditError::Read { path: path.clone(), cause })?;
        if seen.insert((metadata.dev(), metadata.ino())) {
            distinct.push(path);
        }
    }
    distinct.sort();
    Ok(distinct)
}

/// Leaves out compressed files whose content equals that of the plain file beside them. They remain if packing was
/// interrupted before the plain file was removed.
fn without_copies(files: Vec<PathBuf>) -> Vec<PathBuf> {
    let names: BTreeSet<PathBuf> = files.iter().cloned().collect();
    // Pipes are not compared, because they can be read only once.
    let is_file = |path: &Path| path.metadata().is_ok_and(|metadata| metadata.is_file());
    let is_copy = |path: &PathBuf| {
        let (plain, compression) = plain_name(path);
        let is_packed = compression != Compression::None && names.contains(&plain);
        is_packed && is_file(path) && is_file(&plain) && have_same_content(path, &plain)
    };
    files.into_iter().filter(|path| !is_copy(path)).collect()
}

/// Whether the decompressed contents of two files are equal. False if either cannot be read, which the audit reports
/// later.
fn have_same_content(one: &Path, other: &Path) -> bool {
    let compare = || -> io::Result<bool> {
        let (mut one, mut other) = (open(one)?, open(other)?);
        let (mut a, mut b) = (Vec::new(), Vec::new());
        loop {
            a.clear();
            b.clear();
            one.by_ref().take(CHUNK_BYTES as u64).read_to_end(&mut a)?;
            other.by_ref().take(CHUNK_BYTES as u64).read_to_end(&mut b)?;
            if a != b || a.is_empty() {
                return Ok(a == b);
            }
        }
    };
    compare().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::testing::Folder;

    fn found(folder: &Folder, names: &[&str]) -> Vec<String> {
        let names: Vec<String> = names.iter().map(|name| folder.0.join(name).display().to_string()).collect();
        let files = find(&names).unwrap();
        let short = |path: PathBuf| path.strip_prefix(&folder.0).unwrap().to_string_lossy().into_owned();
        files.into_iter().map(short).collect()
    }

    #[test]
    fn patterns_match_no_hidden_files() {
        let folder = Folder::new();
        for name in
            ["a.log", "b.LOG", ".c.log", "x/a.log", "x/y/z.log", "x/y/z.txt", ".h/a.log", "x/.h/a.log"]
        {
            fs::create_dir_all(folder.0.join(name).parent().unwrap()).unwrap();
            folder.write(name, "");
        }
        symlink(folder.0.join("x"), folder.0.join("x/y/up")).unwrap();
        assert_eq!(found(&folder, &["*.log"]), ["a.log"]);
        assert_eq!(found(&folder, &[".*.log"]), [".c.log"]);
        assert_eq!(found(&folder, &["**/*.log"]), ["a.log", "x/a.log", "x/y/z.log"]);
        assert_eq!(found(&folder, &["x/**"]), ["x/a.log", "x/y/z.log", "x/y/z.txt"]);
        assert_eq!(found(&folder, &["?/a.log", "x/[xy]/*.txt"]), ["x/a.log", "x/y/z.txt"]);
        assert_eq!(found(&folder, &["a.log/*", "none/*.log", "*/none"]), [""; 0]);
        assert!(find(&["a**".to_owned()]).unwrap_err().to_string().contains("not a file pattern"));
    }

    #[test]
    fn names_that_are_not_utf_8_match_and_dangling_links_do_not() {
        let folder = Folder::new();
        fs::write(folder.0.join(OsStr::from_bytes(b"a\xff.log")), "").unwrap();
        fs::write(folder.0.join(OsStr::from_bytes(b"\xff.txt")), "").unwrap();
        symlink("nothing", folder.0.join("gone.log")).unwrap();
        assert_eq!(found(&folder, &["*.log"]), ["a\u{fffd}.log"]);
        assert_eq!(found(&folder, &["*", "gone.*"]), ["a\u{fffd}.log", "\u{fffd}.txt"]);
    }

    #[test]
    fn pipes_are_included_only_if_named() {
        let folder = Folder::new();
        let pipe = |name: &str| {
            let mode = rustix::fs::Mode::from_raw_mode(0o600);
            rustix::fs::mknodat(rustix::fs::CWD, folder.0.join(name), rustix::fs::FileType::Fifo, mode, 0)
        };
        folder.write("files/a.log", "");
        pipe("files/b.log").unwrap();
        // Comparing this pipe with the plain file would block.
        pipe("files/a.log.gz").unwrap();
        assert_eq!(found(&folder, &["files"]), ["files/a.log"]);
        assert_eq!(found(&folder, &["files/*"]), ["files/a.log"]);
        let named = ["files/a.log", "files/a.log.gz", "files/b.log"];
        assert_eq!(found(&folder, &named), named);
    }

    #[test]
    fn a_file_has_its_own_name_and_not_that_of_a_link() {
        let folder = Folder::new();
        folder.write("files/x.log", "");
        symlink(folder.0.join("files/x.log"), folder.0.join("current.log")).unwrap();
        assert_eq!(found(&folder, &["current.log", "files"]), ["files/x.log"]);
        assert_eq!(found(&folder, &["current.log"]), ["current.log"]);
    }

    #[test]
    fn a_compressed_copy_beside_its_file_is_left_out() {
        let folder = Folder::new();
        let text = "line\n".repeat(50_000);
        for (name, packed) in [("a.log", &text[..]), ("b.log", &text[5..])] {
            folder.write(&format!("files/{name}"), &text);
            folder.write(&format!("files/{name}.zst"), zstd::encode_all(packed.as_bytes(), 1).unwrap());
        }
        folder.write("files/c.log", &text);
        folder.write("files/c.log.gz", "no gzip");
        let expected =
            ["a.log", "b.log", "b.log.zst", "c.log", "c.log.gz"].map(|name| format!("files/{name}"));
        assert_eq!(found(&folder, &["files"]), expected);
    }
}
