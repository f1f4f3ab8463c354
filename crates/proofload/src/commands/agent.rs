//! `proofload agent`: makes load for a controller on another machine.

use std::{fs, net::IpAddr, path::PathBuf, process::Command};

use broker::{Access, BrokerAddress, Key, PublicKey, ServeOptions};
use clap::Args;
use fleet::Permissions;
use load::raise_descriptors;
use settings::Network;

use crate::{
    exit::{Exit, Refusal, Result},
    output::standard,
};

/// Wait at a NATS server for a controller, and make load for it.
///
/// Obeys only controllers whose keys it was given. Ends after `proofload fleet drain`, or at SIGTERM.
#[derive(Debug, Args)]
pub(crate) struct AgentArgs {
    /// The broker and the pool: nats://HOST:PORT/POOL
    #[arg(long, value_name = "URL", requires = "key", requires = "controller_key")]
    nats: Option<String>,
    /// File with the credentials for the broker (.creds)
    #[arg(long, value_name = "FILE", requires = "nats")]
    nats_creds: Option<PathBuf>,
    /// File with the certificates of the authorities that vouch for the broker
    #[arg(long, value_name = "FILE", requires = "nats")]
    nats_ca: Option<PathBuf>,
    /// File with this agent's key; `proofload fleet key FILE` makes one
    #[arg(long, value_name = "FILE", requires = "nats")]
    key: Option<PathBuf>,
    /// Public key of a controller to obey, as `proofload fleet key` prints it; repeatable
    #[arg(long, value_name = "KEY", requires = "nats")]
    controller_key: Vec<PublicKey>,
    /// Networks that may be loaded, such as 10.0.0.0/8,192.0.2.7/32; without any, nothing is loaded
    #[arg(long, value_name = "NETWORK", value_delimiter = ',')]
    allow: Vec<Network>,
    /// Name of the agent in the pool [default: the name of the machine]
    #[arg(long, requires = "nats")]
    name: Option<String>,
    /// Take orders from standard input
    #[arg(long, hide = true, required_unless_present_any = ["check", "nats"], conflicts_with = "nats")]
    stdio: bool,
    /// Make load only, in the allowed networks
    #[arg(long, hide = true, requires = "stdio")]
    load_only: bool,
    /// The address that ssh has reached
    #[arg(long, hide = true, requires = "stdio")]
    reached: Option<String>,
    /// End at once: shows that the program can run here
    #[arg(long, hide = true, conflicts_with = "stdio")]
    check: bool,
}

/// Runs an agent until its standard input ends, or at a broker until it is asked to end.
pub(crate) fn run(arguments: &AgentArgs) -> Result<Exit> {
    if arguments.check {
        return Ok(Exit::GoalsMet);
    }
    if let Some(url) = &arguments.nats {
        return wait_at_broker(url, arguments);
    }
    raise_descriptors();
    // A link-local address is followed by the name of an interface; sshd may not know an address at all.
    let reached =
        arguments.reached.as_deref().and_then(|text| text.split('%').next()?.parse::<IpAddr>().ok());
    let load_only = arguments.load_only;
    let networks = load_only.then(|| arguments.allow.clone());
    let permissions = Permissions { networks, load_only };
    let serve = move |questions| study::serve(questions, reached);
    fleet::run_agent(&["worker".to_owned()], &permissions, serve)
        .map(|()| Exit::GoalsMet)
        .map_err(Refusal::one)
}

fn wait_at_broker(url: &str, arguments: &AgentArgs) -> Result<Exit> {
    let access = Access {
        address: url.parse::<BrokerAddress>().map_err(Refusal::one)?,
        credentials: arguments.nats_creds.clone(),
        authorities: arguments.nats_ca.clone(),
    };
    let name = match &arguments.name {
        Some(name) => name.clone(),
        None => fs::read_to_string("/proc/sys/kernel/hostname").map_err(Refusal::one)?.trim().to_owned(),
    };
    let key = arguments.key.as_deref().expect("clap requires it");
    let key = Key::read(key).map_err(Refusal::one)?;
    let program = std::env::current_exe().map_err(Refusal::one)?;
    let networks: Vec<String> = arguments.allow.iter().map(ToString::to_string).collect();
    if networks.is_empty() {
        standard::print_to_stderr("proofload: without --allow, nothing is loaded");
    }
    standard::print_to_stderr(format_args!("proofload: agent {name} with the key {}", key.public()));
    let options = ServeOptions { access, name, key, controllers: arguments.controller_key.clone() };
    let command = || {
        let mut command = Command::new(&program);
        command.args(["agent", "--stdio", "--load-only"]);
        if !networks.is_empty() {
            command.args(["--allow", &networks.join(",")]);
        }
        command
    };
    let stop = crate::stop::on_signal()?;
    let tell = |event| standard::print_to_stderr(format_args!("proofload: {event}"));
    broker::serve(&options, command, &stop, tell).map_err(Refusal::one)?;
    Ok(Exit::GoalsMet)
}
