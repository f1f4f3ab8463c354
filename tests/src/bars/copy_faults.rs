//! A disturbed copy over a long path either ends complete or names the reason; the same command then resumes it.

use std::{
    collections::VecDeque,
    fs,
    io::{Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use testing::PATIENCE;

use super::{Bar, By, Outcome, Scale, seconds};
use crate::{
    lab::{Labs, SshdFolder},
    mounts::PrivateMounts,
    process::{Finished, Launch, Process},
    proofload::binary,
    random::Random,
};

mod watch;

use watch::{Watch, descendants, ssh_of};

pub(super) const BAR: Bar = Bar {
    name: "copy-faults",
    what: "11 faults, each 8 times at a random moment of a copy over 100 Mbit/s and 50 ms, up and down in turn: it ends with all that \
           was to come or says why not, the same command goes on then, no name ever has a part, nothing is left",
    full_seconds: 420,
    decided_by: By::Counts,
    run,
};

const SEED: u64 = 0x0bad_c0de;
/// Approximate time of an undisturbed copy.
const USUAL: Duration = Duration::from_millis(3_200);
/// Number of labs that run concurrently.
const LABS: usize = 4;
/// Maximum time for which `ssh` processes may outlive the copy.
const LAST_WORDS: Duration = PATIENCE;
const LARGE_BYTES: usize = 12_000_000;
/// Enough bytes to exchange new keys twice on one connection.
const REKEYED_BYTES: usize = 40_000_000;
const SMALL: usize = 20;

const LAB: &str = r#"
[hosts]
client = {}
server = {}
[[links]]
name = "wire"
between = ["client", "server"]
rate = "100mbit"
delay = "25ms"
[[processes]]
on = "server"
run = "sshd"
config = "debian"
"#;

/// The faults to inject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    LinkGone,
    LinkPause,
    Killed,
    SshKilled,
    SshdRestart,
    DiskFull,
    SourceChanged,
    Bare,
    OneSession,
    TwoStartups,
    Rekey,
}

use Fault::{
    Bare, DiskFull, Killed, LinkGone, LinkPause, OneSession, Rekey, SourceChanged, SshKilled, SshdRestart,
    TwoStartups,
};

/// Each fault with its name, and the messages of which a copy must show one if the fault ends it; none if it must not end the copy.
const FAULTS: [(Fault, &str, &[&str]); 11] = [
    (LinkGone, "link_gone", &["not responding", "does not respond", "timed out", "timeout"]),
    // An end that has given up answers with a reset once the link is up again.
    (
        LinkPause,
        "link_down_10_s",
        &["not responding", "does not respond", "timed out", "timeout", "reset", "Broken pipe"],
    ),
    (Killed, "killed", &[""]),
    (SshKilled, "ssh_killed", &["ssh was killed by signal 9", "ssh ended without a message"]),
    (
        SshdRestart,
        "sshd_restarted",
        &["closed", "reset", "refused", "Broken pipe", "ssh ended without a message"],
    ),
    (DiskFull, "disk_full", &["No space left", "whether the file system is full"]),
    (SourceChanged, "source_changed", &["the source changed while it was copied"]),
    (Bare, "no_extensions", &[]),
    (OneSession, "max_sessions_1", &[]),
    (TwoStartups, "max_startups_2", &[]),
    (Rekey, "rekey_16_mb", &[]),
];

#[derive(Debug, Clone, Copy)]
struct Case {
    fault: Fault,
    is_up: bool,
    seed: u64,
}

/// The result of a case.
#[derive(Debug)]
struct Ended {
    fault: Fault,
    /// A description of the case and of how it ended.
    story: String,
    /// Time until the disturbed copy ended.
    took: Duration,
    /// What went wrong.
    faults: Vec<String>,
}

fn run(scale: Scale) -> Result<Outcome> {
    let _sshd = SshdFolder::made()?;
    let times = scale.pick(1, 8);
    let cases = FAULTS.iter().enumerate().flat_map(|(at, (fault, ..))| {
        (0..times).map(move |number| Case {
            fault: *fault,
            is_up: (at as u64 + number).is_multiple_of(2),
            seed: SEED + 100 * at as u64 + number,
        })
    });
    let todo = Arc::new(Mutex::new(cases.collect::<VecDeque<_>>()));
    let workers: Vec<_> = (0..LABS)
        .map(|_| {
            let todo = Arc::clone(&todo);
            thread::spawn(move || work(&todo))
        })
        .collect();
    let mut ended = Vec::new();
    for worker in workers {
        ended.extend(worker.join().map_err(|_| anyhow::anyhow!("a worker panicked"))??);
    }
    let mut outcome = Outcome::default();
    for (fault, name, _) in FAULTS {
        let own: Vec<_> = ended.iter().filter(|ended| ended.fault == fault).collect();
        let sound = own.iter().filter(|ended| ended.faults.is_empty()).count();
        outcome.equal(name, sound as u64, times, "whole or with a reason, whole in the end, nothing left");
        let longest = own.iter().map(|ended| ended.took).max().unwrap_or_default().as_secs_f64();
        outcome.note(format!("{name}: longest {longest:.1} s"));
        for ended in own {
            outcome.note(ended.story.as_str());
            ended.faults.iter().for_each(|fault| outcome.note(format!("WRONG: {fault}")));
        }
    }
    Ok(outcome)
}

/// Works on cases until none is left. Each worker has a lab and a small disk for itself.
fn work(todo: &Arc<Mutex<VecDeque<Case>>>) -> Result<Vec<Ended>> {
    let (mounts, labs) = (PrivateMounts::new()?, Labs::new()?);
    let disk = PathBuf::from(labs.path("disk"));
    fs::create_dir(&disk)?;
    mounts.memory(&disk, 1 << 20)?;
    let todo = Arc::clone(todo);
    let (ended, labs) = mounts.run(move || {
        let place = Place::new(labs)?;
        let mut ended = Vec::new();
        loop {
            let next = todo.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some(case) = next else { break };
            ended.push(place.case(case).with_context(|| format!("{case:?}"))?);
        }
        place.labs.down(place.lab)?;
        Ok((ended, place.labs))
    })?;
    // Drop the mounts first, because the folder of a mounted disk cannot be removed.
    drop((mounts, labs));
    Ok(ended)
}

/// A running lab with the files to copy.
struct Place {
    labs: Labs,
    lab: Process,
    /// The folder with the lab's files and logs.
    folder: String,
}

impl Place {
    fn new(labs: Labs) -> Result<Self> {
        let (lab, _) = labs.up(&labs.file("lab.toml", LAB)?)?;
        let said = lab.stdout();
        let folder = said.lines().find_map(|line| line.strip_prefix("files and logs in "));
        let folder = folder.context("no folder")?.to_owned();
        Ok(Self { labs, lab, folder })
    }

    fn at(&self, name: &str) -> PathBuf {
        self.labs.path(name).into()
    }

    fn within(&self, host: &str, words: &str) -> Result<Launch> {
        Ok(self.labs.command(&format!("lab shell {host} --"))?.words(words))
    }

    /// Starts an sshd beside the lab's, so that the test can restart it.
    fn sshd(&self, fault: Fault) -> Result<Process> {
        let sshd = format!("/usr/sbin/sshd -D -e -p 2222 -f {}/server-sshd/sshd_config", self.folder);
        let option = match fault {
            // Like an account that may use nothing but SFTP.
            Bare => "ForceCommand=/usr/lib/openssh/sftp-server -P fsync,posix-rename,limits",
            OneSession => "MaxSessions=1",
            TwoStartups => "MaxStartups=2",
            Rekey => "RekeyLimit=16M",
            _ => "UseDNS=no",
        };
        let options = ["-o", option, "-o", "SetEnv=HOME=/nonexistent", "-o", "LogLevel=DEBUG1"];
        let mut sshd = self.within("server", &sshd)?.args(options).start()?;
        sshd.says("Server listening", PATIENCE)?;
        Ok(sshd)
    }

    /// Blocks the link for all packets, or opens it.
    fn link(&self, is_up: bool) -> Result<()> {
        for host in ["client", "server"] {
            // A queue of one byte has no room for any packet.
            let words = if is_up { "del dev eth0 root" } else { "replace dev eth0 root bfifo limit 1" };
            let done = self.within(host, &format!("tc qdisc {words}"))?.run(PATIENCE)?;
            ensure!(done.code == Some(0), "{}", done.stderr);
        }
        Ok(())
    }

    /// Writes files with random contents, so that no part repeats.
    fn make_source(&self, fault: Fault, random: &mut Random) -> Result<()> {
        let source = self.at("source");
        let _ = fs::remove_dir_all(&source);
        fs::create_dir(&source)?;
        let mut bytes = |count: usize| {
            (0..count.div_ceil(8)).flat_map(|_| random.any().to_le_bytes()).collect::<Vec<_>>()
        };
        let large = if fault == Rekey { REKEYED_BYTES } else { LARGE_BYTES };
        fs::write(source.join("large"), bytes(large))?;
        for number in 0..SMALL {
            fs::write(source.join(format!("small-{number}")), bytes(1_000 + number * 3_000))?;
        }
        Ok(())
    }

    fn copy(&self, case: Case, folder: &Path) -> Result<Launch> {
        let program = binary()?.display().to_string();
        let mut words = format!("{program} copy -qr -P 2222 -F {}/ssh_config", self.folder);
        words += match case.fault {
            LinkGone => " -o ServerAliveInterval=1 -o ConnectTimeout=1",
            // In half of the cases the connections survive the pause; in the others they time out, and the copy must make new ones.
            LinkPause if case.seed % 4 < 2 => " -o ServerAliveInterval=1 -o ConnectTimeout=3",
            Rekey => " --connections 1",
            _ => "",
        };
        let (source, folder) = (self.labs.path("source"), folder.display());
        let ends = if case.is_up {
            format!("{source} server:{folder}")
        } else {
            format!("server:{source} {folder}")
        };
        self.within("client", &format!("{words} --json {} {ends}", self.labs.path("report.json")))
    }

    fn case(&self, case: Case) -> Result<Ended> {
        let mut random = Random::new(case.seed);
        self.make_source(case.fault, &mut random)?;
        let (folder, disk) = (self.at("disk/target"), self.at("disk"));
        let mut size = 64 << 20;
        if case.fault == DiskFull {
            size = random.between(seconds(1), seconds(11)).as_millis() as u64 * 1_000;
        }
        let _ = fs::remove_dir_all(&folder);
        resize(&disk, size)?;
        fs::create_dir_all(folder.join("source"))?;
        // Existing files must keep their names until the copy replaces them.
        for name in ["large", "small-1"] {
            fs::write(folder.join("source").join(name), "old")?;
        }
        let mut sshd = self.sshd(case.fault)?;
        let watch = Watch::start(&self.at("source"), &folder.join("source"))?;
        let begun = Instant::now();
        let copy = self.copy(case, &folder)?.start()?;
        let moment = random.between(Duration::ZERO, USUAL);
        thread::sleep(moment);
        let sockets = self.disturb(case, &copy, &mut sshd, &watch, &mut random)?;
        let finished = copy.finish(PATIENCE);
        let took = begun.elapsed();
        if case.fault == LinkGone {
            self.link(true)?;
        }
        resize(&disk, 64 << 20)?;
        let mut faults = Vec::new();
        let mut story = format!(
            "{:?} {} seed {:#x} at {:.2} s: ",
            case.fault,
            if case.is_up { "up" } else { "down" },
            case.seed,
            moment.as_secs_f64()
        );
        match finished {
            Err(error) => faults.push(format!("it does not end: {error:#}")),
            Ok(finished) => self.judge(case, &finished, took, &mut story, &mut faults),
        }
        if faults.is_empty() && !story.ends_with("whole") {
            let again = self.copy(case, &folder)?.run(PATIENCE)?;
            if again.code != Some(0) {
                faults.push(format!("the same command does not go on: {:?} {}", again.code, again.stderr));
            }
            story += &format!("; then whole, {} bytes were there", self.resumed_bytes());
        }
        if case.fault == Rekey && sshd.stderr().matches("SSH2_MSG_KEXINIT sent").count() < 3 {
            faults.push(format!("no new keys were taken: {}", sshd.stderr()));
        }
        if hashes(&self.at("source"))? != hashes(&folder.join("source"))? {
            faults.push("the trees differ".to_owned());
        }
        faults.extend(watch.end());
        self.left(&folder, sockets, &mut faults)?;
        kill_all(&mut sshd);
        Ok(Ended { fault: case.fault, story, took, faults })
    }

    /// Injects the fault. Returns the folders of the sockets that existed at that moment.
    fn disturb(
        &self,
        case: Case,
        copy: &Process,
        sshd: &mut Process,
        watch: &Watch,
        random: &mut Random,
    ) -> Result<Vec<PathBuf>> {
        let sockets = ssh_of(&self.folder).into_iter().filter_map(|(_, socket)| socket).collect();
        match case.fault {
            Killed => {
                let own = descendants(copy.pid());
                own.iter().filter(|(_, words)| words.contains(" copy -qr ")).for_each(|(pid, _)| kill(*pid));
            }
            SshKilled => {
                let all = ssh_of(&self.folder);
                if !all.is_empty() {
                    kill(all[random.below(all.len() as u64) as usize].0);
                }
            }
            LinkGone => self.link(false)?,
            LinkPause => {
                self.link(false)?;
                thread::sleep(seconds(10));
                self.link(true)?;
            }
            SshdRestart => {
                kill_all(sshd);
                thread::sleep(random.between(Duration::ZERO, seconds(2)));
                *sshd = self.sshd(case.fault)?;
            }
            SourceChanged => {
                let path = self.at("source/large");
                let mut large = fs::OpenOptions::new().write(true).open(&path)?;
                large.seek(SeekFrom::End(-100_000))?;
                watch.allow("large", |before| [&before[..before.len() - 100_000], &[7; 100_001]].concat());
                large.write_all(&[7; 100_001])?;
            }
            _ => {}
        }
        Ok(sockets)
    }

    fn judge(
        &self,
        case: Case,
        finished: &Finished,
        took: Duration,
        story: &mut String,
        faults: &mut Vec<String>,
    ) {
        *story += &format!("{:.1} s, ", took.as_secs_f64());
        let words =
            FAULTS.iter().find(|(fault, ..)| *fault == case.fault).map_or(&[][..], |(.., words)| *words);
        let said = finished.stderr.trim();
        match finished.code {
            Some(0) => *story += "whole",
            code if words.iter().any(|word| said.contains(word)) => {
                *story += &format!("status {code:?} '{}'", said.lines().collect::<Vec<_>>().join(" | "));
            }
            code => faults.push(format!("status {code:?} with '{said}'")),
        }
    }

    fn resumed_bytes(&self) -> u64 {
        let report = fs::read_to_string(self.at("report.json")).unwrap_or_default();
        let report: serde_json::Value = serde_json::from_str(&report).unwrap_or_default();
        let files = report["files"].as_array().map_or(&[][..], Vec::as_slice);
        files.iter().filter_map(|file| file["resumed_bytes"].as_u64()).sum()
    }

    /// Reports what the copy has left behind: partial files, `ssh` processes, sockets and journals.
    fn left(&self, folder: &Path, sockets: Vec<PathBuf>, faults: &mut Vec<String>) -> Result<()> {
        for entry in fs::read_dir(folder.join("source"))?.flatten() {
            let name = entry.file_name();
            if name.to_string_lossy().contains(".part") {
                faults.push(format!("{} is left", name.display()));
            }
        }
        let begun = Instant::now();
        while !ssh_of(&self.folder).is_empty() && begun.elapsed() < LAST_WORDS {
            thread::sleep(Duration::from_millis(20));
        }
        let left = ssh_of(&self.folder);
        faults.extend(left.iter().map(|(pid, _)| format!("ssh {pid} is left")));
        faults.extend(sockets.iter().filter(|path| path.exists()).map(|path| format!("{path:?} is left")));
        let journals = fs::read_dir(self.at(".local/state/proofload/copy"))?.flatten();
        let journals = journals.filter(|entry| entry.path().extension().is_some_and(|end| end == "journal"));
        faults.extend(journals.map(|journal| format!("{:?} is left", journal.path())));
        Ok(())
    }
}

fn kill(pid: u32) {
    if let Some(pid) = Pid::from_raw(pid as i32) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// Kills sshd with all its descendants, as if its machine went down.
fn kill_all(sshd: &mut Process) {
    descendants(sshd.pid()).iter().for_each(|(pid, _)| kill(*pid));
    let _ = sshd.wait(PATIENCE);
}

fn resize(disk: &Path, bytes: u64) -> Result<()> {
    let options = format!("remount,size={bytes}");
    let done = Launch::new("mount").args(["-o", &options, &disk.display().to_string()]).run(PATIENCE)?;
    ensure!(done.code == Some(0), "{}", done.stderr);
    Ok(())
}

/// The files below a folder with their hashes, computed by programs that share no code with the copy.
fn hashes(folder: &Path) -> Result<String> {
    let list = "cd \"$0\" && find . -type f ! -name '*.part' -exec sha256sum {} + | sort";
    let done = Launch::new("sh").args(["-c", list, &folder.display().to_string()]).run(PATIENCE)?;
    ensure!(done.code == Some(0), "{}", done.stderr);
    Ok(done.stdout)
}
