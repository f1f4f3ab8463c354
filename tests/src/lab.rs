//! Labs that the binary brings up, and the check that nothing is left of them.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use testing::PATIENCE;

use crate::{
    process::{Finished, Launch, Process},
    proofload::binary,
    temporary::TemporaryFolder,
};

/// User and group id of Debian's `nobody` and `nogroup`, which own nothing.
const NOBODY: u32 = 65_534;

/// A folder for separate labs: their files and journals.
#[derive(Debug)]
pub struct Labs {
    folder: TemporaryFolder,
    /// The first words of its commands.
    words: Vec<String>,
}

impl Labs {
    /// Makes a new folder.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn new() -> Result<Self> {
        Ok(Self { folder: TemporaryFolder::new()?, words: vec![binary()?.display().to_string()] })
    }

    /// Makes a folder for labs of the unprivileged user nobody. Only root can do this.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn of_nobody() -> Result<Self> {
        let folder = TemporaryFolder::new()?;
        // Copy the binary, because nobody may not have access to its folder.
        let program = folder.path().join("proofload");
        fs::copy(binary()?, &program)?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
        chown(folder.path(), Some(NOBODY), Some(NOBODY))
            .context("cannot give a folder away; is this root?")?;
        let words = as_nobody().into_iter().chain([program.display().to_string()]);
        Ok(Self { words: words.collect(), folder })
    }

    /// Why the kernel does not let nobody have labs; none if it does.
    ///
    /// # Errors
    /// If the attempt cannot be made.
    pub fn refusal_for_nobody() -> Result<Option<String>> {
        let words = as_nobody();
        let tried =
            Launch::new(&words[0]).args(&words[1..]).words("unshare --user --net true").run(PATIENCE)?;
        Ok((tried.code != Some(0)).then(|| tried.stderr.trim().to_owned()))
    }

    /// The folder for journals and the files of labs.
    pub fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    /// Writes a lab file.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn file(&self, name: &str, text: &str) -> Result<String> {
        fs::write(self.folder.path().join(name), text)?;
        Ok(self.folder.file(name))
    }

    /// The path of a file in this folder.
    pub fn path(&self, name: &str) -> String {
        self.folder.file(name)
    }

    /// `proofload` with these arguments, for the labs of this folder.
    ///
    /// # Errors
    /// Only if the folder was not made properly.
    pub fn command(&self, words: &str) -> Result<Launch> {
        let proofload = self.words.last().context("there is no command")?;
        Ok(self.program(proofload)?.words(words))
    }

    /// Another program, run as this folder's user. The environment variable `PROOFLOAD` has the path of the binary.
    ///
    /// # Errors
    /// Only if the folder was not made properly.
    pub fn program(&self, program: &str) -> Result<Launch> {
        let (proofload, user) = self.words.split_last().context("there is no command")?;
        let home = self.folder.path().display().to_string();
        let state = self.state().display().to_string();
        let mut words = user.iter().map(String::as_str).chain([program]);
        let launch = Launch::new(words.next().unwrap_or(program)).args(words);
        let launch = launch.env("PROOFLOAD_STATE_DIR", &state).env("PROOFLOAD", proofload);
        Ok(launch.env("HOME", &home))
    }

    /// Installs a shell script as `ssh`. Returns the search path that finds it.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn with_ssh(&self, script: &str) -> Result<String> {
        let folder = self.folder.path().join("ssh");
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("ssh"), format!("#!/bin/sh\n{script}\n"))?;
        fs::set_permissions(folder.join("ssh"), fs::Permissions::from_mode(0o755))?;
        Ok(format!("{}:{}", folder.display(), std::env::var("PATH")?))
    }

    /// Runs such a command until it ends.
    ///
    /// # Errors
    /// If it does not end, or panics.
    pub fn run(&self, words: &str) -> Result<Finished> {
        let finished = self.command(words)?.run(PATIENCE)?;
        if finished.stderr.contains("panicked at") {
            bail!("`proofload {words}` panicked:\n{}", finished.stderr);
        }
        Ok(finished)
    }

    /// Runs such a command, and returns its standard output.
    ///
    /// # Errors
    /// If its exit status is not 0. The error has its output.
    pub fn done(&self, words: &str) -> Result<String> {
        let finished = self.run(words)?;
        if finished.code != Some(0) {
            bail!(
                "`proofload {words}` ended with {:?}:\n{}\n{}",
                finished.code,
                finished.stdout,
                finished.stderr
            );
        }
        Ok(finished.stdout)
    }

    /// Starts `lab up` and waits until the lab is ready. Also returns the time that this took.
    ///
    /// # Errors
    /// If the lab does not become ready. The error has its output.
    pub fn up(&self, file: &str) -> Result<(Process, Duration)> {
        self.up_in_group(file, None)
    }

    /// The same, with everything that the lab starts in the control group with this folder.
    ///
    /// # Errors
    /// As [`up`](Self::up).
    pub fn up_in_group(&self, file: &str, group: Option<&str>) -> Result<(Process, Duration)> {
        let begun = Instant::now();
        let launch = self.command(&format!("lab up {file}"))?;
        let enter = group.map(|group| format!("echo $$ > {group}/cgroup.procs; exec \"$@\""));
        let launch = match &enter {
            Some(enter) => launch.under(["sh", "-c", enter, "sh"]),
            None => launch,
        };
        let mut process = launch.start()?;
        process.says("\nready in ", PATIENCE)?;
        Ok((process, begun.elapsed()))
    }

    /// Takes a lab down with SIGTERM. Returns the time that this took.
    ///
    /// # Errors
    /// If it does not go down properly.
    pub fn down(&self, mut process: Process) -> Result<Duration> {
        let begun = Instant::now();
        process.signal(Signal::TERM);
        let status = process.wait(PATIENCE)?.context("the lab did not go down")?;
        let took = begun.elapsed();
        if !status.success() {
            bail!("the lab went down with {status}; it said:\n{}", process.stderr());
        }
        Ok(took)
    }

    /// Everything on this machine that a lab may make or change.
    ///
    /// # Errors
    /// If it cannot be listed.
    pub fn inventory(&self) -> Result<Inventory> {
        let mut taken = Inventory::take(&self.state())?;
        // Repeat until two inventories agree, because something may end while it is being listed.
        for _ in 0..100 {
            let again = Inventory::take(&self.state())?;
            if again == taken {
                break;
            }
            taken = again;
        }
        Ok(taken)
    }

    /// Waits until the inventory is as it was before, because the kernel removes namespaces with a delay. Returns the difference that
    /// remains.
    ///
    /// # Errors
    /// If the inventory cannot be taken.
    pub fn difference(&self, before: &Inventory) -> Result<Vec<String>> {
        let begun = Instant::now();
        loop {
            let difference = before.difference(&Inventory::take(&self.state())?);
            if difference.is_empty() || begun.elapsed() > PATIENCE {
                return Ok(difference);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn as_nobody() -> Vec<String> {
    let user = NOBODY.to_string();
    ["setpriv", "--reuid", &user, "--regid", &user, "--clear-groups"].map(str::to_owned).into()
}

/// Marks the environment of unit tests, which `make test` runs beside the end-to-end tests.
const OF_UNIT_TESTS: &str = "PROOFLOAD_UNIT_TESTS=1";

/// Things by kind and name, with a value of each to compare.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inventory(BTreeMap<String, String>);

impl Inventory {
    fn take(state: &Path) -> Result<Self> {
        let mut things = BTreeMap::new();
        let mark = format!("PROOFLOAD_STATE_DIR={}", state.display());
        let own = fs::read_link("/proc/self/ns/net")?;
        // The environment of everything that `make test` starts has this variable.
        let run =
            std::env::var("PROOFLOAD_TEST_NOTES").ok().map(|notes| format!("PROOFLOAD_TEST_NOTES={notes}"));
        // With this variable set, the inventory would skip everything that these tests start.
        ensure!(
            std::env::var("PROOFLOAD_UNIT_TESTS").is_err(),
            "unset PROOFLOAD_UNIT_TESTS: it is for unit tests"
        );
        for entry in fs::read_dir("/proc")?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if !name.bytes().all(|byte| byte.is_ascii_digit()) {
                continue;
            }
            let path = entry.path();
            // The environment of a process that has just ended is empty. A zombie has neither environment nor namespace.
            let environment = fs::read(path.join("environ")).unwrap_or_default();
            let has = |wanted: &str| {
                environment.split(|&byte| byte == 0).any(|variable| variable == wanted.as_bytes())
            };
            if has(OF_UNIT_TESTS) {
                continue;
            }
            let network = fs::read_link(path.join("ns/net")).ok();
            // Ignore what other programs of this machine do in other namespaces.
            let is_ours = has(&mark) || run.as_ref().is_some_and(|run| has(run));
            let elsewhere = network.as_ref().is_some_and(|network| *network != own);
            if has(&mark) || (is_ours && elsewhere) {
                let words = fs::read(path.join("cmdline")).unwrap_or_default();
                let words = String::from_utf8_lossy(&words).replace('\0', " ");
                things.insert(format!("process {name}"), words);
            }
            if let Some(network) = network.filter(|network| is_ours && *network != own) {
                things.insert(format!("namespace {}", network.display()), String::new());
            }
        }
        for entry in fs::read_dir("/sys/class/net")?.flatten() {
            let index = fs::read_to_string(entry.path().join("ifindex")).unwrap_or_default();
            things.insert(format!("interface {}", entry.file_name().display()), index);
        }
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        things.insert("mounts".to_owned(), mounts);
        let qdiscs = Launch::new("tc").words("qdisc show").run(PATIENCE)?.stdout;
        things.insert("qdiscs".to_owned(), qdiscs);
        walk(Path::new("/sys/fs/cgroup"), &mut |path, is_folder| {
            // Other sessions and services make groups at any time, so use only groups of labs, whose names `lab::quota` defines.
            if is_folder && path.to_string_lossy().contains("/proofload-") {
                things.insert(format!("cgroup {}", path.display()), String::new());
            }
        });
        walk(Path::new("/proc/sys/net"), &mut |path, is_folder| {
            // Skip this file, because connections of other tests change its value.
            let is_count = path.ends_with("nf_conntrack_count");
            if !is_folder
                && !is_count
                && let Ok(value) = fs::read_to_string(path)
            {
                things.insert(format!("sysctl {}", path.display()), value);
            }
        });
        walk(state, &mut |path, _| drop(things.insert(format!("file {}", path.display()), String::new())));
        for folder in ["/run", "/tmp", "/dev/shm"] {
            let entries = fs::read_dir(folder).into_iter().flatten().flatten();
            for name in entries.map(|entry| entry.file_name().to_string_lossy().into_owned()) {
                // Tests that run beside this one have their own folders.
                if name.contains("proofload") && !name.starts_with("proofload-tests-") {
                    things.insert(format!("file {folder}/{name}"), String::new());
                }
            }
        }
        Ok(Self(things))
    }

    fn difference(&self, after: &Self) -> Vec<String> {
        let gone = self
            .0
            .iter()
            .filter(|(name, _)| !after.0.contains_key(*name))
            .map(|(name, _)| format!("gone: {name}"));
        let new = after.0.iter().filter(|(name, _)| !self.0.contains_key(*name));
        let new = new.map(|(name, value)| format!("left: {name} {value}"));
        let changed = self.0.iter().filter_map(|(name, value)| {
            let now = after.0.get(name).filter(|now| *now != value)?;
            Some(format!("changed: {name}: {value} is now {now}"))
        });
        gone.chain(new).chain(changed).collect()
    }
}

/// Calls `look` with every file and folder below a folder.
fn walk(folder: &Path, look: &mut impl FnMut(&Path, bool)) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        look(&entry.path(), is_folder);
        if is_folder {
            walk(&entry.path(), look);
        }
    }
}

/// The folder that Debian's sshd needs, and that its service would make. Tests that run concurrently share it.
#[derive(Debug)]
pub struct SshdFolder(());

/// Number of [`SshdFolder`] values, and whether the first of them made the folder.
static SSHD_FOLDER: Mutex<(usize, bool)> = Mutex::new((0, false));

impl SshdFolder {
    const PATH: &str = "/run/sshd";

    /// Makes the folder if it does not exist.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn made() -> Result<Self> {
        let (users, is_ours) = &mut *SSHD_FOLDER.lock().unwrap_or_else(PoisonError::into_inner);
        if *users == 0 {
            *is_ours = !Path::new(Self::PATH).is_dir();
            if *is_ours {
                fs::create_dir(Self::PATH)?;
            }
        }
        *users += 1;
        Ok(Self(()))
    }
}

impl Drop for SshdFolder {
    fn drop(&mut self) {
        let (users, is_ours) = &mut *SSHD_FOLDER.lock().unwrap_or_else(PoisonError::into_inner);
        *users -= 1;
        if *users == 0 && *is_ours {
            let _ = fs::remove_dir(Self::PATH);
        }
    }
}
