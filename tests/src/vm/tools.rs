//! Installed programs, copied into the machine with their shared libraries.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use testing::PATIENCE;

use super::archive::Archive;
use crate::{machine, process::Launch};

/// The folder in which Debian's `tc` looks for tables of delay distributions.
const TC_TABLES: &str = "/usr/lib/x86_64-linux-gnu/tc";

/// Adds an installed program as `/usr/bin/NAME`, with its libraries and data.
///
/// # Errors
/// If it is not installed or one of its libraries is missing.
pub(super) fn add(archive: &mut Archive, name: &str) -> Result<()> {
    let path = machine::program(name)
        .with_context(|| format!("{name} is not installed: run scripts/setup.sh test, or install it"))?;
    archive.host_file(&format!("/usr/bin/{name}"), &path)?;
    for library in libraries(&path)? {
        archive.host_file(&library.display().to_string(), &library)?;
    }
    if name == "tc" {
        for entry in fs::read_dir(TC_TABLES).into_iter().flatten().flatten() {
            if entry.path().extension().is_some_and(|extension| extension == "dist") {
                archive.host_file(&entry.path().display().to_string(), &entry.path())?;
            }
        }
    }
    Ok(())
}

/// The shared libraries of a program, including the loader; empty if the program is static.
///
/// # Errors
/// If they cannot be listed or one of them is missing.
pub(super) fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let listed = Launch::new("ldd").arg(program.display().to_string()).run(PATIENCE)?;
    if listed.code != Some(0) {
        // ldd reports a static program in this way.
        if (listed.stdout + &listed.stderr).contains("not a dynamic executable") {
            return Ok(Vec::new());
        }
        bail!("cannot list the libraries of {}", program.display());
    }
    if let Some(line) = listed.stdout.lines().find(|line| line.contains("not found")) {
        bail!("{} lacks a library: {}", program.display(), line.trim());
    }
    Ok(paths(&listed.stdout))
}

/// The absolute paths in lines such as `libc.so.6 => /lib/libc.so.6 (0x7f00)` and `/lib64/ld.so (0x7f00)`.
fn paths(listed: &str) -> Vec<PathBuf> {
    listed
        .lines()
        .filter_map(|line| line.split("=> ").last()?.split_whitespace().next())
        .filter(|word| word.starts_with('/'))
        .map(PathBuf::from)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_have_paths_and_the_kernel_s_has_none() {
        let listed = "\tlinux-vdso.so.1 (0x00007ffc)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x7f)\n\
                      \t/lib64/ld-linux-x86-64.so.2 (0x7f)\n";
        let expected = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"];
        assert_eq!(paths(listed), expected.map(PathBuf::from));
    }
}
