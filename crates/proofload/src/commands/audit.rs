//! `proofload audit`: what was acknowledged against what is stored.

mod text;

use std::path::PathBuf;

use audit::{Order, audit};
use clap::Args;
use record::{AckLevel, AuditResult};

use crate::{
    exit::{Exit, Refusal},
    output::destination::Destination,
};

/// Holds the files of a data listener against the receipts of those who sent to it. Exit status: 0 nothing is lost,
/// duplicated or corrupt; 1 something is; 3 receipts are missing, so that nothing may be concluded.
#[derive(Debug, Args)]
pub struct AuditArgs {
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
pub fn run(arguments: &AuditArgs) -> Result<Exit, Refusal> {
    let level: Option<AckLevel> = arguments
        .level
        .as_deref()
        .map(str::parse)
        .transpose()
        .map_err(|error| Refusal::one(format_args!("--level: {error}")))?;
    let json = arguments.json.as_deref().map(|path| Destination::open("--json", path)).transpose();
    let json = json.map_err(Refusal::one)?;
    let order = Order { receipts: arguments.receipts.clone(), files: arguments.files.clone(), level };
    let result = audit(&order).map_err(Refusal::one)?;
    if !json.as_ref().is_some_and(Destination::is_stdout) {
        print!("{}", text::render(&result));
    }
    if let Some(json) = json {
        json.write_json(&result)?;
    }
    Ok(judge(&result))
}

/// What was found is found, also where receipts are missing; that nothing was found then means nothing.
fn judge(result: &AuditResult) -> Exit {
    match (result.is_clean(), result.is_conclusive()) {
        (false, _) => Exit::GoalsNotMet,
        (true, false) => Exit::Void,
        (true, true) => Exit::GoalsMet,
    }
}
