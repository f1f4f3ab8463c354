//! The ledger, which keeps the outcome of every event, and the receipts file to which it is written.

use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader, BufWriter, Write},
    path::{Path, PathBuf},
};

use record::{
    EventOutcome,
    receipt::{EventRange, ReceiptEnd, ReceiptHeader, ReceiptLine, RunId, StoredAt},
};

/// The outcomes of one client's events in order, run-length encoded. A run of equal outcomes takes eight bytes.
#[derive(Debug, Default)]
pub(super) struct OutcomeRuns {
    runs: Vec<Run>,
    events: u32,
    /// The client sent more events than can be numbered, so the runs are incomplete.
    is_full: bool,
}

#[derive(Debug, Clone, Copy)]
struct Run {
    events: u32,
    outcome: EventOutcome,
    attempts: u8,
}

impl OutcomeRuns {
    /// Number of events that have ended, which is the number of the next event.
    #[inline]
    pub(super) fn events(&self) -> u32 {
        self.events
    }

    /// Adds the outcome of the next `events` events. If the client would have more than `u32::MAX` events, adds none and marks its
    /// runs as incomplete.
    #[inline]
    pub(super) fn push(&mut self, outcome: EventOutcome, attempts: u8, events: u32) {
        let Some(sum) = self.events.checked_add(events) else {
            self.is_full = true;
            return;
        };
        self.events = sum;
        match self.runs.last_mut() {
            Some(last) if last.outcome == outcome && last.attempts == attempts => last.events += events,
            _ => self.runs.push(Run { events, outcome, attempts }),
        }
    }

    fn lines(&self, client: u32) -> impl Iterator<Item = EventRange> + '_ {
        let mut from = 0;
        self.runs.iter().map(move |run| {
            let line = EventRange {
                client,
                from,
                to: from + (run.events - 1),
                outcome: run.outcome,
                attempts: run.attempts,
            };
            from += run.events;
            line
        })
    }
}

/// A bounded, evenly spread sample of locations: every n-th one; n doubles whenever the sample is full.
#[derive(Debug)]
pub(super) struct LocationSample {
    max_length: usize,
    every: u64,
    seen: u64,
    locations: Vec<StoredAt>,
}

impl LocationSample {
    /// A sample of at most `max_length` locations.
    pub(super) fn new(max_length: usize) -> Self {
        Self { max_length, every: 1, seen: 0, locations: Vec::new() }
    }

    /// Counts the next location and returns whether it belongs to the sample.
    #[inline]
    pub(super) fn select_next(&mut self) -> bool {
        let selected = self.seen.is_multiple_of(self.every);
        self.seen += 1;
        selected && self.max_length > 0
    }

    /// Adds the location that was just selected.
    pub(super) fn add(&mut self, location: StoredAt) {
        if self.locations.len() == self.max_length {
            let mut index = 0;
            self.locations.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.every *= 2;
            // The selected location may not belong to the sample with the new n.
            if !(self.seen - 1).is_multiple_of(self.every) || self.locations.len() == self.max_length {
                return;
            }
        }
        self.locations.push(location);
    }

    /// The locations of the sample.
    pub(super) fn into_locations(self) -> Vec<StoredAt> {
        self.locations
    }
}

/// The outcomes of all events of a worker, and the locations of some.
#[derive(Debug)]
pub(crate) struct Ledger {
    first_client: u32,
    clients: Vec<OutcomeRuns>,
    /// Sampled locations of stored events, as the receiver reported them.
    pub(super) locations: Vec<StoredAt>,
}

impl Ledger {
    /// The ledger of clients numbered from `first_client`.
    pub(super) fn new(first_client: u32, clients: Vec<OutcomeRuns>, locations: Vec<StoredAt>) -> Self {
        Self { first_client, clients, locations }
    }

    /// The outcome of every event, client by client.
    pub(crate) fn runs(&self) -> impl Iterator<Item = EventRange> + '_ {
        let numbered = (self.first_client..).zip(&self.clients);
        numbered.flat_map(|(client, runs)| runs.lines(client))
    }

    /// The first client that sent more events than can be numbered.
    fn full_client(&self) -> Option<u32> {
        let mut numbered = (self.first_client..).zip(&self.clients);
        numbered.find(|(_, runs)| runs.is_full).map(|(client, _)| client)
    }
}

