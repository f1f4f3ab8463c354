//! Commands that change a server of a running balancer.

use std::{
    net::{IpAddr, SocketAddr},
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

use balance::{Change, Request, ServerName, ServerStatistics, Statistics, Values};
use clap::Args;
use record::units::parse_time;

use super::{ServerArgs, client};
use crate::{
    exit::{Exit, Refusal},
    output::standard,
};

/// Time between two queries for a server's connections while the command waits for zero.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Add a server to a VIP of the running balancer.
///
/// The server gets connections as soon as its checks succeed. The change is lost when the file is read again.
#[derive(Debug, Args)]
pub(super) struct AddArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Name of the server [default: its address]
    #[arg(long, value_name = "NAME")]
    server_name: Option<String>,
    #[command(flatten)]
    values: ValueArgs,
}

/// Change a server of the running balancer.
#[derive(Debug, Args)]
pub(super) struct SetArgs {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    values: ValueArgs,
}

/// Give a server no new connections; those that it has go on.
#[derive(Debug, Args)]
pub(super) struct DrainArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Wait until it has no connections, at most for this time
    #[arg(long, value_name = "TIME", conflicts_with = "undo")]
    wait: Option<String>,
    /// Give it new connections again
    #[arg(long)]
    undo: bool,
}

/// Remove a server. It gets no new connections, and is removed when its last connection has ended.
#[derive(Debug, Args)]
pub(super) struct RemoveArgs {
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Args)]
struct ValueArgs {
    /// Weight of the server: its share of new connections is its weight divided by the sum of all weights; 0: none
    #[arg(long, value_name = "N")]
    weight: Option<u32>,
    /// Most connections of the server: at this many it gets no new ones; 0: no maximum
    #[arg(long, value_name = "N")]
    max: Option<u32>,
    /// A full server gets new connections again below this many; 0: three quarters of the maximum
    #[arg(long, value_name = "N")]
    resume: Option<u32>,
}

/// Adds a server.
pub(super) fn add(arguments: &AddArgs) -> Result<Exit, Refusal> {
    let (name, values) = (arguments.server_name.clone(), arguments.values.read());
    change(&arguments.server, Change::Add { name, values })
}

/// Changes values of a server.
pub(super) fn set(arguments: &SetArgs) -> Result<Exit, Refusal> {
    let values = arguments.values.read();
    if values == Values::default() {
        return Err(Refusal::one("nothing to set: give --weight, --max or --resume"));
    }
    change(&arguments.server, Change::Set(values))
}

/// Removes a server.
pub(super) fn remove(arguments: &RemoveArgs) -> Result<Exit, Refusal> {
    change(&arguments.server, Change::Remove)
}

/// Drains a server, or ends its drain with `--undo`. With `--wait`, waits until the server has no connections.
pub(super) fn drain(arguments: &DrainArgs) -> Result<Exit, Refusal> {
    let wait = arguments.wait.as_deref().map(parse_time).transpose();
    let wait = wait.map_err(|error| Refusal::one(format_args!("--wait: {error}")))?;
    let exit = change(&arguments.server, Change::Drain(!arguments.undo))?;
    match wait {
        Some(wait) => wait_until_empty(&arguments.server, wait),
        None => Ok(exit),
    }
}

fn change(server: &ServerArgs, change: Change) -> Result<Exit, Refusal> {
    let name = server_name(server)?;
    client::tell(&client::find(&server.which)?, &Request::Server { server: name, change })
}

/// Waits until a sweep that started after this call finds no connection of the server.
fn wait_until_empty(server: &ServerArgs, wait: Duration) -> Result<Exit, Refusal> {
    let (name, instance, stop) =
        (server_name(server)?, client::find(&server.which)?, crate::stop::on_signal()?);
    let begun = Instant::now();
    loop {
        let left = connections(&client::statistics(&instance)?, &name, begun.elapsed());
        if left == Some((0, 0)) {
            return standard::print_wrapped(&format!("{} has no connections\n", server.server))
                .map(|()| Exit::GoalsMet);
        }
        if stop.load(Ordering::Relaxed) {
            return Ok(Exit::Interrupted);
        }
        if begun.elapsed() >= wait {
            let has = match left {
                Some((active, closing)) => {
                    format!("still has {active} connection(s), and {closing} that are closing")
                }
                None => "may still have connections: they have not been counted since".to_owned(),
            };
            return Err(Refusal::one(format_args!("{} {has}; it stays drained", server.server)));
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// A server's established and closing connections, or `None` if no sweep has counted them in the last `within`.
fn connections(statistics: &Statistics, name: &ServerName, within: Duration) -> Option<(u64, u64)> {
    statistics.sweep.age_s.filter(|age_s| *age_s < within.as_secs_f64())?;
    let vips = statistics
        .vips
        .iter()
        .filter(|vip| vip.address == name.vip && name.port.is_none_or(|port| vip.ports.contains(&port)));
    let is_it = |server: &&ServerStatistics| {
        server.name == name.server || name.server.parse().is_ok_and(|asked: IpAddr| asked == server.address)
    };
    let server = vips.flat_map(|vip| &vip.servers).find(is_it);
    Some(server.map_or((0, 0), |server| (server.active, server.closing)))
}

fn server_name(arguments: &ServerArgs) -> Result<ServerName, Refusal> {
    let text = &arguments.vip;
    let alone = text.parse::<IpAddr>().map(|vip| (vip, None));
    let read = alone.or_else(|_| text.parse().map(|vip: SocketAddr| (vip.ip(), Some(vip.port()))));
    let (vip, port) = read.map_err(|_| {
        Refusal::one(format_args!(
            "'{text}' is not a VIP such as 192.168.16.100, 192.168.16.100:80 or [fd00::1]:80"
        ))
    })?;
    Ok(ServerName { vip, port, server: arguments.server.clone() })
}

impl ValueArgs {
    fn read(&self) -> Values {
        Values { weight: self.weight, max_connections: self.max, resume_connections: self.resume }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_those_of_a_sweep_that_began_since() {
        let server = ServerStatistics {
            name: "web1".to_owned(),
            address: "10.0.0.1".parse().unwrap(),
            mac: None,
            weight: 1,
            state: "draining".to_owned(),
            is_up: true,
            why_down: None,
            max_connections: None,
            ring_ratio: 0.5,
            active: 0,
            closing: 3,
            flows: 9,
            kept: 0,
            established: 9,
            packets: 9,
            bytes: 9,
        };
        let vip = balance::VipStatistics {
            name: "10.0.0.9:80".to_owned(),
            address: "10.0.0.9".parse().unwrap(),
            ports: vec![80],
            schedule: "maglev".to_owned(),
            is_leaving: false,
            drops: Default::default(),
            not_remembered: Default::default(),
            servers: vec![server],
        };
        let mut statistics = Statistics { vips: vec![vip], ..Statistics::default() };
        let second = Duration::from_secs(1);
        let of = |server: &str| ServerName {
            vip: "10.0.0.9".parse().unwrap(),
            port: Some(80),
            server: server.to_owned(),
        };
        assert_eq!(connections(&statistics, &of("web1"), second), None, "there was no sweep yet");
        statistics.sweep.age_s = Some(1.5);
        assert_eq!(connections(&statistics, &of("web1"), second), None, "the sweep began before");
        statistics.sweep.age_s = Some(0.5);
        assert_eq!(connections(&statistics, &of("10.0.0.1"), second), Some((0, 3)));
        assert_eq!(connections(&statistics, &of("web2"), second), Some((0, 0)));
    }
}
