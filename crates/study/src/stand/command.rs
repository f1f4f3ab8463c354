//! Programs as the load, run on the hosts of a study or here.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    os::unix::{
        fs::MetadataExt,
        process::{CommandExt, ExitStatusExt},
    },
    path::{Path, PathBuf},
    process::{Child, ExitStatus, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use command::{Flows, MemoryGroup, Order, Report, number_in};
use lab::plan::{Flood, Process, Program};
use record::{
    CommandTrial, Flow, Measured, MovedBytes, Trial, Validity, VoidReason, VoidRule, Warning, trial::SCHEMA,
};
use rustix::process::{Pid, Signal, kill_process};

use super::{Stand, StandError};
use crate::{
    CommandWorkload,
    workload::{self, SCRATCH},
};

/// Where programs write while they run, beside [`Stand::scratch`].
const OUTPUT_FOLDER: &str = ".output";
/// A runner that was asked to end for so long is killed.
const PATIENCE: Duration = Duration::from_secs(6);
/// Length of the bins that flows are counted in.
const BIN: Duration = Duration::from_millis(100);
/// How often memory is looked at.
const GLANCE: Duration = Duration::from_millis(10);
/// A step around a trial that takes longer has failed.
const STEP_TIMEOUT: Duration = Duration::from_secs(600);
/// The rate at the end of a trial is that of so many seconds, or of its second half if it is shorter than twice that.
const LAST_S: f64 = 5.0;

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

/// A process that runs the copies of one host.
enum Runner {
    OnHost(lab::Process),
    Here(Child),
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
        (order.copies, order.timeout, order.expect) = (vec![0], Some(STEP_TIMEOUT), vec![0]);
        let mut orders = vec![order];
        self.put_files(&mut orders);
        // What is left of a step that is killed goes with its group.
        let group = MemoryGroup::make(&self.folder).ok();
        orders[0].groups = group.iter().map(MemoryGroup::joined_by).collect();
        let report = self.conduct(orders, stop, &mut |_| Ok(()));
        self.keep_output(folder);
        let report = report?;
        let trial = CommandTrial { runs: report.runs, ..CommandTrial::default() };
        match trial.failure() {
            Some(why) => Err(StandError::Program(format!(
                "{}: {}{}",
                step.name(),
                shown(words),
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
            orders.push(order);
        }
        self.put_files(&mut orders);
        let memory = MemoryGroup::make(&self.folder).ok();
        for order in &mut orders {
            order.groups = memory.iter().map(MemoryGroup::joined_by).collect();
        }
        let path = match &workload.bytes {
            Some(MovedBytes::Path(path)) => Some(self.in_scratch(path)),
            _ => None,
        };
        let before = path.as_deref().map(files_of).unwrap_or_default();
        let outputs: Vec<PathBuf> =
            orders.iter().flat_map(|order| order.copies.iter().map(|copy| order.output(*copy))).collect();
        let started_unix_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64());
        let begun = Instant::now();
        let mut flows = Flows::begin(BIN, self.interfaces()?).map_err(StandError::Host)?;
        let mut peak_memory_bytes = None;
        let mut look = |links: Option<Vec<(String, u64, u64)>>| {
            peak_memory_bytes = peak_memory_bytes.max(memory.as_ref().and_then(MemoryGroup::used_bytes));
            let Some(links) = links else { return Ok(()) };
            flows.look()?;
            links.into_iter().for_each(|(name, bytes, packets)| flows.count(name, bytes, packets));
            Ok(())
        };
        let report = self.conduct(orders, stop, &mut look);
        self.keep_output(folder);
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
            Some(MovedBytes::Declared(bytes)) => {
                // One that was ended moved a part of them, and nobody knows which.
                let whole = |run: &&record::CommandRun| run.succeeded && !run.stopped;
                Some(bytes * report.runs.iter().filter(whole).count() as u64).filter(|bytes| *bytes > 0)
            }
            Some(MovedBytes::Path(_)) => {
                let after = path.as_deref().map(files_of).unwrap_or_default();
                let grown = after
                    .iter()
                    .map(|(file, size)| size.saturating_sub(before.get(file).copied().unwrap_or(0)));
                Some(grown.sum()).filter(|bytes| *bytes > 0)
            }
            Some(MovedBytes::Link) => {
                Some(sum(&flows, "sent", |flow| flow.bytes).max(sum(&flows, "received", |flow| flow.bytes)))
            }
        };
        let hosts = self.from_names();
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
        let mut quantities = quantities(workload, &measured, &outputs, &mut warnings);
        if let (Some(MovedBytes::Link), Some(bytes)) = (&workload.bytes, measured.moved_bytes) {
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
            expect: workload.expect.clone(),
            timeout: workload.timeout.filter(|_| name == "command"),
            stop_after: workload.stop_after.filter(|_| name == "command"),
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

    /// Keeps what programs wrote, without secrets. What cannot be kept is lost: it was read before.
    fn keep_output(&self, folder: &Path) {
        for entry in fs::read_dir(self.scratch_output()).into_iter().flatten().flatten() {
            let (from, to) = (entry.path(), folder.join(entry.file_name()));
            let is_output = from.extension().is_some_and(|end| end == "out" || end == "err");
            if let (true, Ok(bytes)) = (is_output, fs::read(&from)) {
                let _ = fs::write(to, &*secrets::mask::mask_learned(&bytes));
            }
        }
    }

    /// Runs orders at once, each on a host that the load comes from, until all have ended. `look` is called again and again, at
    /// the end of every bin with the bytes and packets of each direction of the emulated links.
    fn conduct(
        &mut self,
        orders: Vec<Order>,
        stop: &AtomicBool,
        look: &mut dyn FnMut(Option<Vec<(String, u64, u64)>>) -> io::Result<()>,
    ) -> Result<Report, StandError> {
        let broken = |error: io::Error| StandError::Program(format!("cannot run a program: {error}"));
        let reports: Vec<PathBuf> = orders.iter().map(Order::report).collect();
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
        for ((mut runner, path), order) in runners.into_iter().zip(reports).zip(&orders) {
            let Some(mut report) = Report::read(&path) else {
                let how = runner.ended().map_or_else(String::new, |status| format!(" ({status})"));
                let lines = runner.last_lines();
                return Err(StandError::Program(format!(
                    "the process that runs {} ended without a report{how}{lines}",
                    order.command.first().map_or("the program", String::as_str)
                )));
            };
            let _ = fs::remove_file(path);
            let host = runner.host(self);
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

    /// The names of the hosts that the load comes from.
    fn from_names(&self) -> Vec<String> {
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

    /// The bytes and packets that each direction of the emulated links has carried so far.
    fn link_counts(&mut self) -> Result<Vec<(String, u64, u64)>, StandError> {
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

    fn host(&self, stand: &Stand) -> String {
        match (self, &stand.lab) {
            (Self::OnHost(process), Some(lab)) => {
                let hosts = lab.plan().hosts.iter().map(|host| &host.name);
                let own = |name: &&String| process.name().starts_with(&format!("{name}-"));
                hosts.filter(own).max_by_key(|name| name.len()).cloned().unwrap_or_default()
            }
            _ => String::new(),
        }
    }
}

/// The quantities of a trial by their names, as the workload declares them.
fn quantities(
    workload: &CommandWorkload,
    trial: &CommandTrial,
    outputs: &[PathBuf],
    warnings: &mut Vec<Warning>,
) -> BTreeMap<String, f64> {
    let total = |way, of: fn(&Flow) -> u64| sum(&trial.flows, way, of) as f64;
    let mut quantities = BTreeMap::from([
        ("wall_s".to_owned(), trial.wall_s),
        ("user_s".to_owned(), trial.user_s),
        ("system_s".to_owned(), trial.system_s),
        ("largest_process_bytes".to_owned(), trial.largest_process_bytes as f64),
    ]);
    if !trial.flows.is_empty() {
        quantities.extend([
            ("sent_bytes".to_owned(), total("sent", |flow| flow.bytes)),
            ("received_bytes".to_owned(), total("received", |flow| flow.bytes)),
            ("sent_packets".to_owned(), total("sent", |flow| flow.packets)),
            ("received_packets".to_owned(), total("received", |flow| flow.packets)),
        ]);
        let rate = last_rate(trial, "sent").max(last_rate(trial, "received"));
        quantities.insert("last_5_s_bit_per_s".to_owned(), rate);
    }
    quantities.extend(trial.peak_memory_bytes.map(|bytes| ("peak_memory_bytes".to_owned(), bytes as f64)));
    if let Some(bytes) = trial.moved_bytes {
        quantities.insert("moved_bytes".to_owned(), bytes as f64);
        if workload.bytes != Some(MovedBytes::Link) && trial.failed_ratio() == 0.0 {
            quantities.insert(GOODPUT.to_owned(), bytes as f64 * 8.0 / trial.wall_s.max(1e-9));
        }
    }
    for read in &workload.read {
        let number = &read.number;
        let found: Vec<f64> =
            outputs.iter().filter_map(|path| number_in(&fs::read(path).ok()?, &number.json)).collect();
        if found.len() < outputs.len() && number.optional {
            continue;
        }
        if found.len() < outputs.len() {
            warnings.push(Warning::new(
                "number_not_found",
                format!(
                    "{} of {} copies wrote no number at {} of JSON on standard output: {} is not known",
                    outputs.len() - found.len(),
                    outputs.len(),
                    number.json,
                    number.quantity
                ),
            ));
            continue;
        }
        let value = if number.more_is_better {
            found.iter().sum()
        } else {
            found.iter().copied().fold(f64::NEG_INFINITY, f64::max)
        };
        quantities.insert(number.quantity.clone(), value);
    }
    quantities
}

/// The rate in one direction over the last seconds in which the programs were at work, in bits per second: up to the last
/// bin that carried a hundredth of the fullest. What programs tell each other at their end is no steady state.
fn last_rate(trial: &CommandTrial, way: &str) -> f64 {
    let own = || trial.flows.iter().filter(|(name, _)| is_way(name, way));
    let most = own().map(|(_, flow)| flow.bins.len()).max().unwrap_or(0);
    let of_bin = |bin: usize| own().filter_map(|(_, flow)| flow.bins.get(bin)).sum::<u64>();
    let bins: Vec<u64> = (0..most).map(of_bin).collect();
    let fullest = bins.iter().copied().max().unwrap_or(0);
    let end = bins.iter().rposition(|bytes| *bytes * 100 >= fullest.max(1)).map_or(0, |last| last + 1);
    let counted = ((LAST_S / trial.bin_s).round() as usize).min(end / 2).max(1);
    let bytes: u64 = bins[end.saturating_sub(counted)..end].iter().sum();
    bytes as f64 * 8.0 / (counted as f64 * trial.bin_s)
}

/// The sum over what the interfaces sent, or received.
fn sum(flows: &BTreeMap<String, Flow>, way: &str, of: impl Fn(&Flow) -> u64) -> u64 {
    flows.iter().filter(|(name, _)| is_way(name, way)).map(|(_, flow)| of(flow)).sum()
}

/// Whether a flow is what interfaces sent, or received.
fn is_way(name: &str, way: &str) -> bool {
    name.rsplit(' ').next() == Some(way)
}

/// The sizes of a file, or of all files in a folder, by what tells one from another: a file that was made anew is another.
fn files_of(path: impl AsRef<Path>) -> BTreeMap<(u64, u64, i64), u64> {
    let mut files = BTreeMap::new();
    // The path itself may be a link; links within it are of no size.
    if let Ok(metadata) = fs::metadata(&path) {
        gather(path.as_ref(), &metadata, &mut files);
    }
    files
}

fn gather(path: &Path, metadata: &fs::Metadata, files: &mut BTreeMap<(u64, u64, i64), u64>) {
    if !metadata.is_dir() {
        let made_s = metadata.created().ok().and_then(|made| made.duration_since(UNIX_EPOCH).ok());
        let made_ns = made_s.map_or(0, |made| made.as_nanos() as i64);
        files.insert((metadata.dev(), metadata.ino(), made_ns), metadata.len());
        return;
    }
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if let Ok(metadata) = entry.metadata() {
            gather(&entry.path(), &metadata, files);
        }
    }
}

/// A command for people.
fn shown(words: &[String]) -> String {
    workload::shown_words(words)
}

fn masked(mut run: record::CommandRun) -> record::CommandRun {
    run.last_lines = secrets::mask(&run.last_lines).into_owned();
    run
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_seconds_end_with_the_last_that_was_sent() {
        let rate = |bins: &[u64]| {
            let flow = Flow { bins: bins.to_vec(), ..Flow::default() };
            let flows = BTreeMap::from([("client eth0 sent".to_owned(), flow)]);
            last_rate(&CommandTrial { flows, bin_s: 0.1, ..CommandTrial::default() }, "sent")
        };
        let mut bins = vec![1_000; 20];
        bins.extend([10_000; 60]);
        assert_eq!(rate(&bins), 800_000.0, "only the last 5 s");
        bins.extend([0, 0, 50, 0, 20]);
        assert_eq!(rate(&bins), 800_000.0, "what is said at the end does not count");
        assert_eq!(rate(&[0, 0, 500, 1_500]), 80_000.0, "the second half of a short trial");
        assert_eq!(rate(&[]), 0.0);
    }
}
