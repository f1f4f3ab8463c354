//! Reads the sender's receipts.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fs,
    io::BufReader,
    ops::Range,
    path::{Path, PathBuf},
};

use record::{
    EventOutcome, input,
    receipt::{Numbering, ReceiptHeader, ReceiptLine, RunId, SCHEMA, StoredAt},
};

use crate::{AuditError, copies::Copies};

/// The receipts of all runs in the given folders.
#[derive(Debug, Default)]
pub(crate) struct Receipts {
    pub runs: Vec<Run>,
    /// Messages about missing receipts.
    pub incomplete: Vec<String>,
}

/// One run of a load, from its receipts.
#[derive(Debug)]
pub(crate) struct Run {
    /// Creates the run's events as they were sent.
    pub numbering: Numbering,
    /// The clients that have receipts, by number. Memory is not reserved for the counts that a header claims.
    pub clients: BTreeMap<u32, Client>,
    /// Positions that the receiver's answers claim for events.
    pub claims: Vec<StoredAt>,
    workers: u64,
    files_by_worker: BTreeMap<u64, WorkerFile>,
}

/// What is known of a worker's receipt file.
#[derive(Debug)]
struct WorkerFile {
    path: PathBuf,
    /// The clients of the worker.
    clients: Range<u32>,
    /// Whether the file contains all events of the worker's clients.
    is_complete: bool,
}

/// The events of a client: what the receipts say, and what the files contain.
#[derive(Debug, Clone, Default)]
pub(crate) struct Client {
    /// Outcomes of the events, in order and without gaps.
    pub outcomes: Vec<OutcomeRange>,
    /// How often each event was found in the files.
    pub copies: Copies,
    /// The highest event number in the last file that contained an event of the client.
    pub highest: Highest,
}

/// The highest event number found in a file.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Highest {
    pub file: u32,
    pub number: u32,
}

/// Consecutive events with the same outcome. Starts where the previous range ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OutcomeRange {
    /// Number of the first event after the range.
    pub until: u32,
    pub outcome: EventOutcome,
    pub attempts: u8,
}

impl Run {
    /// Whether the receipts contain all events of a client. If a worker has the client, its file must be complete;
    /// otherwise the files of all workers must be.
    pub(crate) fn has_all_of(&self, client: u32) -> bool {
        let mut its = self.files_by_worker.values().filter(|file| file.clients.contains(&client)).peekable();
        if its.peek().is_some() {
            return its.any(|file| file.is_complete);
        }
        self.files_by_worker.values().filter(|file| file.is_complete).count() as u64 == self.workers
    }
}

impl Client {
    /// The outcome of an event; `None` if the receipts do not contain it.
    pub(crate) fn outcome_of(&self, number: u32) -> Option<OutcomeRange> {
        self.outcomes.get(self.outcomes.partition_point(|end| end.until <= number)).copied()
    }
}

impl Receipts {
    /// Reads folders of receipts.
    ///
    /// # Errors
    /// If a folder cannot be read, or a file is invalid.
    pub(crate) fn read(folders: &[PathBuf]) -> Result<Self, AuditError> {
        let mut runs = BTreeMap::new();
        let mut incomplete = Vec::new();
        for folder in folders {
            let files = files_of(folder)?;
            if files.is_empty() {
                incomplete.push(format!("there are no receipts in {}", folder.display()));
            }
            for path in files {
                read_file(&path, &mut runs, &mut incomplete)?;
            }
        }
        let runs: Vec<Run> = runs.into_values().collect();
        for run in &runs {
            let missing = run.workers.saturating_sub(run.files_by_worker.len() as u64);
            if missing > 0 {
                let id = run.numbering.run();
                incomplete.push(format!(
                    "run {id}: the receipts of {missing} of {} workers are missing",
                    run.workers
                ));
            }
        }
        Ok(Self { runs, incomplete })
    }
}

