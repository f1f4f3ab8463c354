//! A copy, from the first login to the last name.

use std::{
    collections::HashSet,
    ffi::OsString,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    rc::Rc,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use glob::Pattern;
use sftp::FileType;
use tokio::{task::LocalSet, time::interval};

use crate::{
    Host, Location, Progress, Report,
    carrier::{Carrier, Direction, Manner},
    channel::Channel,
    file::{FileCopy, Item, Kind},
    folders::{finish_folders, make_folders, make_link},
    governor::{Bounds, Governor, TICK},
    journal::{Place, random_token},
    location::os,
    pool::{Pool, Shape},
    ssh::Login,
    tree::{Choice, Found, below, expand, find_here, find_there, last_name},
    trouble::Trouble,
};

/// What is to be copied, and how.
#[derive(Debug, Clone)]
pub struct Job {
    /// Where the files are: all on this machine, or all on the same other one.
    pub sources: Vec<Location>,
    /// Where they go.
    pub destination: Location,
    /// Options for `ssh`.
    pub ssh_options: Vec<OsString>,
    /// Copies folders with what is in them.
    pub recursive: bool,
    /// Copies links as links, instead of what they lead to.
    pub links: bool,
    /// Keeps times and permissions.
    pub preserve: bool,
    /// Compares what was written with what was read.
    pub verify: bool,
    /// Brings every file to its disk before it gets its name.
    pub sync: bool,
    /// Where journals of chunks are kept; none begins every file anew.
    pub journals: Option<PathBuf>,
    /// Only files that match one of these; all if empty.
    pub include: Vec<Pattern>,
    /// What is left out.
    pub exclude: Vec<Pattern>,
    /// Connections; none chooses by the round trip.
    pub connections: Option<u32>,
    /// Bytes on the way; none follows the path.
    pub in_flight_bytes: Option<usize>,
    /// Most bytes per second; none is no limit.
    pub limit_bytes_per_s: Option<u64>,
    /// Tells what would be copied, and copies nothing.
    pub dry_run: bool,
}

/// Why nothing was copied.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// What was asked for makes no sense.
    #[error("{0}")]
    WrongUse(String),
    /// The other machine cannot be reached.
    #[error("cannot log in to {machine}: {why}; see whether 'ssh {machine}' works")]
    Login {
        /// The machine.
        machine: String,
        /// What `ssh` said.
        why: String,
    },
    /// It was stopped before the first file.
    #[error("interrupted")]
    Interrupted,
    /// Something failed before the first file.
    #[error("{0}")]
    Failed(String),
}

/// Copies. Calls `on_progress` ten times a second, and ends soon after `stop`.
///
/// # Errors
/// When nothing could be begun. What fails later is in the report, file by file.
pub fn copy(
    job: &Job,
    stop: &AtomicBool,
    on_progress: &mut dyn FnMut(Progress),
) -> Result<Report, CopyError> {
    let (host, direction) = sides(job)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| CopyError::Failed(format!("cannot wait for events: {error}")))?;
    let report = LocalSet::new().block_on(&runtime, run(job, host, direction, stop, on_progress));
    // A thread that waits for a disk must not hold up the end.
    runtime.shutdown_timeout(Duration::from_secs(1));
    report
}

/// The other machine, and which way the files go.
fn sides(job: &Job) -> Result<(Host, Direction), CopyError> {
    let wrong = |why: &str| Err(CopyError::WrongUse(why.to_owned()));
    let remote = |location: &Location| match location {
        Location::Remote { host, .. } => Some(host.clone()),
        Location::Local(_) => None,
    };
    let sources: Vec<_> = job.sources.iter().map(remote).collect();
    let Some(first) = sources.first() else { return wrong("there is nothing to copy") };
    match (first, remote(&job.destination)) {
        _ if sources.iter().any(|source| source != first) => {
            wrong("the sources are not all on one machine; copy them one machine after the other")
        }
        (Some(_), Some(_)) => wrong("both ends are other machines; run proofload copy on one of them"),
        (None, None) => wrong("both ends are on this machine; use cp"),
        (Some(host), None) => Ok((host.clone(), Direction::Down)),
        (None, Some(host)) => Ok((host, Direction::Up)),
    }
}

