//! What is kept of every event until the end, and the file it is written to.

use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader, BufWriter, Write},
    path::{Path, PathBuf},
};

use record::{
    EventOutcome,
    receipt::{EventRange, ReceiptEnd, ReceiptHeader, ReceiptLine, RunId, StoredAt},
};

/// How one client's events ended, in their order: eight bytes for as many as ended alike, so that a run without
/// failures costs next to nothing, and one with nothing else eight bytes a request.
#[derive(Debug, Default)]
pub(super) struct Runs {
    runs: Vec<Run>,
    events: u32,
    /// There were more than there are numbers: what is kept is not all.
    is_full: bool,
}

#[derive(Debug, Clone, Copy)]
struct Run {
    events: u32,
    outcome: EventOutcome,
    attempts: u8,
}

impl Runs {
    /// How many events have ended: the number of the next.
    #[inline]
    pub(super) fn events(&self) -> u32 {
        self.events
    }

    /// The next so many events ended. Those for which no numbers are left are not kept.
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

/// A bounded sample of what comes by, spread evenly: every n-th, n doubling whenever the room is full.
#[derive(Debug)]
pub(super) struct Sample {
    most: usize,
    every: u64,
    seen: u64,
    places: Vec<StoredAt>,
}

impl Sample {
    /// Of at most so many.
    pub(super) fn new(most: usize) -> Self {
        Self { most, every: 1, seen: 0, places: Vec::new() }
    }

    /// Whether the one that comes by now is taken.
    #[inline]
    pub(super) fn takes_next(&mut self) -> bool {
        let takes = self.seen.is_multiple_of(self.every);
        self.seen += 1;
        takes && self.most > 0
    }

    /// Takes it.
    pub(super) fn keep(&mut self, place: StoredAt) {
        if self.places.len() == self.most {
            let mut index = 0;
            self.places.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.every *= 2;
            // The one that comes by now may not be among every n-th of the new n.
            if !(self.seen - 1).is_multiple_of(self.every) || self.places.len() == self.most {
                return;
            }
        }
        self.places.push(place);
    }

    /// What was taken.
    pub(super) fn into_places(self) -> Vec<StoredAt> {
        self.places
    }
}

/// All that a worker knows of its events.
#[derive(Debug)]
pub struct Ledger {
    first_client: u32,
    clients: Vec<Runs>,
    places: Vec<StoredAt>,
}

impl Ledger {
    /// Of clients numbered from `first_client`.
    pub(super) fn new(first_client: u32, clients: Vec<Runs>, places: Vec<StoredAt>) -> Self {
        Self { first_client, clients, places }
    }

    /// What became of every event, client by client.
    pub fn runs(&self) -> impl Iterator<Item = EventRange> + '_ {
        let numbered = (self.first_client..).zip(&self.clients);
        numbered.flat_map(|(client, runs)| runs.lines(client))
    }

    /// A client that sent more events than there are numbers.
    fn full_client(&self) -> Option<u32> {
        let full = |(client, runs): (u32, &Runs)| runs.is_full.then_some(client);
        (self.first_client..).zip(&self.clients).find_map(full)
    }

    /// Where the receiver says that it stored some of them.
    pub fn places(&self) -> &[StoredAt] {
        &self.places
    }
}

/// The file of one worker's receipts.
#[derive(Debug)]
pub(crate) struct ReceiptFile {
    file: File,
    path: PathBuf,
}

impl ReceiptFile {
    /// A new one, with its header; its folder is made where it is missing.
    ///
    /// # Errors
    /// When it is there already, or cannot be written.
    pub(crate) fn create(path: &Path, header: &ReceiptHeader) -> io::Result<Self> {
        let told = |error| told(path, error);
        fs::create_dir_all(folder_of(path)).map_err(told)?;
        let mut file = File::create_new(path).map_err(told)?;
        file.write_all(&line(&ReceiptLine::Header(header.clone()))).map_err(told)?;
        Ok(Self { file, path: path.to_owned() })
    }

    /// Takes it back: nothing was sent.
    pub(crate) fn discard(self) {
        // Who finds it there is told that it belongs to another run.
        let _ = fs::remove_file(&self.path);
    }

    /// Writes all that is known, and the end that says so; it is on disk when this returns, and so is its name.
    ///
    /// # Errors
    /// When it cannot be written, or a client sent more events than there are numbers.
    pub(crate) fn finish(self, ledger: &Ledger) -> io::Result<()> {
        let sync_folder = || File::open(folder_of(&self.path))?.sync_all();
        Self::write(self.file, ledger).and_then(|()| sync_folder()).map_err(|error| told(&self.path, error))
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
        for place in &ledger.places {
            out.write_all(&line(&ReceiptLine::Stored(place.clone())))?;
        }
        out.write_all(&line(&ReceiptLine::End(ReceiptEnd { events })))?;
        out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_data()
    }
}

