//! Namespaces. They are entered through open files, because a process id may be reused by another process.

use std::{
    fs::File,
    io,
    os::{fd::AsFd, unix::fs::MetadataExt},
    path::PathBuf,
    thread,
};

pub use rustix::thread::LinkNameSpaceType as Kind;

/// The file in `/proc` that represents a process's namespace. The namespace exists at least as long as the file is
/// open.
pub fn path_of(process: u32, kind: Kind) -> PathBuf {
    file(&process.to_string(), kind)
}

fn file(process: &str, kind: Kind) -> PathBuf {
    let name = match kind {
        Kind::Network => "net",
        Kind::User => "user",
        Kind::ProcessID => "pid",
        Kind::Mount => "mnt",
        Kind::Time => "time",
        Kind::ControlGroup => "cgroup",
        Kind::HostNameAndNISDomainName => "uts",
        Kind::InterProcessCommunication => "ipc",
    };
    format!("/proc/{process}/ns/{name}").into()
}

/// Device and inode of a namespace, which identify it.
///
/// # Errors
/// If the file's metadata cannot be read.
pub fn identity(namespace: &File) -> io::Result<(u64, u64)> {
    namespace.metadata().map(|file| (file.dev(), file.ino()))
}

/// This process's own namespace, even if `/proc` belongs to another PID namespace.
///
/// # Errors
/// If the namespace's file cannot be opened.
pub fn own(kind: Kind) -> io::Result<File> {
    File::open(file("self", kind))
}

/// The identity of this process's own namespace.
///
/// # Errors
/// If the namespace's file cannot be opened.
pub fn own_identity(kind: Kind) -> io::Result<(u64, u64)> {
    identity(&own(kind)?)
}

/// The outermost ancestor of this process that has the same root folder and whose mount namespace this process may
/// enter. Usually this is the first process, unless that has more privileges or this process has another root
/// (`chroot`). None if there is no such ancestor.
pub fn outermost_ancestor() -> Option<u32> {
    let parent = |process: &str| -> Option<u32> {
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok())
    };
    let root_of = |path: &str| std::fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
    let own_root = root_of("/")?;
    let ancestors = std::iter::successors(parent("self"), |process| parent(&process.to_string()));
    ancestors
        .take_while(|process| *process > 0)
        .filter(|process| root_of(&format!("/proc/{process}/root/")) == Some(own_root))
        .filter(|process| File::open(path_of(*process, Kind::Mount)).is_ok())
        .last()
}

/// Moves the calling thread into a namespace. A PID namespace does not apply to the thread itself but to its later
/// children.
///
/// # Errors
/// When the kernel refuses.
pub fn enter(namespace: impl AsFd, kind: Kind) -> io::Result<()> {
    Ok(rustix::thread::move_into_link_name_space(namespace.as_fd(), Some(kind))?)
}

/// Moves the calling process into the user namespace of another process, unless it is already there. It may then change
/// objects that belong to that namespace. The calling process must have a single thread.
///
/// # Errors
/// When the kernel refuses.
pub fn enter_user_of(process: u32) -> io::Result<()> {
    let user = File::open(path_of(process, Kind::User))?;
    if identity(&user)? == own_identity(Kind::User)? {
        return Ok(());
    }
    enter(user, Kind::User)
}

/// Runs `work` in a network namespace on a new thread.
///
/// # Errors
/// If the namespace cannot be entered, and the errors of `work`.
pub fn run_in_network<T: Send>(
    network: impl AsFd + Sync,
    work: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    run_apart(|| {
        enter(network.as_fd(), Kind::Network)?;
        work()
    })
}

/// Runs `work` in another mount namespace on a new thread.
///
/// # Errors
/// If the namespace cannot be entered, and the errors of `work`.
pub fn run_in_mounts<T: Send>(
    mounts: impl AsFd + Sync,
    work: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    run_apart(|| {
        // Linux refuses to move a thread that shares its working folder with other threads.
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_FS)?;
        enter(mounts.as_fd(), Kind::Mount)?;
        work()
    })
}

fn run_apart<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let worker = thread::Builder::new().spawn_scoped(scope, work)?;
        worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_identified_by_its_file() {
        for kind in [Kind::Network, Kind::User, Kind::ProcessID] {
            let file = File::open(path_of(std::process::id(), kind)).unwrap();
            assert_eq!(identity(&file).unwrap(), own_identity(kind).unwrap());
        }
        assert_ne!(own_identity(Kind::Network).unwrap(), own_identity(Kind::User).unwrap());
        enter_user_of(std::process::id()).unwrap();
    }
}
