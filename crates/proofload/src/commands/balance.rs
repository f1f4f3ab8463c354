//! `proofload balance`: balances TCP with direct server return, and queries or changes a running balancer.

mod change;
mod client;
mod explain;
mod import;
mod run;
mod server_setup;
mod stats;
mod table;

use std::path::Path;

use clap::{Args, Subcommand};

use super::init::{self, InitArgs};
use crate::exit::{Exit, Refusal};

/// Balance TCP connections over servers of the same Ethernet segment, with direct server return.
///
/// A BPF program writes the address of a server into each frame that clients send to a VIP; servers have the VIP themselves, and answer
/// clients directly. Runs until Ctrl-C or SIGTERM, then undoes everything. SIGHUP reads the file again; SIGUSR2 ends this process and
/// leaves everything for the next start. After a kill, packets go on, and the next start goes on with the same connections.
///
/// Exit status: 0 ended as it was told to, 2 wrong use, refused or failed.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    arg_required_else_help = true
)]
pub(crate) struct BalanceArgs {
    #[command(subcommand)]
    command: Option<BalanceCommand>,
    #[command(flatten)]
    run: run::RunArgs,
    #[command(flatten)]
    import: import::ImportArgs,
}

#[derive(Debug, Subcommand)]
enum BalanceCommand {
    Stats(stats::StatsArgs),
    Top(stats::TopArgs),
    Add(change::AddArgs),
    Set(change::SetArgs),
    Drain(change::DrainArgs),
    Remove(change::RemoveArgs),
    Reload(client::ReloadArgs),
    Stop(client::StopArgs),
    Explain(explain::ExplainArgs),
    ServerSetup(server_setup::ServerSetupArgs),
    Init(InitArgs),
}

/// Which balancer.
#[derive(Debug, Args)]
struct WhichArgs {
    /// Name of the balancer, where several run [default: the name of its device]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

/// A server of a VIP.
#[derive(Debug, Args)]
struct ServerArgs {
    /// Address of the VIP, with a port where several VIPs have the address, such as 192.168.16.100:80
    vip: String,
    /// Name or address of the server
    server: String,
    #[command(flatten)]
    which: WhichArgs,
}

/// Runs the balancer or a subcommand.
pub(crate) fn run(arguments: &BalanceArgs) -> Result<Exit, Refusal> {
    if let Some(table) = &arguments.import.import {
        return import::run(table, &arguments.import);
    }
    match &arguments.command {
        None => run::run(&arguments.run),
        Some(BalanceCommand::Stats(arguments)) => stats::stats(arguments),
        Some(BalanceCommand::Top(arguments)) => stats::top(arguments),
        Some(BalanceCommand::Add(arguments)) => change::add(arguments),
        Some(BalanceCommand::Set(arguments)) => change::set(arguments),
        Some(BalanceCommand::Drain(arguments)) => change::drain(arguments),
        Some(BalanceCommand::Remove(arguments)) => change::remove(arguments),
        Some(BalanceCommand::Reload(arguments)) => client::reload(arguments),
        Some(BalanceCommand::Stop(arguments)) => client::stop(arguments),
        Some(BalanceCommand::Explain(arguments)) => explain::run(arguments),
        Some(BalanceCommand::ServerSetup(arguments)) => server_setup::run(arguments),
        Some(BalanceCommand::Init(arguments)) => init::balance(arguments),
    }
}

/// Parses a configuration file. Also returns its text.
fn read(path: &Path) -> Result<(balance::Config, String), Refusal> {
    let text = record::input::read_text(path).map_err(|why| Refusal::one(format_args!("--config: {why}")))?;
    let config = balance::Config::read(&path.display().to_string(), &text);
    let config = config.map_err(Refusal::all)?;
    Ok((config, text))
}
