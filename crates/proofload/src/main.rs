//! The `proofload` program: arguments, progress, exit status. It decides nothing about measuring.

mod commands;
mod exit;
mod output;

use clap::{Parser, Subcommand};

use exit::Exit;

/// Finds how much load a network service really carries, proves what stops it from carrying more, and
/// never blames the service for the instrument's own limits.
#[derive(Debug, Parser)]
#[command(
    name = "proofload",
    version,
    about,
    after_help = "Exit status: 0 goals met, 1 goals not met, 2 wrong use or refused, 3 void (nothing may be concluded), \
                  130 interrupted. Quantities: times 300ms, rates 5k, sizes 64KiB."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run one trial against an HTTP service.
    Http(Box<commands::http_args::HttpArgs>),
    /// Find the largest number of users, rate or connections that meets the goals.
    Limit(Box<commands::limit::LimitArgs>),
    /// Run a study file.
    Run(commands::run::RunArgs),
    /// Show a result: on the terminal, as a page, or for other tools.
    Report(commands::report::ReportArgs),
    /// Compare two results: effect, confidence, verdict.
    Compare(commands::compare::CompareArgs),
    /// Serve HTTP with programmable behaviour: a target whose truth is known.
    Serve(Box<commands::serve_args::ServeArgs>),
    /// Take events over HTTP and store them in files, acknowledged at a chosen level.
    Listen(Box<commands::listen::ListenArgs>),
    /// Hold what a data listener stored against the receipts of those who sent to it.
    Audit(commands::audit::AuditArgs),
    /// Hosts, links and processes on this machine, from a lab file.
    Lab(commands::lab::LabArgs),
    /// Take back what killed runs left on this machine.
    Clean,
    /// A worker process of a trial; started by proofload itself.
    #[command(hide = true)]
    Worker,
    /// A worker process of `serve`; started by proofload itself.
    #[command(hide = true)]
    ServeWorker,
    /// Join two hosts by a link of a certain rate, delay and loss.
    Link(Box<commands::link_args::LinkArgs>),
    /// A process that holds a host of a lab; started by proofload itself.
    #[command(hide = true)]
    LabHolder,
    /// A process that runs a link; started by proofload itself.
    #[command(hide = true)]
    LinkWorker,
    /// A process that becomes one of a lab's; started by proofload itself.
    #[command(hide = true)]
    LabExec {
        /// Where it belongs, and what it becomes, as JSON.
        order: String,
    },
}

fn main() -> std::process::ExitCode {
    let exit = match Cli::parse().command {
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
        Command::LabExec { order } => commands::lab::exec(&order),
    };
    exit.unwrap_or_else(|refusal| {
        refusal.print();
        Exit::WrongUse
    })
    .into()
}
