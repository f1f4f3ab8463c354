//! Programs as the load, run on the hosts of a study or here.

mod figures;
mod runners;

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use command::{Flows, MemoryGroup, Order};
use record::{
    ByteSource, CommandTrial, Measured, Trial, Validity, VoidReason, VoidRule, Warning, trial::SCHEMA,
};

use self::{
    figures::{files_of, quantities, sum},
    runners::Count,
};
use super::{Stand, StandError};
use crate::{
    CommandWorkload,
    workload::{self, SCRATCH},
};

/// Where programs write while they run, beside [`Stand::scratch`].
const OUTPUT_FOLDER: &str = ".output";
/// Length of the bins that flows are counted in.
const BIN: Duration = Duration::from_millis(100);
/// A step around a trial that takes longer has failed.
const STEP_TIMEOUT: Duration = Duration::from_secs(600);

pub(crate) const GOODPUT: &str = "goodput_bit_per_s";

/// What is run around trials.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Once when hosts and target are new.
    Setup,
    /// Before each trial.
    Prepare,
    /// After each trial.
    Conclude,
    /// Once before hosts and target go.
    Cleanup,
}

impl Step {
    fn name(self) -> &'static str {
        match self {
            Self::Setup => "setup",
            Self::Prepare => "prepare",
            Self::Conclude => "conclude",
            Self::Cleanup => "cleanup",
        }
    }

    fn of(self, workload: &CommandWorkload) -> Option<&[String]> {
        let words = match self {
            Self::Setup => &workload.setup,
            Self::Prepare => &workload.prepare,
            Self::Conclude => &workload.conclude,
            Self::Cleanup => &workload.cleanup,
        };
        words.as_deref()
    }
}

impl Stand {
    /// Runs a step around trials on the first host that the load comes from, if the workload has it.
    ///
    /// # Errors
    /// When it fails.
    pub(crate) fn run_step(
        &mut self,
        workload: &CommandWorkload,
        step: Step,
        folder: &Path,
        stop: &AtomicBool,
    ) -> Result<(), StandError> {
        let Some(words) = step.of(workload) else { return Ok(()) };
        let mut order = self.order(workload, words, step.name(), folder)?;
        (order.copies, order.timeout) = (vec![0], Some(STEP_TIMEOUT));
        let mut orders = vec![order];
        self.put_files(&mut orders);
        // What is left of a step that is killed goes with its group.
        let group = MemoryGroup::make(&self.folder).ok();
        orders[0].groups = group.iter().map(MemoryGroup::joined_by).collect();
        let written = written_by(&orders);
        let report = self.conduct(orders, stop, &mut |_| Ok(()));
        keep_output(&written, folder);
        let report = report?;
        let trial = CommandTrial { runs: report.runs, ..CommandTrial::default() };
        match trial.failure() {
            Some(why) => Err(StandError::Program(format!(
                "{}: {}{}",
                step.name(),
                workload::shown_words(words),
                why.strip_prefix("the program").unwrap_or(&why)
            ))),
            None => Ok(()),
        }
    }

