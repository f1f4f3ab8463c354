//! Trials of programs that run on the hosts of a study or on this machine.

mod moved;
mod quantities;
mod samples;
mod supervisors;
mod traffic;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use command::{Flows, Job, MemoryGroup, OutputFolder};
use record::{
    ByteSource, CommandTrial, Measured, ResultFolder, Trial, Validity, VoidReason, VoidRule, Warning,
    trial::SCHEMA,
};
use rustix::{fs::statvfs, io::Errno};

use self::{
    moved::{file_states, moved_bytes, next_tick_unix_ns, unknown_bytes},
    quantities::{LAST_RATE, PEAK_MEMORY, quantities},
    samples::Samples,
    traffic::{reset_connection, sending_s},
};
use super::{Testbed, TestbedError};
use crate::{
    CommandWorkload,
    workload::{self, GOODPUT, SCRATCH_MARKER},
};

/// Length of the intervals in which the bytes of flows are counted.
const FLOW_BIN: Duration = Duration::from_millis(100);
const HOOK_TIMEOUT: Duration = Duration::from_secs(600);
/// A gap between samples of more than this, in seconds, hides peaks of memory and rates.
const MAX_UNSAMPLED_S: f64 = 0.5;
/// A gap between samples of more than this share of the trial also distorts the rate of the trial's last 5 s.
const MAX_UNSAMPLED_RATIO: f64 = 0.05;

/// The place where the output of a trial's programs is stored.
#[derive(Debug)]
pub(crate) struct Kept<'a> {
    pub folder: &'a ResultFolder,
    /// The path of the folder within it.
    pub within: String,
}

/// Commands of the workload that run around trials.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hook {
    /// When hosts and target are new.
    Setup,
    /// Before each trial.
    Prepare,
    /// After each trial.
    Conclude,
    /// Before hosts and target are removed.
    Cleanup,
}

impl Hook {
    fn name(self) -> &'static str {
        match self {
            Self::Setup => "setup",
            Self::Prepare => "prepare",
            Self::Conclude => "conclude",
            Self::Cleanup => "cleanup",
        }
    }

    fn command(self, workload: &CommandWorkload) -> Option<&[String]> {
        let words = match self {
            Self::Setup => &workload.setup,
            Self::Prepare => &workload.prepare,
            Self::Conclude => &workload.conclude,
            Self::Cleanup => &workload.cleanup,
        };
        words.as_deref()
    }
}

impl Testbed {
    /// Runs a hook of the workload, if it has one, on the first host that the load comes from.
    pub(crate) fn run_hook(
        &mut self,
        workload: &CommandWorkload,
        hook: Hook,
        kept: &Kept<'_>,
        stop: &AtomicBool,
    ) -> Result<(), TestbedError> {
        let Some(words) = hook.command(workload) else { return Ok(()) };
        let mut job = self.job(workload, words, hook.name())?;
        (job.copies, job.timeout) = (vec![0], Some(HOOK_TIMEOUT));
        let mut jobs = vec![job];
        self.substitute_files(&mut jobs);
        // If the supervisor is killed, removing the group ends its processes.
        let group = MemoryGroup::create(&self.journals, self.has_quota()).ok();
        jobs[0].groups = group.iter().map(MemoryGroup::join_file).collect();
        let outputs = output_paths(&jobs);
        let report = self.run_jobs(jobs, stop, &mut |_| Ok(()));
        // Lost output of a hook needs no warning, because no result contains the output.
        let _ = keep_output(&outputs, kept);
        let report = report?;
        let trial = CommandTrial { runs: report.runs, ..CommandTrial::default() };
        match trial.failure() {
            Some(why) => Err(TestbedError::Program(format!(
                "{}: {}{}",
                hook.name(),
                workload::show_command(words),
                why.strip_prefix("the program").unwrap_or(&why)
            ))),
            None => Ok(()),
        }
    }

