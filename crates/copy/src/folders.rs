//! Creates folders before the files are copied, and links afterwards.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    fs, io,
    os::unix::fs::PermissionsExt,
    rc::Rc,
};

use tokio::task::spawn_local;

use crate::{
    carrier::Carrier,
    channel::Channel,
    download::set_times,
    error::{Error, Result},
    item::{Item, Kind},
    location::shown,
    options::{CarryOptions, Direction},
    remote::{ASKED_AT_ONCE, NAME_IS_TAKEN, final_attributes},
    tree::Problem,
};

/// Target folders that could not be created or that belong to another item. Nothing is written below them.
#[derive(Debug, Default)]
pub(crate) struct Missing(HashSet<Vec<u8>>);

impl Missing {
    pub(crate) fn add(&mut self, folder: &Item) {
        self.0.insert(folder.target.clone());
    }

    /// Whether a folder is one of these or below one of them.
    pub(crate) fn has(&self, folder: &Item) -> bool {
        self.0.contains(&folder.target) || self.is_above(folder)
    }

    /// Whether an item is below one of these.
    pub(crate) fn is_above(&self, item: &Item) -> bool {
        let mut slashes = item.target.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        slashes.any(|(at, _)| self.0.contains(&item.target[..at]))
    }
}

/// Keeps only the first item of each target; folders with the same target are merged. A folder whose target belongs to
/// another item is left out, together with everything below it.
pub(crate) fn one_for_each_target(items: Vec<Item>, problems: &mut Vec<Problem>) -> Vec<Item> {
    let (mut first, mut missing, mut kept) = (HashMap::new(), Missing::default(), Vec::new());
    for item in items {
        let is_folder = item.kind == Kind::Folder;
        let Some((is_first_folder, source)) = first.get(&item.target) else {
            first.insert(item.target.clone(), (is_folder, item.source.clone()));
            kept.push(item);
            continue;
        };
        // A source that is named twice, for example by a pattern and by its name, is copied once and is no problem.
        if !(is_folder && *is_first_folder) && *source != item.source {
            let name = shown(&item.target);
            problems.push(Problem::new(
                &item.source,
                format!("another source has the same name {name} at the destination; only that is copied"),
            ));
        }
        if is_folder && !is_first_folder {
            missing.0.insert(item.target);
        }
    }
    kept.retain(|item| !missing.is_above(item));
    kept
}

/// The result of creating folders.
#[derive(Debug, Default)]
pub(crate) struct Made {
    pub(crate) missing: Missing,
    /// Targets that did not exist before.
    new: HashSet<Vec<u8>>,
}

/// Creates folders, parents first. Their owner can write to them until [`finish_folders`].
pub(crate) async fn make_folders(
    carrier: &Carrier,
    channel: &Channel,
    folders: &[Item],
    notes: &mut Vec<String>,
) -> Result<Made> {
    let mut all = Made::default();
    let depth = |folder: &&Item| folder.target.iter().filter(|byte| **byte == b'/').count();
    let mut sorted: Vec<&Item> = folders.iter().collect();
    sorted.sort_by_key(depth);
    // Folders of the same depth are created concurrently. Deeper ones follow when it is known whether their parents
    // exist.
    for level in sorted.chunk_by(|a, b| depth(a) == depth(b)) {
        for some in level.chunks(ASKED_AT_ONCE) {
            let some: Vec<&Item> =
                some.iter().copied().filter(|folder| !all.missing.is_above(folder)).collect();
            let mut asked = VecDeque::new();
            if carrier.options.direction == Direction::Up {
                for folder in &some {
                    asked.push_back(channel.begin_folder(folder, at_first(folder))?);
                }
            }
            for folder in some {
                let made = match asked.pop_front() {
                    Some(folder) => {
                        Error::unless_lost(folder.made().await)?.map_err(|error| error.to_string())
                    }
                    None => carrier.held.make_folder(folder, at_first(folder)).map_err(|error| {
                        let is_taken = error.kind() == io::ErrorKind::AlreadyExists;
                        if is_taken { NAME_IS_TAKEN.to_owned() } else { error.to_string() }
                    }),
                };
                match made {
                    Ok(true) => drop(all.new.insert(folder.target.clone())),
                    Ok(false) => {}
                    Err(why) => {
                        all.missing.add(folder);
                        notes.push(folder.not_made(&why));
                    }
                }
            }
        }
    }
    Ok(all)
}

/// Permissions of a folder while it is being filled: those of its source plus those that its owner needs to fill it.
fn at_first(folder: &Item) -> u32 {
    folder.permissions | 0o700
}

