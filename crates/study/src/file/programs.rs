//! Looks for programs on this machine.

use std::{env, fs, os::unix::fs::PermissionsExt, path::Path};

use settings::{Reader, Value, values_of};

/// Folders of server programs that users' search paths often lack. The lab searches them, too.
const SYSTEM_FOLDERS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Reads the name or names of programs, and returns those that are not installed.
pub(super) fn missing<'d>(reader: &mut Reader<'_>, value: &'d Value<'d>) -> Vec<&'d str> {
    let names = values_of(value)
        .iter()
        .filter_map(|value| reader.text_such_as(value, "the name of a program in quotes"));
    names.filter(|name| !is_installed(name)).collect()
}

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
