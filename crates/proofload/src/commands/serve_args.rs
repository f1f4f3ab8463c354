//! The options of `proofload serve`.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use clap::Args;
use record::{
    Distribution,
    units::{UnitError, parse_count, parse_cpus, parse_ratio, parse_size, parse_time},
};
use serve::{Body, Capacity, Config, Misbehaviour, Stall, WhenFull};

use super::text::Mistakes;

const ANSWERS: &str = "Answers";
const TIMES: &str = "Times";
const FAULTS: &str = "Faults";
const CONNECTIONS: &str = "Connections";
const MACHINE: &str = "Machine";
const OUTPUT: &str = "Output";

/// Chunks of `--chunked` without a size.
const CHUNK_BYTES: u64 = 16 * 1024;

/// Serve HTTP with programmable behaviour: a target whose truth is known.
///
/// It answers every request alike, as fast as this machine can, unless options say how slow, how broken or how narrow it
/// is. Ctrl-C, SIGTERM or --duration end it; then it tells what it really did. Exit status: 0 ended so, 2 wrong use,
/// or it could not listen.
// Values are kept as given and read by `config`, so that all mistakes are named at once.
#[derive(Debug, Clone, Args)]
pub struct ServeArgs {
    /// Address and port to listen on; repeatable; port 0 is any free one
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8080")]
    listen: Vec<String>,
    /// Size of an answer's body
    #[arg(long, value_name = "SIZE", default_value = "13", help_heading = ANSWERS)]
    body: String,
    /// File whose content is the body
    #[arg(long, value_name = "FILE", conflicts_with = "body", help_heading = ANSWERS)]
    body_file: Option<PathBuf>,
    /// Send the body in chunks, of 16 KiB unless told otherwise
    #[arg(long, value_name = "CHUNK_SIZE", num_args = 0..=1, help_heading = ANSWERS)]
    chunked: Option<Option<String>>,
    /// Status of an answer
    #[arg(long, value_name = "N", default_value = "200", help_heading = ANSWERS)]
    status: String,
    /// Dribble the head of an answer out over this time
    #[arg(long, value_name = "T", help_heading = ANSWERS)]
    slow_head: Option<String>,
    /// Delay before an answer: 300ms, uniform:10ms..50ms, exp:20ms, lognormal:20ms,0.5 or file:PATH
    #[arg(long, value_name = "DIST", help_heading = TIMES)]
    delay: Option<String>,
    /// Requests served at once; the others wait
    #[arg(long, value_name = "N", help_heading = TIMES)]
    capacity: Option<String>,
    /// How long each takes; as --delay
    #[arg(long, value_name = "DIST", help_heading = TIMES)]
    service_time: Option<String>,
    /// How many may wait; unbounded if not given
    #[arg(long, value_name = "LEN", help_heading = TIMES)]
    queue: Option<String>,
    /// What becomes of a request that finds the queue full: reject (503), close, reset or ignore
    #[arg(long, value_name = "reject|close|reset|ignore", help_heading = TIMES)]
    queue_full: Option<String>,
    /// Stand still for the last FOR of every EVERY, over and over
    #[arg(long, value_name = "EVERY,FOR", help_heading = TIMES)]
    stall: Option<String>,
    /// Misbehave in a share of the answers: error, reset, close, truncate, malformed, bad-framing,
    /// huge-head, silent or unsolicited, such as error=1%,reset=0.001
    #[arg(long, value_name = "KIND=RATIO", value_delimiter = ',', help_heading = FAULTS)]
    misbehave: Vec<String>,
    /// Status of the misbehaviour `error`
    #[arg(long, value_name = "N", default_value = "503", help_heading = FAULTS)]
    error_status: String,
    /// Connections open at once, in each process; further ones are accepted and reset
    #[arg(long, value_name = "N", help_heading = CONNECTIONS)]
    max_connections: Option<String>,
    /// Accept queue of each listener (each thread of each process has one); at most net.core.somaxconn
    #[arg(long, value_name = "N", default_value = "4096", help_heading = CONNECTIONS)]
    backlog: String,
    /// Close a connection after so many requests
    #[arg(long, value_name = "N", help_heading = CONNECTIONS)]
    keepalive_requests: Option<String>,
    /// Close a connection that has been idle for so long
    #[arg(long, value_name = "T", help_heading = CONNECTIONS)]
    keepalive_timeout: Option<String>,
    /// Threads of each process
    #[arg(short, long, value_name = "N", default_value = "1", help_heading = MACHINE)]
    threads: String,
    /// Processes that share the addresses (SO_REUSEPORT)
    #[arg(long, value_name = "N", default_value = "1", help_heading = MACHINE)]
    processes: String,
    /// Processors to pin the threads to, such as 0,2-3
    #[arg(long, value_name = "LIST", help_heading = MACHINE)]
    cpus: Option<String>,
    /// Seed of everything random
    #[arg(long, value_name = "N", default_value = "1", help_heading = MACHINE)]
    seed: String,
    /// Stop by itself after this long
    #[arg(short, long, value_name = "T")]
    duration: Option<String>,
    /// Write the report as JSON to this file (- for standard output)
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    json: Option<PathBuf>,
    /// Print no report
    #[arg(short, long, help_heading = OUTPUT)]
    quiet: bool,
}

impl ServeArgs {
    /// The target's configuration, checked. With more than one process each needs its own seed.
    ///
    /// # Errors
    /// Every mistake, those of the options first.
    pub fn config(&self) -> Result<Config, Vec<String>> {
        let mut mistakes = Mistakes::default();
        let config = self.read(&mut mistakes);
        // What could not be read has its default here, which is sound: nothing is named twice.
        config.validate().err().into_iter().flatten().for_each(|mistake| mistakes.add(mistake));
        mistakes.none_or(config)
    }