/// Gives folders their final attributes, children first. As in scp, a new folder gets the permissions of its source. On
/// this machine, the umask reduces them, unless the owner would lack permissions that were needed to fill the folder.
pub(crate) async fn finish_folders(
    carrier: &Carrier,
    channel: &Channel,
    folders: &[Item],
    made: &Made,
    warnings: &mut Vec<String>,
) {
    let CarryOptions { preserve, direction, .. } = carrier.options;
    let is_set = |folder: &&Item| {
        let is_umask_kept = direction == Direction::Down && at_first(folder) == folder.permissions;
        preserve || made.new.contains(&folder.target) && !is_umask_kept
    };
    let from_below: Vec<&Item> = folders.iter().rev().filter(is_set).collect();
    for some in from_below.chunks(ASKED_AT_ONCE) {
        let set_up = |folder: &Item| {
            let attributes = final_attributes(folder, preserve, Some(folder.permissions));
            channel.begin_set(&folder.target, attributes)
        };
        let asked: Vec<_> = match direction {
            Direction::Up => some.iter().map(|folder| Some(set_up(folder))).collect(),
            Direction::Down => some.iter().map(|_| None).collect(),
        };
        for (folder, asked) in some.iter().zip(asked) {
            let set = match asked {
                Some(Ok(asked)) => {
                    channel.set(&folder.target, asked).await.map_err(|error| error.to_string())
                }
                Some(Err(error)) => Err(error.to_string()),
                None => set_here(carrier, folder).map_err(|error| error.to_string()),
            };
            // Some servers refuse all such requests. Without -p, the user did not ask for these attributes, so there is
            // no warning.
            if let (true, Err(why)) = (preserve, set) {
                warnings.push(format!("{}: cannot set times and permissions: {why}", shown(&folder.target)));
            }
        }
    }
}

fn set_here(carrier: &Carrier, folder: &Item) -> io::Result<()> {
    let opened = carrier.held.open_folder(folder)?;
    opened.set_permissions(fs::Permissions::from_mode(folder.permissions))?;
    if carrier.options.preserve { set_times(&opened, folder) } else { Ok(()) }
}

/// Creates many links concurrently. Returns the sources of the links that could not be created, with the reasons.
pub(crate) async fn make_links(
    carrier: &Rc<Carrier>,
    channel: &Rc<Channel>,
    links: Vec<Item>,
) -> Vec<(Vec<u8>, String)> {
    let mut failed = Vec::new();
    for some in links.chunks(ASKED_AT_ONCE) {
        let made: Vec<_> = some
            .iter()
            .map(|item| {
                let (carrier, channel, item) = (Rc::clone(carrier), Rc::clone(channel), item.clone());
                spawn_local(async move { make_link(&carrier, &channel, &item).await })
            })
            .collect();
        for (item, made) in some.iter().zip(made) {
            let made = made.await.map_err(|error| error.to_string()).flatten();
            failed.extend(made.err().map(|why| (item.source.clone(), why)));
        }
    }
    failed
}

async fn make_link(carrier: &Carrier, channel: &Channel, item: &Item) -> Result<(), String> {
    let words = |error: Error| error.to_string();
    match (carrier.options.direction, &item.kind) {
        (Direction::Up, Kind::Link(to)) => {
            if channel.lstat(&item.target).await.map_err(words)?.is_some() {
                channel.remove(&item.target).await.map_err(words)?;
            }
            channel.symlink(to, &item.target).await.map_err(words)
        }
        _ => {
            let to = channel.read_link(&item.source).await.map_err(words)?;
            carrier.held.make_link(item, &to).map_err(|error| error.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::item;

    #[test]
    fn what_would_come_into_a_folder_that_is_left_out_is_left_out() {
        let of = |number: usize, target: &str, kind: Kind| Item {
            target: target.into(),
            kind,
            ..item(&format!("source {number}"), 1)
        };
        let (link, folder, file) = (Kind::Link(b"/etc".to_vec()), Kind::Folder, Kind::File);
        let items = [
            ("/t", &folder),
            ("/t/a", &link),
            ("/t/a", &folder),
            ("/t/a/evil", &file),
            ("/t/a/b", &folder),
            ("/t/a/b/evil", &file),
            ("/t/ab", &file),
            ("/t/c", &folder),
            ("/t/c/one", &file),
            ("/t/c", &folder),
            ("/t/c/two", &file),
            ("/t/c", &file),
        ];
        let mut problems = Vec::new();
        let items = items.into_iter().enumerate().map(|(at, (target, kind))| of(at, target, kind.clone()));
        let mut items: Vec<_> = items.collect();
        // This item is named twice.
        items.push(items[6].clone());
        let kept = one_for_each_target(items, &mut problems);
        let kept: Vec<_> = kept.iter().map(|item| String::from_utf8_lossy(&item.target)).collect();
        assert_eq!(kept, ["/t", "/t/a", "/t/ab", "/t/c", "/t/c/one", "/t/c/two"]);
        assert_eq!(problems.len(), 2, "{problems:?}");
    }
}
