//! The folder that a study leaves. Every record in it is [sealed](seal), and trials and result say which plan they
//! belong to: what is damaged, mixed or of another version is refused, never read as far as it goes.

mod append;
mod error;
mod journal;
mod seal;

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
};

use serde::{
    Deserialize, Serialize,
    de::{DeserializeOwned, IgnoredAny},
};

pub use error::FolderError;
pub use journal::TrialJournal;

use crate::{
    Ending, Environment, StudyPlan, StudyResult, TrialEntry, environment,
    study::{ENTRY_SCHEMA, LINK_SCHEMA, PLAN_SCHEMA, RESULT_SCHEMA},
};

const PLAN: &str = "plan.json";
const STUDY: &str = "study.toml";
const ENVIRONMENT: &str = "environment.json";
const TRIALS: &str = "trials.jsonl";
const RESULT: &str = "result.json";
const LINKS: &str = "links.jsonl";

/// A result folder; see [`crate::study`] for what lies in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultFolder {
    path: PathBuf,
}

/// All records of a result folder, which belong together.
#[derive(Debug)]
pub struct Contents {
    /// What was to be run.
    pub plan: StudyPlan,
    /// What it was measured on; none if the run was ended before that was written.
    pub environment: Option<Environment>,
    /// The trials, in the order they ran.
    pub trials: Vec<TrialEntry>,
    /// What they mean; none before the first end of the study. One that has not finished may be of fewer trials.
    pub result: Option<StudyResult>,
}

/// What a sealed record says of itself and of those that it belongs to.
#[derive(Deserialize)]
struct SealMembers {
    schema: Option<String>,
    /// The checksum of the plan.
    plan: Option<String>,
    /// The checksum of the lines of the trials that a result is of.
    trials_crc32c: Option<String>,
}

impl ResultFolder {
    /// A new one: made if missing.
    ///
    /// # Errors
    /// When it cannot be made, or holds a result already, or trials of one.
    pub fn create(path: &Path) -> Result<Self, FolderError> {
        let folder = Self { path: path.to_owned() };
        let has_trials = fs::metadata(folder.file(TRIALS)).is_ok_and(|trials| trials.len() > 0);
        if has_trials || folder.file(PLAN).exists() {
            return Err(FolderError::AlreadyHoldsResult { path: path.to_owned() });
        }
        fs::create_dir_all(path).map_err(|cause| FolderError::File {
            what: "make",
            path: path.to_owned(),
            cause,
        })?;
        Ok(folder)
    }

    /// One that holds at least a plan.
    ///
    /// # Errors
    /// When there is no plan in it.
    pub fn open(path: &Path) -> Result<Self, FolderError> {
        let folder = Self { path: path.to_owned() };
        if !folder.file(PLAN).is_file() {
            return Err(FolderError::NotAResultFolder { path: path.to_owned(), missing: PLAN });
        }
        Ok(folder)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The plan.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn plan(&self) -> Result<StudyPlan, FolderError> {
        Ok(self.read_record(PLAN, PLAN_SCHEMA)?.0)
    }

    /// Writes the plan, whole or not at all.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_plan(&self, plan: &StudyPlan) -> Result<(), FolderError> {
        self.write(PLAN, &seal::seal(&to_json(plan), &[]))
    }

