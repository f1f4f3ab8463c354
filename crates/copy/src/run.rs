//! Runs a copy from the first login to the last rename.

use std::{
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    rc::{Rc, Weak},
    sync::atomic::AtomicBool,
    time::{Duration, Instant},
};

use kernel::ssh::Login;
use sftp::Request;
use tokio::{task::LocalSet, time::timeout};

use crate::{
    CopyError, Job, Location, Progress, Report,
    channel::Channel,
    destination::{Destination, stated},
    error::{Error, Result},
    file::FileCopy,
    file_filter::expand,
    folders::{finish_folders, make_folders, make_links, one_for_each_target},
    item::{Item, Kind},
    location::{below, last_name, os},
    options::Direction,
    rehearsal::rehearse,
    remote::ASKED_AT_ONCE,
    report::FileReport,
    session::{Session, unless_stopped},
    tree::{Found, Problem, find_here, find_there},
};

/// Duration of a probe in each direction.
const PROBE_TIME: Duration = Duration::from_secs(10);
/// Maximum duration of a probe in each direction if not all connections can be made.
const MAX_PROBE_TIME: Duration = Duration::from_secs(25);

/// Maximum time for removing partial files at the end of a copy.
const CLEAN_TIME: Duration = Duration::from_secs(2);

/// Runs a copy. Calls `on_progress` ten times a second. Ends soon after `stop` is set.
///
/// # Errors
/// If the copy could not begin. Later failures are in the report of each file.
pub fn copy(
    job: &Job,
    stop: &AtomicBool,
    on_progress: &mut dyn FnMut(Progress),
) -> Result<Report, CopyError> {
    let (host, direction) = sides(job)?;
    wait_for(run(job, host, direction, stop, on_progress))
}

/// Determines the bottleneck of a copy, without disks. Instead of the sources, carries zeros to the other machine's
/// `/dev/null` and back from its `/dev/zero`, for ten seconds each once all connections are open.
///
/// # Errors
/// If no data can be carried.
pub fn probe(job: &Job, stop: &AtomicBool) -> Result<[Report; 2], CopyError> {
    let (host, _) = sides(job)?;
    let tried = |direction| wait_for(probe_one_way(job, host.clone(), direction, stop));
    Ok([tried(Direction::Up)?, tried(Direction::Down)?])
}

/// Runs a future on this thread.
fn wait_for<T>(what: impl Future<Output = Result<T, CopyError>>) -> Result<T, CopyError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| CopyError::Failed(format!("cannot wait for events: {error}")))?;
    let done = LocalSet::new().block_on(&runtime, what);
    // A thread that waits for a disk must not delay the end of the program.
    runtime.shutdown_timeout(Duration::from_secs(1));
    done
}

/// The other machine and the direction of the copy.
fn sides(job: &Job) -> Result<(Login, Direction), CopyError> {
    let wrong = |why: &str| Err(CopyError::WrongUse(why.to_owned()));
    let remote = |location: &Location| match location {
        Location::Remote { host, .. } => Some(host.clone()),
        Location::Local(_) => None,
    };
    let sources: Vec<_> = job.sources.iter().map(remote).collect();
    let Some(first) = sources.first() else { return wrong("there is nothing to copy") };
    match (first, remote(&job.destination)) {
        _ if sources.iter().any(|source| source != first) => {
            wrong("the sources are on several machines; copy from one machine at a time")
        }
        (Some(_), Some(_)) => wrong(
            "the source and the target are both on other machines; run proofload copy on one of them, or write ./NAME for a file of this machine whose name has a colon",
        ),
        (None, None) => wrong("the source and the target are both on this machine; use cp"),
        (Some(host), None) => Ok((host.clone(), Direction::Down)),
        (None, Some(host)) => Ok((host, Direction::Up)),
    }
}