    /// Runs one trial and keeps the programs' output. Waits, for at most `settle`, until the peers have acknowledged the data that
    /// the kernel still sends for the programs.
    pub(crate) fn run_programs(
        &mut self,
        workload: &CommandWorkload,
        kept: &Kept<'_>,
        settle: Duration,
        stop: &AtomicBool,
        command: &[String],
    ) -> Result<Trial, TestbedError> {
        let mut jobs = Vec::new();
        let hosts = self.setup.from.len().max(1) as u32;
        for host in 0..hosts {
            let copies: Vec<u32> = (0..workload.copies).filter(|copy| copy % hosts == host).collect();
            if copies.is_empty() {
                continue;
            }
            let mut job = self.job(workload, &workload.run, "command")?;
            job.copies = copies;
            job.expect.clone_from(&workload.expect);
            (job.timeout, job.stop_after) = (workload.timeout, workload.stop_after);
            // Without a lab, this machine also has sockets of other programs.
            job.settle = self.lab.is_some().then_some(settle);
            jobs.push(job);
        }
        self.substitute_files(&mut jobs);
        let memory = MemoryGroup::create(&self.journals, self.has_quota());
        for job in &mut jobs {
            job.groups = memory.iter().map(MemoryGroup::join_file).collect();
        }
        let (path, before, began_unix_ns) = match &workload.bytes {
            Some(ByteSource::Path(path)) => {
                let path = PathBuf::from(self.with_scratch_path(path));
                let before = file_states(&path);
                (path, before, next_tick_unix_ns())
            }
            // Wait for a clock tick only if the trial counts the bytes of files.
            _ => Default::default(),
        };
        let outputs = output_paths(&jobs);
        let started_unix_s = clock::unix_s();
        let started = Instant::now();
        let flows = Flows::start(FLOW_BIN, self.interfaces()?).map_err(TestbedError::Traffic)?;
        let mut samples = Samples::start(flows, memory.as_ref().ok());
        // Links count from this first sample on.
        let links_before = self.link_counters()?;
        samples.sample(Some(&links_before)).map_err(TestbedError::Traffic)?;
        let report = self.run_jobs(jobs, stop, &mut |links| samples.sample(links));
        let drained = report.and_then(|mut report| {
            if report.rest.sent.datagrams > 0 {
                self.drain(&mut samples, &mut report.rest, settle, stop)?;
            }
            Ok(report)
        });
        let mut warnings: Vec<Warning> = keep_output(&outputs, kept).into_iter().collect();
        let report = drained?;
        let elapsed_s = started.elapsed().as_secs_f64();
        let (hosts, counters) = (self.load_hosts(), self.counters());
        let mut measured = CommandTrial {
            plan: workload.plan(hosts),
            wall_s: report.wall_s(),
            runs: report.runs.into_iter().map(masked).collect(),
            user_s: report.user_s,
            system_s: report.system_s,
            // Samples may miss the peak, which is at least the peak of the largest process.
            peak_memory_bytes: samples
                .peak_memory_bytes
                .filter(|_| report.outside.is_none())
                .map(|bytes| bytes.max(report.largest_process_bytes)),
            largest_process_bytes: report.largest_process_bytes,
            moved_bytes: None,
            flows: samples.flows.finish(),
            bin_s: FLOW_BIN.as_secs_f64(),
            stalled: None,
        };
        let unseen = match &workload.bytes {
            Some(source) => self.unseen_datagrams(source, &report.rest, &links_before)?,
            None => None,
        };
        let mut moved = workload.bytes.as_ref().map(|source| match &unseen {
            Some(why) => Err(unknown_bytes(why)),
            None => moved_bytes(source, &measured, &counters, &path, &before, began_unix_ns),
        });
        if let (Some(ByteSource::Declared(_)), Some(Ok(bytes))) = (&workload.bytes, &moved) {
            let carried_bytes = counters.larger(&measured.flows).map(|flow| flow.bytes).sum();
            if let Some(why) = reset_connection(&report.rest, *bytes, carried_bytes) {
                moved = Some(Err(unknown_bytes(&why)));
            }
        }
        match moved {
            None => {}
            Some(Ok(bytes)) => measured.moved_bytes = Some(bytes),
            Some(Err(warning)) => warnings.push(warning),
        }
        if let Some(why) = report.outside.or(memory.as_ref().err().map(ToString::to_string)) {
            let message = format!(
                "the peak memory of all processes together is unknown, because they run in no control group of their own: {why}"
            );
            warnings.push(Warning::new("peak_memory_unknown", message));
        }
        let mut quantities = quantities(workload, &measured, &counters, &outputs, &mut warnings);
        let is_link = workload.bytes == Some(ByteSource::Link);
        match (measured.moved_bytes, measured.wall_s) {
            (Some(bytes), Some(wall_s)) if is_link || measured.failed_ratio() == 0.0 => {
                match sending_s(wall_s, report.began_s, &report.rest, bytes, is_link) {
                    Ok(seconds) => {
                        quantities
                            .entry(GOODPUT.to_owned())
                            .or_insert(bytes as f64 * 8.0 / seconds.max(1e-9));
                    }
                    Err(why) => {
                        let message = format!("the goodput is unknown: {why}");
                        warnings.push(Warning::new("goodput_unknown", message));
                    }
                }
            }
            _ => {}
        }
        let unsampled_s = samples.unsampled.as_secs_f64();
        let mut unknown = Vec::new();
        if unsampled_s > MAX_UNSAMPLED_S.min(MAX_UNSAMPLED_RATIO * elapsed_s)
            && quantities.remove(LAST_RATE).is_some()
        {
            unknown.push("the rate of the last 5 s");
        }
        if unsampled_s > MAX_UNSAMPLED_S && quantities.remove(PEAK_MEMORY).is_some() {
            unknown.push("the peak memory");
        }
        if !unknown.is_empty() {
            let message = format!(
                "proofload stalled for {unsampled_s:.2} s, so these are unknown: {}; give proofload a processor of its own",
                unknown.join(", ")
            );
            warnings.push(Warning::new("samples_missing", message));
        }
        if measured.wall_s.is_none() {
            let message = "proofload stalled when the programs started or ended, so the wall time and the goodput are unknown; give \
                           proofload a processor of its own";
            warnings.push(Warning::new("end_not_seen", message));
        }
        warnings.extend(measured.failure().map(|why| Warning::new("program_failed", why)));
        Ok(Trial {
            schema: SCHEMA.to_owned(),
            proofload_version: env!("CARGO_PKG_VERSION").to_owned(),
            command: command.iter().map(|word| secrets::mask(word).into_owned()).collect(),
            started_unix_s,
            elapsed_s,
            interrupted: report.interrupted || !report.rest.is_acknowledged && stop.load(Ordering::Relaxed),
            validity: Validity::from_reasons(
                report
                    .shortage
                    .map(|evidence| VoidReason { rule: VoidRule::LocalExhaustion, evidence })
                    .into_iter()
                    .collect(),
            ),
            verdict: None,
            warnings,
            quantities,
            measured: Measured::Command(Box::new(measured)),
        })
    }

