//! Finds the files to copy below the sources, and their targets.

use std::{
    cell::Cell,
    collections::VecDeque,
    fs::{self, Metadata},
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::Path,
    rc::Rc,
    sync::atomic::{AtomicBool, Ordering},
};

use sftp::{Attributes, FileType, Request};
use tokio::{sync::Semaphore, task::spawn_local};

use crate::{
    channel::Channel,
    error::{Error, Result},
    file_filter::FileFilter,
    item::{Item, Kind, permissions},
    location::{below, shown},
    pending::Pending,
    remote::{ASKED_AT_ONCE, LISTINGS, MAX_ITEMS},
};

/// Maximum bytes of a path. No system opens longer paths.
const MAX_PATH_BYTES: usize = 4_096;

/// For each piece of this size, in bytes, a path counts as one more name.
const USUAL_PATH_BYTES: usize = 256;

/// The files that were found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// The items. Folders come before their entries.
    pub(crate) items: Vec<Item>,
    pub(crate) problems: Vec<Problem>,
}

/// A file or folder that cannot be copied.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) source: Vec<u8>,
    pub(crate) why: String,
}

impl Problem {
    pub(crate) fn new(source: &[u8], why: impl ToString) -> Self {
        Self { source: source.to_vec(), why: why.to_string() }
    }
}

/// Finds the files below a path of this machine. Stops early if `stop` is set.
pub(crate) fn find_here(
    source: &Path,
    target: Vec<u8>,
    choice: &FileFilter,
    stop: &AtomicBool,
    found: &mut Found,
) {
    here(source, b"", target, (choice, stop), &mut Vec::new(), found);
}

fn here(
    source: &Path,
    relative: &[u8],
    target: Vec<u8>,
    (choice, stop): (&FileFilter, &AtomicBool),
    ancestors: &mut Vec<(u64, u64)>,
    found: &mut Found,
) {
    if stop.load(Ordering::Relaxed) {
        return;
    }
    let path = source.as_os_str().as_bytes();
    let mut problem = |why: String| found.problems.push(Problem::new(path, why));
    let metadata = match fs::symlink_metadata(source) {
        Ok(metadata) => metadata,
        Err(error) => return problem(error.to_string()),
    };
    if metadata.is_symlink() && choice.links && !relative.is_empty() {
        if !choice.has(relative, false) {
            return;
        }
        match fs::read_link(source) {
            Ok(to) => found.items.push(local_item(
                path,
                target,
                Kind::Link(to.as_os_str().as_bytes().to_vec()),
                &metadata,
                relative,
            )),
            Err(error) => problem(error.to_string()),
        }
        return;
    }
    let behind = match fs::metadata(source) {
        Ok(behind) => behind,
        Err(error) => {
            return problem(format!("{error}{}", if metadata.is_symlink() { "; it is a link" } else { "" }));
        }
    };
    if !relative.is_empty() && !choice.has(relative, behind.is_dir()) {
        return;
    }
    if behind.is_file() {
        return found.items.push(local_item(path, target, Kind::File, &behind, relative));
    }
    if !behind.is_dir() {
        return problem("not a regular file".to_owned());
    }
    if !choice.recursive {
        return problem("is a folder; copy it with -r".to_owned());
    }
    let identity = (behind.dev(), behind.ino());
    if ancestors.contains(&identity) {
        return problem("a link leads back to a folder above; copy links as links with --links".to_owned());
    }
    let entries = match fs::read_dir(source) {
        Ok(entries) => entries,
        Err(error) => return problem(error.to_string()),
    };
    let mut names = Vec::new();
    for entry in entries {
        match entry {
            Ok(entry) => names.push(entry.file_name()),
            Err(error) => problem(format!("cannot list the whole folder: {error}")),
        }
    }
    names.sort();
    found.items.push(local_item(path, target.clone(), Kind::Folder, &behind, relative));
    ancestors.push(identity);
    for name in names {
        let bytes = name.as_bytes();
        let (relative, target) = (below(relative, bytes), below(&target, bytes));
        here(&source.join(&name), &relative, target, (choice, stop), ancestors, found);
    }
    ancestors.pop();
}

