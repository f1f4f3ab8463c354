//! The keys of a balancer's file, except keys of tables, addresses and ports.

use std::{net::SocketAddr, ops::RangeInclusive, time::Duration};

use record::units::{parse_ratio, parse_time};
use settings::options::{Kind, OptionSpec, choice, error_text, whole};

use super::{Config, MAX_WEIGHT, Persistence, Server, Vip, WhenAllDown, WhenServerDies, checked_name};
use crate::{Hook, Schedule, Sizes, health::Check};

const HOOKS: &[&str] = &["auto", "cls", "xdp"];
/// Names of schedules, including those of ipvs. ipvs has separate names for scheduling with and without weights; this
/// program has one schedule for both.
const SCHEDULES: &[&str] = &["maglev", "round-robin", "mh", "sh", "rr", "wrr"];
const WHEN_ALL_DOWN: &[&str] = &["drop", "all"];
const WHEN_SERVER_DIES: &[&str] = &["move", "hold"];
const KINDS: &[&str] = &["tcp", "http", "https", "none"];
/// Maximum number of entries of a table.
const MAX_ENTRIES: u64 = 1 << 26;

/// Keys of the balancer.
pub(super) static BALANCER: &[OptionSpec<Config>] = settings::option_table! {
    /// Hook that takes the frames: after the kernel has built packets (cls), or in the driver (xdp)
    "hook", Kind::Choice(HOOKS), "HOOK", "", "auto", "cls",
        |config, text| config.hook = choice(text[0], HOOKS, &[None, Some(Hook::Cls), Some(Hook::Xdp)])?;
    /// Whether the VIPs are put on the device and announced
    "answer_arp", Kind::On, "", "", "", "", |config, _| config.answer_arp = false;
    /// Seed of all hashes; the same for both balancers of a failover pair
    "seed", Kind::Count(0), "N", "", "0", "42", |config, text| config.seed = whole(text[0], 0..=i64::MAX as u64 - 1)?;
    /// How long a handshake may take
    "handshake", Kind::Time, "T", "", "3s", "3s", |config, text| config.handshake = time(text[0])?;
    /// New connections that are remembered per second, at the most
    "remember_per_second", Kind::Count(0), "N", "", "50000", "50000",
        |config, text| config.remember_per_second = whole(text[0], 0..=u32::MAX.into())?;
    /// For how long a connection without packets is remembered
    "idle_timeout", Kind::Time, "T", "", "15m", "15m", |config, text| config.idle_timeout = time(text[0])?;
    /// For how long a connection that is closing is remembered
    "closing_timeout", Kind::Time, "T", "", "2m", "2m", |config, text| config.closing_timeout = time(text[0])?;
    /// Address and port of figures for Prometheus
    "metrics", Kind::Text, "ADDR:PORT", "", "", "127.0.0.1:9100", |config, text| config.metrics = Some(metrics(text[0])?);
};

/// Keys of the sizes of the kernel's tables.
pub(super) static SIZES: &[OptionSpec<Sizes>] = settings::option_table! {
    /// Connections that are remembered
    "flows", Kind::Count(1), "N", "", "262144", "262144", |sizes, text| sizes.flows = whole(text[0], 1..=MAX_ENTRIES)?;
    /// Connections whose handshake is remembered
    "pending", Kind::Count(1), "N", "", "65536", "65536", |sizes, text| sizes.pending = whole(text[0], 1..=MAX_ENTRIES)?;
    /// Source addresses that are remembered
    "sources", Kind::Count(1), "N", "", "65536", "65536", |sizes, text| sizes.sources = whole(text[0], 1..=MAX_ENTRIES)?;
    /// Datagrams whose fragments are remembered
    "fragments", Kind::Count(1), "N", "", "16384", "16384", |sizes, text| sizes.fragments = whole(text[0], 1..=MAX_ENTRIES)?;
};

/// Keys of a VIP.
pub(super) static VIP: &[OptionSpec<Vip>] = settings::option_table! {
    /// How servers are chosen: by a hash of the client's address and port, or in turn
    "schedule", Kind::Choice(SCHEDULES), "NAME", "", "maglev", "round-robin", |vip, text| {
        use Schedule::{Ring, RoundRobin};
        vip.schedule = choice(text[0], SCHEDULES, &[Ring, RoundRobin, Ring, Ring, RoundRobin, RoundRobin])?;
    };
    /// Connections of a source address go to one server: always ("source"), or for this time after the last one
    "persistence", Kind::Text, "WHAT", "", "off", "5m", |vip, text| vip.persistence = match text[0] {
        "off" => Persistence::Off,
        "source" => Persistence::Source,
        text => Persistence::For(time(text)?),
    };
    /// Whether frames are dropped while no server is up, or sent as if all were up
    "when_all_down", Kind::Choice(WHEN_ALL_DOWN), "WHAT", "", "drop", "all",
        |vip, text| vip.when_all_down = choice(text[0], WHEN_ALL_DOWN, &[WhenAllDown::Drop, WhenAllDown::All])?;
    /// Whether connections of a dead server go to others, or wait for it
    "when_server_dies", Kind::Choice(WHEN_SERVER_DIES), "WHAT", "", "move", "hold",
        |vip, text| vip.when_server_dies = choice(text[0], WHEN_SERVER_DIES, &[WhenServerDies::Move, WhenServerDies::Hold])?;
};

