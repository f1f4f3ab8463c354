//! `proofload host restore`: puts back what `host tune` has changed.

use clap::Args;

use super::tunings;
use crate::{
    exit::{Exit, Refusal},
    output::standard,
};

const EXIT_STATUS: &str = "Exit status: 0 all settings have their former values, 1 somebody else has set one since, which \
                           is left and named, 2 a setting could not be put back; the next call tries again.";

/// Put back the values that the kernel's settings had before the first `host tune`, also one that was killed.
#[derive(Debug, Args)]
#[command(after_help = EXIT_STATUS)]
pub(super) struct RestoreArgs {}

/// Restores the settings of this network namespace.
pub(super) fn run(_: &RestoreArgs) -> Result<Exit, Refusal> {
    let folder = tunings()?;
    let _lock = folder.lock().map_err(Refusal::one)?;
    let restored = undo::restore(&folder).map_err(Refusal::one)?;
    let line = |setting: &undo::Setting| {
        format!("  {} = {}\n", kernel::tune::name_of(&setting.path), setting.before.replace('\t', " "))
    };
    let mut text: String = restored.settings.iter().map(line).collect();
    if restored.settings.is_empty() && restored.foreign.is_empty() && restored.failures.is_empty() {
        text += "nothing to restore\n";
    }
    let printed = standard::show(&text);
    for error in &restored.foreign {
        standard::message(format_args!("proofload: {error}"));
    }
    if restored.elsewhere > 0 {
        standard::message(format_args!(
            "proofload: {} setting(s) were tuned in other network namespaces; restore them there, or forget them if the \
             namespaces are gone",
            restored.elsewhere
        ));
    }
    if !restored.failures.is_empty() {
        return Err(Refusal::new(restored.failures.iter().map(ToString::to_string).collect()));
    }
    printed?;
    Ok(if restored.foreign.is_empty() { Exit::GoalsMet } else { Exit::GoalsNotMet })
}
