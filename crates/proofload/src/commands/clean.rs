//! `proofload clean`: undoes what killed runs left behind.

use undo::Folder;

use crate::{
    exit::{Exit, Refusal, Result},
    output::standard,
};

/// Cleans up after runs whose process has ended, including killed or kept balancers, and prints what it removed.
pub(crate) fn run() -> Result<Exit> {
    lab::ensure_own_proc().map_err(Refusal::one)?;
    let folder = Folder::of_this_user().map_err(Refusal::one)?;
    let cleaned = undo::clean_all(&folder).map_err(Refusal::one)?;
    let mut text: String = cleaned.undone.iter().map(|change| format!("removed {change}\n")).collect();
    if cleaned.runs == 0 {
        text += "nothing to clean up\n";
    }
    let tuned = undo::tuned(&folder).map_err(Refusal::one)?.len();
    if tuned > 0 {
        text +=
            &format!("{tuned} setting(s) of this host stay tuned; proofload host restore puts them back\n");
    }
    let printed = standard::print_wrapped(&text);
    if !cleaned.failures.is_empty() {
        return Err(Refusal::all(cleaned.failures));
    }
    printed.map(|()| Exit::GoalsMet)
}

/// Cleans up before a command that changes this machine. Prints nothing if there was nothing to clean.
pub(crate) fn clean_before(folder: &Folder) -> Result {
    let cleaned = undo::clean(folder).map_err(Refusal::one)?;
    if cleaned.runs > 0 {
        standard::print_to_stderr(format_args!("proofload: cleaned up after {} killed run(s)", cleaned.runs));
    }
    for failure in cleaned.failures {
        standard::print_to_stderr(format_args!("proofload: {failure}; the next command tries again"));
    }
    Ok(())
}