async fn run(
    job: &Job,
    host: Host,
    direction: Direction,
    stop: &AtomicBool,
    on_progress: &mut dyn FnMut(Progress),
) -> Result<Report, CopyError> {
    let began = Instant::now();
    // Whoever cannot write there copies without resuming.
    let place = job.journals.as_ref().and_then(|folder| Place::take(folder).ok());
    let failed = |why: String| CopyError::Failed(why);
    let token = match &place {
        Some(place) => place.token.clone(),
        None => {
            random_token().map_err(|error| failed(format!("the kernel has no random numbers: {error}")))?
        }
    };
    let manner = Manner {
        token,
        direction,
        preserve: job.preserve,
        verify: job.verify,
        sync: job.sync,
        journals: job.journals.clone().filter(|_| place.is_some()),
        machine: format!("{}:{}", host.login, host.port.unwrap_or(0)),
    };
    let governor =
        Governor::new(job.in_flight_bytes.map_or(Bounds::PATH, Bounds::fixed), job.limit_bytes_per_s);
    let carrier = Carrier::new(manner, Rc::clone(&governor));
    let login = Login::new(host, job.ssh_options.clone());
    let machine = login.name().to_owned();
    let pool = Pool::new(login, Rc::clone(&carrier))
        .map_err(|error| failed(format!("cannot make a folder for ssh's sockets in /tmp: {error}")))?;
    let first = until(stop, pool.first(job.connections)).await?.map_err(|trouble| match trouble {
        Trouble::Lost(why) => CopyError::Login { machine: machine.clone(), why },
        trouble => failed(trouble.to_string()),
    })?;
    let login_s = began.elapsed().as_secs_f64();
    let trouble = |trouble: Trouble| failed(format!("{machine}: {trouble}"));
    let asked = async { tokio::join!(first.ask_limits(), find(job, direction, &first)) };
    let (limits, found) = until(stop, asked).await?;
    governor.saw_round_trip(limits.map_err(trouble)?);
    let round_trip = governor.round_trip();
    let Found { items, mut problems } = found.map_err(trouble)??;
    let mut report = Report { login_s, round_trip_s: round_trip.as_secs_f64(), ..Report::default() };
    let mut taken = HashSet::new();
    let (items, twice): (Vec<Item>, Vec<Item>) =
        items.into_iter().partition(|item| taken.insert(item.target.clone()));
    for item in twice {
        let name = String::from_utf8_lossy(&item.target).into_owned();
        problems.push(format!("{name}: two sources have this name at the destination; the first was taken"));
    }
    let (folders, items): (Vec<Item>, Vec<Item>) =
        items.into_iter().partition(|item| item.kind == Kind::Folder);
    report.folders = folders.len() as u64;
    report.notes = problems;
    if job.dry_run {
        let files = items.into_iter().enumerate().map(|(number, item)| FileCopy::new(number as u64, item));
        report.files = files.map(|file| crate::report::FileReport::planned(&file)).collect();
        report.elapsed_s = began.elapsed().as_secs_f64();
        return Ok(report);
    }
    let making = make_folders(direction, &first, &folders, &mut report.notes);
    let missing = until(stop, making).await?.map_err(trouble)?;
    // Into what is no folder of ours, nothing is written.
    let is_below = |item: &Item| missing.iter().any(|folder| item.target.starts_with(&below(folder, b"")));
    let items = items.into_iter().filter(|item| !is_below(item));
    let (links, files): (Vec<Item>, Vec<Item>) = items.partition(|item| matches!(item.kind, Kind::Link(_)));
    let (total_bytes, total_files) =
        (files.iter().fold(0, |all, file| file.size_bytes.saturating_add(all)), files.len() as u64);
    for (number, item) in files.into_iter().enumerate() {
        carrier.queue.add(FileCopy::new(number as u64, item));
    }
    pool.start(Rc::clone(&first), Shape::of(round_trip, job.connections));
    let mut second = Second(Instant::now(), 0);
    let mut ticks = interval(TICK);
    loop {
        tokio::select! {
            () = carrier.queue.all_finished() => break,
            _ = ticks.tick() => {}
        }
        governor.tick(Instant::now());
        report.rate_bytes_per_s.extend(second.rate(governor.delivered_bytes()));
        on_progress(Progress {
            done_bytes: carrier.done_bytes.get(),
            total_bytes,
            done_files: carrier.reports.borrow().len() as u64,
            total_files,
            elapsed: began.elapsed(),
            channels: pool.channels(),
        });
        if stop.load(Ordering::Relaxed) {
            report.is_interrupted = true;
            carrier.queue.close();
            break;
        }
    }
    report.carried_bytes = governor.delivered_bytes();
    if carrier.queue.unfinished() == 0 {
        // Links last: nothing is written through them.
        let channel = pool.any().unwrap_or(first);
        for item in &links {
            if let Err(why) = make_link(direction, &channel, item).await {
                report.notes.push(format!("{}: {why}", String::from_utf8_lossy(&item.target)));
            }
        }
        finish_folders(job.preserve, direction, &channel, &folders, &mut report.notes).await;
    } else if let Some(why) = pool.why().filter(|_| !report.is_interrupted) {
        report.notes.push(format!(
            "{machine} could not be reached again: {why}; the same command goes on where this one stopped"
        ));
    }
    report.files = carrier.reports.take();
    let unfinished = total_files - report.files.len() as u64;
    if unfinished > 0 {
        report.notes.push(format!("{unfinished} of {total_files} files are not there"));
    }
    report.in_flight_bytes = governor.bound_bytes() as u64;
    (report.connections, report.channels) = pool.most();
    report.elapsed_s = began.elapsed().as_secs_f64();
    Ok(report)
}

