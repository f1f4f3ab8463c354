//! Settings of the kernel, each of which belongs to a network namespace.

use std::{
    fs, io,
    os::{
        fd::{AsFd, AsRawFd},
        unix::{fs::MetadataExt, net::UnixDatagram},
    },
    path::{Path, PathBuf},
    thread,
};

use rustix::{
    mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen},
    net::netdevice::index_to_name,
    thread::{LinkNameSpaceType, move_into_link_name_space},
};
use serde::{Deserialize, Serialize};

use crate::{
    Error,
    process::{in_initial_pid_namespace, proc_shows_own_pids},
};

/// The inode of the initial network namespace (NET_NS_INIT_INO in linux/nsfs.h). Kernels without that constant assign
/// no inode below 0xf000_0000.
const FIRST_INODE: u64 = 0xefff_fff9;

/// A network namespace. Its inode may be reused when it is gone; its cookie is never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    device: u64,
    inode: u64,
    cookie: Option<u64>,
}

impl Network {
    /// The network namespace of the calling thread.
    ///
    /// # Errors
    /// If `/proc` does not show it.
    pub fn own() -> io::Result<Self> {
        let file = fs::metadata("/proc/thread-self/ns/net")?;
        Ok(Self { device: file.dev(), inode: file.ino(), cookie: cookie(&UnixDatagram::unbound()?) })
    }

    /// A number that no other existing network namespace has.
    pub fn number(&self) -> u64 {
        self.cookie.unwrap_or(self.inode)
    }

    /// Whether this is the initial network namespace, the first one that the kernel creates. The namespace of the first
    /// process in `/proc` proves nothing, because that process may be a container's.
    pub fn is_first(&self) -> bool {
        // Since Linux 6.18, the inode identifies the initial namespace, because cookies count namespaces of all kinds.
        // In earlier versions, it has the first cookie.
        self.inode == FIRST_INODE || self.cookie == Some(1)
    }

    /// Whether a change in this namespace can be undone here (true), or is gone because the namespace is gone (false).
    ///
    /// # Errors
    /// If the change belongs to another namespace that may still exist.
    pub(crate) fn is_own_or_gone(&self) -> io::Result<bool> {
        match Self::own()? {
            own_network if own_network == *self => Ok(true),
            _ if self.is_gone() => Ok(false),
            _ => Err(io::Error::other("it belongs to another network namespace; do this there")),
        }
    }

    /// Whether no process is in the namespace and no mount refers to it. False if this process cannot see all
    /// processes.
    pub(crate) fn is_gone(&self) -> bool {
        if !in_initial_pid_namespace() || !proc_shows_own_pids() {
            return false;
        }
        let Ok(processes) = fs::read_dir("/proc") else { return false };
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        // In mountinfo, a mount that refers to the namespace has the root `net:[INODE]`, followed by the mount point.
        let mark = format!(" net:[{}] ", self.inode);
        let mounted = mounts.lines().filter_map(|line| line.split_once(&mark)?.1.split(' ').next());
        let entered = processes.flatten().map(|entry| entry.path().join("ns/net"));
        !mounted.map(PathBuf::from).chain(entered).any(|path| self.is_at(&path))
    }

    /// Whether the file at this path refers to this namespace.
    fn is_at(&self, path: &Path) -> bool {
        let is_same_inode = fs::metadata(path).is_ok_and(|file| self.is(&file));
        // If the namespace cannot be entered, it may be this one, so the answer is yes.
        let cookie = || self.cookie.and_then(|own| Some(cookie_at(path)? == own));
        is_same_inode && cookie().unwrap_or(true)
    }

    fn is(&self, file: &fs::Metadata) -> bool {
        (file.dev(), file.ino()) == (self.device, self.inode)
    }
}

/// The cookie of the namespace that a file refers to; none if this user may not enter it. A short-lived thread enters
/// it.
fn cookie_at(path: &Path) -> Option<u64> {
    let file = fs::File::open(path).ok()?;
    let entered = thread::spawn(move || {
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).ok()?;
        cookie(&UnixDatagram::unbound().ok()?)
    });
    entered.join().ok()?
}