/// The file of one worker's receipts.
#[derive(Debug)]
pub(crate) struct ReceiptFile {
    file: File,
    path: PathBuf,
}

impl ReceiptFile {
    /// Creates the file with its header, and its folder if it is missing.
    ///
    /// # Errors
    /// When the file exists already, or cannot be written.
    pub(crate) fn create(path: &Path, header: &ReceiptHeader) -> io::Result<Self> {
        let explain = |error| write_error(path, error);
        let mut file = create_receipts(path)?;
        file.write_all(&line(&ReceiptLine::Header(header.clone()))).map_err(explain)?;
        Ok(Self { file, path: path.to_owned() })
    }

    /// Removes the file, because nothing was sent.
    pub(crate) fn discard(self) {
        // If the file remains, the next run reports it as a receipt of another run.
        let _ = if files::is_elsewhere() { Ok(()) } else { fs::remove_file(&self.path) };
    }

    /// Writes the ledger and an end line. The file and its directory entry are on disk when this returns.
    ///
    /// # Errors
    /// When the file cannot be written, or a client sent more events than there are numbers.
    pub(crate) fn finish(self, ledger: &Ledger) -> io::Result<()> {
        Self::write(self.file, ledger)
            .map_err(|error| write_error(&self.path, error))
            .and_then(|()| sync_folder_of(&self.path))
    }

    fn write(file: File, ledger: &Ledger) -> io::Result<()> {
        if let Some(client) = ledger.full_client() {
            return Err(io::Error::other(format!(
                "client {client:06x} sent more than the {} events that can be numbered; \
                 run for a shorter time or with more clients",
                u32::MAX
            )));
        }
        let mut out = BufWriter::with_capacity(1 << 16, file);
        let mut events = 0;
        for run in ledger.runs() {
            events += u64::from(run.to - run.from) + 1;
            out.write_all(&line(&ReceiptLine::Range(run)))?;
        }
        for location in &ledger.locations {
            out.write_all(&line(&ReceiptLine::Stored(location.clone())))?;
        }
        out.write_all(&line(&ReceiptLine::End(ReceiptEnd { events })))?;
        out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_data()
    }
}

/// Creates a file of receipts, and its folder if that is missing.
///
/// # Errors
/// When the file exists already, or cannot be written.
pub fn create_receipts(path: &Path) -> io::Result<File> {
    let create = || {
        fs::create_dir_all(folder_of(path))?;
        File::create_new(path)
    };
    files::create_elsewhere(path).unwrap_or_else(create).map_err(|error| write_error(path, error))
}

/// Brings the name of a file of receipts to the disk.
///
/// # Errors
/// When its folder cannot be synced.
pub fn sync_folder_of(path: &Path) -> io::Result<()> {
    if files::is_elsewhere() {
        return Ok(());
    }
    let synced = File::open(folder_of(path)).and_then(|folder| folder.sync_all());
    synced.map_err(|error| write_error(path, error))
}

/// Checks that a folder has no receipts of any worker, because receipts of two runs would be read as one run. Files of `run`
/// are allowed.
///
/// # Errors
/// When the folder holds receipts, or cannot be read.
pub(super) fn check_folder(folder: &Path, run: Option<RunId>) -> io::Result<()> {
    let entries = match fs::read_dir(or_current(folder)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(write_error(folder, error)),
    };
    for entry in entries {
        let path = entry.map_err(|error| write_error(folder, error))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let is_receipts = name.starts_with("receipts-") && name.ends_with(".jsonl");
        if is_receipts && !run.is_some_and(|run| may_belong_to(&path, run)) {
            return Err(write_error(&path, io::ErrorKind::AlreadyExists.into()));
        }
    }
    Ok(())
}

/// Whether a file of receipts may belong to this run. A file without a header may, because its worker may be about to write it.
fn may_belong_to(path: &Path, run: RunId) -> bool {
    let mut first = Vec::new();
    let read = File::open(path).and_then(|file| BufReader::new(file).read_until(b'\n', &mut first));
    match serde_json::from_slice(&first) {
        Ok(ReceiptLine::Header(header)) => header.run == run,
        _ => read.is_err() || first.last() != Some(&b'\n'),
    }
}

/// The folder that holds a file.
fn folder_of(path: &Path) -> &Path {
    or_current(path.parent().unwrap_or(Path::new("")))
}