/// A second that is measured: since when, and the bytes that had arrived then.
struct Second(Instant, u64);

impl Second {
    /// The rate of a second that is over, and begins the next.
    fn rate(&mut self, delivered_bytes: u64) -> Option<f64> {
        let (elapsed, bytes) = (self.0.elapsed(), delivered_bytes - self.1);
        (elapsed >= Duration::from_secs(1)).then(|| {
            *self = Self(Instant::now(), delivered_bytes);
            bytes as f64 / elapsed.as_secs_f64()
        })
    }
}

/// Finds all that is to be copied, with the names that it gets.
async fn find(
    job: &Job,
    direction: Direction,
    channel: &Rc<Channel>,
) -> Result<Result<Found, CopyError>, Trouble> {
    let choice = Choice {
        recursive: job.recursive,
        links: job.links,
        include: job.include.clone(),
        exclude: job.exclude.clone(),
    };
    let mut found = Found::default();
    let mut sources = Vec::new();
    for source in &job.sources {
        match source {
            Location::Local(path) => sources.push(path.as_os_str().as_bytes().to_vec()),
            Location::Remote { path, .. } => {
                let paths = expand(channel, path).await?;
                if paths.is_empty() {
                    found.problems.push(format!("{}: no file there matches", source.in_words()));
                }
                sources.extend(paths);
            }
        }
    }
    let destination = match &job.destination {
        Location::Local(path) => path.as_os_str().as_bytes().to_vec(),
        Location::Remote { path, .. } => path.clone(),
    };
    let is_folder = match direction {
        Direction::Up => channel
            .stat(&destination)
            .await?
            .is_some_and(|known| known.file_type() == Some(FileType::Directory)),
        Direction::Down => Path::new(&os(&destination)).is_dir(),
    };
    if !is_folder && (sources.len() > 1 || destination.ends_with(b"/")) {
        let words = job.destination.in_words();
        return Ok(Err(CopyError::WrongUse(format!(
            "{words} is no folder; make it first, or name one source"
        ))));
    }
    for source in sources {
        let target = match last_name(&source).filter(|_| is_folder) {
            Some(name) => below(&destination, name),
            None => destination.clone(),
        };
        match direction {
            Direction::Up => find_here(Path::new(&os(&source)), target, &choice, &mut found),
            Direction::Down => find_there(channel, source, target, &choice, &mut found).await?,
        }
    }
    Ok(Ok(found))
}

/// Does something, unless it is stopped before.
async fn until<T>(stop: &AtomicBool, what: impl Future<Output = T>) -> Result<T, CopyError> {
    let stopped = async {
        let mut ticks = interval(TICK);
        while !stop.load(Ordering::Relaxed) {
            ticks.tick().await;
        }
    };
    tokio::select! {
        biased;
        () = stopped => Err(CopyError::Interrupted),
        done = what => Ok(done),
    }
}
