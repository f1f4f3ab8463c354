//! Copies over the paths of labs, by `proofload copy` and by existing programs.

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::{
    lab::{Labs, SshdFolder},
    process::{Launch, Process},
    proofload::binary,
    random::Random,
    stats::median,
    temporary::TemporaryFolder,
};

/// Share of a link's rate that TCP can use: 1448 of the 1538 bytes of a packet on the wire.
const GOODPUT: f64 = 1_448.0 / 1_538.0;
/// The server's address.
const SERVER: &str = "10.1.0.2";
/// Maximum time of a copy.
const PATIENCE: Duration = Duration::from_secs(1_200);

/// A client, a server with Debian's sshd, and folders in memory that both can access.
#[derive(Debug)]
pub struct CopyPath {
    running: Process,
    labs: Labs,
    ssh_config: String,
    folder: TemporaryFolder,
    usage: Usage,
    client: &'static str,
    _sshd: SshdFolder,
    /// The rate that a TCP flow can reach, in bytes per second.
    pub goodput: f64,
}

/// The results of a copy.
#[derive(Debug)]
pub struct Copied {
    /// Time from its start to its end, in seconds.
    pub wall_s: f64,
    /// Processor time of all processes that took part, in seconds.
    pub cpu_s: f64,
    /// The report of `proofload copy`.
    pub report: Value,
}

impl CopyPath {
    /// Starts a path. `host` and `link` are settings of a lab file for both hosts and for the link. Without a rate, client and server are
    /// the same host.
    ///
    /// # Errors
    /// If the path cannot be made.
    pub fn up(rate_mbit: Option<u32>, host: &str, link: &str, room_bytes: u64) -> Result<Self> {
        let sshd = SshdFolder::made()?;
        let (labs, folder, usage) = (Labs::new()?, TemporaryFolder::in_memory(room_bytes)?, Usage::new()?);
        let hosts = match rate_mbit {
            Some(rate) => format!(
                "client = {{ {host} }}\nserver = {{ {host} }}\n[[links]]\nname = \"path\"\nbetween = [\"client\", \"server\"]\n\
                 network = \"10.1.0.0/24\"\naddresses = {{ server = \"{SERVER}\" }}\nrate = \"{rate}mbit\"\n{link}\n\
                 [[processes]]\non = \"server\"\nrun = \"iperf3\"\n"
            ),
            None => format!("server = {{ loopback = [\"{SERVER}\"] }}\n"),
        };
        // Keeps root's shell start files out of the test.
        let file = format!(
            "[hosts]\n{hosts}[[processes]]\non = \"server\"\nrun = \"sshd\"\nconfig = \"debian\"\n\
             args = [\"-o\", \"SetEnv=HOME=/nonexistent\"]\n"
        );
        let file = labs.file("lab.toml", &file)?;
        let mut running = usage.counts(labs.command(&format!("lab up {file}"))?).start()?;
        running.says("\nready in ", PATIENCE)?;
        let said = running.stdout();
        let lab = said.lines().find_map(|line| line.strip_prefix("files and logs in "));
        let ssh_config = format!("{}/ssh_config", lab.context("the lab names no folder")?);
        let goodput = f64::from(rate_mbit.unwrap_or(0)) * 1e6 / 8.0 * GOODPUT;
        let client = if rate_mbit.is_some() { "client" } else { "server" };
        Ok(Self { client, running, labs, ssh_config, folder, usage, _sshd: sshd, goodput })
    }

    /// The path of a file on both hosts.
    pub fn file(&self, name: &str) -> String {
        self.folder.file(name)
    }

    /// Makes a file of random bytes. It begins with its name, to distinguish it from others.
    ///
    /// # Errors
    /// If there is not enough space.
    pub fn make(&self, name: &str, bytes: u64) -> Result<String> {
        let path = self.folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
        let mut random = Random::new(bytes);
        let piece: Vec<u8> = (0..(8 << 20) / 8).flat_map(|_| random.any().to_le_bytes()).collect();
        let mut file = File::create(&path)?;
        let mut left = bytes as usize;
        let name = &name.as_bytes()[..name.len().min(left)];
        file.write_all(name)?;
        left -= name.len();
        while left > 0 {
            let now = left.min(piece.len());
            file.write_all(&piece[..now])?;
            left -= now;
        }
        Ok(path.display().to_string())
    }