/// Refuses a folder that holds receipts already, of whichever worker: those of a run of fewer workers would be taken for
/// a part of both. With `run`, files of that run are its own workers'.
///
/// # Errors
/// When it holds any, or cannot be read.
pub(super) fn refuse_used(folder: &Path, run: Option<RunId>) -> io::Result<()> {
    let entries = match fs::read_dir(or_here(folder)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(told(folder, error)),
    };
    for entry in entries {
        let path = entry.map_err(|error| told(folder, error))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let is_receipts = name.starts_with("receipts-") && name.ends_with(".jsonl");
        if is_receipts && !run.is_some_and(|run| may_be_of(&path, run)) {
            return Err(told(&path, io::ErrorKind::AlreadyExists.into()));
        }
    }
    Ok(())
}

/// Whether a file of receipts is one of this run. One that has no header yet may be: its worker is just beginning it.
fn may_be_of(path: &Path, run: RunId) -> bool {
    let mut first = Vec::new();
    let read = File::open(path).and_then(|file| BufReader::new(file).read_until(b'\n', &mut first));
    match serde_json::from_slice(&first) {
        Ok(ReceiptLine::Header(header)) => header.run == run,
        _ => read.is_err() || first.last() != Some(&b'\n'),
    }
}

/// The folder that a file lies in.
fn folder_of(path: &Path) -> &Path {
    or_here(path.parent().unwrap_or(Path::new("")))
}

fn or_here(folder: &Path) -> &Path {
    if folder.as_os_str().is_empty() { Path::new(".") } else { folder }
}

fn told(path: &Path, error: io::Error) -> io::Error {
    let why = match error.kind() {
        io::ErrorKind::AlreadyExists => {
            "it holds the receipts of another run; give a folder without any".to_owned()
        }
        _ => error.to_string(),
    };
    io::Error::new(error.kind(), format!("cannot write receipts to {}: {why}", path.display()))
}

fn line(line: &ReceiptLine) -> Vec<u8> {
    let mut text = serde_json::to_vec(line).expect("receipts have no maps with keys that are no text");
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

    fn ledger(runs: Runs) -> Ledger {
        Ledger::new(7, vec![Runs::default(), runs], Vec::new())
    }

    #[test]
    fn receipts_are_told_to_be_short_where_numbers_ran_out() {
        let folder = std::env::temp_dir().join(format!("proofload-ledger-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let header = header();
        let mut runs = Runs::default();
        runs.push(EventOutcome::Written, 1, u32::MAX - 1);
        assert_eq!(runs.lines(0).map(|run| run.to).last(), Some(u32::MAX - 2));
        runs.push(EventOutcome::Written, 1, 2);
        assert_eq!(runs.events(), u32::MAX - 1, "they do not begin at 0 again");
        let file = ReceiptFile::create(&folder.join("receipts-0.jsonl"), &header).unwrap();
        let error = file.finish(&ledger(runs)).unwrap_err().to_string();
        assert!(error.contains("client 000008 sent more"), "{error}");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_folder_that_holds_receipts_is_refused_whichever_worker_they_are_of() {
        let folder = std::env::temp_dir().join(format!("proofload-used-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let header = header();
        refuse_used(&folder, None).unwrap();
        let file = ReceiptFile::create(&folder.join("receipts-5.jsonl"), &header).unwrap();
        let error = refuse_used(&folder, None).unwrap_err().to_string();
        assert!(error.contains("receipts-5.jsonl") && error.contains("another run"), "{error}");
        refuse_used(&folder, Some(header.run)).unwrap();
        refuse_used(&folder, Some(RunId(header.run.0 + 1))).unwrap_err();
        file.discard();
        refuse_used(&folder, None).unwrap();
        fs::write(folder.join("receipts-1.jsonl"), "{").unwrap();
        refuse_used(&folder, Some(header.run)).unwrap();
        refuse_used(&folder, None).unwrap_err();
        fs::remove_dir_all(&folder).unwrap();
    }

    proptest! {
        #[test]
        fn runs_tell_of_every_event_once_and_in_order(ends in prop::collection::vec((0usize..7, 0u8..3, 1u32..4), 0..60)) {
            let mut runs = Runs::default();
            let mut expected = Vec::new();
            for (outcome, attempts, events) in ends {
                let outcome = EventOutcome::ALL[outcome];
                prop_assert_eq!(runs.events() as usize, expected.len());
                runs.push(outcome, attempts, events);
                expected.extend((0..events).map(|_| (outcome, attempts)));
            }
            let told: Vec<_> = runs.lines(3).flat_map(|run| {
                (run.from..=run.to).map(move |number| (number as usize, run.outcome, run.attempts))
            }).collect();
            let expected: Vec<_> = expected.into_iter().enumerate().map(|(n, (o, a))| (n, o, a)).collect();
            prop_assert_eq!(told, expected);
        }

        #[test]
        fn a_sample_is_bounded_and_spread(most in 1usize..50, n in 0u32..2_000) {
            let mut sample = Sample::new(most);
            for number in 0..n {
                if sample.takes_next() {
                    let segment = String::new();
                    sample.keep(StoredAt { client: 0, number, segment, offset: 0, bytes: 0 });
                }
            }
            let every = sample.every as u32;
            let numbers: Vec<u32> = sample.into_places().into_iter().map(|place| place.number).collect();
            prop_assert!(numbers.len() <= most && numbers.len() >= (n as usize).min(most.div_ceil(2)));
            prop_assert!(numbers.windows(2).all(|pair| pair[1] - pair[0] == every));
        }
    }
}