/// The cookie of a socket's network namespace, which no other namespace gets until the next boot; none before Linux
/// 5.14.
fn cookie(socket: &UnixDatagram) -> Option<u64> {
    let mut cookie = 0_u64;
    let mut length = size_of::<u64>() as libc::socklen_t;
    let (level, option, to) = (libc::SOL_SOCKET, libc::SO_NETNS_COOKIE, (&raw mut cookie).cast());
    // SAFETY: `to` and `length` describe `cookie`, which the kernel fills and does not keep. Unsafe because neither rustix nor
    // nix has this option.
    let result = unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, to, &mut length) };
    (result == 0).then_some(cookie)
}

/// A setting of the kernel that was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// Its file, below `/proc/sys` or `/sys`.
    pub path: PathBuf,
    /// Its value before the change, without the final newline.
    pub before: String,
    /// Its value after the change; none until it has been read back, because the kernel may store another value than
    /// the written one. Until then, any value counts as ours.
    pub after: Option<String>,
    /// Index of the setting's interface, if it has one: the interface may be renamed, which also changes the setting's
    /// path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<u32>,
    /// The network namespace in which the setting was changed.
    pub network: Network,
}

impl Setting {
    /// Reads a setting's value, without the final newline.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(path: &Path) -> io::Result<String> {
        fs::read_to_string(path).map(|text| text.trim_end_matches('\n').to_owned())
    }

    /// Writes a setting's value.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn write(path: &Path, value: &str) -> io::Result<()> {
        let written = fs::write(path, format!("{value}\n"));
        #[cfg(test)]
        crate::testing::step();
        written
    }

    /// Whether the file exists and the value was changed: a new value was read back, or the current value differs from
    /// the former one.
    pub(crate) fn is_changed(&self) -> bool {
        match Self::read(&self.path) {
            Ok(now) => self.after.is_some() || now != self.before,
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
    }

    /// The setting's current path; none if its interface is gone.
    fn path_now(&self) -> Option<PathBuf> {
        let Some(index) = self.interface else { return Some(self.path.clone()) };
        let (folder, setting) = (self.path.parent()?.parent()?, self.path.file_name()?);
        Some(folder.join(interface_name(index)?).join(setting))
    }

    /// Writes the former value, unless the setting already has it, belongs to another network namespace, or is gone.
    ///
    /// # Errors
    /// If the value is no longer ours, or the kernel refuses.
    pub(crate) fn put_back(&self) -> Result<(), Error> {
        let failed = |cause: String| Error::Undo { what: self.path.display().to_string(), cause };
        if !self.network.is_own_or_gone().map_err(|error| failed(error.to_string()))? {
            return Ok(());
        }
        if self.path.starts_with("/sys") && !sys_is_own() {
            return Err(failed("/sys shows another network namespace".to_owned()));
        }
        let Some(path) = self.path_now() else { return Ok(()) };
        let now = match Self::read(&path) {
            // The interface may be gone together with all its settings.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            now => now.map_err(|error| failed(error.to_string()))?,
        };
        if now == self.before {
            return Ok(());
        }
        if self.after.as_ref().is_some_and(|after| *after != now) {
            return Err(Error::Foreign { path, now, before: self.before.clone() });
        }
        let written = Self::write(&path, &self.before).and_then(|()| Self::read(&path));
        match written {
            Ok(now) if now == self.before => Ok(()),
            Ok(now) => Err(failed(format!(
                "the kernel changed the value to '{now}' when the former value '{}' was written",
                self.before
            ))),
            Err(error) => Err(failed(error.to_string())),
        }
    }
}

/// The current name of an interface in this thread's network namespace; none if the interface is gone.
pub(crate) fn interface_name(index: u32) -> Option<String> {
    // Every socket that this thread creates belongs to the thread's network namespace.
    index_to_name(UnixDatagram::unbound().ok()?, index).ok()
}

