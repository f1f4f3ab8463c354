//! Labs with a balancer: a segment with a client, balancers, and web hosts that have the VIP.

use std::{fs, time::Duration};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use testing::{PATIENCE, until};

use crate::{
    Trial,
    lab::{Inventory, Labs},
    process::{Process, children_of},
    proofload::{binary, parse_trial, patient},
};

/// The virtual address (VIP) that the balancer serves.
pub const VIP: &str = "10.1.99.1";
/// Addresses from which the client sends. There are several because each has a limited number of ports.
pub const SOURCES: [&str; 8] =
    ["10.1.98.1", "10.1.98.2", "10.1.98.3", "10.1.98.4", "10.1.98.5", "10.1.98.6", "10.1.98.7", "10.1.98.8"];
/// The name of the network device on every host.
const DEVICE: &str = "eth0";

/// A running lab, with the configuration of its balancer.
#[derive(Debug)]
pub struct Balanced {
    /// Runs the lab's commands.
    pub labs: Labs,
    lab: Process,
    /// The state of the machine before the lab came up; none if other labs may run beside it.
    before: Option<Inventory>,
    /// The path of the proofload binary.
    pub program: String,
    /// The path of the balancer's configuration.
    pub file: String,
    /// Options of `proofload http` for the source addresses.
    source: String,
}

impl Balanced {
    /// Brings up a lab with this many web hosts, called web1, web2, …, whose nginx serves `/file` with this many bytes. No other lab may
    /// run on this machine, because [`Self::down`] checks that nothing is left.
    ///
    /// # Errors
    /// If the lab does not come up.
    pub fn up(servers: usize, file_bytes: u32) -> Result<Self> {
        let sources = SOURCES.map(|source| format!("\"{source}\"")).join(", ");
        // The addresses of the client are on no segment, so servers need routes to them.
        let routes: String =
            SOURCES.map(|source| format!("{{ to = \"{source}/32\", via = \"client\" }}")).join(", ");
        let text = format!(
            "title = \"balanced\"\n[hosts]\n\
             client = {{ loopback = [{sources}], routes = [{{ to = \"{VIP}/32\", via = \"balancer\" }}], \
             sysctls = {{ \"net.ipv4.ip_local_port_range\" = \"1024 65535\" }} }}\n\
             balancer = {{}}\n\
             web = {{ count = {servers}, loopback = [\"{VIP}\"], routes = [{routes}], sysctls = {{ \
             \"net.ipv4.conf.all.arp_ignore\" = 1, \"net.ipv4.conf.all.arp_announce\" = 2 }} }}\n\
             [[links]]\nbetween = [\"client\", \"balancer\", \"web\"]\n\
             [[processes]]\non = \"web\"\nrun = \"nginx\"\nready_timeout = \"10m\"\nfiles = {{ \"/file\" = {file_bytes} }}\n"
        );
        let labs = Labs::new()?;
        labs.run("clean")?;
        let before = Some(labs.inventory()?);
        Ok(Self { source: format!("--source {}", SOURCES.join(",")), before, ..Self::within(labs, &text)? })
    }

    /// Brings up a lab from the text of its file. Its hosts must have the same names.
    ///
    /// # Errors
    /// If the lab does not come up.
    pub fn of(text: &str) -> Result<Self> {
        Self::within(Labs::new()?, text)
    }

    fn within(labs: Labs, text: &str) -> Result<Self> {
        let (lab, _) = labs.up(&labs.file("balanced.toml", text)?)?;
        let (program, file) = (binary()?.display().to_string(), labs.path("balance.toml"));
        Ok(Self { labs, lab, before: None, program, file, source: String::new() })
    }

    /// The name of the web host with this number, counted from 1.
    pub fn web(number: usize) -> String {
        format!("web{number}")
    }

    /// The address of the web host with this number, counted from 1.
    pub fn address(number: usize) -> String {
        format!("10.1.0.{}", number + 2)
    }