fn local_item(source: &[u8], target: Vec<u8>, kind: Kind, metadata: &Metadata, relative: &[u8]) -> Item {
    Item {
        named_bytes: target.len() - relative.len(),
        source: source.to_vec(),
        permissions: permissions(metadata.mode(), kind == Kind::Folder),
        target,
        kind,
        size_bytes: metadata.len(),
        accessed_s: metadata.atime(),
        modified_s: metadata.mtime(),
        modified_ns: i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec()),
    }
}

/// A folder of the other machine that has not been listed yet.
#[derive(Debug)]
struct Folder {
    source: Vec<u8>,
    relative: Vec<u8>,
    target: Vec<u8>,
    /// The absolute paths of the parents that were reached through links.
    above: Vec<Vec<u8>>,
}

/// Finds the files below a path of the other machine. `asked` is the pending request for the path's attributes. Folders
/// of the same depth are listed concurrently.
///
/// # Errors
/// If the connection is lost.
pub(crate) async fn find_there(
    channel: &Rc<Channel>,
    (source, asked): (Vec<u8>, Pending),
    target: Vec<u8>,
    choice: &FileFilter,
    found: &mut Found,
) -> Result {
    let attributes = match Error::unless_lost(asked.behind().await)? {
        Ok(Some(attributes)) => attributes,
        absent => {
            let why = absent.err().map_or("no such file there".to_owned(), |error| error.to_string());
            found.problems.push(Problem::new(&source, why));
            return Ok(());
        }
    };
    let mut folders = Vec::new();
    let bounds = Rc::new(Bounds { left: Cell::new(MAX_ITEMS), at_once: Semaphore::new(LISTINGS) });
    let first = Folder { source, relative: Vec::new(), target, above: Vec::new() };
    take(first, attributes, choice, &mut folders, found);
    // The limit on the length of paths guarantees that this loop ends.
    loop {
        let listings: Vec<_> = folders
            .drain(..)
            .map(|folder| spawn_local(list(Rc::clone(channel), folder, choice.links, Rc::clone(&bounds))))
            .collect();
        if listings.is_empty() {
            return Ok(());
        }
        for listing in listings {
            let (folder, listed) = listing.await.map_err(|error| Error::Lost(error.to_string()))?;
            if found.items.len() > MAX_ITEMS {
                let why = format!("there are more than {MAX_ITEMS} files; copy its subfolders one by one");
                found.problems.push(Problem::new(&folder, why));
                return Ok(());
            }
            match Error::unless_lost(listed)? {
                Ok(listed) => {
                    found.problems.extend(listed.problems);
                    for (entry, attributes) in listed.entries {
                        take(entry, attributes, choice, &mut folders, found);
                    }
                }
                Err(error) => found.problems.push(Problem::new(&folder, error)),
            }
        }
    }
}

#[derive(Debug, Default)]
struct Listed {
    entries: Vec<(Folder, Attributes)>,
    problems: Vec<Problem>,
}

/// The limits that all listings of a search share.
#[derive(Debug)]
struct Bounds {
    /// Number of names that may still be listed.
    left: Cell<usize>,
    at_once: Semaphore,
}

async fn list(
    channel: Rc<Channel>,
    folder: Folder,
    links: bool,
    bounds: Rc<Bounds>,
) -> (Vec<u8>, Result<Listed>) {
    let _turn = bounds.at_once.acquire().await;
    let listed = entries(&channel, &folder, links, &bounds.left).await;
    (folder.source, listed)
}

