//! Runs programs under supervisors, one on each host, and waits until all have ended.

use std::{
    collections::BTreeMap,
    io,
    os::unix::process::{CommandExt, ExitStatusExt},
    process::{Child, ExitStatus, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use command::{Job, Report};
use lab::plan::{Flood, Process, Program};
use record::Flow;
use rustix::{
    fs::statvfs,
    process::{Pid, Signal, kill_process},
};

use super::FLOW_BIN;
use crate::testbed::{Testbed, TestbedError};

/// A supervisor that is still running this long after SIGTERM is killed.
const KILL_AFTER: Duration = Duration::from_secs(6);
/// Interval between samples of the memory.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The counters of a direction of an emulated link.
pub(super) struct LinkCounter {
    /// Name of its flow.
    pub flow: String,
    /// Bytes and packets that arrived at its end.
    pub delivered: (u64, u64),
    /// Number of packets that it received from the sender.
    pub offered_packets: u64,
    /// Number of these packets that it no longer holds: delivered, lost or dropped.
    pub finished_packets: u64,
    /// Number of these packets that it lost or dropped.
    pub lost_packets: u64,
}

/// Samples the resources that the programs use. At the end of an interval it receives the counters of the links.
pub(super) type Sample<'a> = &'a mut dyn FnMut(Option<&[LinkCounter]>) -> io::Result<()>;

enum Supervisor {
    OnHost(lab::Process),
    Here(Child),
}

impl Testbed {
    /// Runs jobs concurrently, each on one of the load's hosts, until all have ended. Calls `sample` repeatedly, and at the end
    /// of every interval with the counters of the links.
    pub(super) fn run_jobs(
        &mut self,
        jobs: Vec<Job>,
        stop: &AtomicBool,
        sample: Sample<'_>,
    ) -> Result<Report, TestbedError> {
        let failed = |error: io::Error| TestbedError::Program(format!("cannot run a program: {error}"));
        let hosts: Vec<Option<usize>> = match self.setup.from[..] {
            [] => vec![None],
            ref from => from.iter().copied().map(Some).collect(),
        };
        let mut supervisors = Vec::new();
        for (job, host) in jobs.iter().zip(hosts) {
            supervisors.push(self.start_supervisor(job, host).map_err(failed)?);
        }
        let mut bin_end = Instant::now() + FLOW_BIN;
        let mut stopped_at: Option<Instant> = None;
        while supervisors.iter_mut().any(|supervisor| supervisor.ended().is_none()) {
            if stop.load(Ordering::Relaxed) {
                match stopped_at {
                    None => supervisors.iter().for_each(|supervisor| supervisor.signal(Signal::TERM)),
                    Some(stopped_at) if stopped_at.elapsed() > KILL_AFTER => {
                        supervisors.iter().for_each(|supervisor| supervisor.signal(Signal::KILL));
                    }
                    Some(_) => {}
                }
                stopped_at.get_or_insert_with(Instant::now);
            }
            let until = bin_end.min(Instant::now() + POLL_INTERVAL);
            supervisors
                .iter_mut()
                .for_each(|supervisor| supervisor.wait(until.saturating_duration_since(Instant::now())));
            sample(None).map_err(TestbedError::Traffic)?;
            if Instant::now() >= bin_end {
                bin_end += FLOW_BIN;
                sample(Some(&self.link_counters()?)).map_err(TestbedError::Traffic)?;
            }
        }
        sample(Some(&self.link_counters()?)).map_err(TestbedError::Traffic)?;
        let mut all = Report::default();
        let hosts = self.load_hosts();
        for (number, (mut supervisor, job)) in supervisors.into_iter().zip(&jobs).enumerate() {
            let Some(mut report) = job.take_report() else {
                let how = supervisor.ended().map_or_else(String::new, |status| format!(" ({status})"));
                let lines = supervisor.last_lines();
                let is_full = statvfs(&job.folder).is_ok_and(|disk| disk.f_bavail == 0);
                let why = if is_full {
                    format!("; the disk of {} is full: make room", job.folder.display())
                } else {
                    String::new()
                };
                return Err(TestbedError::Program(format!(
                    "the process that runs {} ended without a report{how}{lines}{why}",
                    job.command.first().map_or("the program", String::as_str)
                )));
            };
            let host = hosts.get(number).cloned().unwrap_or_default();
            report.runs.iter_mut().for_each(|run| run.host.clone_from(&host));
            all.merge(report);
        }
        Ok(all)
    }

    fn start_supervisor(&mut self, job: &Job, host: Option<usize>) -> io::Result<Supervisor> {
        // An earlier job of this name may have left a report when it was killed.
        drop(job.take_report());
        let program = std::env::current_exe()?;
        // The job is passed in the environment, because it may contain a secret and every user can read arguments.
        let job_text = serde_json::to_string(job)?;
        let (Some(host), Some(lab)) = (host, &mut self.lab) else {
            let child = std::process::Command::new(program)
                .arg("command-run")
                .env(command::JOB_VARIABLE, job_text)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                // The process group keeps Ctrl-C from the supervisor, because the study stops its supervisors itself.
                .process_group(0)
                .spawn()?;
            return Ok(Supervisor::Here(child));
        };
        let command = vec![program.display().to_string(), "command-run".to_owned()];
        let process = Process {
            name: format!("{}-{}-{host}", lab.plan().hosts[host].name, job.name),
            host,
            program: Program::Command(command),
            environment: BTreeMap::from([(command::JOB_VARIABLE.to_owned(), job_text)]),
            directory: None,
            ready: None,
            ready_timeout: Duration::ZERO,
            log_limit_bytes: 1 << 20,
            flood: Flood::Truncate,
            descriptors: None,
            may_end: true,
            stage: 0,
        };
        lab.spawn(&process).map(Supervisor::OnHost).map_err(io::Error::other)
    }

    pub(super) fn link_counters(&mut self) -> Result<Vec<LinkCounter>, TestbedError> {
        let mut counts = Vec::new();
        for (name, link) in self.lab.iter_mut().flat_map(lab::Lab::links) {
            let failed = |error| TestbedError::Program(format!("a link of the lab: {error}"));
            let counters = link.counters().map_err(failed)?;
            for (flow, counters) in Flow::names_of_link(name).into_iter().zip(counters) {
                let pipe = counters.pipe;
                counts.push(LinkCounter {
                    flow,
                    delivered: (pipe.delivered_bytes, pipe.delivered_packets),
                    offered_packets: pipe.offered_packets,
                    lost_packets: pipe.dropped_queue_packets
                        + pipe.dropped_loss_packets
                        + pipe.dropped_down_packets,
                    finished_packets: pipe
                        .offered_packets
                        .saturating_sub(pipe.queue_packets + pipe.flying_packets),
                });
            }
        }
        Ok(counts)
    }
}

impl Supervisor {
    fn ended(&mut self) -> Option<ExitStatus> {
        match self {
            Self::OnHost(process) => process.ended(),
            Self::Here(child) => child.try_wait().unwrap_or_else(|_| Some(ExitStatus::from_raw(1 << 8))),
        }
    }

    fn wait(&mut self, timeout: Duration) {
        match self {
            Self::OnHost(process) => drop(process.wait(timeout)),
            Self::Here(child) => {
                let until = Instant::now() + timeout;
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
            // Until the child has been waited for, no other process can get its number.
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