    /// Makes a job for all copies of a command. The caller sets the copies and limits.
    fn job(&mut self, workload: &CommandWorkload, words: &[String], name: &str) -> Result<Job, TestbedError> {
        self.check_scratch_path(words)?;
        let explain =
            |path: &Path, error| TestbedError::Program(format!("cannot create {}: {error}", path.display()));
        fs::create_dir_all(&self.scratch).map_err(|error| explain(&self.scratch, error))?;
        let output = match self.output.take() {
            Some(output) => output,
            None => OutputFolder::create(&self.journals)
                .map_err(|error| explain(&self.journals.path().join("RUN.output"), error))?,
        };
        let folder = self.output.insert(output).path().to_owned();
        let with_path = |text: &String| self.with_scratch_path(text);
        Ok(Job {
            command: words.iter().map(with_path).collect(),
            environment: workload
                .environment
                .iter()
                .map(|(name, value)| (name.clone(), with_path(value)))
                .collect(),
            directory: workload.directory.as_ref().map(|directory| with_path(directory).into()),
            copies: Vec::new(),
            expect: vec![0],
            timeout: None,
            stop_after: None,
            settle: None,
            groups: Vec::new(),
            folder,
            name: name.to_owned(),
            parent: self.lab.is_none().then(std::process::id),
        })
    }

