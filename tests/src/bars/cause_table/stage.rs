//! What a row of the table sets up: targets, what stands before them and beside them, and the load.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use testing::PATIENCE;

use super::Scale;
use crate::{
    Proofload, Trial,
    lab::{Labs, SshdFolder},
    machine::{Cores, program},
    nginx::free_address,
    process::{Launch, Process},
    proofload::{binary, parse_trial, read_trial},
    random::Random,
    temporary::TemporaryFolder,
};

/// What a row sends to its target.
pub(in crate::bars) enum Load {
    /// `proofload http` with this URL and these words, pinned to the generator's processor.
    Http(String, String),
    /// The same, wherever the kernel runs it, or where the words say.
    Anywhere(String, String),
    /// A study of one trial.
    Study(String),
    /// `proofload http http://web:8080/` with these words from the host `client` of this lab, which observes `web` by ssh.
    Observed(String, String),
}

/// Everything that runs for a row. It ends when dropped, the youngest first.
pub(in crate::bars) struct Stage {
    pub(super) random: Random,
    pub(in crate::bars) cores: Cores,
    folder: TemporaryFolder,
    processes: Vec<Process>,
    groups: Vec<Group>,
}

impl Stage {
    pub(in crate::bars) fn new(seed: u64) -> Result<Self> {
        Ok(Self {
            random: Random::new(seed),
            cores: Cores::of_this_process()?,
            folder: TemporaryFolder::new()?,
            processes: Vec::new(),
            groups: Vec::new(),
        })
    }

    /// A number from `least` to `most`.
    pub(in crate::bars) fn draw(&mut self, least: u64, most: u64) -> u64 {
        least + self.random.below(most - least + 1)
    }

    /// The path of a file of this row.
    pub(super) fn file(&self, name: &str) -> String {
        self.folder.file(name)
    }

    /// Starts a `slow_target` with these words on the server's processor, and returns its address.
    pub(in crate::bars) fn target(&mut self, words: &str) -> Result<SocketAddr> {
        let address = free_address()?;
        let core = self.cores.server;
        self.target_at(address, words, |launch| launch.on_core(core))?;
        Ok(address)
    }

    /// Starts a `slow_target` at an address, as `change` wants it. Returns its process id.
    pub(super) fn target_at(
        &mut self,
        address: SocketAddr,
        words: &str,
        change: impl FnOnce(Launch) -> Launch,
    ) -> Result<u32> {
        self.start(change(slow_target(address, words)?), |process| process.stdout().contains("listening"))
    }

    /// Starts a program, and waits until it is as `is_up` wants it. Returns its process id.
    pub(super) fn start(&mut self, launch: Launch, is_up: impl Fn(&Process) -> bool) -> Result<u32> {
        let mut process = launch.start()?;
        process.find("it is up", PATIENCE, |process| is_up(process).then_some(()))?;
        let pid = process.pid();
        self.processes.push(process);
        Ok(pid)
    }

    /// Starts a program beside the target.
    pub(super) fn beside(&mut self, launch: Launch) -> Result<u32> {
        self.start(launch, |_| true)
    }

    /// Starts a program on the server's processor that listens at this address, and waits until it does.
    pub(super) fn server(&mut self, launch: Launch, address: SocketAddr) -> Result<SocketAddr> {
        let core = self.cores.server;
        self.start(launch.on_core(core), |_| listens(address))?;
        Ok(address)
    }

    /// Starts an nginx of one worker, with these lines in its `server` (and these in `http`). Its folder has the pages `/1k` and `/100k`.
    pub(in crate::bars) fn nginx(&mut self, server: &str, http: &str) -> Result<SocketAddr> {
        let address = free_address()?;
        let folder = self.folder.path().join(format!("nginx-{}", address.port()));
        fs::create_dir(&folder)?;
        for (name, bytes) in [("1k", 1_000), ("100k", 100_000)] {
            fs::write(folder.join(name), vec![b'x'; bytes])?;
        }
        let shown = folder.display();
        let text = format!(
            "daemon off; user root; worker_processes 1; pid {shown}/pid; error_log stderr warn;\n\
             events {{ worker_connections 1024; }}\n\
             http {{ access_log off; keepalive_requests 1000000; client_body_temp_path {shown}/body; client_max_body_size 64m;\n\
             proxy_temp_path {shown}/proxy; fastcgi_temp_path {shown}/f; uwsgi_temp_path {shown}/u; scgi_temp_path {shown}/s;\n\
             proxy_http_version 1.1; proxy_set_header Connection \"\"; {http}\n\
             server {{ listen {address} backlog=1024; root {shown}; default_type text/plain; {server} }} }}\n"
        );
        let file = folder.join("nginx.conf").display().to_string();
        fs::write(&file, text)?;
        let launch =
            Launch::new(named("nginx")?).args(["-e", "stderr", "-p", &shown.to_string(), "-c", &file]);
        self.server(launch, address)
    }

