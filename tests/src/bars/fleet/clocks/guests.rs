//! Virtual machines that share a segment and that ssh reaches from this machine. Their clocks differ.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::{Ipv4Addr, SocketAddr, SocketAddrV4},
    path::PathBuf,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result, ensure};
use testing::{PATIENCE, find};

use crate::{Vm, lab::Labs, machine, nginx::free_address, process::Launch, vm::RunningVm};

/// A guest, and what is wrong with its clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kind {
    pub(super) name: &'static str,
    /// By how much its time of day is ahead of this machine's, in seconds.
    pub(super) ahead_s: f64,
    /// By how much it is too fast, in millionths.
    pub(super) fast_ppm: i32,
}

/// The guests: two that make load, and the target.
pub(super) const KINDS: [Kind; 3] = [
    Kind { name: "client1", ahead_s: 10.0, fast_ppm: 200 },
    Kind { name: "client2", ahead_s: -3.0, fast_ppm: -200 },
    Kind { name: TARGET, ahead_s: 0.0, fast_ppm: 0 },
];
pub(super) const TARGET: &str = "web";
/// Port of the server that writes down when each request came.
pub(super) const PORT: u16 = 8081;
/// Longest time for a boot beside the others.
const BOOT: Duration = Duration::from_secs(300);
/// Number of questions for the time, of which the one with the fastest answer counts.
const CLOCK_QUESTIONS: usize = 30;
/// Ends an answer of a shell. The exit status follows.
const END: &str = "end-of-answer";

const SSHD_CONFIG: &str = "HostKey /run/host_key\nAuthorizedKeysFile /vm/authorized\nPermitRootLogin yes\n\
                           PasswordAuthentication no\nKbdInteractiveAuthentication no\nPidFile none\n\
                           SetEnv PATH=/usr/bin:/busybox\n";

/// The running guests.
pub(super) struct Guests {
    guests: Vec<Guest>,
    /// The folder for the files and the journals of commands here.
    pub(super) labs: Labs,
    /// The search path on which `ssh` knows the guests.
    path: String,
    /// An instant and its time of day, from which this machine's time follows without jumps.
    noon: (Instant, f64),
}

struct Guest {
    kind: Kind,
    // Dropped in this order.
    shell: Shell,
    vm: RunningVm,
    /// The port of 127.0.0.1 that leads to its sshd.
    port: u16,
}

impl Guests {
    /// Boots all guests, and sets their clocks.
    pub(super) fn start() -> Result<Self> {
        let labs = Labs::new()?;
        for key in ["login", "host"] {
            let launch = Launch::new("ssh-keygen").words("-q -t ed25519 -C test -f").arg(labs.path(key));
            let made = launch.args(["-N", ""]).run(PATIENCE)?;
            ensure!(made.code == Some(0), "ssh-keygen: {made:?}");
        }
        let text = |name: &str| fs::read_to_string(labs.path(name)).with_context(|| format!("no {name}"));
        let known = labs.file("known_hosts", &format!("guest {}", text("host.pub")?))?;
        let config = format!(
            "IdentityFile {}\nIdentitiesOnly yes\nUserKnownHostsFile {known}\nGlobalKnownHostsFile /dev/null\n\
             HostKeyAlias guest\nStrictHostKeyChecking yes\nBatchMode yes\n\
             ServerAliveInterval 30\nServerAliveCountMax 4\n",
            labs.path("login")
        );
        let config = labs.file("ssh_config", &config)?;
        let ssh = machine::program("ssh").context("ssh is not installed (Debian: openssh-client)")?;
        let path = labs.with_ssh(&format!("exec {} -F {config} \"$@\"", ssh.display()))?;
        // The port makes it another segment than that of a bar beside this one.
        let group = SocketAddrV4::new(Ipv4Addr::new(239, 255, 77, 1), free_address()?.port()).into();
        let (authorized, host_key) = (text("login.pub")?, text("host")?);
        let mut booting = Vec::new();
        for (kind, number) in KINDS.into_iter().zip(1..) {
            let reached = free_address()?;
            let is_target = kind.name == TARGET;
            let mut vm = Vm::default()
                .tools(["sshd", "date", "ping"])
                .modules(["tcp_diag"])
                .file("/vm/sshd_config", SSHD_CONFIG)
                .file("/vm/authorized", authorized.clone())
                .file("/vm/host_key", host_key.clone())
                .forward(reached, 22)
                .segment(group, number);
            if is_target {
                vm = vm.proofload()?.capture(&PathBuf::from(labs.path(CAPTURE)));
            }
            let (address, ppm) = (address(kind.name), kind.fast_ppm);
            let port = if is_target { PORT.to_string() } else { String::new() };
            let script =
                format!("ADDRESS={address} PPM={ppm} SERVE={port}\n{}", include_str!("../clocks.sh"));
            booting.push((kind, vm.start(&script)?, reached));
        }
        let mut guests = Vec::new();
        for (kind, mut vm, reached) in booting {
            let is_up = find(BOOT, || {
                let is_up = vm.output().contains("guest-ready");
                (is_up || !vm.is_running()).then_some(is_up)
            });
            ensure!(is_up == Some(true), "{} does not boot: {}", kind.name, vm.said());
            let shell = Shell::log_in(&config, reached).with_context(|| vm.said())?;
            guests.push(Guest { kind, shell, vm, port: reached.port() });
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH)?;
        let mut guests = Self { guests, labs, path, noon: (Instant::now(), since.as_secs_f64()) };
        for Kind { name, ahead_s, .. } in KINDS {
            let now_s = guests.now_s();
            guests.ask(name, &format!("date -s @{:.6}", now_s + ahead_s))?;
        }
        Ok(guests)
    }

