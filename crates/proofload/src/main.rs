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
    /// Serve HTTP with programmable behaviour: a target whose truth is known.
    Serve(Box<commands::serve_args::ServeArgs>),
    /// A worker process of a trial; started by proofload itself.
    #[command(hide = true)]
    Worker,
    /// A worker process of `serve`; started by proofload itself.
    #[command(hide = true)]
    ServeWorker,
}

fn main() -> std::process::ExitCode {
    let exit = match Cli::parse().command {
        Command::Http(arguments) => commands::http::run(&arguments),
        Command::Serve(arguments) => commands::serve::run(&arguments),
        Command::Worker => commands::http::work(),
        Command::ServeWorker => commands::serve::work(),
    };
    exit.unwrap_or_else(|refusal| {
        refusal.print();
        Exit::WrongUse
    })
    .into()
}
