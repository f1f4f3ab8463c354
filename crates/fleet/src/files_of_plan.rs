//! The files of this machine that a plan names: what it reads is sent to the machines that make the load, and what it writes
//! comes back from them.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use files::Watched;
use load::{
    FieldMistake, RunError, Share, WorkerResult, check_receipt_folder, create_receipts, sync_folder_of,
};
use record::{HttpPlan, receipt::ReceiptPlan, units::show_bytes};

/// Maximum size of all files of a plan that are sent, in bytes.
pub(crate) const MAX_SENT_BYTES: u64 = 64 << 20;

/// Size of the parts of files, in bytes; a multiple of 3, so that their base64 is that of the file.
const FILE_PART_BYTES: usize = 192 << 10;

/// The contents of files by name.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

/// What a plan needs that other machines cannot be given.
pub fn only_here(plan: &HttpPlan) -> Vec<FieldMistake> {
    let mut mistakes = Vec::new();
    if plan.connection.unix_socket.is_some() {
        let message = "it is a socket of this machine; make the load here".to_owned();
        mistakes.push(FieldMistake { field: "unix_socket", message });
    }
    let mut sum = 0;
    for (field, file) in read_by(plan) {
        // A file that cannot be read is a mistake wherever the load is made.
        sum += file.metadata().map_or(0, |about| about.len());
        if sum > MAX_SENT_BYTES {
            let most = show_bytes(MAX_SENT_BYTES);
            let message = format!(
                "{} and the files before it have more than {most}, the maximum that is sent to other machines; use a smaller file",
                file.display()
            );
            mistakes.push(FieldMistake { field, message });
            break;
        }
    }
    mistakes
}

/// The files that a plan reads.
///
/// # Errors
/// If one cannot be read.
pub(crate) fn files_of(plan: &HttpPlan) -> io::Result<Files> {
    let read = |(_, path): (_, PathBuf)| {
        let name = path.display().to_string();
        let explain = |error: io::Error| io::Error::new(error.kind(), format!("cannot read {name}: {error}"));
        let bytes = files::read(&path, MAX_SENT_BYTES).map_err(explain)?;
        Ok((name, bytes))
    };
    read_by(plan).into_iter().map(read).collect()
}

/// A file in the parts in which it is sent, in base64. An empty file has a part as well.
pub(crate) fn parts_of(bytes: &[u8]) -> impl Iterator<Item = String> {
    let parts = bytes.chunks(FILE_PART_BYTES).chain(bytes.is_empty().then_some(&[][..]));
    parts.map(|part| BASE64_STANDARD.encode(part))
}

/// Adds a part to the files that were received.
///
/// # Errors
/// If it is no base64, or the files are larger than any that are sent.
pub(crate) fn take_part(files: &mut Files, name: String, part: &str) -> io::Result<()> {
    let part = BASE64_STANDARD.decode(part).map_err(io::Error::other)?;
    files.entry(name).or_default().extend(part);
    match files.values().map(|bytes| bytes.len() as u64).sum::<u64>() > MAX_SENT_BYTES {
        true => Err(io::Error::other("the files of the plan are too large")),
        false => Ok(()),
    }
}

/// The files that a plan reads, each with the field that names it.
fn read_by(plan: &HttpPlan) -> Vec<(&'static str, PathBuf)> {
    let feeders = plan.script.iter().flat_map(|script| &script.feeders);
    let mut all: Vec<_> = feeders.map(|feeder| ("feeders", PathBuf::from(&feeder.file))).collect();
    if let Some(tls) = &plan.tls {
        let files = [("cacert", &tls.authorities), ("cert", &tls.certificate), ("key", &tls.key)];
        all.extend(files.into_iter().filter_map(|(field, file)| Some((field, file.clone()?))));
    }
    all
}

/// The files that a plan writes. Machines send what belongs into them when they have ended.
#[derive(Default)]
pub(crate) struct Outputs {
    log: Option<(PathBuf, Watched<File>)>,
    /// Why the log is no longer written to.
    lost_log: Option<io::Error>,
    receipts: Option<ReceiptPlan>,
    /// The files of receipts that were begun.
    begun: BTreeMap<PathBuf, File>,
    lost_receipts: Vec<String>,
}

impl Outputs {
    /// Opens the log, and makes the folder of receipts, before anything is sent.
    ///
    /// # Errors
    /// If they cannot be written.
    pub(crate) fn open(plan: &HttpPlan) -> Result<Self, RunError> {
        let mut outputs = Self::default();
        if let Some(log) = plan.script.as_ref().and_then(|script| script.log.as_ref()) {
            let path = PathBuf::from(&log.file);
            let opened = files::written("--log", &path, true, 0o600);
            let explain = |error| RunError::Script(format!("cannot write the log {}: {error}", log.file));
            outputs.log = Some((path, opened.map_err(explain)?));
        }
        if let Some((events, receipts)) =
            plan.events.as_ref().and_then(|events| Some((events, events.receipts.as_ref()?)))
        {
            check_receipt_folder(events, Share::WHOLE).map_err(RunError::Receipts)?;
            // A folder that is not writable must not waste a trial.
            let first = receipts.file(0);
            create_receipts(&first).and_then(|_| std::fs::remove_file(&first)).map_err(RunError::Receipts)?;
            outputs.receipts = Some(receipts.clone());
        }
        Ok(outputs)
    }

