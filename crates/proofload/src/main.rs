//! The `proofload` program: arguments, progress, exit status. It decides nothing about measuring.

mod commands;
mod exit;
mod output;
#[cfg(test)]
mod readme;

use clap::{
    CommandFactory, Parser, Subcommand,
    error::{ContextKind, ContextValue},
};

/// Finds how much load a network service really carries, and never blames the service for the instrument's own limits.
#[derive(Debug, Parser)]
#[command(
    name = "proofload",
    version,
    about,
    after_help = "Exit status: 0 goals met, 1 goals not met, 2 wrong use or refused, 3 void (nothing may be concluded), \
                  130 interrupted, 141 nobody reads standard output. Quantities: times 300ms, rates 5k, sizes 64KiB."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

// What a command is for stands at its arguments, with all that `--help` says more: a word here would hide it.
#[derive(Debug, Subcommand)]
enum Command {
    Http(Box<commands::http_args::HttpArgs>),
    Limit(Box<commands::limit::LimitArgs>),
    Run(commands::run::RunArgs),
    Report(commands::report::ReportArgs),
    Compare(commands::compare::CompareArgs),
    Serve(Box<commands::serve_args::ServeArgs>),
    Listen(Box<commands::listen::ListenArgs>),
    Audit(commands::audit::AuditArgs),
    Lab(commands::lab::LabArgs),
    /// Take back what killed runs left on this machine.
    Clean,
    /// A worker process of a trial; started by proofload itself.
    #[command(hide = true)]
    Worker,
    /// A worker process of `serve`; started by proofload itself.
    #[command(hide = true)]
    ServeWorker,
    Link(Box<commands::link_args::LinkArgs>),
    /// A process that holds a host of a lab; started by proofload itself.
    #[command(hide = true)]
    LabHolder,
    /// A process that runs a link; started by proofload itself.
    #[command(hide = true)]
    LinkWorker,
    /// A process that runs the programs of a trial; started by proofload itself.
    #[command(hide = true, name = "command-run")]
    ProgramRunner,
    /// A process that becomes one of a lab's; started by proofload itself.
    #[command(hide = true)]
    LabExec {
        /// Where it belongs, and what it becomes, as JSON.
        order: String,
    },
}

fn main() -> std::process::ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&without_hidden(error)),
    };
    let exit = match cli.command {
        Command::Http(arguments) => commands::http::run(&arguments),
        Command::Limit(arguments) => commands::limit::run(&arguments),
        Command::Run(arguments) => commands::run::run(&arguments),
        Command::Report(arguments) => commands::report::run(&arguments),
        Command::Compare(arguments) => commands::compare::run(&arguments),
        Command::Serve(arguments) => commands::serve::run(&arguments),
        Command::Listen(arguments) => commands::listen::run(&arguments),
        Command::Audit(arguments) => commands::audit::run(&arguments),
        Command::Lab(arguments) => commands::lab::run(&arguments),
        Command::Clean => commands::clean::run(),
        Command::Worker => commands::http::work(),
        Command::ServeWorker => commands::serve::work(),
        Command::Link(arguments) => commands::link::run(&arguments),
        Command::LinkWorker => commands::link::work(),
        Command::LabHolder => commands::lab::hold(),
        Command::ProgramRunner => run_programs(),
        Command::LabExec { order } => commands::lab::exec(&order),
    };
    exit.unwrap_or_else(|refusal| output::standard::refuse(&refusal)).into()
}

/// The process that runs the programs of a trial.
fn run_programs() -> Result<exit::Exit, exit::Refusal> {
    command::runner::run().map(|()| exit::Exit::GoalsMet).map_err(exit::Refusal::one)
}

/// Tells what is wrong with the command line, and no secret that stands in it; or prints the help that was asked for.
fn refuse(error: &clap::Error) -> std::process::ExitCode {
    std::env::args().for_each(|word| secrets::mask::learn_argument(&word));
    let text = error.render().to_string();
    if error.use_stderr() {
        output::standard::tell(text.trim_end());
        return exit::Exit::WrongUse.into();
    }
    match error.print() {
        Ok(()) => exit::Exit::GoalsMet.into(),
        Err(error) => output::standard::refuse(&output::standard::failed(&error)).into(),
    }
}

/// Without advice to use a command that proofload itself starts.
fn without_hidden(mut error: clap::Error) -> clap::Error {
    let cli = Cli::command();
    let is_hidden = |name: &String| cli.find_subcommand(name).is_some_and(clap::Command::is_hide_set);
    if let Some(ContextValue::Strings(names)) = error.remove(ContextKind::SuggestedSubcommand) {
        let names: Vec<String> = names.into_iter().filter(|name| !is_hidden(name)).collect();
        if !names.is_empty() {
            error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(names));
        }
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_are_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn commands_that_are_not_shown_are_no_advice() {
        let told = |word: &str| {
            let error = Cli::try_parse_from(["proofload", word]).unwrap_err();
            without_hidden(error).to_string()
        };
        for (word, hidden) in [("wrk", "worker"), ("lab-hold", "lab-holder"), ("linkworker", "link-worker")] {
            assert!(!told(word).contains(&format!("'{hidden}'")), "{}", told(word));
        }
        assert!(told("limits").contains("'limit'"), "{}", told("limits"));
    }

    #[test]
    fn help_says_all_that_is_known_of_a_command() {
        let mut cli = Cli::command();
        for (name, part) in [
            ("http", "(closed load)"),
            ("limit", "two bounds for each goal"),
            ("run", "exit status"),
            ("report", "exit status"),
            ("compare", "what difference could have been seen"),
            ("serve", "exit status"),
            ("listen", "exit status"),
            ("audit", "receipts are missing"),
            ("link", "set rate=20mbit"),
        ] {
            let command = cli.find_subcommand_mut(name).unwrap();
            assert!(command.get_about().is_some_and(|about| !about.to_string().is_empty()), "{name}");
            let help = command.render_long_help().to_string();
            let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(words.to_lowercase().contains(part), "{name}: {help}");
        }
        for name in ["run", "limit", "compare", "link", "audit", "report"] {
            let help = cli.find_subcommand_mut(name).unwrap().render_help().to_string();
            assert!(help.contains("Exit status: 0"), "{name}: {help}");
        }
    }
}
