//! Applies the changes of commands to a configuration.

use std::net::IpAddr;

use crate::{
    Config,
    config::{Server, Vip},
    control::{Change, ServerName, Values},
};

/// Changes a server as requested. Returns a description of the change.
///
/// # Errors
/// All mistakes in the change. The configuration may have been changed nevertheless.
pub(crate) fn apply(config: &mut Config, name: &ServerName, change: Change) -> Result<String, Vec<String>> {
    let vip = config.vip_mut(name.vip, name.port).map_err(|why| vec![why])?;
    let done = change_server(vip, &name.server, change).map_err(|why| vec![why])?;
    match config.problems() {
        wrong if wrong.is_empty() => Ok(done),
        wrong => Err(wrong.into_iter().map(|problem| problem.why).collect()),
    }
}

fn change_server(vip: &mut Vip, asked: &str, change: Change) -> Result<String, String> {
    let of = format!("of {}", vip.name());
    if let Change::Add { name, values } = change {
        let address: IpAddr = asked.parse().map_err(|_| {
            format!("'{asked}' is not an address: add a server by its own address on the segment")
        })?;
        if let Some(there) = vip.servers.iter().find(|server| server.address == address) {
            return Err(format!("{address} is already a server {of}, named '{}'", there.name));
        }
        let mut server = Server::new(address);
        server.name = name.unwrap_or(server.name);
        give(&mut server, &values);
        let added = format!("added {} to the servers {of}", server.name);
        vip.servers.push(server);
        return Ok(added);
    }
    let is_it = |server: &Server| {
        server.name == asked || asked.parse().is_ok_and(|address: IpAddr| server.address == address)
    };
    let Some(at) = vip.servers.iter().position(is_it) else {
        let known: Vec<&str> = vip.servers.iter().map(|server| server.name.as_str()).collect();
        return Err(format!("'{asked}' is not one of the servers {of}: {}", known.join(", ")));
    };
    let server = &mut vip.servers[at];
    let name = server.name.clone();
    Ok(match change {
        Change::Set(values) => {
            give(server, &values);
            format!("changed {name} {of}")
        }
        Change::Drain(drain) => {
            server.drain = drain;
            let what = if drain { "gets no new connections" } else { "gets new connections again" };
            format!("{name} {of} {what}")
        }
        Change::Remove | Change::Add { .. } => {
            vip.servers.remove(at);
            format!(
                "{name} gets no new connections, and is removed from the servers {of} when its connections have ended"
            )
        }
    })
}

/// Applies values to a server. 0 connections removes the limit.
fn give(server: &mut Server, values: &Values) {
    server.weight = values.weight.unwrap_or(server.weight);
    for (into, value) in [
        (&mut server.max_connections, values.max_connections),
        (&mut server.resume_connections, values.resume_connections),
    ] {
        if let Some(value) = value {
            *into = Some(value).filter(|value| *value > 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "device = \"eth0\"\n[[vips]]\naddress = \"10.0.0.100\"\nports = [80, 443]\n\
                        [[vips.servers]]\nname = \"web1\"\naddress = \"10.0.0.1\"\nmax_connections = 100\n";

    fn changed(server: &str, change: Change) -> Result<Config, Vec<String>> {
        let mut config = Config::read("f", FILE).unwrap();
        let name =
            ServerName { vip: "10.0.0.100".parse().unwrap(), port: Some(443), server: server.to_owned() };
        apply(&mut config, &name, change).map(|_| config)
    }

    #[test]
    fn servers_are_added_changed_drained_and_removed() {
        let values = Values { weight: Some(5), max_connections: Some(9), resume_connections: Some(7) };
        let add = Change::Add { name: Some("web2".to_owned()), values };
        let added = changed("10.0.0.2", add.clone()).unwrap();
        let server = &added.vips[0].servers[1];
        assert_eq!((server.name.as_str(), server.weight, server.max_connections), ("web2", 5, Some(9)));
        let none = Values { max_connections: Some(0), ..Values::default() };
        let set = changed("10.0.0.1", Change::Set(none)).unwrap();
        assert_eq!((set.vips[0].servers[0].weight, set.vips[0].servers[0].max_connections), (1, None));
        assert!(changed("web1", Change::Drain(true)).unwrap().vips[0].servers[0].drain);
        assert!(changed("web1", Change::Remove).unwrap().vips[0].servers.is_empty());
        for (server, change, why) in [
            ("web2", add.clone(), "'web2' is not an address"),
            ("10.0.0.1", add.clone(), "named 'web1'"),
            ("10.0.0.100", add, "the address of the VIP"),
            // A later start could not read this name from the saved configuration.
            (
                "10.0.0.3",
                Change::Add { name: Some("web 3".to_owned()), values: Values::default() },
                "\"web 3\" is not a name",
            ),
            ("web9", Change::Remove, "10.0.0.100:80,443: web1"),
            (
                "web1",
                Change::Set(Values { resume_connections: Some(101), ..Values::default() }),
                "above max_connections",
            ),
        ] {
            let refused = changed(server, change).unwrap_err().join("\n");
            assert!(refused.contains(why), "{refused}");
        }
    }
}