    /// Writes lines that a machine has sent. Nothing is written to a file that is not in the plan.
    pub(crate) fn write(&mut self, path: PathBuf, lines: &str) {
        match &mut self.log {
            // After an error, the last line may not be whole.
            Some((log, _)) if *log == path && self.lost_log.is_some() => {}
            Some((log, file)) if *log == path => self.lost_log = file.write_all(lines.as_bytes()).err(),
            _ if self.receipts.as_ref().is_some_and(|receipts| is_receipts(receipts, &path)) => {
                let written = match self.begun.entry(path) {
                    Entry::Occupied(mut begun) => begun.get_mut().write_all(lines.as_bytes()),
                    Entry::Vacant(new) => create_receipts(new.key())
                        .and_then(|file| new.insert(file).write_all(lines.as_bytes())),
                };
                self.lost_receipts.extend(written.err().map(|error| error.to_string()));
            }
            _ => {}
        }
    }

    /// Brings everything to the disk, and adds to the result what was lost.
    pub(crate) fn finish(self, result: &mut WorkerResult) {
        if let (Some(error), Some((path, _))) = (&self.lost_log, &self.log) {
            // A timeout means that the user interrupted the wait for a reader of the log.
            result.interrupted |= error.kind() == io::ErrorKind::TimedOut;
            let why = format!(
                "cannot write the log {}: {error}; free space, or choose another file",
                path.display()
            );
            result.lost_log.get_or_insert(why);
        }
        result.lost_receipts.extend(self.lost_receipts);
        let sync = |(path, file): (&PathBuf, &File)| file.sync_all().and_then(|()| sync_folder_of(path));
        let lost = self.begun.iter().filter_map(|begun| sync(begun).err());
        result.lost_receipts.extend(lost.map(|error| error.to_string()));
    }
}

/// Whether a file of this name is for the receipts of some worker.
fn is_receipts(receipts: &ReceiptPlan, path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let worker = name.strip_prefix("receipts-").and_then(|rest| rest.strip_suffix(".jsonl")?.parse().ok());
    worker.is_some_and(|worker| receipts.file(worker) == path)
}

#[cfg(test)]
mod tests {
    use record::{EventPlan, FeederPlan, RowOrder, ScriptPlan, TlsPlan};
    use testing::plans::events;

    use super::*;

    fn plan(feeder: &Path, certificate: &Path) -> HttpPlan {
        let feeders = vec![FeederPlan { file: feeder.display().to_string(), order: RowOrder::Once }];
        let tls = TlsPlan { certificate: Some(certificate.to_owned()), ..TlsPlan::default() };
        HttpPlan {
            script: Some(ScriptPlan { feeders, ..ScriptPlan::default() }),
            tls: Some(tls),
            ..HttpPlan::default()
        }
    }

    #[test]
    fn files_are_sent_up_to_a_limit() {
        let folder = tempfile::tempdir().unwrap();
        let [rows, certificate] = ["rows.csv", "client.pem"].map(|name| folder.path().join(name));
        std::fs::write(&rows, "name\nann\n").unwrap();
        std::fs::write(&certificate, "pem").unwrap();
        let plan = plan(&rows, &certificate);
        assert!(only_here(&HttpPlan::default()).is_empty() && only_here(&plan).is_empty());
        let sent = files_of(&plan).unwrap();
        assert_eq!(sent[&rows.display().to_string()], b"name\nann\n");
        assert_eq!(sent.len(), 2);
        File::create(&certificate).unwrap().set_len(MAX_SENT_BYTES).unwrap();
        let fields: Vec<_> = only_here(&plan).into_iter().map(|mistake| mistake.field).collect();
        assert_eq!(fields, ["cert"]);
    }

    #[test]
    fn only_files_of_the_plan_are_written() {
        let folder = tempfile::tempdir().unwrap();
        let [other, receipts] = ["other", "receipts"].map(|name| folder.path().join(name));
        let events = EventPlan { receipts: Some(ReceiptPlan::new(&receipts)), ..events() };
        let plan = HttpPlan { events: Some(events), ..HttpPlan::default() };
        let mut outputs = Outputs::open(&plan).unwrap();
        for name in ["receipts-7.jsonl", "receipts-+7.jsonl", "../other", "receipts-x.jsonl"] {
            outputs.write(receipts.join(name), "one\n");
        }
        outputs.write(receipts.join("receipts-7.jsonl"), "two\n");
        outputs.write(other.clone(), "one\n");
        let mut result = WorkerResult::default();
        outputs.finish(&mut result);
        assert!(result.lost_receipts.is_empty() && result.lost_log.is_none() && !other.exists());
        assert_eq!(std::fs::read_to_string(receipts.join("receipts-7.jsonl")).unwrap(), "one\ntwo\n");
        assert_eq!(std::fs::read_dir(&receipts).unwrap().count(), 1);
        // The receipts of another run are there.
        assert!(matches!(Outputs::open(&plan), Err(RunError::Receipts(_))));
    }
}
