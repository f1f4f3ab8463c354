//! A `/proc` whose process numbers are those that this process has.

use std::{fs, io};

use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
};

/// Makes `/proc` show the process numbers that this process and its children have.
///
/// Whoever starts a namespace of process numbers, as the hosts of a lab have, and leaves `/proc` as it was, sees others'
/// processes under his own numbers: what he reads and enters there belongs to somebody else, perhaps the machine. This
/// process then gets a mount namespace with a `/proc` of its own; everything else in it stays as it is for others.
///
/// Call it first of all: threads that there are keep what they see.
///
/// # Errors
/// When the kernel refuses that; nothing may be looked up by a process number then.
pub fn ensure_own_proc() -> io::Result<()> {
    if undo::are_numbers_own() {
        return Ok(());
    }
    let mounted = || {
        unshare(CloneFlags::CLONE_NEWNS)?;
        let none = None::<&str>;
        // What is mounted outside shows here as well, and nothing of this outside.
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_SLAVE, none)?;
        let harmless = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        mount(Some("proc"), "/proc", Some("proc"), harmless, none)
    };
    let why = match mounted() {
        Ok(()) if undo::are_numbers_own() => return Ok(()),
        Ok(()) => "the one that was mounted does not show them either".to_owned(),
        Err(error) => format!("another one cannot be mounted: {error}"),
    };
    let shown =
        fs::read_link("/proc/self").map_or_else(|_| "nobody".to_owned(), |path| path.display().to_string());
    Err(io::Error::other(format!(
        "/proc is of another namespace of process numbers: it calls this process {shown}, which is process {}; {why}; mount \
         the right one, as root: unshare --mount --pid --fork --mount-proc",
        std::process::id()
    )))
}
