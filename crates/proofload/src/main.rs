//! The `proofload` program: parses the command line, runs the command and sets the exit status.

mod commands;
mod exit;
mod output;
#[cfg(test)]
mod readme_tests;
mod short_help;
mod stop;
#[cfg(test)]
mod text_tests;
#[cfg(test)]
mod values_tests;

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
    after_help = "Exit status: 0 goals met, 1 goals not met, 2 wrong use, refused or failed, 3 void (nothing may be \
                  concluded), 130 interrupted, 141 standard output closed. Write times as 300ms, rates as 5k, sizes as \
                  64KiB."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

// Commands are described at their `Args` types: a doc comment here would replace the long help of those types.
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
    Copy(Box<commands::copy::CopyArgs>),
    Balance(Box<commands::balance::BalanceArgs>),
    Lab(commands::lab::LabArgs),
    Host(commands::host::HostArgs),
    Wrk(Box<commands::peers::PeerArgs<commands::peers::Wrk>>),
    Wrk2(Box<commands::peers::PeerArgs<commands::peers::Wrk2>>),
    Ab(Box<commands::peers::PeerArgs<commands::peers::Ab>>),
    Fleet(Box<commands::fleet::FleetCommandArgs>),
    Agent(Box<commands::agent::AgentArgs>),
    Clean(commands::clean::CleanArgs),
    /// A worker process of a trial; started by proofload itself.
    #[command(hide = true)]
    Worker,
    /// A worker process of `serve`; started by proofload itself.
    #[command(hide = true)]
    ServeWorker,
    Link(Box<commands::link_args::LinkArgs>),
    /// Write man pages and shell completions; for packages.
    #[command(hide = true)]
    Generate(commands::generate::GenerateArgs),
    /// A process that holds a host of a lab; started by proofload itself.
    #[command(hide = true)]
    LabHolder {
        /// Keep this process's network: the host is this machine
        #[arg(long)]
        on_machine: bool,
        /// The host's private folders, as JSON
        #[arg(value_name = "FOLDERS")]
        private: Option<String>,
    },
    /// A process that runs a link; started by proofload itself.
    #[command(hide = true)]
    LinkWorker,
    /// A process that runs the programs of a trial; started by proofload itself.
    #[command(hide = true, name = "command-run")]
    ProgramRunner,
    /// A process that enters a host of a lab and executes a program there; started by proofload itself.
    #[command(hide = true)]
    LabExec {
        /// The host and the program, as JSON.
        #[arg(value_name = "REQUEST")]
        request: String,
    },
}

fn main() -> std::process::ExitCode {
    let words: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    if let Some(help) = short_help::requested_help(Cli::command, &words) {
        let printed = output::standard::print_raw(&help).map(|()| exit::Exit::GoalsMet);
        return printed.unwrap_or_else(|refusal| output::standard::print_refusal(&refusal)).into();
    }
    let cli = match Cli::try_parse() {
        Ok(parsed) => parsed,
        Err(error) => {
            let status = print_error(&without_hidden(error));
            commands::foreign_options::rate_hint(&words).iter().for_each(output::standard::print_to_stderr);
            return status;
        }
    };
    // With a handler, writing beyond the file size limit (`ulimit -f`) fails with an error instead of killing the
    // process.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, std::sync::Arc::default());
    let exit = match cli.command {
        Command::Http(arguments) => commands::http::run(&arguments),
        Command::Limit(arguments) => commands::limit::run(&arguments),
        Command::Run(arguments) => commands::run::run(&arguments),
        Command::Report(arguments) => commands::report::run(&arguments),
        Command::Compare(arguments) => commands::compare::run(&arguments),
        Command::Serve(arguments) => commands::serve::run(&arguments),
        Command::Listen(arguments) => commands::listen::run(&arguments),
        Command::Audit(arguments) => commands::audit::run(&arguments),
        Command::Copy(arguments) => commands::copy::run(&arguments),
        Command::Balance(arguments) => commands::balance::run(&arguments),
        Command::Lab(arguments) => commands::lab::run(&arguments),
        Command::Host(arguments) => commands::host::run(&arguments),
        Command::Wrk(arguments) => commands::peers::run(&arguments),
        Command::Wrk2(arguments) => commands::peers::run(&arguments),
        Command::Ab(arguments) => commands::peers::run(&arguments),
        Command::Clean(arguments) => commands::clean::run(&arguments),
        Command::Fleet(arguments) => commands::fleet::run(&arguments),
        Command::Worker => commands::http::work(),
        Command::Agent(arguments) => commands::agent::run(&arguments),
        Command::ServeWorker => commands::serve::work(),
        Command::Link(arguments) => commands::link::run(&arguments),
        Command::Generate(arguments) => commands::generate::run(&arguments, &Cli::command()),
        Command::LinkWorker => commands::link::work(),
        Command::LabHolder { on_machine, private } => commands::lab::hold(on_machine, private.as_deref()),
        Command::ProgramRunner => run_programs(),
        Command::LabExec { request } => commands::lab::exec(&request),
    };
    exit.unwrap_or_else(|refusal| output::standard::print_refusal(&refusal)).into()
}