    /// Writes the study file as run.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_study_file(&self, text: &str) -> Result<(), FolderError> {
        self.write(STUDY, text)
    }

    /// What it was measured on.
    ///
    /// # Errors
    /// When it cannot be read, or belongs to another plan.
    pub fn environment(&self) -> Result<Environment, FolderError> {
        let (environment, members, _) = self.read_record(ENVIRONMENT, environment::SCHEMA)?;
        self.check_plan(ENVIRONMENT, None, &members, &self.plan_checksum()?)?;
        Ok(environment)
    }

    /// Writes what it is measured on. It belongs to a plan that is written after it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_environment(&self, environment: &Environment, plan: &StudyPlan) -> Result<(), FolderError> {
        let plan = seal::checksum(seal::seal(&to_json(plan), &[]).as_bytes()).expect("it was just sealed");
        self.write(ENVIRONMENT, &seal::seal(&to_json(environment), &[("plan", &plan)]))
    }

    /// All records, held against each other.
    ///
    /// # Errors
    /// When one that is there cannot be read, is not as it was written, or does not belong to the others; when there is
    /// no plan.
    pub fn read(&self) -> Result<Contents, FolderError> {
        let plan = self.plan()?;
        let environment = match self.environment() {
            Ok(environment) => Some(environment),
            Err(FolderError::NotAResultFolder { .. }) => None,
            Err(other) => return Err(other),
        };
        let own = self.plan_checksum()?;
        self.each_line(LINKS, |number, line| {
            let text = line.strip_suffix(b"\n").unwrap_or(line);
            let (_, members, _): (IgnoredAny, _, _) = self.unseal(LINKS, Some(number), text, LINK_SCHEMA)?;
            self.check_plan(LINKS, Some(number), &members, &own)
        })?;
        let mut trials = Vec::new();
        // Of no line, of the first line, of the first two, …
        let mut checksums = vec![0];
        self.each_trial(|entry, line| {
            checksums.push(crc32c::crc32c_append(checksums[trials.len()], line));
            trials.push(entry);
            Ok(())
        })?;
        let Some((result, members)) = self.optional_result()? else {
            return Ok(Contents { plan, environment, trials, result: None });
        };
        let invalid = |why: String| Err(FolderError::Invalid { path: self.file(RESULT), line: None, why });
        let recorded = result.trials as usize;
        match checksums.get(recorded) {
            None => invalid(format!("it is of {recorded} trials, and {TRIALS} holds {}", trials.len())),
            Some(_) if recorded < trials.len() && result.ending == Ending::Finished => invalid(format!(
                "the study finished with {recorded} trials, and {TRIALS} holds {}",
                trials.len()
            )),
            Some(&own) if members.trials_crc32c != Some(seal::to_hex(own)) => {
                invalid(format!("it is of other trials than those of {TRIALS}"))
            }
            Some(_) => Ok(Contents { plan, environment, trials, result: Some(result) }),
        }
    }

    /// What the trials mean; none before the first end of the study.
    ///
    /// # Errors
    /// When it is there and cannot be read, or belongs to another plan.
    pub fn result(&self) -> Result<Option<StudyResult>, FolderError> {
        Ok(self.optional_result()?.map(|(result, _)| result))
    }

    fn optional_result(&self) -> Result<Option<(StudyResult, SealMembers)>, FolderError> {
        if !self.file(RESULT).exists() {
            return Ok(None);
        }
        let (result, members, _) = self.read_record(RESULT, RESULT_SCHEMA)?;
        self.check_plan(RESULT, None, &members, &self.plan_checksum()?)?;
        Ok(Some((result, members)))
    }

    /// Writes what the trials mean, whole or not at all.
    ///
    /// # Errors
    /// When it cannot be written, or the trials cannot be read.
    pub fn write_result(&self, result: &StudyResult) -> Result<(), FolderError> {
        let mut trials = 0;
        self.each_line(TRIALS, |_, line| {
            trials = crc32c::crc32c_append(trials, line);
            Ok(())
        })?;
        let (plan, trials) = (self.plan_checksum()?, seal::to_hex(trials));
        let members = [("plan", plan.as_str()), ("trials_crc32c", trials.as_str())];
        self.write(RESULT, &seal::seal(&to_json(result), &members))
    }

    /// Writes another file of the result, such as `report.html`, whole or not at all.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, name: &str, text: &str) -> Result<(), FolderError> {
        let path = self.file(name);
        let failed = |cause| FolderError::File { what: "write", path: path.clone(), cause };
        let partial = self.file(&format!("{name}.partial"));
        let mut file = File::create(&partial).map_err(failed)?;
        file.write_all(text.as_bytes()).and_then(|()| file.sync_data()).map_err(failed)?;
        fs::rename(&partial, &path).map_err(failed)
    }

    /// All trials. A last line without an end is what a killed run was writing: it is left out.
    ///
    /// # Errors
    /// When the file cannot be read, or a whole line is not the next trial of this plan as it was written.
    pub fn trials(&self) -> Result<Vec<TrialEntry>, FolderError> {
        let mut trials = Vec::new();
        self.each_trial(|entry, _| {
            trials.push(entry);
            Ok(())
        })?;
        Ok(trials)
    }

    /// Each trial with its line.
    fn each_trial(
        &self,
        mut take: impl FnMut(TrialEntry, &[u8]) -> Result<(), FolderError>,
    ) -> Result<(), FolderError> {
        let plan = self.plan_checksum()?;
        self.each_line(TRIALS, |number, line| {
            let text = line.strip_suffix(b"\n").unwrap_or(line);
            let (entry, members, _): (TrialEntry, _, _) =
                self.unseal(TRIALS, Some(number), text, ENTRY_SCHEMA)?;
            self.check_plan(TRIALS, Some(number), &members, &plan)?;
            if entry.index != number as u64 {
                let why = format!(
                    "it is trial {}, and trial {number} belongs there: a line is missing, or there twice",
                    entry.index
                );
                return Err(FolderError::Invalid { path: self.file(TRIALS), line: Some(number), why });
            }
            take(entry, line)
        })
    }

    /// Each whole line of a file, with its number from 1 and its end. One at a time is held in memory.
    fn each_line(
        &self,
        name: &str,
        mut take: impl FnMut(usize, &[u8]) -> Result<(), FolderError>,
    ) -> Result<(), FolderError> {
        let mut lines = match self.open_file(name) {
            Ok(file) => BufReader::new(file),
            Err(FolderError::File { cause, .. }) if cause.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(other) => return Err(other),
        };
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            let read = lines.read_until(b'\n', &mut line);
            read.map_err(|cause| FolderError::File { what: "read", path: self.file(name), cause })?;
            if !line.ends_with(b"\n") {
                break;
            }
            take(number, &line)?;
        }
        Ok(())
    }

    /// The journal that trials are appended to, for this process alone.
    ///
    /// # Errors
    /// When it cannot be opened, or another process has it.
    pub fn journal(&self) -> Result<TrialJournal, FolderError> {
        let path = self.file(TRIALS);
        let failed = |cause| FolderError::File { what: "write", path: path.clone(), cause };
        let file = OpenOptions::new().read(true).append(true).create(true).open(&path).map_err(failed)?;
        file.try_lock().map_err(|error| match error {
            fs::TryLockError::WouldBlock => failed(io::Error::other("another run is writing to it")),
            fs::TryLockError::Error(cause) => failed(cause),
        })?;
        Ok(TrialJournal::new(self.clone(), file, path))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// A sealed record that is a file of its own.
    fn read_record<T: DeserializeOwned>(
        &self,
        name: &'static str,
        schema: &str,
    ) -> Result<(T, SealMembers, String), FolderError> {
        let mut text = Vec::new();
        let read = self.open_file(name).and_then(|mut file| {
            let failed = |cause| FolderError::File { what: "read", path: self.file(name), cause };
            file.read_to_end(&mut text).map_err(failed)
        });
        read.map_err(|error| match error {
            FolderError::File { cause, .. } if cause.kind() == io::ErrorKind::NotFound => {
                FolderError::NotAResultFolder { path: self.path.clone(), missing: name }
            }
            other => other,
        })?;
        self.unseal(name, None, &text, schema)
    }

    /// A sealed record of this version, with what it belongs to and its checksum.
    fn unseal<T: DeserializeOwned>(
        &self,
        name: &str,
        line: Option<usize>,
        text: &[u8],
        schema: &str,
    ) -> Result<(T, SealMembers, String), FolderError> {
        let invalid = |why: String| FolderError::Invalid { path: self.file(name), line, why };
        let members: Option<SealMembers> = serde_json::from_slice(text).ok();
        // Those of earlier versions have no seal.
        let form = members.as_ref().and_then(|members| members.schema.as_deref());
        if let Some(other) = form.filter(|form| *form != schema) {
            let why = format!(
                "it is of the form {other}, and this version of proofload reads and writes {schema} only"
            );
            return Err(invalid(why));
        }
        let checksum = seal::checksum(text);
        let checksum = checksum.ok_or_else(|| {
            invalid(
                "it is not as it was written (its checksum does not fit): damaged, or changed by hand"
                    .to_owned(),
            )
        })?;
        let members = members.ok_or_else(|| invalid(format!("it is no {schema}")))?;
        let value = serde_json::from_slice(text).map_err(|cause| invalid(cause.to_string()))?;
        Ok((value, members, checksum))
    }

    fn check_plan(
        &self,
        name: &str,
        line: Option<usize>,
        members: &SealMembers,
        plan: &str,
    ) -> Result<(), FolderError> {
        if members.plan.as_deref() == Some(plan) {
            return Ok(());
        }
        let why = match members.plan {
            Some(_) => format!("it belongs to another study than the {PLAN} beside it"),
            None => {
                "it does not name its study: an earlier proofload wrote it; run the study again".to_owned()
            }
        };
        Err(FolderError::Invalid { path: self.file(name), line, why })
    }

    fn plan_checksum(&self) -> Result<String, FolderError> {
        Ok(self.read_record::<StudyPlan>(PLAN, PLAN_SCHEMA)?.2)
    }

    /// A file of the folder. A pipe or device in its place would keep a reader waiting.
    fn open_file(&self, name: &str) -> Result<File, FolderError> {
        let path = self.file(name);
        let is_file = fs::metadata(&path).map(|metadata| metadata.is_file());
        let file = is_file.and_then(|is_file| match is_file {
            true => File::open(&path),
            false => Err(io::Error::other("it is no regular file")),
        });
        file.map_err(|cause| FolderError::File { what: "read", path, cause })
    }
}

fn to_json<T: Serialize>(value: &T) -> String {
    let text = serde_json::to_string_pretty(value).expect("records have no maps with keys that are no text");
    text + "\n"
}
