//! The result folder of a study. Every record in it is [sealed](seal) and names its plan, so that damaged records, and
//! records of another study or version, are refused.

mod append;
mod error;
mod journal;
mod place;
mod seal;

use std::{
    fs::File,
    io::{self, BufReader, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use files::Trust;

use serde::{
    Deserialize, Serialize,
    de::{DeserializeOwned, IgnoredAny},
};

pub use error::FolderError;
use error::Result;
pub use journal::TrialJournal;
pub use place::Place;

use crate::{
    Ending, Environment, StudyPlan, StudyResult, TrialEntry, counters, environment, input,
    study::{ENTRY_SCHEMA, LINK_SCHEMA, PLAN_SCHEMA, RESULT_SCHEMA},
};

const PLAN: &str = "plan.json";
const STUDY: &str = "study.toml";
const ENVIRONMENT: &str = "environment.json";
const TRIALS: &str = "trials.jsonl";
const RESULT: &str = "result.json";
const LINKS: &str = "links.jsonl";
const COUNTERS: &str = "counters.jsonl";
/// The records of a folder. Nothing else may overwrite them.
pub const RECORDS: [&str; 7] = [PLAN, STUDY, ENVIRONMENT, TRIALS, RESULT, LINKS, COUNTERS];
/// The permissions of written files: all users may read them.
const MODE: u32 = 0o644;

/// A result folder, held by its descriptor; [`crate::study`] lists its files. Every file is created in the folder that
/// was made or checked (see [`Place`]), even if another folder takes its path later.
#[derive(Debug, Clone)]
pub struct ResultFolder {
    held: Arc<files::Folder>,
}

/// All records of a result folder. [`ResultFolder::read`] has checked that they belong together.
#[derive(Debug)]
pub struct Contents {
    /// The plan.
    pub plan: StudyPlan,
    /// The environment; `None` if the run ended before the environment was written.
    pub environment: Option<Environment>,
    /// The trials, in the order of the runs.
    pub trials: Vec<TrialEntry>,
    /// The result; `None` until the first run of the study ends. The result of an unfinished study may cover fewer
    /// trials.
    pub result: Option<StudyResult>,
}

/// The members of a sealed record that name its schema and the records it belongs to.
#[derive(Deserialize)]
struct SealMembers {
    schema: Option<String>,
    /// The checksum of the plan.
    plan: Option<String>,
    /// The checksum of the trials' lines that a result covers.
    trials_crc32c: Option<String>,
}

impl ResultFolder {
    /// Opens an existing folder of any user for reading, and notes that its records are read.
    ///
    /// # Errors
    /// When the folder holds no plan, or an option writes to a record.
    pub fn open(path: &Path) -> Result<Self> {
        let folder = Self::held(path)?;
        for name in RECORDS {
            let path = folder.file(name);
            files::reads(&path).map_err(|cause| FolderError::File { what: "read", path, cause })?;
        }
        Ok(folder)
    }

    fn held(path: &Path) -> Result<Self> {
        let missing = || FolderError::NotAResultFolder { path: path.to_owned(), missing: PLAN };
        let held = files::Folder::open(path, Trust::Anybody).map_err(|_| missing())?;
        if held.has(PLAN) { Ok(Self::of(held)) } else { Err(missing()) }
    }

    fn of(held: files::Folder) -> Self {
        Self { held: Arc::new(held) }
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        self.held.path()
    }

    /// Reads the plan.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn plan(&self) -> Result<StudyPlan> {
        Ok(self.read_record(PLAN, PLAN_SCHEMA)?.0)
    }

    /// Writes the plan atomically.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_plan(&self, plan: &StudyPlan) -> Result {
        self.write(PLAN, &seal::seal(&to_json(plan), &[]))
    }

    /// Writes the study file as run.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_study_file(&self, text: &str) -> Result {
        self.write(STUDY, text)
    }

    /// Reads the environment.
    ///
    /// # Errors
    /// When it cannot be read, or belongs to another plan.
    pub fn environment(&self) -> Result<Environment> {
        let (environment, members, _) = self.read_record(ENVIRONMENT, environment::SCHEMA)?;
        self.check_plan(ENVIRONMENT, None, &members, &self.plan_checksum()?)?;
        Ok(environment)
    }

    /// Writes the environment of a plan that is not written yet.
    ///
    /// # Errors
    /// When the environment cannot be written.
    pub fn write_environment(&self, environment: &Environment, plan: &StudyPlan) -> Result {
        let plan =
            seal::checksum(seal::seal(&to_json(plan), &[]).as_bytes()).expect("the text was just sealed");
        self.write(ENVIRONMENT, &seal::seal(&to_json(environment), &[("plan", &plan)]))
    }

    /// Reads all records and checks that they belong together.
    ///
    /// # Errors
    /// When there is no plan, or when a record cannot be read, is damaged, or does not belong to the others.
    pub fn read(&self) -> Result<Contents> {
        let plan = self.plan()?;
        let environment = match self.environment() {
            Err(FolderError::NotAResultFolder { .. }) => None,
            environment => Some(environment?),
        };
        let plan_checksum = self.plan_checksum()?;
        for (name, schema) in [(LINKS, LINK_SCHEMA), (COUNTERS, counters::SCHEMA)] {
            self.each_line(name, |number, line| {
                let text = line.strip_suffix(b"\n").unwrap_or(line);
                let (_, members, _): (IgnoredAny, _, _) = self.unseal(name, Some(number), text, schema)?;
                self.check_plan(name, Some(number), &members, &plan_checksum)
            })?;
        }
        let mut trials = Vec::new();
        // Item `n` is the checksum of the first `n` lines.
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
            None => invalid(format!("it covers {recorded} trials, but {TRIALS} holds {}", trials.len())),
            Some(_) if recorded < trials.len() && result.ending == Ending::Finished => invalid(format!(
                "the study finished with {recorded} trials, but {TRIALS} holds {}",
                trials.len()
            )),
            Some(&checksum) if members.trials_crc32c != Some(seal::to_hex(checksum)) => {
                invalid(format!("it covers other trials than those in {TRIALS}"))
            }
            Some(_) => Ok(Contents { plan, environment, trials, result: Some(result) }),
        }
    }

    /// Reads the result; `None` until the first run of the study ends.
    ///
    /// # Errors
    /// When the result exists but cannot be read, or belongs to another plan.
    pub fn result(&self) -> Result<Option<StudyResult>> {
        Ok(self.optional_result()?.map(|(result, _)| result))
    }

    fn optional_result(&self) -> Result<Option<(StudyResult, SealMembers)>> {
        if !self.held.has(RESULT) {
            return Ok(None);
        }
        let (result, members, _) = self.read_record(RESULT, RESULT_SCHEMA)?;
        self.check_plan(RESULT, None, &members, &self.plan_checksum()?)?;
        Ok(Some((result, members)))
    }

    /// Writes the result atomically.
    ///
    /// # Errors
    /// When it cannot be written, or the trials cannot be read.
    pub fn write_result(&self, result: &StudyResult) -> Result {
        let mut trials = 0;
        self.each_line(TRIALS, |_, line| {
            trials = crc32c::crc32c_append(trials, line);
            Ok(())
        })?;
        let (plan, trials) = (self.plan_checksum()?, seal::to_hex(trials));
        let members = [("plan", plan.as_str()), ("trials_crc32c", trials.as_str())];
        self.write(RESULT, &seal::seal(&to_json(result), &members))
    }

    /// Writes another file of the folder, such as `report.html`, atomically.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, name: &str, text: &str) -> Result {
        self.write_bytes(name, text.as_bytes()).map_err(|cause| FolderError::File {
            what: "write",
            path: self.file(name),
            cause,
        })
    }

    /// Writes the output of a program atomically. If `name` contains a subfolder that is missing, creates it.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_bytes(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        for (end, _) in name.match_indices('/') {
            match self.held.make_folder(&name[..end], 0o755) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        let partial = format!("{name}.partial");
        // Removes the partial file of a killed run.
        let _ = self.held.remove(&partial);
        let mut file = self.held.create(&partial, MODE)?;
        file.write_all(bytes).and_then(|()| file.sync_data())?;
        self.held.rename(&partial, name)
    }

    /// Reads all trials. Ignores an incomplete last line, which a killed run leaves.
    ///
    /// # Errors
    /// When the file cannot be read, or when a line is damaged or is not the next trial of this plan.
    pub fn trials(&self) -> Result<Vec<TrialEntry>> {
        let mut trials = Vec::new();
        self.each_trial(|entry, _| {
            trials.push(entry);
            Ok(())
        })?;
        Ok(trials)
    }

    /// Calls `take` with each trial and its line.
    fn each_trial(&self, mut take: impl FnMut(TrialEntry, &[u8]) -> Result) -> Result {
        let plan = self.plan_checksum()?;
        self.each_line(TRIALS, |number, line| {
            let text = line.strip_suffix(b"\n").unwrap_or(line);
            let (entry, members, _): (TrialEntry, _, _) =
                self.unseal(TRIALS, Some(number), text, ENTRY_SCHEMA)?;
            self.check_plan(TRIALS, Some(number), &members, &plan)?;
            if entry.index != number as u64 {
                let why = format!(
                    "it holds trial {} instead of trial {number}: a line is missing or repeated",
                    entry.index
                );
                return Err(FolderError::Invalid { path: self.file(TRIALS), line: Some(number), why });
            }
            take(entry, line)
        })
    }

    /// Calls `take` with the number (from 1) and the bytes of each complete line, including the line break. Holds only
    /// one line in memory, because the file may be large.
    fn each_line(&self, name: &str, mut take: impl FnMut(usize, &[u8]) -> Result) -> Result {
        let mut lines = match self.open_file(name) {
            Ok(file) => BufReader::new(file),
            Err(FolderError::File { cause, .. }) if cause.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(other) => return Err(other),
        };
        let mut line = Vec::new();
        for number in 1.. {
            let read = input::read_line(&mut lines, &mut line);
            if !read.map_err(|cause| FolderError::File { what: "read", path: self.file(name), cause })? {
                break;
            }
            take(number, &line)?;
        }
        Ok(())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Reads a file that holds one sealed record. Also returns its members and its checksum.
    fn read_record<T: DeserializeOwned>(
        &self,
        name: &'static str,
        schema: &str,
    ) -> Result<(T, SealMembers, String)> {
        let read = self.open_file(name).and_then(|file| {
            let failed = |cause| FolderError::File { what: "read", path: self.file(name), cause };
            input::read_record(file).map_err(failed)
        });
        let text = read.map_err(|error| match error {
            FolderError::File { cause, .. } if cause.kind() == io::ErrorKind::NotFound => {
                FolderError::NotAResultFolder { path: self.path().to_owned(), missing: name }
            }
            other => other,
        })?;
        self.unseal(name, None, &text, schema)
    }

    /// Parses a sealed record with the given schema. Also returns its members and its checksum.
    fn unseal<T: DeserializeOwned>(
        &self,
        name: &str,
        line: Option<usize>,
        text: &[u8],
        schema: &str,
    ) -> Result<(T, SealMembers, String)> {
        let invalid = |why: String| FolderError::Invalid { path: self.file(name), line, why };
        let members: Option<SealMembers> = serde_json::from_slice(text).ok();
        // Checks the schema before the seal, because records of earlier versions have no seal.
        let found = members.as_ref().and_then(|members| members.schema.as_deref());
        if let Some(other) = found.filter(|found| *found != schema) {
            let why = format!("its schema is {other}, and this version of proofload reads only {schema}");
            return Err(invalid(why));
        }
        let damaged = || invalid("its checksum is wrong: it was damaged, or changed by hand".to_owned());
        let checksum = seal::checksum(text).ok_or_else(damaged)?;
        let members = members.ok_or_else(|| invalid(format!("it is not a record of schema {schema}")))?;
        let value = serde_json::from_slice(text).map_err(|cause| invalid(cause.to_string()))?;
        Ok((value, members, checksum))
    }

    /// Checks that a record belongs to the plan with this checksum.
    fn check_plan(&self, name: &str, line: Option<usize>, members: &SealMembers, plan: &str) -> Result {
        if members.plan.as_deref() == Some(plan) {
            return Ok(());
        }
        let why = match members.plan {
            Some(_) => format!("it belongs to another study than {PLAN} in the same folder"),
            None => "it does not name its plan, because an earlier version of proofload wrote it".to_owned(),
        };
        Err(FolderError::Invalid { path: self.file(name), line, why })
    }

    fn plan_checksum(&self) -> Result<String> {
        Ok(self.read_record::<StudyPlan>(PLAN, PLAN_SCHEMA)?.2)
    }

    /// Opens a file of the folder. Refuses pipes and devices, because they could block the reader.
    fn open_file(&self, name: &str) -> Result<File> {
        let path = self.file(name);
        let opened = files::open_with(File::options().read(true), &path);
        opened.map_err(|cause| FolderError::File { what: "read", path, cause })
    }
}

fn to_json<T: Serialize>(value: &T) -> String {
    serde_json::to_string_pretty(value).expect("all maps in records have text keys") + "\n"
}

#[cfg(test)]
mod tests;
