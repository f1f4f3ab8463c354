//! The folder that a study leaves.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use serde::{Serialize, de::DeserializeOwned};

use crate::{Environment, StudyPlan, StudyResult, TrialEntry};

const PLAN: &str = "plan.json";
const STUDY: &str = "study.toml";
const ENVIRONMENT: &str = "environment.json";
const TRIALS: &str = "trials.jsonl";
const RESULT: &str = "result.json";

/// A result folder; see [`crate::study`] for what lies in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultFolder {
    path: PathBuf,
}

/// Why a result folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// A file could not be read or written.
    #[error("cannot {what} {path}: {cause}")]
    File {
        /// `read`, `write` or `make`.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        cause: io::Error,
    },
    /// It is no result folder.
    #[error(
        "{path} is no result folder: there is no {missing} in it; `proofload run STUDY --out {path}` makes one"
    )]
    NoResult {
        /// The folder.
        path: PathBuf,
        /// What is not there.
        missing: &'static str,
    },
    /// There is a result in it already.
    #[error(
        "{path} already holds a result; take it up again with --resume, or choose another folder with --out"
    )]
    Taken {
        /// The folder.
        path: PathBuf,
    },
    /// A file does not hold what it should.
    #[error("{path}, line {line}: {cause}; it was written by another version, or changed by hand")]
    Content {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What the reader says.
        cause: serde_json::Error,
    },
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
            return Err(FolderError::Taken { path: path.to_owned() });
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
            return Err(FolderError::NoResult { path: path.to_owned(), missing: PLAN });
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
        self.read(PLAN)
    }

    /// Writes the plan, whole or not at all.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_plan(&self, plan: &StudyPlan) -> Result<(), FolderError> {
        self.write(PLAN, &to_json(plan))
    }

    /// The study file as run, if there was one.
    ///
    /// # Errors
    /// When there is one that cannot be read.
    pub fn study_file(&self) -> Result<Option<String>, FolderError> {
        match fs::read_to_string(self.file(STUDY)) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(cause) => Err(FolderError::File { what: "read", path: self.file(STUDY), cause }),
        }
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
    /// When it cannot be read.
    pub fn environment(&self) -> Result<Environment, FolderError> {
        self.read(ENVIRONMENT)
    }

    /// Writes what it is measured on.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_environment(&self, environment: &Environment) -> Result<(), FolderError> {
        self.write(ENVIRONMENT, &to_json(environment))
    }

    /// What the trials mean; none before the first end of the study.
    ///
    /// # Errors
    /// When it is there and cannot be read.
    pub fn result(&self) -> Result<Option<StudyResult>, FolderError> {
        if self.file(RESULT).exists() { self.read(RESULT).map(Some) } else { Ok(None) }
    }

    /// Writes what the trials mean, whole or not at all.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_result(&self, result: &StudyResult) -> Result<(), FolderError> {
        self.write(RESULT, &to_json(result))
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

    /// Appends a line to another file of the result.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn append_line(&self, name: &str, line: &str) -> Result<(), FolderError> {
        let path = self.file(name);
        let failed = |cause| FolderError::File { what: "write", path: path.clone(), cause };
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(&path).map_err(failed)?;
        let (length, mut last) = (file.metadata().map_err(failed)?.len(), *b"\n");
        if length > 0 {
            file.read_exact_at(&mut last, length - 1).map_err(failed)?;
        }
        // What a killed run was writing has no end: it gets one.
        let end = if last == *b"\n" { "" } else { "\n" };
        file.write_all(format!("{end}{line}\n").as_bytes()).map_err(failed)
    }

    /// All trials. A last line without an end is what a killed run was writing: it is left out.
    ///
    /// # Errors
    /// When the file cannot be read, or a whole line is no trial.
    pub fn trials(&self) -> Result<Vec<TrialEntry>, FolderError> {
        let path = self.file(TRIALS);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(cause) => return Err(FolderError::File { what: "read", path, cause }),
        };
        let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        let lines = text[..whole].split(|&byte| byte == b'\n').enumerate();
        lines
            .filter(|(_, line)| !line.is_empty())
            .map(|(index, line)| {
                serde_json::from_slice(line).map_err(|cause| FolderError::Content {
                    path: path.clone(),
                    line: index + 1,
                    cause,
                })
            })
            .collect()
    }

    /// The journal that trials are appended to. A torn last line is cut off first.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn journal(&self) -> Result<TrialJournal, FolderError> {
        let path = self.file(TRIALS);
        let failed = |cause| FolderError::File { what: "write", path: path.clone(), cause };
        let file = OpenOptions::new().read(true).append(true).create(true).open(&path).map_err(failed)?;
        file.try_lock().map_err(|error| match error {
            fs::TryLockError::WouldBlock => failed(io::Error::other("another run is writing to it")),
            fs::TryLockError::Error(cause) => failed(cause),
        })?;
        let text = fs::read(&path).map_err(failed)?;
        let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        file.set_len(whole as u64).map_err(failed)?;
        Ok(TrialJournal { file, path })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn read<T: DeserializeOwned>(&self, name: &'static str) -> Result<T, FolderError> {
        let path = self.file(name);
        let text = fs::read_to_string(&path).map_err(|cause| match cause.kind() {
            io::ErrorKind::NotFound => FolderError::NoResult { path: self.path.clone(), missing: name },
            _ => FolderError::File { what: "read", path: path.clone(), cause },
        })?;
        serde_json::from_str(&text).map_err(|cause| FolderError::Content { path, line: cause.line(), cause })
    }
}

/// `trials.jsonl`, open for appending.
#[derive(Debug)]
pub struct TrialJournal {
    file: File,
    path: PathBuf,
}

impl TrialJournal {
    /// Appends a trial; it is on disk when this returns.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn append(&mut self, entry: &TrialEntry) -> Result<(), FolderError> {
        let mut line = serde_json::to_string(entry).expect("a trial has no maps with keys that are no text");
        line.push('\n');
        // One write: a killed run leaves at most one torn line, the last.
        let written = self.file.write_all(line.as_bytes()).and_then(|()| self.file.sync_data());
        written.map_err(|cause| FolderError::File { what: "write", path: self.path.clone(), cause })
    }
}

fn to_json<T: Serialize>(value: &T) -> String {
    let text = serde_json::to_string_pretty(value).expect("records have no maps with keys that are no text");
    text + "\n"
}
