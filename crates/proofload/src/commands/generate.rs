//! `proofload generate FOLDER`: writes man pages and shell completions, generated from the options.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use clap::{Args, Command};
use clap_complete::{Shell, generate_to};

use crate::exit::{Exit, Refusal, Result};

/// Write man pages and shell completions.
#[derive(Debug, Args)]
pub(crate) struct GenerateArgs {
    /// Folder that gets man/ and completions/
    folder: PathBuf,
}

/// Writes the man pages and completions.
pub(crate) fn run(arguments: &GenerateArgs, cli: &Command) -> Result<Exit> {
    let write_failed =
        |error| Refusal::one(format!("cannot write to {}: {error}", arguments.folder.display()));
    write(&arguments.folder, cli).map_err(write_failed)?;
    Ok(Exit::GoalsMet)
}

fn write(folder: &Path, cli: &Command) -> io::Result<()> {
    let mut cli = without_hidden(cli);
    let (man, completions) = (folder.join("man"), folder.join("completions"));
    fs::create_dir_all(&man)?;
    fs::create_dir_all(&completions)?;
    for shell in [Shell::Bash, Shell::Zsh] {
        generate_to(shell, &mut cli, "proofload", &completions)?;
    }
    cli.build();
    write_pages(&man, &cli, cli.get_name())
}

/// Writes man pages for a command and its subcommands. As with git, hyphens join the names.
fn write_pages(folder: &Path, command: &Command, name: &str) -> io::Result<()> {
    let page = command.clone().name(name.to_owned());
    clap_mangen::Man::new(page).render(&mut File::create(folder.join(format!("{name}.1")))?)?;
    let mut commands = command.get_subcommands().filter(|subcommand| subcommand.get_name() != "help");
    commands.try_for_each(|subcommand| {
        write_pages(folder, subcommand, &format!("{name}-{}", subcommand.get_name()))
    })
}

/// The program without its hidden commands, which only proofload itself starts.
fn without_hidden(cli: &Command) -> Command {
    let shown = cli.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()).cloned();
    let mut command = Command::new("proofload").version(env!("CARGO_PKG_VERSION")).subcommands(shown);
    if let Some(about) = cli.get_about() {
        command = command.about(about.clone());
    }
    if let Some(after) = cli.get_after_help() {
        command = command.after_help(after.clone());
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn every_shown_command_has_a_page_and_no_hidden_one() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &crate::Cli::command()).unwrap();
        let page = |name: &str| fs::read_to_string(folder.path().join(format!("man/{name}.1")));
        assert!(page("proofload-http").unwrap().contains("\\-\\-think\\-time"));
        assert!(page("proofload-lab-up").is_ok() && page("proofload-worker").is_err());
        let bash = fs::read_to_string(folder.path().join("completions/proofload.bash")).unwrap();
        assert!(bash.contains("--think-time") && !bash.contains("lab-holder"));
        assert!(folder.path().join("completions/_proofload").is_file());
    }
}
