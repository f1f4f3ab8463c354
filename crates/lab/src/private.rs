//! Private folders: a host with them has a mount namespace of its own, in which each of these folders is a new and empty
//! file system in memory.
//!
//! The host's holder makes the namespace, and all processes of the host enter it. No mount of it can be seen outside,
//! and the kernel removes it, with all files, when the last process of the host has ended.

use std::{
    env,
    fs::{self, DirBuilder, File, Metadata},
    io,
    os::{
        fd::OwnedFd,
        unix::fs::{DirBuilderExt, MetadataExt, chown},
    },
    path::{Path, PathBuf},
};

use kernel::namespaces::{self, Kind};
use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
};
use rustix::{
    fs::{CWD, statfs},
    mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree},
};
use serde::{Deserialize, Serialize};

/// Folders that are the machine's own in every host, because programs find the kernel there.
const NEVER_PRIVATE: [&str; 3] = ["/proc", "/sys", "/dev"];
/// The folder that sshd needs, which Debian's service makes.
pub(crate) const SSHD_FOLDER: &str = "/run/sshd";
const BPF_FILE_SYSTEM: &str = "/sys/fs/bpf";
/// BPF_FS_MAGIC (linux/magic.h).
const BPF_MAGIC: u64 = 0xcafe_4a11;

/// What the holder of a host with private folders makes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PrivateFolders {
    /// The private folders. None contains another.
    folders: Vec<PathBuf>,
    /// Files and folders of the machine that stay visible in the host even if they lie in a private folder.
    shared: Vec<PathBuf>,
    /// Folders to make in private ones, because the host's programs need them.
    made: Vec<PathBuf>,
    /// Whether the host has a BPF file system of its own, if the machine has one.
    own_bpf: bool,
}

/// A part of the machine's files that stays visible in a host.
struct Shared {
    path: PathBuf,
    tree: OwnedFd,
    is_folder: bool,
    /// The folders between the private one and this, the outermost first.
    above: Vec<(PathBuf, Metadata)>,
}

