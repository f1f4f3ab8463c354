//! The options of `proofload serve`.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use clap::Args;
use record::{
    Distribution, input,
    units::{UnitError, parse_cpus, parse_ratio, parse_size, parse_time},
};
use serve::{Body, Capacity, Config, Misbehaviour, Stall, WhenFull};
use settings::options::{Kind, OptionSpec, count, error_text};

use super::options::{Given, Table};

const ANSWERS: &str = "Answers";
const TIMES: &str = "Times";
const FAULTS: &str = "Faults";
const CONNECTIONS: &str = "Connections";
const MACHINE: &str = "Machine";

const WHEN_FULL: &[&str] = &["reject", "close", "reset", "ignore"];

/// Serve HTTP with programmable behaviour: a target whose truth is known.
///
/// It answers every request alike, as fast as this machine can, unless options say how slow, how broken or how narrow it
/// is. Ctrl-C, SIGTERM or --duration end it; then it tells what it really did. Exit status: 0 ended so, 2 wrong use,
/// or it could not listen.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    given: Given<Options>,
    /// Write the report as JSON to this file (- for standard output)
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub json: Option<PathBuf>,
    /// Print no report
    #[arg(short, long, help_heading = "Output")]
    pub quiet: bool,
}

/// What the target is to do, while options are still being read: some of them only mean something together.
#[derive(Debug)]
struct Draft {
    config: Config,
    processes: u32,
    servers: Option<u32>,
    service_time: Option<Distribution>,
    queue: Option<u64>,
    when_full: WhenFull,
}

impl Draft {
    /// Everything by default.
    fn new() -> Self {
        let config = Config { listen: vec![([127, 0, 0, 1], 8080).into()], ..Config::default() };
        let when_full = WhenFull::default();
        Self { config, processes: 1, servers: None, service_time: None, queue: None, when_full }
    }
}

#[derive(Debug)]
struct Options;

impl Table for Options {
    type Into = Draft;
    const HAS_WORDS: bool = false;

    fn settings() -> impl Iterator<Item = &'static OptionSpec<Draft>> {
        OPTIONS.iter()
    }
}

static OPTIONS: &[OptionSpec<Draft>] = settings::option_table! {
    /// Address and port to listen on; repeatable; port 0 is any free one
    "listen", Kind::List, "ADDR:PORT", "", "127.0.0.1:8080", "0.0.0.0:80 [::1]:80",
        |draft, values| draft.config.listen = each(values.iter().copied(), address)?;
    /// Size of an answer's body
    "body", Kind::Size, "SIZE", ANSWERS, "13", "64KiB",
        |draft, values| draft.config.body = Body::Size(parse_size(values[0]).map_err(error_text)?);
    /// File whose content is the body
    "body_file", Kind::Text, "FILE", ANSWERS, "", "/dev/null",
        |draft, values| draft.config.body =
            Body::Bytes(input::read(Path::new(values[0]), input::MAX_BODY_BYTES)?);
    /// Send the body in chunks, of 16 KiB unless told otherwise
    "chunked", Kind::Size, "CHUNK_SIZE", ANSWERS, "", "1KiB", { bare_value: "16KiB" },
        |draft, values| draft.config.chunk_bytes = Some(parse_size(values[0]).map_err(error_text)?);
    /// Status of an answer
    "status", Kind::Count(200), "N", ANSWERS, "200", "404",
        |draft, values| draft.config.status = count(values[0], 0)?;
    /// Dribble the head of an answer out over this time
    "slow_head", Kind::Time, "T", ANSWERS, "", "20ms",
        |draft, values| draft.config.slow_head_ns = time_ns(values[0])?;
    /// Delay before an answer: 300ms, uniform:10ms..50ms, exp:20ms, lognormal:20ms,0.5 or file:PATH
    "delay", Kind::Text, "DIST", TIMES, "", "exp:20ms",
        |draft, values| draft.config.delay = values[0].parse().map_err(error_text)?;
    /// Requests served at once; the others wait
    "capacity", Kind::Count(1), "N", TIMES, "", "8",
        |draft, values| draft.servers = Some(count(values[0], 0)?);
    /// How long each takes; as --delay
    "service_time", Kind::Text, "DIST", TIMES, "", "4ms",
        |draft, values| draft.service_time = Some(values[0].parse().map_err(error_text)?);
    /// How many may wait; unbounded if not given
    "queue", Kind::Count(0), "LEN", TIMES, "", "100",
        |draft, values| draft.queue = Some(count(values[0], 0)?);
    /// What becomes of a request that finds the queue full: reject (503), close, reset or ignore
    "queue_full", Kind::Choice(WHEN_FULL), "reject|close|reset|ignore", TIMES, "", "close",
        |draft, values| draft.when_full = when_full(values[0])?;
    /// Stand still for the last FOR of every EVERY, over and over
    "stall", Kind::Text, "EVERY,FOR", TIMES, "", "10s,300ms",
        |draft, values| draft.config.stall = Some(stall(values[0])?);
    /// Misbehave in a share of the answers: error, reset, close, truncate, malformed, bad-framing, huge-head, silent or
    /// unsolicited, such as error=1%,reset=0.001
    "misbehave", Kind::List, "KIND=RATIO", FAULTS, "", "error=1%,reset=0.001",
        |draft, values| draft.config.misbehave = each(values.iter().flat_map(|text| text.split(',')), share)?;
    /// Status of the misbehaviour `error`
    "error_status", Kind::Count(200), "N", FAULTS, "503", "500",
        |draft, values| draft.config.error_status = count(values[0], 0)?;
    /// Connections open at once, in each process; further ones are accepted and reset
    "max_connections", Kind::Count(1), "N", CONNECTIONS, "", "18k",
        |draft, values| draft.config.max_connections = Some(count(values[0], 0)?);
    /// Accept queue of each listener (each thread of each process has one); at most net.core.somaxconn
    "backlog", Kind::Count(1), "N", CONNECTIONS, "4096", "128",
        |draft, values| draft.config.backlog = count(values[0], 0)?;
    /// Close a connection after so many requests
    "keepalive_requests", Kind::Count(1), "N", CONNECTIONS, "", "100",
        |draft, values| draft.config.keepalive_requests = Some(count(values[0], 0)?);
    /// Close a connection that has been idle for so long
    "keepalive_timeout", Kind::Time, "T", CONNECTIONS, "", "65s",
        |draft, values| draft.config.keepalive_timeout_ns = Some(time_ns(values[0])?);
    /// Threads of each process
    "threads", Kind::Count(1), "N", MACHINE, "1", "2", { short: Some('t') },
        |draft, values| draft.config.threads = count(values[0], 0)?;
    /// Processes that share the addresses (SO_REUSEPORT)
    "processes", Kind::Count(1), "N", MACHINE, "1", "2",
        |draft, values| match count(values[0], 0)? {
            0 => return Err("0 processes serve nobody; at least 1".to_owned()),
            processes => draft.processes = processes,
        };
    /// Processors to pin the threads to, such as 0,2-3
    "cpus", Kind::Numbers, "LIST", MACHINE, "", "0,2-3",
        |draft, values| draft.config.cpus = parse_cpus(values[0]).map_err(error_text)?;
    /// Seed of everything random
    "seed", Kind::Count(0), "N", MACHINE, "1", "9",
        |draft, values| draft.config.seed = count(values[0], 0)?;
    /// Stop by itself after this long
    "duration", Kind::Time, "T", "", "", "1m", { short: Some('d') },
        |draft, values| draft.config.duration_ns = Some(time_ns(values[0])?);
};