    /// How many processes to run, at least 1; 1 for a value that [`ServeArgs::config`] refuses.
    pub fn processes(&self) -> u32 {
        processes(&self.processes).unwrap_or(1)
    }

    /// Where the report goes as JSON; `-` is standard output.
    pub fn json(&self) -> Option<&Path> {
        self.json.as_deref()
    }

    /// Whether the report for people is left out.
    pub fn quiet(&self) -> bool {
        self.quiet
    }

    fn read(&self, m: &mut Mistakes) -> Config {
        let default = Config::default();
        let listen = self.listen.iter().filter_map(|text| m.optional("--listen", Some(text), address));
        let listen = listen.collect::<Vec<_>>();
        let misbehave = self.misbehave.iter().filter_map(|text| m.optional("--misbehave", Some(text), share));
        let misbehave = misbehave.collect();
        let chunk_bytes = self.chunked.as_ref();
        let chunk_bytes = chunk_bytes
            .map(|size| m.optional("--chunked", size.as_deref(), parse_size).unwrap_or(CHUNK_BYTES));
        let processes = m.optional("--processes", Some(&self.processes), processes);
        let shares_addresses = processes.is_some_and(|processes| processes > 1);
        if shares_addresses && (self.capacity.is_some() || self.service_time.is_some()) {
            m.add(
                "--processes: a capacity and its queue are of one process, and several would each have their own; leave \
                 out --processes and serve with more --threads",
            );
        }
        Config {
            // An address that could not be read is no reason to say that there is none.
            listen: if listen.is_empty() { default.listen } else { listen },
            reuse_port: shares_addresses,
            body: self.body(m),
            chunk_bytes,
            status: m.optional("--status", Some(&self.status), count).unwrap_or(default.status),
            delay: m.optional("--delay", self.delay.as_deref(), str::parse).unwrap_or(default.delay),
            capacity: self.capacity(m),
            stall: m.optional("--stall", self.stall.as_deref(), stall),
            misbehave,
            error_status: m
                .optional("--error-status", Some(&self.error_status), count)
                .unwrap_or(default.error_status),
            slow_head_ns: m.optional("--slow-head", self.slow_head.as_deref(), time_ns).unwrap_or(0),
            max_connections: m.optional("--max-connections", self.max_connections.as_deref(), count),
            backlog: m.optional("--backlog", Some(&self.backlog), count).unwrap_or(default.backlog),
            keepalive_requests: m.optional("--keepalive-requests", self.keepalive_requests.as_deref(), count),
            keepalive_timeout_ns: m.optional(
                "--keepalive-timeout",
                self.keepalive_timeout.as_deref(),
                time_ns,
            ),
            threads: m.optional("--threads", Some(&self.threads), count).unwrap_or(default.threads),
            cpus: m.optional("--cpus", self.cpus.as_deref(), parse_cpus).unwrap_or_default(),
            seed: m.optional("--seed", Some(&self.seed), count).unwrap_or(default.seed),
            duration_ns: m.optional("--duration", self.duration.as_deref(), time_ns),
        }
    }

    fn body(&self, mistakes: &mut Mistakes) -> Body {
        match &self.body_file {
            None => Body::Size(mistakes.read("--body", parse_size(&self.body))),
            Some(path) => Body::Bytes(
                mistakes.read("--body-file", record::input::read(path, record::input::MOST_BODY_BYTES)),
            ),
        }
    }

    fn capacity(&self, mistakes: &mut Mistakes) -> Option<Capacity> {
        let servers = mistakes.optional("--capacity", self.capacity.as_deref(), count);
        let service_time =
            mistakes.optional("--service-time", self.service_time.as_deref(), str::parse::<Distribution>);
        let queue = mistakes.optional("--queue", self.queue.as_deref(), count);
        let when_full = mistakes.optional("--queue-full", self.queue_full.as_deref(), when_full);
        let given = |option: &Option<String>| option.is_some();
        for (wrong, mistake) in [
            (
                given(&self.capacity) && !given(&self.service_time),
                "--capacity needs --service-time: how long each request takes",
            ),
            (
                given(&self.service_time) && !given(&self.capacity),
                "--service-time needs --capacity: how many requests are served at once",
            ),
            (
                given(&self.queue) && !given(&self.capacity),
                "--queue needs --capacity: without it nobody waits",
            ),
            (
                given(&self.queue_full) && !given(&self.queue),
                "--queue-full needs --queue: a queue without bound is never full",
            ),
        ] {
            if wrong {
                mistakes.add(mistake);
            }
        }
        let (servers, service_time) = (servers?, service_time?);
        Some(Capacity { servers, service_time, queue, when_full: when_full.unwrap_or_default() })
    }
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        UnitError::new(text, "an address with its port, such as 127.0.0.1:8080 or [::1]:8080").to_string()
    })
}

fn time_ns(text: &str) -> Result<u64, String> {
    parse_time(text).map(|time| time.as_nanos() as u64).map_err(|e| e.to_string())
}

fn count<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    let number = parse_count(text).map_err(|e| e.to_string())?;
    T::try_from(number).map_err(|_| format!("{text} is too large"))
}

fn processes(text: &str) -> Result<u32, String> {
    match count(text)? {
        0 => Err("0 processes serve nobody; at least 1".to_owned()),
        processes => Ok(processes),
    }
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