async fn run(
    job: &Job,
    host: Login,
    direction: Direction,
    stop: &AtomicBool,
    on_progress: &mut dyn FnMut(Progress),
) -> Result<Report, CopyError> {
    let session = Session::login(job, host, direction, stop).await?;
    let Session { pool, carrier, first, machine, began, login_s, .. } = &session;
    let asked = async { tokio::join!(session.measure(job), find(job, direction, first, stop)) };
    let (measured, found) = unless_stopped(stop, asked).await?;
    measured.map_err(|error| session.error(&error))?;
    let round_trip_s = carrier.governor.round_trip().as_secs_f64();
    let Found { items, mut problems } = found.map_err(|error| session.error(&error))??;
    let mut report = Report { login_s: *login_s, round_trip_s, ..Report::default() };
    let items = one_for_each_target(items, &mut problems);
    let own = |item: &Item| match direction {
        Direction::Up => PathBuf::from(os(&item.source)),
        Direction::Down => PathBuf::from(os(&item.target)),
    };
    if let Some((path, option)) =
        files::first_claimed(items.iter().filter(|item| item.kind == Kind::File).map(own))
    {
        return Err(CopyError::WrongUse(format!(
            "{option}: {} is a source or target of the copy: give another file to write to",
            path.display()
        )));
    }
    let (folders, items): (Vec<Item>, Vec<Item>) =
        items.into_iter().partition(|item| item.kind == Kind::Folder);
    let problems = problems.into_iter().map(|problem| FileReport::missing(&problem.source, problem.why));
    report.files = problems.collect();
    report.folders = folders.len() as u64;
    if job.dry_run {
        let rehearsed = rehearse(carrier, first, (&folders, &items), &mut report);
        unless_stopped(stop, rehearsed).await?.map_err(|error| session.error(&error))?;
        report.elapsed_s = began.elapsed().as_secs_f64();
        return Ok(report);
    }
    let making = make_folders(carrier, first, &folders, &mut report.notes);
    let made = unless_stopped(stop, making).await?.map_err(|error| session.error(&error))?;
    let folders: Vec<Item> = folders.into_iter().filter(|folder| !made.missing.has(folder)).collect();
    report.folders = folders.len() as u64;
    let (homeless, items): (Vec<Item>, Vec<Item>) =
        items.into_iter().partition(|item| made.missing.is_above(item));
    report.files.extend(homeless.iter().map(FileReport::homeless));
    let (links, files): (Vec<Item>, Vec<Item>) =
        items.into_iter().partition(|item| matches!(item.kind, Kind::Link(_)));
    let (total_bytes, total_files) =
        (files.iter().fold(0, |all, file| file.size_bytes.saturating_add(all)), files.len() as u64);
    let add = |(number, item)| {
        let file = FileCopy::new(number, item);
        // The last user of a file drops it, which closes it.
        let weak = Rc::downgrade(&file);
        carrier.queue.add(file);
        weak
    };
    let files: Vec<Weak<FileCopy>> = (0..).zip(files).map(add).collect();
    let mut show = || {
        on_progress(Progress {
            done_bytes: carrier.done_bytes.get(),
            total_bytes,
            done_files: carrier.reports.borrow().len() as u64,
            total_files,
            elapsed: began.elapsed(),
            channels: pool.channels(),
            lost: pool.why().filter(|_| pool.channels() == 0).map(|error| error.to_string()),
        });
        false
    };
    session.carry(job, stop, &mut report, &mut show).await;
    if carrier.queue.unfinished() == 0 {
        // Links are created last, so that no file is written through them.
        let channel = pool.any().unwrap_or_else(|| Rc::clone(first));
        let end = async {
            let failed = make_links(carrier, &channel, links).await;
            report.files.extend(failed.into_iter().map(|(source, why)| FileReport::missing(&source, why)));
            finish_folders(carrier, &channel, &folders, &made, &mut report.warnings).await;
        };
        if unless_stopped(stop, end).await.is_err() {
            report.is_interrupted = true;
            report.notes.push("links may be missing, and times and permissions of folders unset".to_owned());
        }
    } else if let Some(why) = pool.why().filter(|_| !report.is_interrupted) {
        report.notes.push(format!(
            "the connection to {machine} was lost and could not be opened again: {why}; run the same command again to continue"
        ));
    }
    report.files.extend(carrier.reports.take());
    let unfinished: Vec<_> =
        files.iter().filter_map(Weak::upgrade).filter(|file| !file.is_closed()).collect();
    let not_all = || "not copied: the copy ended before the file was complete".to_owned();
    report.files.extend(unfinished.iter().map(|file| FileReport::failed(file, not_all())));
    let are_gone = timeout(CLEAN_TIME, carrier.remove_parts()).await.unwrap_or(false);
    session.run_lock.iter().for_each(|lock| lock.leaves_parts.set(!are_gone));
    report.warnings.extend(carrier.warnings.take());
    if !unfinished.is_empty() {
        let has_parts = carrier.options.journals.is_some();
        let next = if has_parts {
            "; to go on, run the same command again: it continues incomplete files over 2 MiB and copies all others from the start"
        } else {
            ""
        };
        report.notes.push(format!("{} of {total_files} files were not copied{next}", unfinished.len()));
    }
    report.elapsed_s = began.elapsed().as_secs_f64();
    Ok(report)
}

