//! `proofload fleet`: the agents that wait at a broker.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    path::PathBuf,
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

use broker::{Key, Present, Readiness};
use clap::{Args, Subcommand};
use fleet::Pool;

use super::pool_args::PoolArgs;
use crate::{
    exit::{Exit, Refusal, Result},
    output::standard,
};

/// How often `watch` asks which agents are there.
const INTERVAL: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(100);

/// List, watch and end agents that wait at a NATS server, and make keys.
#[derive(Debug, Args)]
pub(crate) struct FleetCommandArgs {
    #[command(subcommand)]
    command: FleetCommand,
}

#[derive(Debug, Subcommand)]
enum FleetCommand {
    /// Print the agents that are there: name, state, version, key
    List(WhereArgs),
    /// Print agents that come, go, start or stop working, until interrupted
    Watch(WhereArgs),
    /// Ask agents to take no more load, and to end after their current load
    Drain(DrainArgs),
    /// Make a key unless the file has one, and print its public part
    Key {
        /// The file, which no other user may read
        file: PathBuf,
    },
}

#[derive(Debug, Args)]
struct WhereArgs {
    /// The broker and the pool: nats://HOST:PORT/POOL
    #[arg(value_name = "URL")]
    url: String,
    #[command(flatten)]
    pool: PoolArgs,
}

#[derive(Debug, Args)]
struct DrainArgs {
    /// Names of the agents [default: all of the pool]
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// The broker and the pool: nats://HOST:PORT/POOL
    #[arg(long, value_name = "URL", required = true)]
    on: String,
    #[command(flatten)]
    pool: PoolArgs,
}

pub(crate) fn run(arguments: &FleetCommandArgs) -> Result<Exit> {
    match &arguments.command {
        FleetCommand::List(place) => {
            let agents = connect(&place.url, &place.pool)?.agents().map_err(Refusal::one)?;
            let none = "no agent is there\n".to_owned();
            standard::print_raw(&if agents.is_empty() { none } else { table(&agents) })?;
        }
        FleetCommand::Watch(place) => watch(&connect(&place.url, &place.pool)?)?,
        FleetCommand::Drain(arguments) => {
            if !arguments.pool.options().has_keys() {
                return Err(Refusal::one(fleet::NO_KEYS));
            }
            connect(&arguments.on, &arguments.pool)?.drain(&arguments.names).map_err(Refusal::new)?;
        }
        FleetCommand::Key { file } => {
            let key = match file.exists() {
                true => Key::read(file),
                false => Key::create(file),
            };
            standard::print_raw(&format!("{}\n", key.map_err(Refusal::one)?.public()))?;
        }
    }
    Ok(Exit::GoalsMet)
}

fn connect(url: &str, pool: &PoolArgs) -> Result<Pool> {
    Pool::connect(url, &pool.options()).map_err(Refusal::one)
}

fn watch(pool: &Pool) -> Result {
    let stop = crate::stop::on_signal()?;
    let mut before = BTreeSet::new();
    while !stop.load(Ordering::Relaxed) {
        let now: BTreeSet<String> =
            pool.agents().map_err(Refusal::one)?.iter().map(|agent| line(agent, 0)).collect();
        let gone = before.difference(&now).map(|line| format!("- {line}\n"));
        let text: String = gone.chain(now.difference(&before).map(|line| format!("+ {line}\n"))).collect();
        standard::print_raw(&text)?;
        before = now;
        let until = Instant::now() + INTERVAL;
        while Instant::now() < until && !stop.load(Ordering::Relaxed) {
            thread::sleep(POLL);
        }
    }
    Ok(())
}

fn table(agents: &[Present]) -> String {
    let width = agents.iter().map(|agent| agent.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for agent in agents {
        let _ = writeln!(text, "{}", line(agent, width));
    }
    text
}

fn line(agent: &Present, width: usize) -> String {
    let state = match agent.state {
        Readiness::Idle => "idle",
        Readiness::Busy => "busy",
        Readiness::Draining => "draining",
    };
    format!("{:width$}  {state:8}  {}  {}", agent.name, agent.version, agent.key)
}