    /// Runs one trial. What the programs write is kept in `folder`. What they have left to the kernel to send is counted too,
    /// until their connections are gone, at most for `patience`.
    ///
    /// # Errors
    /// When they cannot be run, or counted.
    pub(crate) fn run_programs(
        &mut self,
        workload: &CommandWorkload,
        folder: &Path,
        patience: Duration,
        stop: &AtomicBool,
        command: &[String],
    ) -> Result<Trial, StandError> {
        let mut orders = Vec::new();
        let hosts = self.setup.from.len().max(1) as u32;
        for host in 0..hosts {
            let copies: Vec<u32> = (0..workload.copies).filter(|copy| copy % hosts == host).collect();
            if copies.is_empty() {
                continue;
            }
            let mut order = self.order(workload, &workload.run, "command", folder)?;
            order.copies = copies;
            order.expect.clone_from(&workload.expect);
            (order.timeout, order.stop_after) = (workload.timeout, workload.stop_after);
            orders.push(order);
        }
        self.put_files(&mut orders);
        let memory = MemoryGroup::make(&self.folder).ok();
        for order in &mut orders {
            order.groups = memory.iter().map(MemoryGroup::joined_by).collect();
        }
        let path = match &workload.bytes {
            Some(ByteSource::Path(path)) => Some(self.in_scratch(path)),
            _ => None,
        };
        let before = path.as_deref().map(files_of).unwrap_or_default();
        let written = written_by(&orders);
        let started_unix_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64());
        let begun = Instant::now();
        let mut flows = Flows::begin(BIN, self.interfaces()?).map_err(StandError::Host)?;
        let mut peak_memory_bytes = None;
        let mut look = |links: Option<Vec<Count>>| {
            peak_memory_bytes = peak_memory_bytes.max(memory.as_ref().and_then(MemoryGroup::used_bytes));
            let Some(links) = links else { return Ok(()) };
            flows.look()?;
            links.into_iter().for_each(|(name, bytes, packets)| flows.count(name, bytes, packets));
            Ok(())
        };
        let report = self.conduct(orders, stop, &mut look);
        keep_output(&written, folder);
        let report = report?;
        let ended = Instant::now();
        while self.sockets() > self.quiet_sockets
            && ended.elapsed() < patience
            && !stop.load(Ordering::Relaxed)
        {
            thread::sleep(BIN);
            look(Some(self.link_counts()?)).map_err(StandError::Host)?;
        }
        let elapsed_s = begun.elapsed().as_secs_f64();
        let flows = flows.end();
        let moved_bytes = match &workload.bytes {
            None => None,
            Some(ByteSource::Declared(bytes)) => {
                // One that was ended moved a part of them, and nobody knows which.
                let whole = |run: &&record::CommandRun| run.succeeded && !run.stopped;
                Some(bytes * report.runs.iter().filter(whole).count() as u64).filter(|bytes| *bytes > 0)
            }
            Some(ByteSource::Path(_)) => {
                let after = path.as_deref().map(files_of).unwrap_or_default();
                let grown = after
                    .iter()
                    .map(|(file, size)| size.saturating_sub(before.get(file).copied().unwrap_or(0)));
                Some(grown.sum()).filter(|bytes| *bytes > 0)
            }
            Some(ByteSource::Link) => {
                Some(sum(&flows, "sent", |flow| flow.bytes).max(sum(&flows, "received", |flow| flow.bytes)))
            }
        };
        let hosts = self.load_hosts();
        let measured = CommandTrial {
            plan: workload.plan(hosts),
            runs: report.runs.into_iter().map(masked).collect(),
            wall_s: report.ended_s - report.began_s,
            user_s: report.user_s,
            system_s: report.system_s,
            // Looked at now and then: it was never less than that of one process.
            peak_memory_bytes: peak_memory_bytes.map(|bytes: u64| bytes.max(report.largest_process_bytes)),
            largest_process_bytes: report.largest_process_bytes,
            moved_bytes,
            flows,
            bin_s: BIN.as_secs_f64(),
        };
        let mut warnings = Vec::new();
        if memory.is_none() {
            let message = "this machine counts no memory for groups of processes (control groups): the peak memory of all \
                           processes together is not known";
            warnings.push(Warning::new("peak_memory_unknown", message));
        }
        let mut quantities = quantities(workload, &measured, &written, &mut warnings);
        if let (Some(ByteSource::Link), Some(bytes)) = (&workload.bytes, measured.moved_bytes) {
            // These are sent by then.
            let rate = bytes as f64 * 8.0 / elapsed_s.max(1e-9);
            quantities.entry(GOODPUT.to_owned()).or_insert(rate);
        }
        warnings.extend(measured.failure().map(|why| Warning::new("program_failed", why)));
        Ok(Trial {
            schema: SCHEMA.to_owned(),
            proofload_version: env!("CARGO_PKG_VERSION").to_owned(),
            command: command.iter().map(|word| secrets::mask(word).into_owned()).collect(),
            started_unix_s,
            elapsed_s,
            interrupted: report.interrupted,
            validity: Validity::from_reasons(
                report
                    .wants
                    .map(|evidence| VoidReason { rule: VoidRule::LocalExhaustion, evidence })
                    .into_iter()
                    .collect(),
            ),
            warnings,
            quantities,
            measured: Measured::Command(Box::new(measured)),
        })
    }

    fn order(
        &self,
        workload: &CommandWorkload,
        words: &[String],
        name: &str,
        folder: &Path,
    ) -> Result<Order, StandError> {
        let output = self.scratch_output();
        for made in [folder, &self.scratch, &output] {
            let explain = |error| StandError::Program(format!("cannot make {}: {error}", made.display()));
            fs::create_dir_all(made).map_err(explain)?;
        }
        let put = |text: &String| self.in_scratch(text);
        Ok(Order {
            command: words.iter().map(put).collect(),
            environment: workload
                .environment
                .iter()
                .map(|(name, value)| (name.clone(), put(value)))
                .collect(),
            directory: workload.directory.as_ref().map(|directory| put(directory).into()),
            copies: Vec::new(),
            expect: vec![0],
            timeout: None,
            stop_after: None,
            groups: Vec::new(),
            folder: output,
            name: name.to_owned(),
            parent: self.lab.is_none().then(std::process::id),
        })
    }

    /// Puts the files that the lab's own programs have written in their places.
    fn put_files(&self, orders: &mut [Order]) {
        let Some(lab) = &self.lab else { return };
        let hosts: Vec<_> = lab.hosts().collect();
        for (order, &host) in orders.iter_mut().zip(&self.setup.from) {
            order.command = hosts[host].finished(&order.command);
        }
    }

    /// A text with the folder that programs may write to in its place.
    fn in_scratch(&self, text: &str) -> String {
        text.replace(SCRATCH, &self.scratch.display().to_string())
    }

    /// Where programs write while they run.
    fn scratch_output(&self) -> PathBuf {
        self.scratch.with_file_name(OUTPUT_FOLDER)
    }

    /// The names of the hosts that the load comes from.
    fn load_hosts(&self) -> Vec<String> {
        let Some(lab) = &self.lab else { return Vec::new() };
        self.setup.from.iter().map(|&host| lab.plan().hosts[host].name.clone()).collect()
    }

    /// The counters of the interfaces of the hosts that the load comes from.
    fn interfaces(&self) -> Result<Vec<(String, File)>, StandError> {
        let Some(lab) = &self.lab else { return Ok(Vec::new()) };
        let hosts: Vec<_> = lab.hosts().collect();
        let open = |&host: &usize| {
            // The file stays that of the network it was opened in.
            let file = hosts[host].inside(|| File::open("/proc/thread-self/net/dev"))?;
            Ok((hosts[host].name().to_owned(), file))
        };
        self.setup.from.iter().map(open).collect::<io::Result<_>>().map_err(StandError::Host)
    }
}

/// Where the copies of these orders write: standard output and standard error of each.
fn written_by(orders: &[Order]) -> Vec<[PathBuf; 2]> {
    let of =
        |order: &Order| order.copies.iter().map(|&copy| [order.output(copy), order.errors(copy)]).collect();
    orders.iter().flat_map::<Vec<_>, _>(of).collect()
}

/// Keeps what programs wrote, without secrets. What cannot be kept is lost.
fn keep_output(written: &[[PathBuf; 2]], folder: &Path) {
    for from in written.iter().flatten() {
        if let (Some(name), Ok(bytes)) = (from.file_name(), fs::read(from)) {
            let _ = fs::write(folder.join(name), &*secrets::mask::mask_learned(&bytes));
        }
    }
}

fn masked(mut run: record::CommandRun) -> record::CommandRun {
    run.last_lines = secrets::mask(&run.last_lines).into_owned();
    run
}
