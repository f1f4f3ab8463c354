//! Programs that targets need, looked for on this machine.

use std::{env, fs, os::unix::fs::PermissionsExt, path::Path};

/// Folders that hold servers and that only root's search path has; the lab looks there too.
const MORE: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Whether a program can be run: a path, or a name in the search path.
pub(super) fn is_installed(program: &str) -> bool {
    let is_program = |path: &Path| {
        fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    if program.contains('/') {
        return is_program(Path::new(program));
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders = env::split_paths(&path).chain(MORE.map(Into::into));
    !program.is_empty() && folders.any(|folder| is_program(&folder.join(program)))
}
