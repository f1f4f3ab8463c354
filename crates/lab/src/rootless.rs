//! Labs without root, in a user namespace.

use std::{fs, io};

use nix::sched::{CloneFlags, unshare};
use rustix::process::{getegid, geteuid};

/// Enters a new user namespace in which this user is root and may create networks. Does nothing if the user is already
/// root. Returns whether a namespace was entered.
///
/// Call this before any thread is started, because the kernel refuses a user namespace to a process with several
/// threads. Call [`undo::Folder::of_this_user`] first, because user numbers are different inside the namespace.
///
/// # Errors
/// If the kernel refuses. The message says which setting or right is missing.
pub fn enter_user_namespace() -> io::Result<bool> {
    let (user, group) = (geteuid(), getegid());
    if user.is_root() {
        return Ok(false);
    }
    let explain = |error: io::Error| {
        io::Error::new(
            error.kind(),
            format!(
                "labs need root or user namespaces, and the kernel refuses user namespaces to user {}: {error}; run it as \
                 root, or allow them: sysctl user.max_user_namespaces=10000, \
                 kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu), kernel.unprivileged_userns_clone=1 \
                 (old Debian)",
                user.as_raw()
            ),
        )
    };
    unshare(CloneFlags::CLONE_NEWUSER).map_err(|error| explain(error.into()))?;
    let write = |file: &str, text: String| fs::write(format!("/proc/self/{file}"), text).map_err(explain);
    // An unprivileged user may map groups only after this write (user_namespaces(7)).
    write("setgroups", "deny".to_owned())?;
    write("uid_map", format!("0 {} 1", user.as_raw()))?;
    write("gid_map", format!("0 {} 1", group.as_raw()))?;
    Ok(true)
}