async fn probe_one_way(
    job: &Job,
    host: Login,
    direction: Direction,
    stop: &AtomicBool,
) -> Result<Report, CopyError> {
    let session = Session::login(job, host, direction, stop).await?;
    session.carrier.queue.add_endless();
    let measured = unless_stopped(stop, session.measure(job)).await?;
    measured.map_err(|error| session.error(&error))?;
    let opened = unless_stopped(stop, session.carrier.open_endless(&session.first)).await?;
    opened.map_err(|error| session.error(&error))?;
    let mut report = Report::default();
    let (began, mut complete) = (Instant::now(), None);
    let mut is_over = || {
        if complete.is_none() && session.pool.is_complete() {
            complete = Some(Instant::now());
        }
        let is_shown = complete.is_some_and(|complete: Instant| complete.elapsed() >= PROBE_TIME);
        is_shown || began.elapsed() >= MAX_PROBE_TIME
    };
    session.carry(job, stop, &mut report, &mut is_over).await;
    report.elapsed_s = session.began.elapsed().as_secs_f64();
    match session.pool.why() {
        Some(why) if report.held_back.is_none() => Err(session.error(&why)),
        _ => Ok(report),
    }
}

/// Finds all files, folders and links to copy, and their targets.
async fn find(
    job: &Job,
    direction: Direction,
    channel: &Rc<Channel>,
    stop: &AtomicBool,
) -> Result<Result<Found, CopyError>> {
    let mut found = Found::default();
    let mut sources = Vec::new();
    for source in &job.sources {
        match source {
            Location::Local(path) => sources.push(path.as_os_str().as_bytes().to_vec()),
            Location::Remote { path, .. } => {
                let paths = expand(channel, path).await?;
                if paths.is_empty() {
                    found.problems.push(Problem::new(path, "no file there matches"));
                }
                sources.extend(paths);
            }
        }
    }
    let named = match &job.destination {
        Location::Local(path) => path.as_os_str().as_bytes(),
        Location::Remote { path, .. } => path,
    };
    let end = named.iter().rposition(|byte| *byte != b'/').map_or(named.len(), |last| last + 1);
    let (destination, must_be_folder) = (named[..end].to_vec(), end < named.len());
    let known = match direction {
        Direction::Up => match Error::unless_lost(stated(channel, &destination).await)? {
            Ok(known) => known,
            Err(error) => {
                return Ok(Err(CopyError::Failed(format!("{}: {error}", job.destination.in_words()))));
            }
        },
        Direction::Down => Destination::here(Path::new(&os(&destination))),
    };
    let is_folder = known == Destination::Folder;
    let wrong = match known {
        // As in scp, the target of a single folder may be a new name that ends in '/'.
        Destination::Free if must_be_folder && sources.len() == 1 && job.choice.recursive => "",
        _ if !is_folder && (sources.len() > 1 || must_be_folder) => NOT_A_FOLDER,
        Destination::Other => {
            "exists and is not a regular file; choose another name, or use --why to try a path"
        }
        Destination::Nowhere => "is in a folder that does not exist; create that folder first",
        _ => "",
    };
    if !wrong.is_empty() {
        return Ok(Err(CopyError::WrongUse(format!("{} {wrong}", job.destination.in_words()))));
    }
    let target = |source: &[u8]| match last_name(source).filter(|_| is_folder) {
        Some(name) => below(&destination, name),
        None => destination.clone(),
    };
    for some in sources.chunks(ASKED_AT_ONCE) {
        let asked: Vec<_> = match direction {
            Direction::Up => {
                for source in some {
                    find_here(Path::new(&os(source)), target(source), &job.choice, stop, &mut found);
                }
                continue;
            }
            Direction::Down => some.iter().map(|source| channel.begin(&Request::Stat(source))).collect(),
        };
        for (source, asked) in some.iter().zip(asked) {
            let named = (source.clone(), asked?);
            find_there(channel, named, target(source), &job.choice, &mut found).await?;
        }
    }
    let is_file = |item: &Item| item.is_named() && item.kind != Kind::Folder;
    if must_be_folder && !is_folder && found.items.iter().any(is_file) {
        return Ok(Err(CopyError::WrongUse(format!("{} {NOT_A_FOLDER}", job.destination.in_words()))));
    }
    Ok(Ok(found))
}

/// The error for a destination that must be a folder.
const NOT_A_FOLDER: &str =
    "is not a folder; make it first, or copy one source to a name without a '/' at its end";