/// Keys of a server.
pub(super) static SERVER: &[OptionSpec<Server>] = settings::option_table! {
    /// Name of the server; its address unless given
    "name", Kind::Text, "NAME", "", "", "web1", |server, text| server.name = checked_name(text[0])?.to_owned();
    /// Its share of new connections, relative to others
    "weight", Kind::Count(0), "N", "", "1", "1", |server, text| server.weight = whole(text[0], 0..=MAX_WEIGHT.into())?;
    /// Number of connections from which it gets no new ones
    "max_connections", Kind::Count(1), "N", "", "", "1000",
        |server, text| server.max_connections = Some(whole(text[0], 1..=u32::MAX.into())?);
    /// Number of connections below which a full server gets new ones again
    "resume_connections", Kind::Count(1), "N", "", "", "750",
        |server, text| server.resume_connections = Some(whole(text[0], 1..=u32::MAX.into())?);
    /// Whether it gets no new connections
    "drain", Kind::Flag, "", "", "", "", |server, _| server.drain = true;
};

/// The keys of a check in the file.
#[derive(Debug, Clone, Default)]
pub(super) struct CheckKeys {
    /// One of [`KINDS`]; `tcp` if empty.
    pub(super) kind: String,
    pub(super) path: Option<String>,
    pub(super) host: Option<String>,
    pub(super) status: Option<RangeInclusive<u16>>,
    /// Interval, timeout, jitter and counts.
    pub(super) check: Check,
}

/// Keys of a check.
pub(super) static CHECK: &[OptionSpec<CheckKeys>] = settings::option_table! {
    /// Kind of check
    "kind", Kind::Choice(KINDS), "KIND", "", "tcp", "http", |keys, text| keys.kind = choice(text[0], KINDS, KINDS)?.to_owned();
    /// Path of the HTTP request
    "path", Kind::Text, "PATH", "", "/", "/health", |keys, text| keys.path = Some(path(text[0])?);
    /// The field Host; the VIP unless given
    "host", Kind::Text, "HOST", "", "", "www.example.com", |keys, text| keys.host = Some(host(text[0])?);
    /// Status or range that is good
    "status", Kind::Numbers, "RANGE", "", "200-399", "200-399", |keys, text| keys.status = Some(statuses(text[0])?);
    /// Port; the VIP's first one unless given
    "port", Kind::Count(1), "N", "", "", "80", |keys, text| keys.check.port = Some(whole(text[0], 1..=65_535)?);
    /// Time from one check to the next
    "interval", Kind::Time, "T", "", "2s", "2s", |keys, text| keys.check.interval = time(text[0])?;
    /// Longest time for an answer
    "timeout", Kind::Time, "T", "", "1s", "1s", |keys, text| keys.check.timeout = time(text[0])?;
    /// Share by which intervals vary
    "jitter", Kind::Share, "SHARE", "", "10%", "10%",
        |keys, text| keys.check.jitter = parse_ratio(text[0]).map_err(error_text)?;
    /// Good checks in turn until a server is up
    "rise", Kind::Count(1), "N", "", "2", "2", |keys, text| keys.check.rise = whole(text[0], 1..=1_000)?;
    /// Bad checks in turn until a server is down
    "fall", Kind::Count(1), "N", "", "3", "3", |keys, text| keys.check.fall = whole(text[0], 1..=1_000)?;
};

fn time(text: &str) -> Result<Duration, String> {
    match parse_time(text).map_err(error_text)? {
        Duration::ZERO => Err("the time must be above 0".to_owned()),
        time => Ok(time),
    }
}

fn metrics(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| format!("'{text}' is not an address and a port such as 127.0.0.1:9100"))
}

fn path(text: &str) -> Result<String, String> {
    let is_path = text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic());
    is_path
        .then(|| text.to_owned())
        .ok_or_else(|| format!("'{text}' is not a path; write one such as /health"))
}

fn host(text: &str) -> Result<String, String> {
    let is_name = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    is_name.then(|| text.to_owned()).ok_or_else(|| format!("'{text}' is not the name of a host"))
}

fn statuses(text: &str) -> Result<RangeInclusive<u16>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let number = |text: &str| text.trim().parse().ok().filter(|status| (100..=599).contains(status));
    let range = number(first).zip(number(last)).filter(|(first, last)| first <= last);
    let range = range.map(|(first, last)| first..=last);
    range.ok_or_else(|| format!("'{text}' is not a status or a range such as 200-399"))
}
