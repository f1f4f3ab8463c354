//! `proofload audit`: compares the events that were acknowledged with those that are stored.

mod text;

use std::{
    fs,
    path::{Path, PathBuf},
};

use audit::{AuditOptions, audit};
use clap::Args;
use record::{AckLevel, AuditResult};

use crate::{
    exit::{Exit, Refusal, Result},
    output::destination::{Destination, write_result},
};

const EXIT_STATUS: &str = "Exit status: 0 nothing is lost, duplicated or corrupt, 1 something is, 2 wrong use, \
                           or a file cannot be read, 3 receipts are missing: nothing may be concluded.";

/// Compare the files of a data listener with the receipts of its clients.
#[derive(Debug, Args)]
#[command(after_help = EXIT_STATUS)]
pub(crate) struct AuditArgs {
    /// Files of the listener (plain, .gz, .zst), folders with all their files, or patterns such as
    /// 'out/**/*.log'
    #[arg(value_name = "FILE", required = true)]
    files: Vec<String>,
    /// Folder that `proofload http --events --receipts FOLDER` wrote; repeatable
    #[arg(long, value_name = "FOLDER", required = true)]
    receipts: Vec<PathBuf>,
    /// Count as lost only events that were acknowledged at this level or above: accepted, written or synced
    /// [default: all acknowledged events]
    #[arg(long, value_name = "LEVEL")]
    level: Option<String>,
    /// Write the result as JSON; - writes it, and nothing else, to standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs the audit and prints the result.
pub(crate) fn run(arguments: &AuditArgs) -> Result<Exit> {
    let level: Option<AckLevel> = arguments
        .level
        .as_deref()
        .map(str::parse)
        .transpose()
        .map_err(|error| Refusal::one(format_args!("--level: {error}")))?;
    check_receipt_folders(&arguments.receipts)?;
    let json = Destination::open_optional("--json", arguments.json.as_deref())?;
    let order = AuditOptions { receipts: arguments.receipts.clone(), files: arguments.files.clone(), level };
    let result = audit(&order).map_err(Refusal::one)?;
    if result.read.files == 0 {
        refuse_unmatched(&arguments.files)?;
    }
    write_result(json, &result, false, || text::render(&result))?;
    Ok(exit_status(&result))
}

/// Refuses folders that cannot be opened. The audit itself checks their content.
fn check_receipt_folders(receipts: &[PathBuf]) -> Result {
    let mistake = |folder: &PathBuf| {
        let error = fs::read_dir(folder).err()?;
        Some(format!(
            "--receipts: cannot read {}: {error}; give the folder that `proofload http --events --receipts FOLDER` wrote",
            folder.display()
        ))
    };
    let mistakes: Vec<String> = receipts.iter().filter_map(mistake).collect();
    if mistakes.is_empty() { Ok(()) } else { Err(Refusal::new(mistakes)) }
}

/// Refuses patterns that match no file, because a mistyped pattern is more likely than the loss of everything. Accepts
/// an empty folder, because the listener may have stored nothing.
fn refuse_unmatched(files: &[String]) -> Result {
    if files.iter().any(|name| Path::new(name).exists()) {
        return Ok(());
    }
    let mistake = |name: &String| {
        format!(
            "'{name}' matches no file: check the pattern, which starts at the current folder or with /, or give the folder \
             that the listener stores in"
        )
    };
    Err(Refusal::new(files.iter().map(mistake).collect()))
}

/// The exit status. Findings are conclusive even if receipts are missing; an audit without findings needs all receipts.
fn exit_status(result: &AuditResult) -> Exit {
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

    fn audit_line(words: &[&str]) -> Result<Exit, String> {
        let words = ["audit"].iter().chain(words);
        run(&Line::try_parse_from(words).unwrap().audit).map_err(|refusal| format!("{refusal:?}"))
    }

    #[test]
    fn a_pattern_without_files_is_refused_and_an_empty_folder_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let [receipts, stored] = ["receipts", "stored"].map(|name| folder.path().join(name));
        fs::create_dir_all(&receipts).unwrap();
        fs::create_dir_all(&stored).unwrap();
        let (receipts, stored) = (receipts.display().to_string(), stored.display().to_string());
        let nowhere = audit_line(&[&format!("{stored}/**/*.log"), "--receipts", &receipts]);
        let empty = audit_line(&[&stored, "--receipts", &receipts]);
        let no_receipts = audit_line(&[&stored, "--receipts", "/does/not/exist"]);
        assert!(nowhere.unwrap_err().contains("/**/*.log' matches no file: "));
        // The folder is accepted, but an audit without receipts is inconclusive.
        assert_eq!(empty, Ok(Exit::Void));
        assert!(no_receipts.unwrap_err().contains("--receipts: cannot read /does/not/exist"));
    }
}