/// Entry point of the supervisor process, which runs the programs of a trial.
fn run_programs() -> Result<exit::Exit, exit::Refusal> {
    command::supervisor::run().map(|()| exit::Exit::GoalsMet).map_err(exit::Refusal::one)
}

/// Prints the requested help, or the mistake in the command line with its secrets masked.
fn print_error(error: &clap::Error) -> std::process::ExitCode {
    // Lossy, because an argument may not be UTF-8.
    std::env::args_os().for_each(|word| secrets::mask::learn_argument(&word.to_string_lossy()));
    let text = error.render().to_string();
    if error.use_stderr() {
        output::standard::print_to_stderr(text.trim_end());
        return exit::Exit::WrongUse.into();
    }
    match error.print() {
        Ok(()) => exit::Exit::GoalsMet.into(),
        Err(error) => output::standard::print_refusal(&output::standard::write_failed(&error)).into(),
    }
}

/// Removes hidden commands and inapplicable tips from clap's suggestions.
fn without_hidden(mut error: clap::Error) -> clap::Error {
    let cli = Cli::command();
    let is_hidden = |name: &String| cli.find_subcommand(name).is_some_and(clap::Command::is_hide_set);
    if let Some(ContextValue::Strings(names)) = error.remove(ContextKind::SuggestedSubcommand) {
        let names: Vec<String> = names.into_iter().filter(|name| !is_hidden(name)).collect();
        if !names.is_empty() {
            error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(names));
        }
    }
    // The words after `--` are curl's command line, so clap's tip about values that begin with a hyphen would
    // mislead.
    if let Some(ContextValue::StyledStrs(mut tips)) = error.remove(ContextKind::Suggested) {
        tips.retain(|tip| !tip.to_string().contains("as a value"));
        if !tips.is_empty() {
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
        }
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clap_accepts_the_definition() {
        Cli::command().debug_assert();
    }

    #[test]
    fn hidden_commands_are_not_suggested() {
        let message = |word: &str| {
            let error = Cli::try_parse_from(["proofload", word]).unwrap_err();
            without_hidden(error).to_string()
        };
        for (word, hidden) in [("wrk", "worker"), ("lab-hold", "lab-holder"), ("linkworker", "link-worker")] {
            assert!(!message(word).contains(&format!("'{hidden}'")), "{}", message(word));
        }
        assert!(message("limits").contains("'limit'"), "{}", message("limits"));
    }

    #[test]
    fn long_help_describes_each_command() {
        let mut cli = Cli::command();
        for (name, part) in [
            ("http", "(closed load)"),
            ("limit", "two bounds for each goal"),
            ("run", "exit status"),
            ("report", "exit status"),
            ("compare", "smallest difference"),
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