/// Whether `/sys` shows the interfaces of the calling thread's network namespace. It shows those of the namespace in
/// which it was mounted. False if this cannot be proven; the proof needs the right to mount.
pub fn sys_is_own() -> bool {
    // This mount is never attached. It only gives the device number of this namespace's /sys.
    let own_sys = || {
        let file_system = fsopen("sysfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(&file_system)?;
        let mount = fsmount(&file_system, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
        rustix::fs::fstat(mount)
    };
    let shown = fs::metadata("/sys").map(|metadata| metadata.dev());
    own_sys().is_ok_and(|status| shown.is_ok_and(|shown| shown == status.st_dev))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(after: Option<&str>) -> (tempfile::TempDir, Setting) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("setting");
        let after = after.map(str::to_owned);
        (
            folder,
            Setting {
                path,
                before: "1\t2".to_owned(),
                after,
                interface: None,
                network: Network::own().unwrap(),
            },
        )
    }

    #[test]
    fn a_namespace_whose_inode_another_has_is_gone() {
        let here = Network::own().unwrap();
        assert!(!here.is_gone());
        let before = Network { cookie: here.cookie.map(|cookie| cookie + 1_000_000), ..here };
        // This process can know that the other namespace is gone only if it sees all processes and can read the cookies
        // of namespaces.
        let is_seen = in_initial_pid_namespace() && proc_shows_own_pids();
        let may_enter = cookie_at(Path::new("/proc/self/ns/net")).is_some();
        assert_eq!(before.is_gone(), is_seen && may_enter);
    }

    #[test]
    fn only_our_own_value_is_put_back() {
        for (after, now, is_put_back) in
            [(Some("3"), "3", true), (Some("3"), "4", false), (None, "4", true), (Some("3"), "1\t2", true)]
        {
            let (_folder, setting) = setting(after);
            Setting::write(&setting.path, now).unwrap();
            let done = setting.put_back();
            let left = if is_put_back { "1\t2" } else { now };
            assert_eq!(Setting::read(&setting.path).unwrap(), left, "{after:?}");
            assert_eq!(matches!(done, Err(Error::Foreign { .. })), !is_put_back, "{done:?}");
        }
    }

    #[test]
    fn the_setting_of_an_interface_is_found_under_its_name_of_now() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("former/setting");
        for name in ["former", "lo"] {
            fs::create_dir(folder.path().join(name)).unwrap();
            fs::write(folder.path().join(name).join("setting"), "3\n").unwrap();
        }
        let of = |index| Setting {
            path: path.clone(),
            before: "0".to_owned(),
            after: Some("3".to_owned()),
            interface: Some(index),
            network: Network::own().unwrap(),
        };
        // Index 1 is lo; no interface has the other index.
        of(1).put_back().unwrap();
        of(u32::MAX >> 1).put_back().unwrap();
        assert_eq!(Setting::read(&folder.path().join("lo/setting")).unwrap(), "0");
        assert_eq!(Setting::read(&path).unwrap(), "3");
    }

    #[test]
    fn nothing_is_written_into_another_namespace() {
        let (_folder, mut setting) = setting(None);
        Setting::write(&setting.path, "3").unwrap();
        for change in [
            |network: &mut Network| network.inode += 1,
            |network: &mut Network| {
                network.cookie = network.cookie.map_or(Some(1), |cookie| Some(cookie + 1))
            },
        ] {
            setting.network = Network::own().unwrap();
            change(&mut setting.network);
            // If the namespace is gone, nothing is left to undo.
            let undone = setting.put_back();
            assert!(undone.is_err() || setting.network.is_gone());
            assert_eq!(Setting::read(&setting.path).unwrap(), "3");
        }
    }

    #[test]
    fn the_first_namespace_is_known_whatever_process_is_the_first() {
        let of = |inode, cookie| Network { device: 4, inode, cookie };
        // The first pair of values is from Linux 5.15 and 6.12, the second from Linux 6.18.
        assert!(of(4_026_531_840, Some(1)).is_first() && of(4_026_531_833, Some(3)).is_first());
        for other in [of(4_026_532_247, Some(2)), of(4_026_532_247, Some(4_097)), of(4_026_532_247, None)] {
            assert!(!other.is_first(), "{other:?}");
        }
    }

    #[test]
    fn a_setting_that_is_gone_needs_nothing() {
        let (_folder, setting) = setting(None);
        setting.put_back().unwrap();
    }
}