    /// Starts an nginx with a static page, and returns the URL of that page.
    pub(super) fn page(&mut self) -> Result<String> {
        Ok(format!("http://{}/1k", self.nginx("", "")?))
    }

    /// Starts an HAProxy before a server, with these lines in `global`, `frontend` and at the server.
    pub(super) fn haproxy(
        &mut self,
        to: SocketAddr,
        [global, front, server]: [&str; 3],
    ) -> Result<SocketAddr> {
        let address = free_address()?;
        let file = self.file(&format!("haproxy-{}.cfg", address.port()));
        let text = format!(
            "global\n nbthread 1\n {global}\ndefaults\n mode http\n timeout connect 5s\n timeout client 60s\n timeout server 60s\n \
             timeout queue 60s\nfrontend all\n bind {address}\n {front}\n default_backend one\nbackend one\n server one {to} {server}\n"
        );
        fs::write(&file, text)?;
        self.server(Launch::new(named("haproxy")?).args(["-db", "-q", "-f", &file]), address)
    }

    /// Starts a socat before a server: a process for each connection.
    pub(super) fn socat(&mut self, to: SocketAddr) -> Result<SocketAddr> {
        let address = free_address()?;
        let listen = format!("TCP-LISTEN:{},fork,reuseaddr,bind=127.0.0.1,backlog=1024", address.port());
        self.server(Launch::new(named("socat")?).args([listen, format!("TCP:{to}")]), address)
    }

    /// Starts a service of an interpreter from its source, in which PORT is the port.
    pub(super) fn script(&mut self, interpreter: [&str; 2], source: &str) -> Result<SocketAddr> {
        let address = free_address()?;
        let source = source.replace("PORT", &address.port().to_string());
        let launch = Launch::new(named(interpreter[0])?).args([interpreter[1], &source]);
        self.server(launch, address)
    }

    /// Compiles and starts a service in Go, in whose source PORT is the port.
    pub(super) fn go(&mut self, source: &str) -> Result<SocketAddr> {
        let address = free_address()?;
        let (file, built) = (self.file("main.go"), self.file("go_service"));
        fs::write(&file, source.replace("PORT", &address.port().to_string()))?;
        let build = Launch::new(named("go")?).args(["build", "-o", &built, &file]);
        let done = build.env("GOTOOLCHAIN", "local").env("GOPROXY", "off").run(PATIENCE)?;
        ensure!(done.code == Some(0), "go build failed:\n{}", done.stderr);
        self.server(Launch::new(built), address)
    }

    /// Starts a program that always computes, on this processor.
    pub(super) fn spinner(&mut self, core: u32) -> Result<u32> {
        self.beside(Launch::new("sh").args(["-c", "while :; do :; done"]).on_core(core))
    }

    /// Makes a control group in another one, with this quota in percent of a processor, and moves processes there.
    pub(super) fn group(&mut self, inside: Option<usize>, percent: u64, pids: &[u32]) -> Result<usize> {
        let group = Group::made(inside.map(|index| &self.groups[index]), self.groups.len(), percent)?;
        self.groups.push(group);
        let group = &self.groups[self.groups.len() - 1];
        for pid in pids {
            group.write("cgroup.procs", &pid.to_string())?;
        }
        Ok(self.groups.len() - 1)
    }

    /// A copy of `slow_target` under another name, for what is not the target.
    pub(super) fn bystander(&self) -> Result<String> {
        let copy = self.file("bystander");
        fs::copy(slow_target_path()?, &copy)?;
        Ok(copy)
    }

    /// Runs the load. Returns its trial.
    pub(in crate::bars) fn run(&mut self, load: &Load, scale: Scale) -> Result<Trial> {
        let shorter = |text: &str| text.replace("4s", scale.pick("3s", "4s"));
        match load {
            Load::Http(url, words) => {
                let core = self.cores.generator;
                http(url, &format!("--threads 1 --cpus {core} {}", shorter(words)))
            }
            Load::Anywhere(url, words) => http(url, &shorter(words)),
            Load::Study(text) => self.study(&shorter(text)),
            Load::Observed(lab, words) => observed(lab, &shorter(words)),
        }
    }

    fn study(&self, text: &str) -> Result<Trial> {
        let (file, out) = (self.file("study.toml"), self.file("result"));
        let (server, client) = (self.cores.server.to_string(), self.cores.generator.to_string());
        let text = text.replace("SLOW", &slow_target_path()?.display().to_string());
        let text = text.replace("SERVER", &server).replace("CLIENT", &client);
        fs::write(&file, &text)?;
        let output =
            Proofload::new("run")?.arg(&file).with(|launch| launch.args(["--out", &out, "-q"])).run()?;
        let trials = fs::read_to_string(format!("{out}/trials.jsonl"))
            .with_context(|| format!("{}\n{text}", output.described()))?;
        let last: Value = serde_json::from_str(trials.lines().last().context("no trial")?)?;
        parse_trial(&last["trial"].to_string())
    }