async fn entries(channel: &Channel, folder: &Folder, links: bool, left: &Cell<usize>) -> Result<Listed> {
    let (mut names, refused) = channel.list(&folder.source, left).await?;
    names.sort_by(|a, b| a.0.cmp(&b.0));
    let (mut listed, mut too_long) = (Listed::default(), 0);
    for name in refused {
        let name = if name.is_empty() { String::new() } else { shown(&name) };
        let why = format!("the server lists a file '{name}', which is not a valid file name; it is left out");
        listed.problems.push(Problem::new(&folder.source, why));
    }
    for some in names.chunks(ASKED_AT_ONCE) {
        let mut asked = VecDeque::new();
        for (name, attributes) in some {
            if attributes.file_type() == Some(FileType::Symlink) && !links {
                asked.push_back(channel.begin(&Request::Stat(&below(&folder.source, name)))?);
            }
        }
        for (name, attributes) in some {
            let mut attributes = *attributes;
            let source = below(&folder.source, name);
            let is_link = attributes.file_type() == Some(FileType::Symlink);
            let asked = if is_link { asked.pop_front() } else { None };
            // A long path takes as much memory as several names, so it counts as several.
            left.set(left.get().saturating_sub(source.len() / USUAL_PATH_BYTES));
            if source.len() > MAX_PATH_BYTES {
                too_long += 1;
                continue;
            }
            let mut above = folder.above.clone();
            if let Some(asked) = asked {
                match Error::unless_lost(behind(channel, folder, (&source, asked), &mut above).await)? {
                    Ok(behind) => attributes = behind,
                    Err(error) => {
                        listed.problems.push(Problem::new(&source, error));
                        continue;
                    }
                }
            }
            let (relative, target) = (below(&folder.relative, name), below(&folder.target, name));
            listed.entries.push((Folder { relative, target, source, above }, attributes));
        }
    }
    if too_long > 0 {
        let why = format!("{too_long} paths in it exceed {MAX_PATH_BYTES} bytes, the limit of all systems");
        listed.problems.push(Problem::new(&folder.source, why));
    }
    Ok(listed)
}

/// Waits for the attributes of the file that a link in a folder leads to. If that is a folder, adds its path to
/// `above`.
async fn behind(
    channel: &Channel,
    folder: &Folder,
    (link, asked): (&[u8], Pending),
    above: &mut Vec<Vec<u8>>,
) -> Result<Attributes> {
    let behind = asked.behind().await?;
    let behind = behind.ok_or_else(|| Error::Local("the link leads nowhere".to_owned()))?;
    if behind.file_type() == Some(FileType::Directory) {
        let (real, folder_path) =
            tokio::try_join!(channel.real_path(link), channel.real_path(&folder.source))?;
        if above.contains(&real) || folder_path.starts_with(&below(&real, b"")) || folder_path == real {
            let why = "a link leads back to a folder above; copy links as links with --links";
            return Err(Error::Local(why.to_owned()));
        }
        above.push(real);
    }
    Ok(behind)
}

/// Adds an entry to the items to copy, and to the folders to list if it is one; or adds it to the problems.
fn take(
    entry: Folder,
    attributes: Attributes,
    choice: &FileFilter,
    folders: &mut Vec<Folder>,
    found: &mut Found,
) {
    let is_folder = attributes.file_type() == Some(FileType::Directory);
    if !entry.relative.is_empty() && !choice.has(&entry.relative, is_folder) {
        return;
    }
    let kind = match attributes.file_type() {
        Some(FileType::Directory) if choice.recursive => Kind::Folder,
        Some(FileType::Directory) => {
            return found.problems.push(Problem::new(&entry.source, "is a folder; copy it with -r"));
        }
        // The target of the link is read when the link is created.
        Some(FileType::Symlink) => Kind::Link(Vec::new()),
        Some(FileType::Other) => {
            return found.problems.push(Problem::new(&entry.source, "not a regular file"));
        }
        Some(FileType::Regular) | None => Kind::File,
    };
    let times = attributes.times;
    let modified_s = times.map_or(0, |times| i64::from(times.modified_s));
    found.items.push(Item {
        source: entry.source.clone(),
        target: entry.target.clone(),
        named_bytes: entry.target.len() - entry.relative.len(),
        kind,
        size_bytes: attributes.size.unwrap_or(0),
        permissions: permissions(
            attributes.permissions.unwrap_or(if is_folder { 0o755 } else { 0o644 }),
            is_folder,
        ),
        accessed_s: times.map_or(0, |times| i64::from(times.accessed_s)),
        modified_s,
        modified_ns: i128::from(modified_s) * 1_000_000_000,
    });
    if is_folder {
        folders.push(entry);
    }
}
