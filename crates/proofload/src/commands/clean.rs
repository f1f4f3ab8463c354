//! `proofload clean`: undoes what killed runs left behind.

use clap::Args;
use undo::Folder;

use super::fleet_args::FleetArgs;
use crate::{
    exit::{Exit, Refusal, Result},
    output::standard,
};

/// Remove what killed runs left on this machine; or what they left on other machines, and this program's copies there.
#[derive(Debug, Args)]
pub(crate) struct CleanArgs {
    /// Clean up on these machines, in the notation of http --on; nothing is removed here
    #[arg(long, value_name = "HOSTS", value_delimiter = ',')]
    on: Vec<String>,
    /// Clean up as root there, by sudo without a password
    #[arg(long, requires = "on")]
    r#become: bool,
    /// The folder that was given as --remote-path
    #[arg(long, value_name = "FOLDER", requires = "on")]
    remote_path: Option<String>,
}

/// Cleans this machine or others.
pub(crate) fn run(arguments: &CleanArgs) -> Result<Exit> {
    if arguments.on.is_empty() { clean_here() } else { clean_others(arguments) }
}

/// Cleans up on other machines, removes the copies of this program there, and prints what it removed.
fn clean_others(arguments: &CleanArgs) -> Result<Exit> {
    let fleet = FleetArgs { on: arguments.on.clone(), r#become: arguments.r#become, ..FleetArgs::default() };
    let (mut text, mut failures) = (String::new(), Vec::new());
    for machine in fleet.machines()? {
        match fleet::remove(&machine, arguments.remote_path.as_deref()) {
            Ok(removed) if removed.is_empty() => text += &format!("{}: nothing to remove\n", machine.name),
            Ok(removed) => {
                text.extend(removed.iter().map(|path| format!("{}: removed {path}\n", machine.name)));
            }
            Err(why) => failures.push(format!("{}: {why}", machine.name)),
        }
    }
    standard::print_wrapped(&text)?;
    if failures.is_empty() { Ok(Exit::GoalsMet) } else { Err(Refusal::new(failures)) }
}

/// Cleans up after runs whose process has ended, including killed or kept balancers, and prints what it removed.
fn clean_here() -> Result<Exit> {
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
