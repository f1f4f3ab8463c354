//! Looks for programs on this machine.

use std::{env, fs, os::unix::fs::PermissionsExt, path::Path};

/// Folders of servers that are often missing in the search path of users; the lab looks there too.
const SYSTEM_FOLDERS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

pub(super) fn is_installed(program: &str) -> bool {
    let is_program = |path: &Path| {
        fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    if program.contains('/') {
        return is_program(Path::new(program));
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders = env::split_paths(&path).chain(SYSTEM_FOLDERS.map(Into::into));
    !program.is_empty() && folders.any(|folder| is_program(&folder.join(program)))
}