fn or_current(folder: &Path) -> &Path {
    if folder.as_os_str().is_empty() { Path::new(".") } else { folder }
}

fn write_error(path: &Path, error: io::Error) -> io::Error {
    let why = match error.kind() {
        io::ErrorKind::AlreadyExists => {
            "it holds the receipts of another run; give a folder without receipts".to_owned()
        }
        _ => error.to_string(),
    };
    io::Error::new(error.kind(), format!("cannot write receipts to {}: {why}", path.display()))
}

fn line(line: &ReceiptLine) -> Vec<u8> {
    let mut text = serde_json::to_vec(line).expect("receipts have no maps with non-string keys");
    text.push(b'\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header() -> ReceiptHeader {
        ReceiptHeader {
            schema: record::receipt::SCHEMA.to_owned(),
            run: RunId(1),
            worker: 0,
            workers: 6,
            first_client: 7,
            clients: 2,
            url: String::new(),
            template: "{}".to_owned(),
            event_bytes: 1,
            events_per_request: 1,
            ack: None,
        }
    }

    fn ledger(runs: OutcomeRuns) -> Ledger {
        Ledger::new(7, vec![OutcomeRuns::default(), runs], Vec::new())
    }

    #[test]
    fn receipts_are_refused_when_numbers_ran_out() {
        let folder = tempfile::tempdir().unwrap();
        let header = header();
        let mut runs = OutcomeRuns::default();
        runs.push(EventOutcome::Written, 1, u32::MAX - 1);
        assert_eq!(runs.lines(0).map(|run| run.to).last(), Some(u32::MAX - 2));
        runs.push(EventOutcome::Written, 1, 2);
        assert_eq!(runs.events(), u32::MAX - 1, "numbers do not wrap around");
        let file = ReceiptFile::create(&folder.path().join("receipts-0.jsonl"), &header).unwrap();
        let error = file.finish(&ledger(runs)).unwrap_err().to_string();
        assert!(error.contains("client 000008 sent more"), "{error}");
    }

    #[test]
    fn a_folder_with_receipts_of_any_worker_is_refused() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path().join("receipts");
        let header = header();
        check_folder(&folder, None).unwrap();
        let file = ReceiptFile::create(&folder.join("receipts-5.jsonl"), &header).unwrap();
        let error = check_folder(&folder, None).unwrap_err().to_string();
        assert!(error.contains("receipts-5.jsonl") && error.contains("another run"), "{error}");
        check_folder(&folder, Some(header.run)).unwrap();
        check_folder(&folder, Some(RunId(header.run.0 + 1))).unwrap_err();
        file.discard();
        check_folder(&folder, None).unwrap();
        fs::write(folder.join("receipts-1.jsonl"), "{").unwrap();
        check_folder(&folder, Some(header.run)).unwrap();
        check_folder(&folder, None).unwrap_err();
    }

    proptest! {
        #[test]
        fn runs_hold_every_event_once_and_in_order(ends in prop::collection::vec((0usize..7, 0u8..3, 1u32..4), 0..60)) {
            let mut runs = OutcomeRuns::default();
            let mut expected = Vec::new();
            for (outcome, attempts, events) in ends {
                let outcome = EventOutcome::ALL[outcome];
                prop_assert_eq!(runs.events() as usize, expected.len());
                runs.push(outcome, attempts, events);
                expected.extend((0..events).map(|_| (outcome, attempts)));
            }
            let found: Vec<_> = runs.lines(3).flat_map(|run| {
                (run.from..=run.to).map(move |number| (number as usize, run.outcome, run.attempts))
            }).collect();
            let expected: Vec<_> = expected.into_iter().enumerate().map(|(n, (o, a))| (n, o, a)).collect();
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn a_sample_is_bounded_and_spread(max in 1usize..50, n in 0u32..2_000) {
            let mut sample = LocationSample::new(max);
            for number in 0..n {
                if sample.select_next() {
                    let segment = String::new();
                    sample.add(StoredAt { client: 0, number, segment, offset: 0, bytes: 0 });
                }
            }
            let every = sample.every as u32;
            let numbers: Vec<u32> = sample.into_locations().into_iter().map(|location| location.number).collect();
            prop_assert!(numbers.len() <= max && numbers.len() >= (n as usize).min(max.div_ceil(2)));
            prop_assert!(numbers.windows(2).all(|pair| pair[1] - pair[0] == every));
        }
    }
}
