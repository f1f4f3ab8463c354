//! Makes sure that `/proc` belongs to the PID namespace of this process.

use std::{fs, io};

use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
};

/// Makes `/proc` show the process numbers of this process's PID namespace.
///
/// If a process in a new PID namespace keeps the old `/proc`, its process numbers refer to foreign processes there,
/// whose namespaces it could enter. Such a process gets a mount namespace with its own `/proc`.
///
/// Call this before any thread is started, because existing threads keep the old `/proc`.
///
/// # Errors
/// If the kernel refuses the mount. `/proc` must then not be used to look up process numbers.
pub fn ensure_own_proc() -> io::Result<()> {
    if undo::proc_shows_own_pids() {
        return Ok(());
    }
    let mounted = || {
        unshare(CloneFlags::CLONE_NEWNS)?;
        let none = None::<&str>;
        // A slave mount: new mounts outside appear here, but mounts here do not appear outside.
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_SLAVE, none)?;
        let harmless = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        mount(Some("proc"), "/proc", Some("proc"), harmless, none)
    };
    let why = match mounted() {
        Ok(()) if undo::proc_shows_own_pids() => return Ok(()),
        Ok(()) => "a newly mounted /proc shows another one too".to_owned(),
        Err(error) => format!("mounting another /proc failed: {error}"),
    };
    let shown =
        fs::read_link("/proc/self").map_or_else(|_| "nobody".to_owned(), |path| path.display().to_string());
    Err(io::Error::other(format!(
        "/proc shows another PID namespace: this process is {shown} there, but {} in its own; {why}; mount the right \
         /proc as root: unshare --mount --pid --fork --mount-proc",
        std::process::id()
    )))
}