    /// What a shell on a guest says to a line.
    pub(super) fn ask(&mut self, name: &str, line: &str) -> Result<String> {
        self.guest(name)?.shell.ask(line).with_context(|| format!("{name}: {line}"))
    }

    /// By how much a guest's time of day is ahead of this machine's, and the largest error of this, in seconds.
    pub(super) fn ahead_s(&mut self, name: &str) -> Result<(f64, f64)> {
        self.told_s(name, "date +%s.%N", |said| said.parse().ok())
    }

    /// The same for its clock CLOCK_MONOTONIC, which the kernel tells to a shell without another program.
    pub(super) fn monotonic_ahead_s(&mut self, name: &str) -> Result<(f64, f64)> {
        let line = "{ read -r a; read -r a; read -r now; } </proc/timer_list; echo \"$now\"";
        let seconds = |said: &str| {
            let ns: f64 = said.strip_prefix("now at ")?.strip_suffix(" nsecs")?.parse().ok()?;
            Some(ns / 1e9)
        };
        self.told_s(name, line, seconds)
    }

    fn told_s(&mut self, name: &str, line: &str, seconds: fn(&str) -> Option<f64>) -> Result<(f64, f64)> {
        let mut best = (0.0, f64::INFINITY);
        for _ in 0..CLOCK_QUESTIONS {
            let before_s = self.now_s();
            let there = self.ask(name, line)?;
            let error_s = (self.now_s() - before_s) / 2.0;
            if error_s < best.1 {
                let there_s = seconds(there.trim()).with_context(|| format!("no time: {there}"))?;
                best = (there_s - before_s - error_s, error_s);
            }
        }
        Ok(best)
    }

    /// Gives all guests real-time priority.
    pub(super) fn set_real_time(&self) -> Result<()> {
        self.guests.iter().try_for_each(|guest| guest.vm.set_real_time())
    }

    /// An instant as this machine's time of day.
    pub(super) fn at_s(&self, instant: Instant) -> f64 {
        match instant.checked_duration_since(self.noon.0) {
            Some(since) => self.noon.1 + since.as_secs_f64(),
            None => self.noon.1 - self.noon.0.duration_since(instant).as_secs_f64(),
        }
    }

    /// This machine's time of day, as it follows from its clock CLOCK_MONOTONIC.
    pub(super) fn now_s(&self) -> f64 {
        self.at_s(Instant::now())
    }

    /// `proofload` with these words on this machine, the controller.
    pub(super) fn command(&self, words: &str) -> Result<Launch> {
        Ok(self.labs.command(words)?.env("PATH", &self.path))
    }

    /// The option for the guests that make load.
    pub(super) fn on(&self) -> String {
        let clients = self.guests.iter().filter(|guest| guest.kind.name != TARGET);
        let named = clients.map(|guest| format!("{}=root@127.0.0.1:{}", guest.kind.name, guest.port));
        format!("--on {}", named.collect::<Vec<_>>().join(","))
    }

    /// The path of an inventory of all guests.
    pub(super) fn inventory(&self) -> Result<String> {
        let host = |guest: &Guest| {
            let name = guest.kind.name;
            let (port, address) = (guest.port, address(name));
            format!("{name} ansible_host=127.0.0.1 ansible_port={port} proofload_address={address}\n")
        };
        let hosts: String = self.guests.iter().map(host).collect();
        self.labs.file("inventory.ini", &format!("{hosts}[all:vars]\nansible_user=root\n"))
    }

    /// The frames that the target received and sent.
    pub(super) fn capture(&self) -> Result<Vec<u8>> {
        Ok(fs::read(self.labs.path(CAPTURE))?)
    }

    fn guest(&mut self, name: &str) -> Result<&mut Guest> {
        let mut guests = self.guests.iter_mut();
        guests.find(|guest| guest.kind.name == name).with_context(|| format!("no guest {name}"))
    }
}

/// The file of the target's frames.
const CAPTURE: &str = "segment.pcap";

/// The address of a guest on the segment.
pub(super) fn address(name: &str) -> Ipv4Addr {
    let number = KINDS.iter().position(|kind| kind.name == name).map_or(0, |at| at as u8 + 1);
    Ipv4Addr::new(10, 9, 0, number)
}

/// A shell on a guest, over one ssh that lasts: a login takes a guest half a second.
struct Shell {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Shell {
    fn log_in(config: &str, reached: SocketAddr) -> Result<Self> {
        let (ip, port) = (reached.ip(), reached.port().to_string());
        let mut command = Command::new("ssh");
        command.args(["-F", config, "-p", &port]);
        command.args(["--", &format!("root@{ip}"), "exec sh"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("no ssh")?;
        let input = child.stdin.take().context("no input of ssh")?;
        let output = BufReader::new(child.stdout.take().context("no output of ssh")?);
        let mut shell = Self { child, input, output };
        shell.ask("true").context("cannot log in")?;
        Ok(shell)
    }

    fn ask(&mut self, line: &str) -> Result<String> {
        write!(self.input, "{{ {line}\n}} </dev/null 2>&1; printf '\\n%s %s\\n' {END} $?\n")?;
        self.input.flush()?;
        let mut said = String::new();
        loop {
            let begin = said.len();
            ensure!(self.output.read_line(&mut said)? > 0, "ssh has ended; it said: {said}");
            if let Some(status) = said[begin..].strip_prefix(END) {
                let is_well = status.trim() == "0";
                said.truncate(begin.saturating_sub(1));
                ensure!(is_well, "it failed: {said}");
                return Ok(said);
            }
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}