    /// Substitutes the placeholders of files that the lab's own programs have written.
    fn substitute_files(&self, jobs: &mut [Job]) {
        let Some(lab) = &self.lab else { return };
        let hosts: Vec<_> = lab.hosts().collect();
        for (job, &host) in jobs.iter_mut().zip(&self.setup.from) {
            job.command = hosts[host].expand_placeholders(&job.command);
        }
    }

    /// Replaces the marker by the path of the scratch folder.
    fn with_scratch_path(&self, text: &str) -> String {
        text.replace(SCRATCH_MARKER, &self.scratch.display().to_string())
    }

    /// Refuses a shell line if the shell would split the path of the scratch folder: `rm -rf {scratch}/copies` would then remove something
    /// else.
    fn check_scratch_path(&self, words: &[String]) -> Result<(), TestbedError> {
        let path = self.scratch.display().to_string();
        let is_plain = |c: char| c.is_alphanumeric() || "/._-+,:@%".contains(c);
        match words {
            [shell, option, line] if shell == "sh" && option == "-c" && line.contains(SCRATCH_MARKER) => {
                match path.chars().find(|&c| !is_plain(c)) {
                    Some(bad) => Err(TestbedError::Program(format!(
                        "a shell would split or change the path of {{scratch}}, {path}, at {bad:?}; give a folder without such \
                         characters with --out, or write the command as a list of words"
                    ))),
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    /// Whether a host that makes the load has a quota of processor time.
    fn has_quota(&self) -> bool {
        let Some(lab) = &self.lab else { return false };
        self.setup.from.iter().any(|&host| lab.plan().hosts[host].cpu_quota.is_some())
    }

    fn load_hosts(&self) -> Vec<String> {
        let Some(lab) = &self.lab else { return Vec::new() };
        self.setup.from.iter().map(|&host| lab.plan().hosts[host].name.clone()).collect()
    }
}

/// The files to which the copies of these jobs write standard output and standard error.
fn output_paths(jobs: &[Job]) -> Vec<[PathBuf; 2]> {
    let of = |job: &Job| job.copies.iter().map(|&copy| [job.output(copy), job.errors(copy)]).collect();
    jobs.iter().flat_map::<Vec<_>, _>(of).collect()
}

/// Copies the output of programs, with secrets masked. Returns a warning if some of it is lost.
fn keep_output(outputs: &[[PathBuf; 2]], kept: &Kept<'_>) -> Option<Warning> {
    let mut lost = None;
    for from in outputs.iter().flatten() {
        let Some(name) = from.file_name().filter(|_| from.exists()) else { continue };
        let name = format!("{}/{}", kept.within, name.display());
        let copied = fs::read(from).and_then(|bytes| {
            // The program may have filled the disk without reporting the error.
            let has_space = statvfs(from).is_ok_and(|disk| disk.f_bavail > 0);
            kept.folder.write_bytes(&name, &secrets::mask::mask_learned(&bytes))?;
            if has_space { Ok(()) } else { Err(Errno::NOSPC.into()) }
        });
        lost = lost.or(copied.err().map(|error| (name, from.parent(), error)));
    }
    let (name, raw, error) = lost?;
    let message = format!(
        "{} may lack a part of the program's output ({error}), so numbers that are read from it may be missing, too: make room on \
         its disk, and on that of {}, where programs write",
        kept.folder.path().join(name).display(),
        raw.unwrap_or(Path::new("/")).display()
    );
    Some(Warning::new("output_lost", message))
}

fn masked(mut run: record::CommandRun) -> record::CommandRun {
    run.last_lines = secrets::mask(&run.last_lines).into_owned();
    run
}
