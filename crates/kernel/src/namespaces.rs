//! Namespaces, entered by handles that we hold: a number looked up again may be another process's.

use std::{
    fs::File,
    io,
    os::{fd::AsFd, unix::fs::MetadataExt},
    path::PathBuf,
    thread,
};

pub use rustix::thread::LinkNameSpaceType as Kind;

/// The file that is a handle of a process's namespace; [`File::open`] holds it.
pub fn of(process: u32, kind: Kind) -> PathBuf {
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

/// What tells one namespace from another.
///
/// # Errors
/// When it cannot be looked at.
pub fn identity(namespace: &File) -> io::Result<(u64, u64)> {
    namespace.metadata().map(|file| (file.dev(), file.ino()))
}

/// The same of this process's own.
///
/// # Errors
/// When it cannot be looked at.
pub fn own_identity(kind: Kind) -> io::Result<(u64, u64)> {
    identity(&File::open(file("self", kind))?)
}

/// Moves the calling thread into a namespace; a namespace of process numbers is that of its children to come.
///
/// # Errors
/// When the kernel refuses.
pub fn enter(namespace: impl AsFd, kind: Kind) -> io::Result<()> {
    Ok(rustix::thread::move_into_link_name_space(namespace.as_fd(), Some(kind))?)
}

/// Moves the calling process, which has no other thread, into the user namespace of another if that is not its own: what
/// belongs to the other's namespace is then its to change.
///
/// # Errors
/// When the kernel refuses.
pub fn enter_user_of(process: u32) -> io::Result<()> {
    let user = File::open(of(process, Kind::User))?;
    if identity(&user)? == own_identity(Kind::User)? {
        return Ok(());
    }
    enter(user, Kind::User)
}

/// Runs `work` inside a network namespace, on a thread of its own.
///
/// # Errors
/// When it cannot be entered, and those of `work`.
pub fn inside<T: Send>(
    network: impl AsFd + Sync,
    work: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    thread::scope(|scope| {
        let worker = thread::Builder::new().spawn_scoped(scope, || {
            enter(network.as_fd(), Kind::Network)?;
            work()
        })?;
        worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_told_by_its_file() {
        for kind in [Kind::Network, Kind::User, Kind::ProcessID] {
            let file = File::open(of(std::process::id(), kind)).unwrap();
            assert_eq!(identity(&file).unwrap(), own_identity(kind).unwrap());
        }
        assert_ne!(own_identity(Kind::Network).unwrap(), own_identity(Kind::User).unwrap());
        enter_user_of(std::process::id()).unwrap();
    }
}
