//! Checks that no other user can replace a folder or link on the path to a place.

use std::{
    env,
    ffi::OsString,
    fs::{self, Metadata},
    io::{self, ErrorKind},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf, absolute},
};

use rustix::{
    fs::getxattr,
    process::{getegid, geteuid},
};

use crate::{is_owned, named::MAX_LINKS, refused};

/// The user number that stands for all users unknown to a user namespace, such as the host's root in a container
/// without root.
const UNKNOWN_USER: u32 = 65_534;

/// Checks every folder and every link on a path, starting at `/`. If other users cannot change any of them, the path
/// leads to the same place until this process ends. Folders that are missing will be created by this user.
///
/// A folder may belong to this user, to root, or to a user in whose folder this program was started. Others may write
/// to it in two cases: it is sticky, as `/tmp` is; or only the own group of this user or of the folder's owner may
/// write, as with umask 002, no other user is in that group, and no access control list admits others.
///
/// # Errors
/// The first folder or link that others could change, with the reason.
pub fn keeps_names(path: &Path) -> Result<(), (PathBuf, io::Error)> {
    let named = absolute(path).map_err(|error| (path.to_owned(), error))?;
    let (mut at, mut links) = (PathBuf::from("/"), 0);
    let mut rest: Vec<OsString> = names(&named).collect();
    while let Some(name) = rest.pop() {
        let found = fs::metadata(&at).and_then(|folder| {
            judge_folder(&at, &folder)?;
            if name == ".." { Ok(folder) } else { fs::symlink_metadata(at.join(&name)) }
        });
        match found {
            Ok(_) if name == ".." => drop(at.pop()),
            Ok(link) if link.is_symlink() && links < MAX_LINKS => {
                at.push(&name);
                let led = judge_owner(&link).and_then(|()| fs::read_link(&at));
                let to = led.map_err(|error| (at.clone(), error))?;
                links += 1;
                at.pop();
                if to.is_absolute() {
                    at = PathBuf::from("/");
                }
                rest.extend(names(&to));
            }
            Ok(_) => at.push(&name),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            // A user without the permission to look up names in a folder cannot create any in it either.
            Err(error) if error.raw_os_error().is_some() && error.kind() == ErrorKind::PermissionDenied => {
                return Ok(());
            }
            Err(error) => return Err((at, error)),
        }
    }
    Ok(())
}

/// The names in a path, in reverse order.
fn names(path: &Path) -> impl Iterator<Item = OsString> {
    let names = path.components().rev().map(|part| part.as_os_str().to_owned());
    names.filter(|name| name != "/" && name != ".")
}

fn judge_folder(path: &Path, about: &Metadata) -> io::Result<()> {
    judge_owner(about)?;
    // If there is an access control list, the group bits apply to all users and groups in it (acl(5)).
    let has_list = || getxattr(path, "system.posix_acl_access", &mut [0_u8; 4_096]).is_ok();
    let is_own_group =
        || [about.uid(), getegid().as_raw()].contains(&about.gid()) && !has_others(about.gid(), about.uid());
    let is_open = about.mode() & 0o002 != 0 || about.mode() & 0o020 != 0 && (has_list() || !is_own_group());
    if is_open && about.mode() & 0o1000 == 0 {
        return Err(refused("can be written to by other users, who could rename what is made in it"));
    }
    Ok(())
}

/// Whether a group contains users other than this user, root and a folder's owner, according to this machine's files.
fn has_others(group: u32, owner: u32) -> bool {
    let rows = |file: &str| -> Vec<Vec<String>> {
        let text = fs::read_to_string(file).unwrap_or_default();
        text.lines().map(|line| line.split(':').map(str::to_owned).collect()).collect()
    };
    let number = |row: &[String], at: usize| row.get(at).and_then(|text| text.parse::<u32>().ok());
    let users = rows("/etc/passwd");
    let is_other =
        |user: &[String]| number(user, 2).is_none_or(|user| ![0, owner, geteuid().as_raw()].contains(&user));
    let is_named = |name: &str| users.iter().find(|user| user[0] == name).is_none_or(|user| is_other(user));
    let groups = rows("/etc/group");
    let named = groups.iter().filter(|row| number(row, 2) == Some(group)).filter_map(|row| row.get(3));
    users.iter().any(|user| number(user, 3) == Some(group) && is_other(user))
        || named.flat_map(|names| names.split(',')).filter(|name| !name.is_empty()).any(is_named)
}

fn judge_owner(about: &Metadata) -> io::Result<()> {
    let owner = about.uid();
    if is_owned(about) || is_host(owner) || owner == UNKNOWN_USER && knows_not_all() {
        return Ok(());
    }
    Err(refused(&format!("belongs to user {owner}")))
}