    /// Writes the configuration: keys of the balancer, keys of its VIP, and the first `servers` web hosts.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn configure(&self, of_balancer: &str, of_vip: &str, servers: usize) -> Result<()> {
        let servers: Vec<(String, String)> =
            (1..=servers).map(|n| (Self::web(n), Self::address(n))).collect();
        Ok(fs::write(&self.file, configuration(of_balancer, of_vip, &servers))?)
    }

    /// Starts the balancer, and waits until it is ready.
    ///
    /// # Errors
    /// If the balancer does not start.
    pub fn start(&self) -> Result<Process> {
        self.start_on("balancer", &self.file)
    }

    /// Starts the balancer with private mounts, as `ip netns exec` does, and waits until it is ready.
    ///
    /// # Errors
    /// If the balancer does not start.
    pub fn start_in_own_mounts(&self) -> Result<Process> {
        let script = self.labs.file("own-mounts.sh", "mount -t sysfs sysfs /sys && exec \"$@\"\n")?;
        self.start_by(&format!("unshare --mount --propagation slave sh {script} "), "balancer", &self.file)
    }

    /// Starts a balancer on a host with a configuration file, and waits until it is ready.
    ///
    /// # Errors
    /// If the balancer does not start.
    pub fn start_on(&self, host: &str, file: &str) -> Result<Process> {
        self.start_by("", host, file)
    }

    fn start_by(&self, launcher: &str, host: &str, file: &str) -> Result<Process> {
        let line = format!("lab shell {host} -- {launcher}{} balance --config {file}", self.program);
        let mut daemon = self.labs.command(&line)?.start()?;
        daemon.says("ready: ", PATIENCE)?;
        Ok(daemon)
    }

    /// Runs a command of `proofload balance` on the balancer's host, and returns its standard output.
    ///
    /// # Errors
    /// If the exit status is not 0.
    pub fn tell(&self, words: &str) -> Result<String> {
        self.on("balancer", &format!("{} balance {words}", self.program))
    }

    /// Runs a command on a host, and returns its standard output.
    ///
    /// # Errors
    /// If the exit status is not 0.
    pub fn on(&self, host: &str, command: &str) -> Result<String> {
        self.labs.done(&format!("lab shell {host} -- {command}"))
    }

    /// The statistics of the balancer on a host.
    ///
    /// # Errors
    /// If the balancer does not answer.
    pub fn statistics(&self, host: &str) -> Result<Value> {
        Ok(serde_json::from_str(&self.on(host, &format!("{} balance stats --json -", self.program))?)?)
    }

    /// The statistics of each server, in the order of the configuration.
    ///
    /// # Errors
    /// If the balancer does not answer.
    pub fn servers(&self) -> Result<Vec<Value>> {
        let statistics = self.statistics("balancer")?;
        statistics["vips"][0]["servers"].as_array().cloned().context("no servers")
    }

    /// One number from the statistics of each server, in the order of the configuration.
    ///
    /// # Errors
    /// If the balancer does not answer, or a server does not have this number.
    pub fn of_servers(&self, name: &str) -> Result<Vec<f64>> {
        let number = |server: &Value| server[name].as_f64().with_context(|| format!("no {name}"));
        self.servers()?.iter().map(number).collect()
    }

    /// Waits until a server is in this state, or for `None` until it is gone.
    pub fn await_state<'s>(&self, server: &str, state: impl Into<Option<&'s str>>) {
        let state = state.into();
        until(&format!("{server} is {state:?}"), || {
            self.servers().is_ok_and(|servers| {
                let own = servers.iter().find(|own| own["name"] == server);
                own.and_then(|own| own["state"].as_str()) == state
            })
        });
    }

    /// Kills the balancer's process with SIGKILL, and waits for its end.
    ///
    /// # Errors
    /// If the balancer is not running.
    pub fn kill(&self, daemon: Process) -> Result<()> {
        let process = self.statistics("balancer")?["process"].as_u64().context("no process")?;
        self.on("balancer", &format!("kill -9 {process}"))?;
        daemon.finish(PATIENCE).map(drop)
    }

    /// Starts a load from all addresses of the client, with these options of `proofload http`.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn load(&self, words: &str) -> Result<Process> {
        let line = format!(
            "lab shell client -- {} http http://{VIP}/file {} {} -q --json -",
            self.program,
            self.source,
            patient(words)
        );
        self.labs.command(&line)?.start()
    }

    /// Waits for the end of a load, and reads its trial.
    ///
    /// # Errors
    /// If there is no trial.
    pub fn trial(load: Process, duration: Duration) -> Result<Trial> {
        let finished = load.finish(duration + PATIENCE)?;
        parse_trial(&finished.stdout).with_context(|| format!("{finished:?}"))
    }

    /// Ends a load as Ctrl-C does, and reads its trial.
    ///
    /// # Errors
    /// If there is no trial.
    pub fn ended(load: Process) -> Result<Trial> {
        // The shell does not pass the signal on, so send it to the shell's children.
        for child in children_of(load.pid()) {
            let pid = Pid::from_raw(child.cast_signed()).context("a process id")?;
            kill_process(pid, Signal::INT)?;
        }
        Self::trial(load, Duration::ZERO)
    }

    /// Received and sent packets and bytes of a host's device.
    ///
    /// # Errors
    /// If the counters cannot be read.
    pub fn traffic(&self, host: &str) -> Result<[[u64; 2]; 2]> {
        let text = self.on(host, "cat /proc/net/dev")?;
        let line = text.lines().find_map(|line| line.trim().strip_prefix(DEVICE)?.strip_prefix(':'));
        let numbers: Vec<u64> = line.context("no device")?.split_whitespace().flat_map(str::parse).collect();
        ensure!(numbers.len() >= 16, "{text}");
        Ok([[numbers[1], numbers[0]], [numbers[9], numbers[8]]])
    }

    /// Takes the lab down. If no other lab ran beside it, also checks that nothing is left.
    ///
    /// # Errors
    /// If the lab does not go down properly, or something is left or changed.
    pub fn down(self) -> Result<()> {
        self.labs.down(self.lab)?;
        let Some(before) = &self.before else { return Ok(()) };
        self.labs.run("clean")?;
        let left = self.labs.difference(before)?;
        ensure!(left.is_empty(), "left or changed: {}", left.join("\n"));
        Ok(())
    }
}

/// The text of a configuration: keys of the balancer, keys of its VIP, and servers, each as name and address.
pub fn configuration(of_balancer: &str, of_vip: &str, servers: &[(String, String)]) -> String {
    let of = |(name, address): &(String, String)| {
        format!("[[vips.servers]]\nname = \"{name}\"\naddress = \"{address}\"\n")
    };
    let servers: String = servers.iter().map(of).collect();
    format!(
        "device = \"{DEVICE}\"\n{of_balancer}\n[[vips]]\naddress = \"{VIP}\"\nport = 80\n{of_vip}\n{servers}"
    )
}