fn files_of(folder: &Path) -> Result<Vec<PathBuf>, AuditError> {
    let failed = |cause| AuditError::Read { path: folder.to_owned(), cause };
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with("receipts-") && name.ends_with(".jsonl") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn read_file(
    path: &Path,
    runs: &mut BTreeMap<RunId, Run>,
    incomplete: &mut Vec<String>,
) -> Result<(), AuditError> {
    let failed = |cause| AuditError::Read { path: path.to_owned(), cause };
    let mut lines = BufReader::with_capacity(1 << 16, ::files::open(path).map_err(failed)?);
    let mut text = Vec::new();
    let mut reading: Option<(RunId, ReceiptHeader)> = None;
    let mut events = 0;
    let mut is_whole = false;
    for number in 1.. {
        if !input::read_line(&mut lines, &mut text).map_err(failed)? {
            break;
        }
        let wrong = |cause: String| AuditError::Receipts { path: path.to_owned(), line: number, cause };
        let line = serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
        match (&reading, line) {
            (None, ReceiptLine::Header(header)) => {
                add_header(path, &header, runs).map_err(wrong)?;
                reading = Some((header.run, header));
            }
            (None, _) | (Some(_), ReceiptLine::Header(_)) => {
                return Err(wrong("receipts need exactly one header, in the first line".to_owned()));
            }
            (Some((run, header)), ReceiptLine::Range(line)) => {
                let clients = header.first_client..header.first_client + header.clients;
                let run = runs.get_mut(run).expect("its header has been read");
                if !clients.contains(&line.client) {
                    return Err(wrong(format!("client {} belongs to another worker", line.client)));
                }
                let client = run.clients.entry(line.client).or_default();
                let expected = client.outcomes.last().map_or(0, |end| end.until);
                if line.from != expected || line.to < line.from || line.to == u32::MAX {
                    return Err(wrong(format!(
                        "client {}: expected a range from event {expected} on",
                        line.client
                    )));
                }
                events += u64::from(line.to - line.from) + 1;
                client.outcomes.push(OutcomeRange {
                    until: line.to + 1,
                    outcome: line.outcome,
                    attempts: line.attempts,
                });
            }
            (Some((run, _)), ReceiptLine::Stored(claim)) => {
                runs.get_mut(run).expect("its header has been read").claims.push(claim);
            }
            (Some((run, header)), ReceiptLine::End(end)) => {
                if end.events != events {
                    return Err(wrong(format!(
                        "this line counts {} events, but the lines above contain {events}",
                        end.events
                    )));
                }
                let run = runs.get_mut(run).expect("its header has been read");
                let file = run.files_by_worker.get_mut(&header.worker).expect("its header has been read");
                (file.is_complete, is_whole) = (true, true);
            }
        }
    }
    if !is_whole {
        let path = path.display();
        incomplete.push(format!(
            "{path} is incomplete: its worker was killed or still runs; the fate of its events is unknown"
        ));
    }
    Ok(())
}

fn add_header(path: &Path, header: &ReceiptHeader, runs: &mut BTreeMap<RunId, Run>) -> Result<(), String> {
    if header.schema != SCHEMA {
        return Err(format!("'{}' is not {SCHEMA}", header.schema));
    }
    let numbering = Numbering::new(&header.template, header.run).map_err(|error| error.to_string())?;
    let front = numbering.front().to_vec();
    let until = header.first_client.checked_add(header.clients).filter(|&until| until <= 1 << 24);
    let clients = header.first_client..until.ok_or("more clients than 24 bits can number")?;
    let run = match runs.entry(header.run) {
        Entry::Occupied(entry) => entry.into_mut(),
        Entry::Vacant(entry) => entry.insert(Run {
            numbering,
            clients: BTreeMap::new(),
            claims: Vec::new(),
            workers: header.workers,
            files_by_worker: BTreeMap::new(),
        }),
    };
    if run.numbering.front() != front || run.workers != header.workers {
        return Err(format!(
            "run {}: another file has a different template or number of workers",
            header.run
        ));
    }
    let file = WorkerFile { path: path.to_owned(), clients, is_complete: false };
    if let Some(other) = run.files_by_worker.insert(header.worker, file) {
        return Err(format!(
            "the receipts of worker {} have already been read from {}",
            header.worker,
            other.path.display()
        ));
    }
    Ok(())
}