    /// Runs a program on the client. `{config}` in its arguments stands for the ssh configuration.
    ///
    /// # Errors
    /// If its exit status is not 0.
    pub fn run(&self, words: &[&str]) -> Result<Copied> {
        let words = words.iter().map(|word| word.replace("{config}", &self.ssh_config));
        let launch = self.labs.command(&format!("lab shell {} --", self.client))?.args(words);
        // Data about earlier logins must come from this path only.
        let launch = launch.env("XDG_STATE_HOME", &self.labs.path("state"));
        let before_s = self.usage.seconds()?;
        let finished = self.usage.counts(launch).run(PATIENCE)?;
        ensure!(finished.code == Some(0), "{}{}", finished.stdout, finished.stderr);
        // The processes on the other side end a little later, and their time counts, too.
        std::thread::sleep(Duration::from_millis(100));
        let report = serde_json::from_str(&finished.stdout).unwrap_or_default();
        Ok(Copied { wall_s: finished.wall.as_secs_f64(), cpu_s: self.usage.seconds()? - before_s, report })
    }

    /// Copies with `proofload copy` and these options. Removes the target first.
    ///
    /// # Errors
    /// If the copy fails.
    pub fn copy(&self, options: &str, way: Way, from: &str, to: &str) -> Result<Copied> {
        let program = binary()?.display().to_string();
        let mut words =
            vec![program.as_str(), "copy", "-q", "-r", "--json", "-", "--no-resume", "-F", "{config}"];
        words.extend(options.split_whitespace());
        let [from, to] = self.places(way, from, to)?;
        words.extend([from.as_str(), &to]);
        self.run(&words)
    }

    /// Copies with `scp`.
    ///
    /// # Errors
    /// If the copy fails.
    pub fn scp(&self, options: &str, way: Way, from: &str, to: &str) -> Result<Copied> {
        let [from, to] = self.places(way, from, to)?;
        let mut words = vec!["scp", "-q", "-F", "{config}"];
        words.extend(options.split_whitespace());
        words.extend([from.as_str(), &to]);
        self.run(&words)
    }

    /// Source and target in the notation of scp. Removes what exists at the target.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn places(&self, way: Way, from: &str, to: &str) -> Result<[String; 2]> {
        let (from, to) = (self.file(from), self.folder.path().join(to));
        let _ = fs::remove_dir_all(&to);
        let _ = fs::remove_file(&to);
        let to = to.display().to_string();
        Ok(match way {
            Way::Up => [from, format!("server:{to}")],
            Way::Down => [format!("server:{from}"), to],
        })
    }

    /// The value of a setting in the ssh configuration of the server.
    ///
    /// # Errors
    /// If the configuration does not have this setting.
    pub fn ssh_setting(&self, name: &str) -> Result<String> {
        let text = fs::read_to_string(&self.ssh_config)?;
        let value = text.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(' '));
        Ok(value.with_context(|| format!("ssh's configuration has no {name}"))?.trim_matches('"').to_owned())
    }

    /// The total rate of this many concurrent flows of iperf3, in bytes per second, after their first 8 s.
    ///
    /// # Errors
    /// If iperf3 fails.
    pub fn iperf3(&self, flows: u64, seconds: u32) -> Result<f64> {
        let words = format!("iperf3 --client {SERVER} --json --omit 8 --time {seconds} --parallel {flows}");
        let report = self.run(&words.split(' ').collect::<Vec<_>>())?.report;
        let rate = report["end"]["sum_received"]["bits_per_second"].as_f64();
        rate.map(|rate| rate / 8.0).with_context(|| format!("iperf3 said: {report}"))
    }

    /// Starts a flow of iperf3, which reports each of its seconds when it ends.
    ///
    /// # Errors
    /// If it does not start.
    pub fn flow(&self, seconds: u32) -> Result<Process> {
        let words = format!("lab shell {} -- iperf3 --client {SERVER} --json --time {seconds}", self.client);
        self.labs.command(&words)?.start()
    }

    /// Takes the lab down.
    ///
    /// # Errors
    /// If it does not go down properly.
    pub fn down(self) -> Result<()> {
        self.labs.down(self.running).map(drop)
    }
}

