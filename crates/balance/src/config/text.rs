//! Writes a configuration as the text of a file with the same meaning.

use std::{
    fmt::{self, Write},
    time::Duration,
};

use serde_json::Value;

use super::{ALL_PORTS, Config, Persistence, Server, Vip, WhenAllDown, WhenServerDies};
use crate::{
    Hook, Sizes,
    health::{Check, CheckKind},
};

impl Config {
    /// The text of a file with this configuration, without values that equal the defaults.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = write_config(&mut text, self);
        text
    }
}

fn write_config(out: &mut String, config: &Config) -> fmt::Result {
    let plain = Config::new(&*config.device);
    writeln!(out, "device = {}", quoted(&config.device))?;
    match config.hook {
        Some(Hook::Cls) => writeln!(out, "hook = \"cls\"")?,
        Some(Hook::Xdp) => writeln!(out, "hook = \"xdp\"")?,
        None => {}
    }
    key(out, "answer_arp", &config.answer_arp, &plain.answer_arp)?;
    key(out, "seed", &config.seed, &plain.seed)?;
    time(out, "handshake", config.handshake, plain.handshake)?;
    key(out, "remember_per_second", &config.remember_per_second, &plain.remember_per_second)?;
    time(out, "idle_timeout", config.idle_timeout, plain.idle_timeout)?;
    time(out, "closing_timeout", config.closing_timeout, plain.closing_timeout)?;
    if let Some(metrics) = config.metrics {
        writeln!(out, "metrics = \"{metrics}\"")?;
    }
    let (sizes, usual) = (&config.sizes, Sizes::default());
    if *sizes != usual {
        writeln!(out, "\n[tables]")?;
        key(out, "flows", &sizes.flows, &usual.flows)?;
        key(out, "pending", &sizes.pending, &usual.pending)?;
        key(out, "sources", &sizes.sources, &usual.sources)?;
        key(out, "fragments", &sizes.fragments, &usual.fragments)?;
    }
    config.vips.iter().try_for_each(|vip| write_vip(out, vip))
}

fn write_vip(out: &mut String, vip: &Vip) -> fmt::Result {
    writeln!(out, "\n[[vips]]\naddress = \"{}\"", vip.address)?;
    match vip.ports[..] {
        [ALL_PORTS] => writeln!(out, "ports = \"all\"")?,
        [port] => writeln!(out, "port = {port}")?,
        _ => writeln!(out, "ports = {:?}", vip.ports)?,
    }
    writeln!(out, "schedule = \"{}\"", vip.schedule.name())?;
    match vip.persistence {
        Persistence::Off => {}
        Persistence::Source => writeln!(out, "persistence = \"source\"")?,
        Persistence::For(time) => writeln!(out, "persistence = \"{}\"", shown(time))?,
    }
    if vip.when_all_down == WhenAllDown::All {
        writeln!(out, "when_all_down = \"all\"")?;
    }
    if vip.when_server_dies == WhenServerDies::Hold {
        writeln!(out, "when_server_dies = \"hold\"")?;
    }
    writeln!(out, "check = {{ {} }}", check_text(&vip.check))?;
    vip.servers.iter().try_for_each(|server| write_server(out, server))
}

fn check_text(check: &Check) -> String {
    let mut parts = Vec::new();
    match &check.kind {
        CheckKind::None => return "kind = \"none\"".to_owned(),
        CheckKind::Tcp => parts.push("kind = \"tcp\"".to_owned()),
        CheckKind::Http { tls, path, host, status } => {
            let kind = if *tls { "https" } else { "http" };
            parts.push(format!("kind = \"{kind}\", path = {}", quoted(path)));
            parts.extend(host.iter().map(|host| format!("host = {}", quoted(host))));
            parts.push(format!("status = \"{}-{}\"", status.start(), status.end()));
        }
    }
    parts.extend(check.port.map(|port| format!("port = {port}")));
    parts.push(format!("interval = \"{}\", timeout = \"{}\"", shown(check.interval), shown(check.timeout)));
    parts.push(format!("jitter = {}", check.jitter));
    parts.push(format!("rise = {}, fall = {}", check.rise, check.fall));
    parts.join(", ")
}

fn write_server(out: &mut String, server: &Server) -> fmt::Result {
    writeln!(out, "\n  [[vips.servers]]")?;
    let plain = Server::new(server.address);
    if server.name != plain.name {
        writeln!(out, "  name = {}", quoted(&server.name))?;
    }
    writeln!(out, "  address = \"{}\"", server.address)?;
    if server.weight != plain.weight {
        writeln!(out, "  weight = {}", server.weight)?;
    }
    for (name, count) in
        [("max_connections", server.max_connections), ("resume_connections", server.resume_connections)]
    {
        if let Some(count) = count {
            writeln!(out, "  {name} = {count}")?;
        }
    }
    if server.drain {
        writeln!(out, "  drain = true")?;
    }
    Ok(())
}

fn key<T: fmt::Display + PartialEq>(out: &mut String, name: &str, value: &T, usual: &T) -> fmt::Result {
    if value == usual { Ok(()) } else { writeln!(out, "{name} = {value}") }
}

fn time(out: &mut String, name: &str, value: Duration, usual: Duration) -> fmt::Result {
    if value == usual { Ok(()) } else { writeln!(out, "{name} = \"{}\"", shown(value)) }
}

/// A time in the largest unit that gives a whole number.
fn shown(time: Duration) -> String {
    let ns = time.as_nanos();
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns")];
    let (size, unit) = units.into_iter().find(|(size, _)| ns.is_multiple_of(*size)).unwrap_or((1, "ns"));
    format!("{}{unit}", ns / size)
}

/// JSON strings are also TOML strings, except for the character DEL, which names and paths never contain.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}