/// Whether this program was started in a folder of this user or below it, for example by root in another user's project
/// or container.
fn is_host(user: u32) -> bool {
    let Ok(here) = env::current_dir() else { return false };
    here.ancestors().any(|folder| fs::metadata(folder).is_ok_and(|folder| folder.uid() == user))
}

/// Whether this process is in a user namespace that does not contain all users.
fn knows_not_all() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    !map.is_empty() && map.split_whitespace().ne(["0", "0", "4294967295"])
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};

    use rustix::{
        fs::{XattrFlags, setxattr},
        io::Errno,
    };

    use super::*;

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    /// The refusal of a path below the folder `base`, with the refused folder relative to `base`.
    fn said(base: &Path, path: &str) -> Option<String> {
        let (folder, why) = keeps_names(&base.join(path)).err()?;
        let folder = folder.canonicalize().unwrap();
        Some(format!("{} {why}", folder.strip_prefix(base).unwrap().display()))
    }

    #[test]
    fn every_folder_on_the_way_keeps_names() {
        let place = tempfile::tempdir().unwrap();
        let base = place.path().canonicalize().unwrap();
        fs::create_dir_all(base.join("shared/own/sub")).unwrap();
        fs::create_dir_all(base.join("far/deep")).unwrap();
        symlink("own", base.join("shared/link")).unwrap();
        symlink(base.join("shared/own"), base.join("in")).unwrap();
        symlink("shared/../far", base.join("round")).unwrap();
        symlink("loop", base.join("loop")).unwrap();
        for (bits, is_sound) in [(0o755, true), (0o775, true), (0o1777, true), (0o777, false), (0o757, false)]
        {
            mode(&base.join("shared"), bits);
            for path in
                ["shared/new", "shared/own", "shared/own/sub/new/deeper", "shared/link/new", "in", "round/x"]
            {
                let said = said(&base, path);
                assert_eq!(said.is_none(), is_sound, "{bits:o} {path}: {said:?}");
                let right =
                    said.is_none_or(|said| said.starts_with("shared can be written to by other users"));
                assert!(right, "{bits:o} {path}");
            }
            // These paths do not pass through the folder.
            for path in ["far/deep", "far/new", "new"] {
                assert_eq!(said(&base, path), None, "{bits:o} {path}");
            }
        }
        mode(&base.join("shared"), 0o755);
        assert!(keeps_names(&base.join("loop/x")).is_err());
    }

    #[test]
    fn as_root_nothing_on_the_way_is_another_users() {
        const OTHER: Option<u32> = Some(61_234);
        let place = tempfile::tempdir().unwrap();
        let base = place.path().canonicalize().unwrap();
        fs::create_dir_all(base.join("theirs/own")).unwrap();
        fs::create_dir_all(base.join("far")).unwrap();
        chown(base.join("theirs"), OTHER, OTHER).unwrap();
        symlink("far", base.join("link")).unwrap();
        assert_eq!(said(&base, "link/new"), None);
        lchown(base.join("link"), OTHER, OTHER).unwrap();
        for path in ["theirs/new", "theirs/own/new", "link", "link/new"] {
            assert!(said(&base, path).is_some_and(|said| said.ends_with("belongs to user 61234")), "{path}");
        }
        // Members of another group may write to the folder.
        mode(&base.join("far"), 0o775);
        chown(base.join("far"), None, OTHER).unwrap();
        assert!(said(&base, "far/new").is_some());
        mode(&base.join("far"), 0o755);
        assert_eq!(said(&base, "far/new"), None);
        // The list lets one more user write, which appears as a right of the owning group. Entries: this user, 61234,
        // the group, the mask, others.
        chown(base.join("far"), Some(0), Some(0)).unwrap();
        let entries =
            [(1, 7, u32::MAX), (2, 7, 61_234), (4, 5, u32::MAX), (16, 7, u32::MAX), (32, 5, u32::MAX)];
        let mut list = 2_u32.to_le_bytes().to_vec();
        for (tag, rights, who) in entries {
            list.extend([tag, 0, rights, 0]);
            list.extend(u32::to_le_bytes(who));
        }
        let set = setxattr(base.join("far"), "system.posix_acl_access", &list, XattrFlags::empty());
        // Not every file system supports access control lists.
        if set != Err(Errno::OPNOTSUPP) {
            set.unwrap();
            assert!(said(&base, "far/new").is_some_and(|said| said.contains("written to by other users")));
        }
    }

    #[test]
    fn a_group_of_others_is_no_own_one() {
        // On Debian, the users `sync` and `nobody` are in this group.
        assert!(has_others(65_534, 0));
        assert!(!has_others(4_000_000, 0), "nobody is in it");
    }
}
