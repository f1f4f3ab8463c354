//! Folders and links, which are made around the files.

use std::{collections::VecDeque, fs, io, os::unix::fs::PermissionsExt};

use crate::{
    carrier::Direction,
    channel::Channel,
    download::set_times,
    file::{Item, Kind},
    location::os,
    remote::final_attributes,
    tree::{below, link_here},
    trouble::Trouble,
};

/// Folders that are asked for at once.
const FOLDERS_AT_ONCE: usize = 256;

/// Makes folders, those above first. They can be written to until they are full. Returns those that could not be made.
pub(crate) async fn make_folders(
    direction: Direction,
    channel: &Channel,
    folders: &[Item],
    notes: &mut Vec<String>,
) -> Result<Vec<Vec<u8>>, Trouble> {
    let mut missing: Vec<Vec<u8>> = Vec::new();
    let depth = |folder: &&Item| folder.target.iter().filter(|byte| **byte == b'/').count();
    let mut sorted: Vec<&Item> = folders.iter().collect();
    sorted.sort_by_key(depth);
    // Those of one depth at once, and those below when it is known what they are made in.
    for level in sorted.chunk_by(|a, b| depth(a) == depth(b)) {
        for some in level.chunks(FOLDERS_AT_ONCE) {
            let is_below =
                |folder: &Item| missing.iter().any(|above| folder.target.starts_with(&below(above, b"")));
            let some: Vec<&Item> = some.iter().copied().filter(|folder| !is_below(folder)).collect();
            let mut asked = VecDeque::new();
            if direction == Direction::Up {
                for folder in &some {
                    asked
                        .push_back(channel.begin_folder(&folder.target, folder.permissions & 0o777 | 0o700)?);
                }
            }
            for folder in some {
                let made = match asked.pop_front() {
                    Some(folder) => match folder.made().await {
                        Err(trouble @ Trouble::Lost(_)) => return Err(trouble),
                        made => made.map_err(|trouble| trouble.to_string()),
                    },
                    None => match fs::create_dir(os(&folder.target)) {
                        // Below the folder that the user named, no link leads elsewhere.
                        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && is_folder(folder) => {
                            Ok(())
                        }
                        made => made.map_err(|error| error.to_string()),
                    },
                };
                if let Err(why) = made {
                    missing.push(folder.target.clone());
                    let name = String::from_utf8_lossy(&folder.target);
                    notes.push(format!("{name}: cannot make the folder: {why}"));
                }
            }
        }
    }
    Ok(missing)
}

fn is_folder(item: &Item) -> bool {
    let target = os(&item.target);
    let known = if item.is_named { fs::metadata(target) } else { fs::symlink_metadata(target) };
    known.is_ok_and(|known| known.is_dir())
}

/// Gives folders their attributes, those below first.
pub(crate) async fn finish_folders(
    preserve: bool,
    direction: Direction,
    channel: &Channel,
    folders: &[Item],
    notes: &mut Vec<String>,
) {
    if !preserve {
        return;
    }
    for folder in folders.iter().rev() {
        let set = match direction {
            Direction::Up => {
                let set = channel.set(&folder.target, final_attributes(folder, true, None)).await;
                set.map_err(|trouble| trouble.to_string())
            }
            Direction::Down => fs::File::open(os(&folder.target))
                .and_then(|file| {
                    file.set_permissions(fs::Permissions::from_mode(folder.permissions))?;
                    set_times(&file, folder)
                })
                .map_err(|error| error.to_string()),
        };
        if let Err(why) = set {
            notes.push(format!(
                "{}: cannot set times and permissions: {why}",
                String::from_utf8_lossy(&folder.target)
            ));
        }
    }
}

pub(crate) async fn make_link(direction: Direction, channel: &Channel, item: &Item) -> Result<(), String> {
    let words = |trouble: Trouble| trouble.to_string();
    match (direction, &item.kind) {
        (Direction::Up, Kind::Link(to)) => {
            if channel.lstat(&item.target).await.map_err(words)?.is_some() {
                channel.remove(&item.target).await.map_err(words)?;
            }
            channel.symlink(to, &item.target).await.map_err(words)
        }
        _ => {
            let to = channel.read_link(&item.source).await.map_err(words)?;
            link_here(item, &to).map_err(|error| error.to_string())
        }
    }
}
