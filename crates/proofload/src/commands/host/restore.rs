//! `proofload host restore`: restores the kernel settings that `host tune` changed.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::tunings;
use crate::{
    exit::{Exit, Refusal, Result},
    output::{
        destination::{Destination, write_result},
        standard,
    },
};

const EXIT_STATUS: &str = "Exit status: 0 all settings have their former values, 1 somebody else has changed a setting \
                           since then: its value stays and is named, 2 a setting could not be put back; the next call tries again.";

/// Put the kernel's settings back to their values before the first `host tune`, even if it was killed.
#[derive(Debug, Args)]
#[command(after_help = EXIT_STATUS)]
pub(super) struct RestoreArgs {
    /// Write the result as JSON; - writes it, and nothing else, to standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The result for `--json`.
#[derive(Serialize)]
struct Report {
    restored: Vec<Value>,
    /// Settings that other programs have changed since, so they were not restored.
    left: Vec<String>,
    /// Number of settings that were changed in other network namespaces, so they were not restored.
    elsewhere: usize,
}

#[derive(Serialize)]
struct Value {
    name: String,
    value: String,
}

/// Restores the settings that belong to this network namespace.
pub(super) fn run(arguments: &RestoreArgs) -> Result<Exit> {
    let json = Destination::open_optional("--json", arguments.json.as_deref())?;
    let folder = tunings()?;
    let _lock = folder.lock().map_err(Refusal::one)?;
    let restored = undo::restore(&folder).map_err(Refusal::one)?;
    let value = |setting: &undo::Setting| Value {
        name: kernel::tune::name_of(&setting.path),
        value: setting.before.replace('\t', " "),
    };
    let report = Report {
        restored: restored.settings.iter().map(value).collect(),
        left: restored.foreign.iter().map(ToString::to_string).collect(),
        elsewhere: restored.elsewhere,
    };
    let has_nothing =
        restored.settings.is_empty() && restored.foreign.is_empty() && restored.failures.is_empty();
    let line = |Value { name, value }: &Value| format!("  {name} = {value}\n");
    let text = || {
        if has_nothing {
            "nothing to restore\n".to_owned()
        } else {
            report.restored.iter().map(line).collect()
        }
    };
    let printed = write_result(json, &report, false, text);
    for left in &report.left {
        standard::print_to_stderr(format_args!("proofload: {left}"));
    }
    if restored.elsewhere > 0 {
        standard::print_to_stderr(format_args!(
            "proofload: {} setting(s) were tuned in other network namespaces; run `proofload host restore` in those \
             that still exist",
            restored.elsewhere
        ));
    }
    if !restored.failures.is_empty() {
        return Err(Refusal::all(restored.failures));
    }
    printed?;
    Ok(if restored.foreign.is_empty() { Exit::GoalsMet } else { Exit::GoalsNotMet })
}
