//! Makes sure that `/proc` belongs to the PID namespace of this process.

use std::{fs, io};

use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
};

/// Makes `/proc` show the process numbers of this process's PID namespace.
///
/// A process in a new PID namespace that keeps the old `/proc` finds foreign processes under its own numbers and could
/// enter their namespaces. In this case, the process gets a mount namespace with its own `/proc`.
///
/// Call this before any thread is started: existing threads keep the old `/proc`.
///
/// # Errors
/// When the kernel refuses the mount. Nothing may be looked up in `/proc` by a process number then.
pub fn ensure_own_proc() -> io::Result<()> {
    if undo::proc_shows_own_pids() {
        return Ok(());
    }
    let mounted = || {
        unshare(CloneFlags::CLONE_NEWNS)?;
        let none = None::<&str>;
        // Mounts outside appear here too; mounts here do not appear outside.
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_SLAVE, none)?;
        let harmless = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        mount(Some("proc"), "/proc", Some("proc"), harmless, none)
    };
    let why = match mounted() {
        Ok(()) if undo::proc_shows_own_pids() => return Ok(()),
        Ok(()) => "a newly mounted /proc is of another one too".to_owned(),
        Err(error) => format!("mounting another /proc failed: {error}"),
    };
    let shown =
        fs::read_link("/proc/self").map_or_else(|_| "nobody".to_owned(), |path| path.display().to_string());
    Err(io::Error::other(format!(
        "/proc is of another PID namespace: it calls this process {shown}, which is process {}; {why}; mount the right \
         /proc as root: unshare --mount --pid --fork --mount-proc",
        std::process::id()
    )))
}