/// The direction of a copy, seen from the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// To the server.
    Up,
    /// From the server.
    Down,
}

/// The rates of a copy in full seconds after its start, as shares of the rate that the path can carry.
#[derive(Debug, Clone)]
pub struct Steady {
    /// Seconds until the rate first reached 0.9 of it.
    pub ramp_s: usize,
    /// The median of the rates.
    pub median: f64,
    /// The mean. At a low rate, the report counts arrived data in pieces that are large compared with a second, so the mean is more exact
    /// than the median.
    pub mean: f64,
    /// Share of the seconds whose rate is within a tenth of the median.
    pub even: f64,
    /// The slowest second, as a share of the median.
    pub least: f64,
    /// Number of seconds.
    pub seconds: usize,
}

impl Copied {
    /// The seconds after the ramp-up, without the last one, in which the copy may have ended.
    pub fn steady(&self, goodput: f64) -> Steady {
        let empty = Vec::new();
        let rates = self.report["rate_bytes_per_s"].as_array().unwrap_or(&empty);
        let rates: Vec<f64> = rates.iter().filter_map(Value::as_f64).map(|rate| rate / goodput).collect();
        let ramp_s = rates.iter().position(|rate| *rate >= 0.9).unwrap_or(rates.len());
        let steady = &rates[ramp_s.min(rates.len().saturating_sub(1))..rates.len().saturating_sub(1)];
        let middle = median(steady);
        let mean = steady.iter().sum::<f64>() / steady.len().max(1) as f64;
        let is_even = |rate: &&f64| (**rate / middle - 1.0).abs() <= 0.1;
        let even = steady.iter().filter(is_even).count() as f64 / steady.len().max(1) as f64;
        let least = steady.iter().copied().fold(f64::INFINITY, f64::min) / middle;
        Steady { ramp_s, median: middle, mean, even, least, seconds: steady.len() }
    }

    /// A number in the report; 0 if it is missing.
    pub fn number(&self, name: &str) -> f64 {
        self.report[name].as_f64().unwrap_or(0.0)
    }
}

/// A control group that counts the processor time of the processes started in it and of all their descendants.
#[derive(Debug)]
struct Usage(PathBuf);

impl Usage {
    fn new() -> Result<Self> {
        let v1 = Path::new("/sys/fs/cgroup/cpuacct");
        let root = if v1.is_dir() { v1 } else { Path::new("/sys/fs/cgroup") };
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = root.join(format!("proofload-tests-{}-{number}", std::process::id()));
        fs::create_dir(&folder)
            .with_context(|| format!("cannot make {}; is this root?", folder.display()))?;
        Ok(Self(folder))
    }

    fn counts(&self, launch: Launch) -> Launch {
        let script = format!("echo $$ > {}/cgroup.procs && exec \"$@\"", self.0.display());
        launch.under(["sh", "-c", &script, "sh"])
    }

    fn seconds(&self) -> Result<f64> {
        if let Ok(ns) = fs::read_to_string(self.0.join("cpuacct.usage")) {
            return Ok(ns.trim().parse::<f64>()? / 1e9);
        }
        let text = fs::read_to_string(self.0.join("cpu.stat"))?;
        let us = text.lines().find_map(|line| line.strip_prefix("usage_usec "));
        Ok(us.context("cpu.stat has no usage_usec")?.parse::<f64>()? / 1e6)
    }
}

impl Drop for Usage {
    fn drop(&mut self) {
        // The kernel refuses while a process is in the group.
        let _ = testing::find(testing::PATIENCE, || fs::remove_dir(&self.0).ok());
    }
}