    /// What the programs counted themselves: the last line of each that prints some.
    pub(in crate::bars) fn witnessed(&self) -> String {
        let last = |process: &Process| {
            process.stdout().lines().rev().find(|line| line.starts_with("accepted")).map(str::to_owned)
        };
        let mut lines: Vec<String> = self.processes.iter().filter_map(last).collect();
        lines.extend(self.groups.iter().map(Group::throttled));
        lines.join("; ")
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        while self.processes.pop().is_some() {}
        while self.groups.pop().is_some() {}
    }
}

/// A call of `slow_target`.
fn slow_target(address: SocketAddr, words: &str) -> Result<Launch> {
    let path = slow_target_path()?.display().to_string();
    Ok(Launch::new(path).arg(address.to_string()).words(words))
}

/// The program `slow_target`, which is built beside this one.
fn slow_target_path() -> Result<PathBuf> {
    let own = std::env::current_exe().context("cannot tell where this program lies")?;
    let mut found = own.ancestors().skip(1).take(2).map(|folder| folder.join("slow_target"));
    found.find(|path| path.is_file()).context("no slow_target beside this program: build it with cargo")
}

/// The path of an installed program.
pub(super) fn named(name: &str) -> Result<String> {
    let found =
        program(name).with_context(|| format!("{name} is missing: scripts/setup.sh test services"))?;
    Ok(found.display().to_string())
}

/// Whether somebody listens there. It asks the kernel, because a connection would be a request for the program.
fn listens(address: SocketAddr) -> bool {
    let sockets = fs::read_to_string("/proc/net/tcp").unwrap_or_default()
        + &fs::read_to_string("/proc/net/tcp6").unwrap_or_default();
    let port = format!(":{:04X}", address.port());
    sockets.lines().any(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let is_there = fields.next().is_some_and(|local| local.ends_with(&port));
        is_there && fields.nth(1) == Some("0A")
    })
}

fn http(url: &str, words: &str) -> Result<Trial> {
    let output = Proofload::new("http")?.arg(url).with(|launch| launch.words(words).arg("-q")).run()?;
    Ok(output.trial()?.clone())
}

/// The trial of a load that observes its target's host by ssh.
fn observed(lab: &str, words: &str) -> Result<Trial> {
    let _sshd = SshdFolder::made()?;
    let labs = Labs::new()?;
    let lab = lab.replace("SLOW", &slow_target_path()?.display().to_string());
    let (running, _) = labs.up(&labs.file("lab.toml", &lab)?)?;
    let said = running.stdout();
    let word_after = |lead: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix(lead));
        line.map(str::trim).with_context(|| format!("no line of {lead:?}: {said}"))
    };
    let (address, run_folder) = (word_after("web ")?, word_after("files and logs in ")?);
    let path = labs.with_ssh(&format!("exec /usr/bin/ssh -F {run_folder}/ssh_config \"$@\""))?;
    let json = labs.path("trial.json");
    let call = format!(
        "lab shell client -- {} http http://{address}:8080/ --observe web=root@web --json {json} -q {words}",
        binary()?.display()
    );
    let output = labs.command(&call)?.env("PATH", &path).run(PATIENCE)?;
    labs.down(running)?;
    read_trial(Path::new(&json))?.with_context(|| format!("no trial: {}{}", output.stdout, output.stderr))
}

/// A control group with a quota. Dropping it removes it.
#[derive(Debug)]
struct Group(PathBuf);

impl Group {
    const PERIOD_US: u64 = 100_000;

    fn made(inside: Option<&Self>, number: usize, percent: u64) -> Result<Self> {
        let v1 = Path::new("/sys/fs/cgroup/cpu");
        let root = if v1.is_dir() { v1 } else { Path::new("/sys/fs/cgroup") };
        let folder = inside
            .map_or(root, |group| &group.0)
            .join(format!("proofload-test-{}-{number}", std::process::id()));
        if !v1.is_dir() {
            let above = folder.parent().unwrap_or(root);
            fs::write(above.join("cgroup.subtree_control"), "+cpu").context("no groups for processors")?;
        }
        fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let group = Self(folder);
        let quota_us = percent * Self::PERIOD_US / 100;
        match v1.is_dir() {
            true => {
                group.write("cpu.cfs_period_us", &Self::PERIOD_US.to_string())?;
                group.write("cpu.cfs_quota_us", &quota_us.to_string())?;
            }
            false => group.write("cpu.max", &format!("{quota_us} {}", Self::PERIOD_US))?,
        }
        Ok(group)
    }

    fn write(&self, file: &str, text: &str) -> Result<()> {
        fs::write(self.0.join(file), text).with_context(|| format!("cannot write {file}"))
    }

    fn throttled(&self) -> String {
        let stat = fs::read_to_string(self.0.join("cpu.stat")).unwrap_or_default();
        stat.lines().filter(|line| line.starts_with("nr_")).collect::<Vec<_>>().join(" ")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The kernel refuses while a member has ended and not yet disappeared.
        let _ = testing::find(Duration::from_secs(10), || fs::remove_dir(&self.0).ok());
    }
}