impl PrivateFolders {
    /// Private `folders` in which the machine's `shared` files stay visible. `journals`: the folder of journals, if the host
    /// may have balancers.
    pub(crate) fn new(folders: Vec<PathBuf>, shared: Vec<PathBuf>, journals: Option<&Path>) -> Self {
        let journals = journals.map(|path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()));
        let private = Self { folders, shared, made: Vec::new(), own_bpf: false };
        // The journal of a balancer would end with the host, so its pinned tables must, too.
        let own_bpf = journals.is_some_and(|journals| private.of_path(&journals).is_some());
        Self { own_bpf, ..private }
    }

    /// Also makes the folder that sshd needs, if it would lie in a private one.
    pub(crate) fn with_sshd(mut self) -> Self {
        let folder = PathBuf::from(SSHD_FOLDER);
        if self.of_path(&folder).is_some() {
            self.made.push(folder);
        }
        self
    }

    /// Moves the calling thread into a new mount namespace with these folders.
    ///
    /// # Errors
    /// When the kernel refuses. The message says what it refused.
    pub(crate) fn enter_new(&self) -> io::Result<()> {
        let failed =
            |what: String| move |error: io::Error| io::Error::other(format!("cannot {what}: {error}"));
        let none = None::<&str>;
        unshare(CloneFlags::CLONE_NEWNS)
            .and_then(|()| mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none))
            .map_err(|error| failed("have mounts of its own (private)".to_owned())(error.into()))?;
        // What is shared must be held before the private folders hide it.
        let mut shared = Vec::new();
        for path in self.hidden() {
            let found = self.share(&path).map_err(failed(format!("share {}", path.display())))?;
            shared.extend(found);
        }
        for folder in &self.folders {
            make_private(folder).map_err(failed(format!("make {} private", folder.display())))?;
        }
        if self.own_bpf && statfs(BPF_FILE_SYSTEM).is_ok_and(|found| found.f_type as u64 == BPF_MAGIC) {
            let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
            mount(Some("bpf"), BPF_FILE_SYSTEM, Some("bpf"), flags, Some("mode=0700"))
                .map_err(|error| failed(format!("mount {BPF_FILE_SYSTEM} anew"))(error.into()))?;
        }
        for shared in shared {
            shared.attach().map_err(failed(format!("share {}", shared.path.display())))?;
        }
        for folder in &self.made {
            DirBuilder::new()
                .mode(0o755)
                .recursive(true)
                .create(folder)
                .map_err(failed(format!("make {}", folder.display())))?;
        }
        Ok(())
    }

    /// What is shared and would be hidden, the outermost first. A link on the way to it does not matter: both the path
    /// and the place that it leads to are here.
    fn hidden(&self) -> Vec<PathBuf> {
        let real = self.shared.iter().filter_map(|path| fs::canonicalize(path).ok());
        let mut hidden: Vec<PathBuf> =
            real.chain(self.shared.iter().cloned()).filter(|path| self.of_path(path).is_some()).collect();
        hidden.sort();
        hidden.dedup();
        hidden
    }

    fn of_path(&self, path: &Path) -> Option<&PathBuf> {
        self.folders.iter().find(|folder| path.starts_with(folder))
    }

    /// Keeps hold of what lies at a path. `None` if there is nothing, or if the path is a private folder itself.
    fn share(&self, path: &Path) -> io::Result<Option<Shared>> {
        let Some(folder) = self.of_path(path).filter(|folder| *folder != path) else { return Ok(None) };
        let is_folder = match fs::metadata(path) {
            Ok(found) => found.is_dir(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let above = path.ancestors().skip(1).take_while(|above| above != folder);
        let above = above.map(|above| Ok((above.to_owned(), fs::metadata(above)?)));
        let mut above = above.collect::<io::Result<Vec<_>>>()?;
        above.reverse();
        let flags =
            OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
        Ok(Some(Shared { path: path.to_owned(), tree: open_tree(CWD, path, flags)?, is_folder, above }))
    }
}

impl Shared {
    /// Makes it appear at its path.
    fn attach(&self) -> io::Result<()> {
        for (folder, original) in self.above.iter().filter(|(folder, _)| !folder.exists()) {
            DirBuilder::new().mode(original.mode() & 0o7777).create(folder)?;
            give_to_owner(folder, original)?;
        }
        match self.is_folder {
            _ if self.path.exists() => {}
            true => fs::create_dir(&self.path)?,
            false => drop(File::create(&self.path)?),
        }
        Ok(move_mount(&self.tree, "", CWD, &self.path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
    }
}

/// Hides a folder behind an empty one with the same mode and owner.
fn make_private(folder: &Path) -> io::Result<()> {
    let original = fs::metadata(folder)?;
    let mode = format!("mode={:o}", original.mode() & 0o7777);
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("tmpfs"), folder, Some("tmpfs"), flags, Some(mode.as_str()))?;
    give_to_owner(folder, &original)
}

/// Gives a new folder the owner of another.
fn give_to_owner(folder: &Path, original: &Metadata) -> io::Result<()> {
    match chown(folder, Some(original.uid()), Some(original.gid())) {
        // A user namespace of one user knows no other owners: there, the folder stays that user's.
        Err(error)
            if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::PermissionDenied) =>
        {
            Ok(())
        }
        done => done,
    }
}

/// Moves this process, which must have a single thread, into the mount namespace of a host. Its working folder stays the
/// same path, or becomes `/` if the host has no such folder.
///
/// # Errors
/// When the kernel refuses.
pub(crate) fn enter(mounts: &File) -> io::Result<()> {
    let folder = env::current_dir();
    // The kernel also makes the namespace's root the working folder.
    namespaces::enter(mounts, Kind::Mount)?;
    if let Ok(folder) = folder {
        let _ = env::set_current_dir(folder);
    }
    Ok(())
}

/// Reads the path of a folder that is to be private, in addition to those in `before`.
///
/// # Errors
/// Why it cannot be.
pub(crate) fn parse(text: &str, before: &[PathBuf]) -> Result<PathBuf, String> {
    let path = Path::new(text);
    if !path.is_absolute() {
        return Err(format!("'{text}' is not the absolute path of a folder, such as \"/tmp\""));
    }
    if path == Path::new("/") {
        return Err("'/' cannot be private: the host would have no programs".to_owned());
    }
    if let Some(folder) = NEVER_PRIVATE.iter().find(|folder| path.starts_with(folder)) {
        return Err(format!("'{text}' cannot be private: programs find the kernel in {folder}"));
    }
    let real = fs::canonicalize(path).map_err(|error| format!("'{text}' cannot be private: {error}"))?;
    if real != path {
        return Err(format!("'{text}' leads to {}; give that", real.display()));
    }
    if !path.is_dir() {
        return Err(format!("'{text}' is not a folder"));
    }
    for other in before {
        if path == other {
            return Err(format!("'{text}' is named twice here"));
        }
        if path.starts_with(other) {
            return Err(format!("'{text}' lies in {}, which is private as a whole", other.display()));
        }
        if other.starts_with(path) {
            return Err(format!("{} lies in '{text}', which is private as a whole", other.display()));
        }
    }
    Ok(real)
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::fs::{PermissionsExt, symlink},
        thread,
    };

    use super::*;

    #[test]
    fn folders_that_cannot_be_private_are_refused_with_the_reason() {
        let before = [PathBuf::from("/run"), "/var/lib".into()];
        for (text, part) in [
            ("tmp", "absolute path"),
            ("./tmp", "absolute path"),
            ("", "absolute path"),
            ("/", "no programs"),
            ("//", "no programs"),
            ("/proc", "kernel"),
            ("/sys/fs", "kernel"),
            ("/dev/shm", "kernel"),
            ("/no/such/folder", "No such file"),
            ("/proc/../tmp", "kernel"),
            ("/etc/../tmp", "leads to /tmp; give that"),
            ("/etc/passwd", "is not a folder"),
            ("/run", "named twice"),
            ("/run/", "named twice"),
            ("/var", "/var/lib lies in '/var'"),
        ] {
            let refused = parse(text, &before).unwrap_err();
            assert!(refused.contains(part), "{text}: {refused}");
        }
        let temporary = tempfile::tempdir().unwrap();
        let real = fs::canonicalize(temporary.path()).unwrap();
        let (folder, link) = (real.join("folder"), real.join("link"));
        fs::create_dir(&folder).unwrap();
        symlink(&folder, &link).unwrap();
        assert_eq!(parse(folder.to_str().unwrap(), &before), Ok(folder.clone()));
        let refused = parse(link.to_str().unwrap(), &[]).unwrap_err();
        assert!(refused.contains(&format!("leads to {}", folder.display())), "{refused}");
        let refused = parse(folder.to_str().unwrap(), &[real]).unwrap_err();
        assert!(refused.contains("private as a whole"), "{refused}");
    }

    #[test]
    fn what_is_shared_is_there_and_the_rest_is_the_hosts_own_as_root() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = fs::canonicalize(temporary.path()).unwrap();
        let (private, other) = (folder.join("private"), folder.join("other"));
        for made in [&private, &other, &private.join("a"), &private.join("a/run"), &private.join("b")] {
            fs::create_dir(made).unwrap();
        }
        fs::set_permissions(&private, fs::Permissions::from_mode(0o1773)).unwrap();
        fs::set_permissions(private.join("a"), fs::Permissions::from_mode(0o700)).unwrap();
        chown(&private, Some(12), Some(34)).unwrap();
        fs::write(private.join("a/run/file"), "shared").unwrap();
        fs::write(private.join("b/program"), "program").unwrap();
        symlink(&private, other.join("link")).unwrap();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        // The mounts are those of one thread, and end with it.
        thread::spawn(move || inside(&folder)).join().unwrap();
        assert_eq!(fs::read_to_string("/proc/self/mountinfo").unwrap(), mounts);
        // What the host wrote into the shared folder stays; all else was its own.
        assert_eq!(fs::read_to_string(private.join("a/run/new")).unwrap(), "by the host");
        assert!(!private.join("own").exists() && private.join("b").is_dir());
    }

    fn inside(folder: &Path) {
        let (private, link) = (folder.join("private"), folder.join("other/link"));
        let original = fs::metadata(&private).unwrap();
        let folders = PrivateFolders {
            folders: vec![private.clone()],
            shared: vec![
                link.join("a/run"),
                private.join("b/program"),
                private.join("missing"),
                "/etc".into(),
            ],
            made: vec![private.join("c/made")],
            own_bpf: false,
        };
        folders.enter_new().unwrap();
        let own = fs::metadata(&private).unwrap();
        assert_eq!(own.mode(), original.mode());
        assert_eq!((own.uid(), own.gid()), (original.uid(), original.gid()));
        assert_ne!(own.dev(), original.dev());
        let mut entries: Vec<_> =
            fs::read_dir(&private).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        entries.sort();
        assert_eq!(entries, ["a", "b", "c"]);
        assert_eq!(fs::metadata(private.join("a")).unwrap().mode() & 0o7777, 0o700);
        assert_eq!(fs::read_to_string(link.join("a/run/file")).unwrap(), "shared");
        assert_eq!(fs::read_to_string(private.join("b/program")).unwrap(), "program");
        fs::write(private.join("a/run/new"), "by the host").unwrap();
        fs::write(private.join("own"), "the host's own").unwrap();
    }
}
