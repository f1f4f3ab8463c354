//! `proofload audit`: what was acknowledged against what is stored.

mod text;

use std::{
    fs,
    path::{Path, PathBuf},
};

use audit::{AuditOptions, audit};
use clap::Args;
use record::{AckLevel, AuditResult};

use crate::{
    exit::{Exit, Refusal},
    output::destination::{Destination, leave},
};

/// What the exit status says, at the end of the help.
const STATUS: &str = "Exit status: 0 nothing is lost, duplicated or corrupt, 1 something is, 2 wrong use, \
                      or something cannot be read, 3 receipts are missing, so that nothing may be \
                      concluded.";

/// Hold what a data listener stored against the receipts of those who sent to it.
#[derive(Debug, Args)]
#[command(after_help = STATUS)]
pub(crate) struct AuditArgs {
    /// What the listener stored: files (plain, .gz, .zst), folders with all in them, or patterns such as 'out/**/*.log'
    #[arg(value_name = "FILE", required = true)]
    files: Vec<String>,
    /// A folder that `proofload http --events --receipts FOLDER` left; several may be given
    #[arg(long, value_name = "FOLDER", required = true)]
    receipts: Vec<PathBuf>,
    /// Hold only those events to their promise that were acknowledged at this level or above: accepted, written or
    /// synced [default: all that were acknowledged]
    #[arg(long, value_name = "LEVEL")]
    level: Option<String>,
    /// Write the result as JSON; - is standard output, and then nothing else is written there
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Audits, and shows what was found.
pub(crate) fn run(arguments: &AuditArgs) -> Result<Exit, Refusal> {
    let level: Option<AckLevel> = arguments
        .level
        .as_deref()
        .map(str::parse)
        .transpose()
        .map_err(|error| Refusal::one(format_args!("--level: {error}")))?;
    readable(&arguments.receipts)?;
    let json = Destination::of("--json", arguments.json.as_deref())?;
    let options =
        AuditOptions { receipts: arguments.receipts.clone(), files: arguments.files.clone(), level };
    let result = audit(&options).map_err(Refusal::one)?;
    if result.read.files == 0 {
        refuse_nowhere(&arguments.files)?;
    }
    leave(json, &result, false, || text::render(&result))?;
    Ok(judge(&result))
}

/// Whether there are such folders; what they hold is the audit's.
fn readable(receipts: &[PathBuf]) -> Result<(), Refusal> {
    let failed = |folder: &PathBuf| {
        let error = fs::read_dir(folder).err()?;
        Some(format!(
            "--receipts: cannot read {}: {error}; give the folder that `proofload http --events --receipts FOLDER` left",
            folder.display()
        ))
    };
    let mistakes: Vec<String> = receipts.iter().filter_map(failed).collect();
    if mistakes.is_empty() { Ok(()) } else { Err(Refusal::new(mistakes)) }
}

/// Patterns that match nothing are more likely wrong than everything is lost. A folder that is there and empty says what
/// was stored: nothing.
fn refuse_nowhere(files: &[String]) -> Result<(), Refusal> {
    if files.iter().any(|name| Path::new(name).exists()) {
        return Ok(());
    }
    let mistake = |name: &String| {
        format!(
            "'{name}' matches no file: look for a slip in it, begin it at this folder or with /, or give the folder that \
             the listener stores in"
        )
    };
    Err(Refusal::new(files.iter().map(mistake).collect()))
}

/// What was found is found, also where receipts are missing; that nothing was found then means nothing.
fn judge(result: &AuditResult) -> Exit {
    match (result.is_clean(), result.is_conclusive()) {
        (false, _) => Exit::GoalsNotMet,
        (true, false) => Exit::Void,
        (true, true) => Exit::GoalsMet,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        audit: AuditArgs,
    }

    fn told(words: &[&str]) -> Result<Exit, String> {
        let words = ["audit"].iter().chain(words);
        run(&Line::try_parse_from(words).unwrap().audit).map_err(|refusal| format!("{refusal:?}"))
    }

    #[test]
    fn where_no_file_is_nothing_can_be_lost() {
        let folder = std::env::temp_dir().join(format!("proofload-audit-{}", std::process::id()));
        let (receipts, stored) = (folder.join("receipts"), folder.join("stored"));
        fs::create_dir_all(&receipts).unwrap();
        fs::create_dir_all(&stored).unwrap();
        let (receipts, stored) = (receipts.display().to_string(), stored.display().to_string());
        let nowhere = told(&[&format!("{stored}/**/*.log"), "--receipts", &receipts]);
        let empty = told(&[&stored, "--receipts", &receipts]);
        let no_receipts = told(&[&stored, "--receipts", "/does/not/exist"]);
        fs::remove_dir_all(&folder).unwrap();
        assert!(nowhere.unwrap_err().contains("/**/*.log' matches no file: "));
        // Without receipts nothing may be concluded; but it was looked.
        assert_eq!(empty, Ok(Exit::Void));
        assert!(no_receipts.unwrap_err().contains("--receipts: cannot read /does/not/exist"));
    }
}
