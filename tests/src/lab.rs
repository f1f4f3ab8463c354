//! Labs that the binary brings up, and what must be left of them: nothing.

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

/// The number of the user and of the group that own nothing: Debian's `nobody` and `nogroup`.
const NOBODY: u32 = 65_534;

/// A place for labs of their own: lab files, journals.
#[derive(Debug)]
pub struct Labs {
    folder: TemporaryFolder,
    /// What its commands begin with.
    words: Vec<String>,
}

impl Labs {
    /// A new place.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn new() -> Result<Self> {
        Ok(Self { folder: TemporaryFolder::new()?, words: vec![binary()?.display().to_string()] })
    }

    /// A place of a user who may do nothing in particular. Only root can make it.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn of_nobody() -> Result<Self> {
        let folder = TemporaryFolder::new()?;
        // Wherever the binary lies, nobody may not get there.
        let program = folder.path().join("proofload");
        fs::copy(binary()?, &program)?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
        chown(folder.path(), Some(NOBODY), Some(NOBODY))
            .context("cannot give a folder away; is this root?")?;
        let words = as_nobody().into_iter().chain([program.display().to_string()]);
        Ok(Self { words: words.collect(), folder })
    }

    /// Why the kernel would not let that user have labs; none if it would.
    ///
    /// # Errors
    /// When that cannot be found out.
    pub fn refusal_for_nobody() -> Result<Option<String>> {
        let words = as_nobody();
        let tried =
            Launch::new(&words[0]).args(&words[1..]).words("unshare --user --net true").run(PATIENCE)?;
        Ok((tried.code != Some(0)).then(|| tried.stderr.trim().to_owned()))
    }

    /// Where journals and the files of labs lie.
    pub fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    /// Writes a lab file.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn file(&self, name: &str, text: &str) -> Result<String> {
        fs::write(self.folder.path().join(name), text)?;
        Ok(self.folder.file(name))
    }

    /// Where a file of this place lies.
    pub fn path(&self, name: &str) -> String {
        self.folder.file(name)
    }

    /// `proofload` with these words, for labs of this place.
    ///
    /// # Errors
    /// None with a place that was made well.
    pub fn command(&self, words: &str) -> Result<Launch> {
        let proofload = self.words.last().context("there is no command")?;
        Ok(self.program(proofload)?.words(words))
    }

    /// Another program of this place's user, which finds the binary in `PROOFLOAD`.
    ///
    /// # Errors
    /// None with a place that was made well.
    pub fn program(&self, program: &str) -> Result<Launch> {
        let (proofload, user) = self.words.split_last().context("there is no command")?;
        let home = self.folder.path().display().to_string();
        let state = self.state().display().to_string();
        let mut words = user.iter().map(String::as_str).chain([program]);
        let launch = Launch::new(words.next().unwrap_or(program)).args(words);
        let launch = launch.env("PROOFLOAD_STATE_DIR", &state).env("PROOFLOAD", proofload);
        Ok(launch.env("HOME", &home))
    }

    /// Puts a script for `sh` in the place of `ssh`. Returns the search path with which it is found.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn with_ssh(&self, script: &str) -> Result<String> {
        let folder = self.folder.path().join("ssh");
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("ssh"), format!("#!/bin/sh\n{script}\n"))?;
        fs::set_permissions(folder.join("ssh"), fs::Permissions::from_mode(0o755))?;
        Ok(format!("{}:{}", folder.display(), std::env::var("PATH")?))
    }

    /// Runs such a command to its end.
    ///
    /// # Errors
    /// When it does not end or panics.
    pub fn run(&self, words: &str) -> Result<Finished> {
        let finished = self.command(words)?.run(PATIENCE)?;
        if finished.stderr.contains("panicked at") {
            bail!("`proofload {words}` panicked:\n{}", finished.stderr);
        }
        Ok(finished)
    }

    /// Runs such a command, which must end with status 0; what it wrote to standard output.
    ///
    /// # Errors
    /// When it does not; with what it said.
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

    /// Starts `lab up` and waits until the lab is ready. Returns how long that took.
    ///
    /// # Errors
    /// When it does not get ready; with what it said.
    pub fn up(&self, file: &str) -> Result<(Process, Duration)> {
        self.up_in_group(file, None)
    }

    /// The same, with all that the lab starts in a control group, whose folder is given.
    ///
    /// # Errors
    /// As those of [`up`](Self::up).
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

    /// Takes a lab down by SIGTERM. Returns how long that took.
    ///
    /// # Errors
    /// When it does not go down well.
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

    /// What there is on this machine that a lab could have made or changed.
    ///
    /// # Errors
    /// When it cannot be looked at.
    pub fn inventory(&self) -> Result<Inventory> {
        let mut taken = Inventory::take(&self.state())?;
        // What ends while it is looked at is in one of two, at most.
        for _ in 0..100 {
            let again = Inventory::take(&self.state())?;
            if again == taken {
                break;
            }
            taken = again;
        }
        Ok(taken)
    }

    /// Waits until the inventory is as it was, since the kernel takes namespaces down when it has time; otherwise the difference.
    ///
    /// # Errors
    /// When it cannot be taken.
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

/// In the environment of the unit tests that `make test` runs beside the tests from outside.
const OF_UNIT_TESTS: &str = "PROOFLOAD_UNIT_TESTS=1";

/// Things by kind and name, with what is to be compared of each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inventory(BTreeMap<String, String>);

impl Inventory {
    fn take(state: &Path) -> Result<Self> {
        let mut things = BTreeMap::new();
        let mark = format!("PROOFLOAD_STATE_DIR={}", state.display());
        let own = fs::read_link("/proc/self/ns/net")?;
        // All that `make test` starts has it.
        let run =
            std::env::var("PROOFLOAD_TEST_NOTES").ok().map(|notes| format!("PROOFLOAD_TEST_NOTES={notes}"));
        // Whoever has it here would hide all that these tests start.
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
            // A process that ends while it is looked at is none; one that waits to be collected has neither.
            let environment = fs::read(path.join("environ")).unwrap_or_default();
            let has = |wanted: &str| {
                environment.split(|&byte| byte == 0).any(|variable| variable == wanted.as_bytes())
            };
            if has(OF_UNIT_TESTS) {
                continue;
            }
            let network = fs::read_link(path.join("ns/net")).ok();
            // What others of this machine do in other namespaces is no matter of these tests.
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
            // Others' sessions and services make groups at any time. The name of a lab's is in `lab::quota`.
            if is_folder && path.to_string_lossy().contains("/proofload-") {
                things.insert(format!("cgroup {}", path.display()), String::new());
            }
        });
        walk(Path::new("/proc/sys/net"), &mut |path, is_folder| {
            // Connections of other tests count here.
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
                // Tests beside this one have folders of their own.
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

/// Calls `look` with everything below a folder.
fn walk(folder: &Path, look: &mut impl FnMut(&Path, bool)) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        look(&entry.path(), is_folder);
        if is_folder {
            walk(&entry.path(), look);
        }
    }
}

/// The folder that Debian's sshd wants, and that its service would make. Tests that run beside each other share it.
#[derive(Debug)]
pub struct SshdFolder(());

/// How many values of [`SshdFolder`] there are, and whether the first one has made the folder.
static SSHD_FOLDER: Mutex<(usize, bool)> = Mutex::new((0, false));

impl SshdFolder {
    const PATH: &str = "/run/sshd";

    /// Makes it, unless it is there.
    ///
    /// # Errors
    /// When it cannot be made.
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
