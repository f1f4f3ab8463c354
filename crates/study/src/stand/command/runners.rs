//! The processes that run the copies of each host, watched until they have ended.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::process::{CommandExt, ExitStatusExt},
    process::{Child, ExitStatus, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use command::{Order, Report};
use lab::plan::{Flood, Process, Program};
use rustix::process::{Pid, Signal, kill_process};

use super::BIN;
use crate::stand::{Stand, StandError};

/// A runner that was asked to end for so long is killed.
const PATIENCE: Duration = Duration::from_secs(6);
/// How often memory is looked at.
const GLANCE: Duration = Duration::from_millis(10);

/// What a direction of a link has carried: its name, bytes, packets.
pub(super) type Count = (String, u64, u64);
/// Looks at what the programs use; with the counts of the links at the end of a bin.
pub(super) type Look<'a> = &'a mut dyn FnMut(Option<Vec<Count>>) -> io::Result<()>;

/// A process that runs the copies of one host.
enum Runner {
    OnHost(lab::Process),
    Here(Child),
}

impl Stand {
    /// Runs orders at once, each on a host that the load comes from, until all have ended. `look` is called again and again, at
    /// the end of every bin with the bytes and packets of each direction of the emulated links.
    pub(super) fn conduct(
        &mut self,
        orders: Vec<Order>,
        stop: &AtomicBool,
        look: Look<'_>,
    ) -> Result<Report, StandError> {
        let broken = |error: io::Error| StandError::Program(format!("cannot run a program: {error}"));
        let hosts: Vec<Option<usize>> = match self.setup.from[..] {
            [] => vec![None],
            ref from => from.iter().copied().map(Some).collect(),
        };
        let mut runners = Vec::new();
        for (order, host) in orders.iter().zip(hosts) {
            runners.push(self.start_runner(order, host).map_err(broken)?);
        }
        let mut bin = Instant::now() + BIN;
        let mut told: Option<Instant> = None;
        while runners.iter_mut().any(|runner| runner.ended().is_none()) {
            if stop.load(Ordering::Relaxed) {
                match told {
                    None => runners.iter().for_each(|runner| runner.signal(Signal::TERM)),
                    Some(told) if told.elapsed() > PATIENCE => {
                        runners.iter().for_each(|runner| runner.signal(Signal::KILL));
                    }
                    Some(_) => {}
                }
                told.get_or_insert_with(Instant::now);
            }
            let until = bin.min(Instant::now() + GLANCE);
            runners
                .iter_mut()
                .for_each(|runner| runner.wait(until.saturating_duration_since(Instant::now())));
            look(None).map_err(StandError::Host)?;
            if Instant::now() >= bin {
                bin += BIN;
                look(Some(self.link_counts()?)).map_err(StandError::Host)?;
            }
        }
        look(Some(self.link_counts()?)).map_err(StandError::Host)?;
        let mut all = Report::default();
        let hosts = self.load_hosts();
        for (number, (mut runner, order)) in runners.into_iter().zip(&orders).enumerate() {
            let path = order.report();
            let Some(mut report) = Report::read(&path) else {
                let how = runner.ended().map_or_else(String::new, |status| format!(" ({status})"));
                let lines = runner.last_lines();
                return Err(StandError::Program(format!(
                    "the process that runs {} ended without a report{how}{lines}",
                    order.command.first().map_or("the program", String::as_str)
                )));
            };
            let _ = fs::remove_file(path);
            let host = hosts.get(number).cloned().unwrap_or_default();
            report.runs.iter_mut().for_each(|run| run.host.clone_from(&host));
            all.merge(report);
        }
        Ok(all)
    }

    fn start_runner(&mut self, order: &Order, host: Option<usize>) -> io::Result<Runner> {
        let _ = fs::remove_file(order.report());
        let program = std::env::current_exe()?;
        // Not among its arguments, which every user can read: a word may be a secret.
        let order_text = serde_json::to_string(order)?;
        let (Some(host), Some(lab)) = (host, &mut self.lab) else {
            let child = std::process::Command::new(program)
                .arg("command-run")
                .env(command::VARIABLE, order_text)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                // Ctrl-C is for the study, which then asks its runners to stop.
                .process_group(0)
                .spawn()?;
            return Ok(Runner::Here(child));
        };
        let command = vec![program.display().to_string(), "command-run".to_owned()];
        let process = Process {
            name: format!("{}-{}-{host}", lab.plan().hosts[host].name, order.name),
            host,
            program: Program::Command(command),
            environment: BTreeMap::from([(command::VARIABLE.to_owned(), order_text)]),
            directory: None,
            ready: None,
            ready_timeout: Duration::ZERO,
            log_limit_bytes: 1 << 20,
            flood: Flood::Truncate,
            may_end: true,
            stage: 0,
        };
        lab.spawn(&process).map(Runner::OnHost).map_err(io::Error::other)
    }

    /// The bytes and packets that each direction of the emulated links has carried so far.
    pub(super) fn link_counts(&mut self) -> Result<Vec<Count>, StandError> {
        let mut counts = Vec::new();
        for (name, link) in self.lab.iter_mut().flat_map(lab::Lab::links) {
            let told = |error| StandError::Program(format!("a link of the lab: {error}"));
            for (way, counters) in ["a to b", "b to a"].into_iter().zip(link.counters().map_err(told)?) {
                let pipe = counters.pipe;
                counts.push((format!("link {name} {way}"), pipe.delivered_bytes, pipe.delivered_packets));
            }
        }
        Ok(counts)
    }
}

impl Runner {
    fn ended(&mut self) -> Option<ExitStatus> {
        match self {
            Self::OnHost(process) => process.ended(),
            Self::Here(child) => child.try_wait().unwrap_or_else(|_| Some(ExitStatus::from_raw(1 << 8))),
        }
    }

    /// Waits for its end, at most for so long.
    fn wait(&mut self, patience: Duration) {
        match self {
            Self::OnHost(process) => drop(process.wait(patience)),
            Self::Here(child) => {
                let until = Instant::now() + patience;
                while Instant::now() < until && matches!(child.try_wait(), Ok(None)) {
                    thread::sleep(
                        Duration::from_millis(2).min(until.saturating_duration_since(Instant::now())),
                    );
                }
            }
        }
    }

    fn signal(&self, signal: Signal) {
        match self {
            Self::OnHost(process) => process.signal(signal),
            // It has not been waited for while it is asked, so that its number is its own.
            Self::Here(child) => drop(kill_process(Pid::from_child(child), signal)),
        }
    }

    fn last_lines(&self) -> String {
        match self {
            Self::OnHost(process) => {
                let lines = process.last_lines().join("\n");
                if lines.is_empty() { lines } else { format!("; its log: {lines}") }
            }
            Self::Here(_) => String::new(),
        }
    }
}