impl ServeArgs {
    /// The target's configuration, checked, and how many processes share it. Each needs its own seed.
    ///
    /// # Errors
    /// Every mistake, those of the options first.
    pub(crate) fn config(&self) -> Result<(Config, u32), Vec<String>> {
        let mut draft = Draft::new();
        let mut mistakes = self.given.put(&mut draft);
        let Draft { mut config, processes, servers, service_time, queue, when_full } = draft;
        let has = |key: &str| self.given.has(key);
        config.reuse_port = processes > 1;
        for (is_wrong, mistake) in [
            (has("body") && has("body_file"), "--body and --body-file: leave out one of both"),
            (
                config.reuse_port && (has("capacity") || has("service_time")),
                "--processes: a capacity and its queue are of one process, and several would each have their own; leave \
                 out --processes and serve with more --threads",
            ),
            (
                has("capacity") && !has("service_time"),
                "--capacity needs --service-time: how long each request takes",
            ),
            (
                has("service_time") && !has("capacity"),
                "--service-time needs --capacity: how many requests are served at once",
            ),
            (has("queue") && !has("capacity"), "--queue needs --capacity: without it nobody waits"),
            (
                has("queue_full") && !has("queue"),
                "--queue-full needs --queue: a queue without bound is never full",
            ),
        ] {
            if is_wrong {
                mistakes.push(mistake.to_owned());
            }
        }
        if let (Some(servers), Some(service_time)) = (servers, service_time) {
            config.capacity = Some(Capacity { servers, service_time, queue, when_full });
        }
        // What could not be read has its default here, which is sound: nothing is named twice.
        mistakes.extend(config.validate().err().into_iter().flatten().map(error_text));
        if mistakes.is_empty() { Ok((config, processes)) } else { Err(mistakes) }
    }
}

/// What each text says; of those that say nothing, why.
fn each<'a, T>(
    texts: impl Iterator<Item = &'a str>,
    read: fn(&str) -> Result<T, String>,
) -> Result<Vec<T>, String> {
    let (mut values, mut mistakes) = (Vec::new(), Vec::new());
    for text in texts {
        match read(text) {
            Ok(value) => values.push(value),
            Err(why) => mistakes.push(why),
        }
    }
    if mistakes.is_empty() { Ok(values) } else { Err(mistakes.join("; ")) }
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        UnitError::new(text, "an address with its port, such as 127.0.0.1:8080 or [::1]:8080").to_string()
    })
}

fn time_ns(text: &str) -> Result<u64, String> {
    parse_time(text).map(|time| time.as_nanos() as u64).map_err(|e| e.to_string())
}

fn stall(text: &str) -> Result<Stall, String> {
    let expected = || UnitError::new(text, "a period and a time, such as 10s,300ms").to_string();
    let (every, of_it) = text.split_once(',').ok_or_else(expected)?;
    let time = |part: &str| time_ns(part.trim()).map_err(|_| expected());
    Ok(Stall { every_ns: time(every)?, for_ns: time(of_it)? })
}

fn share(text: &str) -> Result<(Misbehaviour, f64), String> {
    let (kind, ratio) = text
        .split_once('=')
        .ok_or_else(|| UnitError::new(text, "a kind and its share, such as error=1%").to_string())?;
    Ok((kind.trim().parse()?, parse_ratio(ratio.trim()).map_err(|e| e.to_string())?))
}

fn when_full(text: &str) -> Result<WhenFull, String> {
    match text {
        "reject" => Ok(WhenFull::Reject),
        "close" => Ok(WhenFull::Close),
        "reset" => Ok(WhenFull::Reset),
        "ignore" => Ok(WhenFull::Ignore),
        _ => Err(UnitError::new(text, "reject, close, reset or ignore").to_string()),
    }
}

#[cfg(test)]
mod tests;
