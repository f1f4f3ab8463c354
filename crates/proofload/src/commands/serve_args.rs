//! The options of `proofload serve`.

use std::path::{Path, PathBuf};

use clap::Args;
use record::{
    Distribution, input,
    units::{UnitError, parse_cpus, parse_ratio, parse_size, parse_time},
};
use serve::{Body, Capacity, Config, Misbehaviour, Pages, Record, Stall, Tls, TlsFiles, WhenFull};
use settings::options::{Kind, OptionSpec, address, choice, count, error_text};

use super::options::{Given, Table};

const ANSWERS: &str = "Answers";
const TIMES: &str = "Times";
const FAULTS: &str = "Faults";
const PAGES: &str = "Pages and records";
const TLS: &str = "TLS";
const CONNECTIONS: &str = "Connections";
const MACHINE: &str = "Machine";

const TLS_VERSIONS: &[&str] = &["1.2", "1.3"];
/// The options for details of TLS.
const TLS_DETAILS: [&str; 5] = ["tls_ca_out", "client_ca", "tls_min", "tls_max", "tls_fault"];
const WHEN_FULL: &[&str] = &["reject", "close", "reset", "ignore"];

/// Serve HTTP with programmable behaviour: a target whose properties are known.
///
/// Every request gets the same answer, as fast as this machine can, unless options add delays, faults or a limited
/// capacity, or --pages turns on pages whose answers depend on the request. Ctrl-C, SIGTERM or --duration end the server, which then prints what it served. Exit status: 0 ended, 2
/// wrong use, or the server could not listen.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    given: Given<Options>,
    /// Write the report as JSON; - is standard output
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub json: Option<PathBuf>,
    /// Print no report
    #[arg(short, long, help_heading = "Output")]
    pub quiet: bool,
}

/// The configuration under construction; some options are combined only after all are read.
#[derive(Debug)]
struct ConfigBuilder {
    config: Config,
    processes: u32,
    servers: Option<u32>,
    service_time: Option<Distribution>,
    queue: Option<u64>,
    when_full: WhenFull,
    token_lifetime_ns: u64,
    record: Option<PathBuf>,
    record_body_bytes: u64,
    tls: TlsBuilder,
}

/// The TLS options read so far.
#[derive(Debug, Default)]
struct TlsBuilder {
    wanted: bool,
    certificates: Option<PathBuf>,
    key: Option<PathBuf>,
    tls: Tls,
}

impl ConfigBuilder {
    /// The defaults of all options.
    fn new() -> Self {
        let config = Config { listen: vec![([127, 0, 0, 1], 8080).into()], ..Config::default() };
        Self {
            config,
            processes: 1,
            servers: None,
            service_time: None,
            queue: None,
            when_full: WhenFull::default(),
            token_lifetime_ns: Pages::default().token_lifetime_ns,
            record: None,
            record_body_bytes: 64 * 1024,
            tls: TlsBuilder::default(),
        }
    }
}

#[derive(Debug)]
struct Options;

impl Table for Options {
    type Config = ConfigBuilder;
    const HAS_POSITIONALS: bool = false;

    fn settings() -> impl Iterator<Item = &'static OptionSpec<ConfigBuilder>> {
        OPTIONS.iter()
    }
}

static OPTIONS: &[OptionSpec<ConfigBuilder>] = settings::option_table! {
    /// Address and port to listen on; repeatable; port 0 is any free one
    "listen", Kind::List, "ADDR:PORT", "", "127.0.0.1:8080", "0.0.0.0:80 [::1]:80",
        |builder, values| builder.config.listen = each(values.iter().copied(), address)?;
    /// Size of an answer's body
    "body", Kind::Size, "SIZE", ANSWERS, "13", "64KiB",
        |builder, values| builder.config.body = Body::Size(parse_size(values[0]).map_err(error_text)?);
    /// File whose content is the body
    "body_file", Kind::Text, "FILE", ANSWERS, "", "/dev/null",
        |builder, values| builder.config.body =
            Body::Bytes(input::read_body(Path::new(values[0]))?);
    /// Send the body in chunks of this size; without a value, of 16 KiB
    "chunked", Kind::Size, "CHUNK_SIZE", ANSWERS, "", "1KiB", { bare_value: "16KiB" },
        |builder, values| builder.config.chunk_bytes = Some(parse_size(values[0]).map_err(error_text)?);
    /// Status of an answer
    "status", Kind::Count(200), "N", ANSWERS, "200", "404",
        |builder, values| builder.config.status = count(values[0], 0)?;
    /// Send the head of an answer slowly, spread over this time
    "slow_head", Kind::Time, "T", ANSWERS, "", "20ms",
        |builder, values| builder.config.slow_head_ns = time_ns(values[0])?;
    /// Delay before an answer: 300ms, uniform:10ms..50ms, exp:20ms, lognormal:20ms,0.5 or file:PATH
    "delay", Kind::Text, "DIST", TIMES, "", "exp:20ms",
        |builder, values| builder.config.delay = values[0].parse().map_err(error_text)?;
    /// Requests served at once; the others wait
    "capacity", Kind::Count(1), "N", TIMES, "", "8",
        |builder, values| builder.servers = Some(count(values[0], 0)?);
    /// Time to serve a request, as for --delay
    "service_time", Kind::Text, "DIST", TIMES, "", "4ms",
        |builder, values| builder.service_time = Some(values[0].parse().map_err(error_text)?);
    /// Requests that may wait; unlimited by default
    "queue", Kind::Count(0), "LEN", TIMES, "", "100",
        |builder, values| builder.queue = Some(count(values[0], 0)?);
    /// What happens to a request when the queue is full: reject (503), close, reset or ignore
    "queue_full", Kind::Choice(WHEN_FULL), "reject|close|reset|ignore", TIMES, "", "close",
        |builder, values| {
            let all = [WhenFull::Reject, WhenFull::Close, WhenFull::Reset, WhenFull::Ignore];
            builder.when_full = choice(values[0], WHEN_FULL, &all)?;
        };
    /// Stop answering for the last FOR of every EVERY
    "stall", Kind::Text, "EVERY,FOR", TIMES, "", "10s,300ms",
        |builder, values| builder.config.stall = Some(stall(values[0])?);
    /// Give a share of the answers a fault: error, reset, close, truncate, malformed, bad-framing, huge-head, silent or
    /// unsolicited, such as error=1%,reset=0.001
    "misbehave", Kind::List, "KIND=RATIO", FAULTS, "", "error=1%,reset=0.001",
        |builder, values| builder.config.misbehave = each(values.iter().flat_map(|text| text.split(',')), share)?;
    /// Status of the misbehaviour `error`
    "error_status", Kind::Count(200), "N", FAULTS, "503", "500",
        |builder, values| builder.config.error_status = count(values[0], 0)?;
    /// Let the answer of known paths depend on the request: /echo, /cookies, /cookies/set?NAME=VALUE, /login,
    /// /private/…, /items/ID, /status/N, /redirect/N
    "pages", Kind::Flag, "", PAGES, "", "true",
        |builder, _| builder.config.pages = Some(Pages::default());
    /// How long the token of a login is valid
    "token_lifetime", Kind::Time, "T", PAGES, "60s", "5s",
        |builder, values| builder.token_lifetime_ns = time_ns(values[0])?;
    /// Write every complete request as a line of JSON. The file holds passwords, tokens and cookies as they came
    "record", Kind::Text, "FILE", PAGES, "", "requests.jsonl",
        |builder, values| builder.record = Some(values[0].into());
    /// Most bytes of a body that --record writes
    "record_body", Kind::Size, "SIZE", PAGES, "64KiB", "1MiB",
        |builder, values| builder.record_body_bytes = parse_size(values[0]).map_err(error_text)?;
    /// Speak TLS, with a certificate made at the start for localhost, 127.0.0.1, ::1 and the addresses of --listen
    "tls", Kind::Flag, "", TLS, "", "true",
        |builder, _| builder.tls.wanted = true;
    /// Write the certificate of the authority that was made, for clients to trust
    "tls_ca_out", Kind::Text, "FILE", TLS, "", "ca.pem",
        |builder, values| builder.tls.tls.ca_out = Some(values[0].into());
    /// Speak TLS with this certificate chain (PEM)
    "cert", Kind::Text, "FILE", TLS, "", "cert.pem",
        |builder, values| builder.tls.certificates = Some(values[0].into());
    /// The key of --cert (PEM)
    "key", Kind::Text, "FILE", TLS, "", "key.pem",
        |builder, values| builder.tls.key = Some(values[0].into());
    /// Require of each client a certificate that one of these authorities issued (PEM)
    "client_ca", Kind::Text, "FILE", TLS, "", "ca.pem",
        |builder, values| builder.tls.tls.client_ca = Some(values[0].into());
    /// Earliest version of TLS
    "tls_min", Kind::Choice(TLS_VERSIONS), "1.2|1.3", TLS, "1.2", "1.3",
        |builder, values| builder.tls.tls.min = values[0].parse()?;
    /// Latest version of TLS
    "tls_max", Kind::Choice(TLS_VERSIONS), "1.2|1.3", TLS, "1.3", "1.2",
        |builder, values| builder.tls.tls.max = values[0].parse()?;
    /// Make every handshake go wrong: expired, not-yet-valid, wrong-name, unknown-ca, old-protocol, no-common-cipher,
    /// client-cert, reset-in-handshake or plain-http
    "tls_fault", Kind::Text, "FAULT", TLS, "", "expired",
        |builder, values| builder.tls.tls.fault = Some(values[0].parse()?);
    /// Connections open at once, in each process; further ones are accepted and reset
    "max_connections", Kind::Count(1), "N", CONNECTIONS, "", "18k",
        |builder, values| builder.config.max_connections = Some(count(values[0], 0)?);
    /// Accept queue of each listener (each thread of each process has one); at most net.core.somaxconn
    "backlog", Kind::Count(1), "N", CONNECTIONS, "4096", "128",
        |builder, values| builder.config.backlog = count(values[0], 0)?;
    /// Close a connection after this many requests
    "keepalive_requests", Kind::Count(1), "N", CONNECTIONS, "", "100",
        |builder, values| builder.config.keepalive_requests = Some(count(values[0], 0)?);
    /// Close a connection that has been idle for this time
    "keepalive_timeout", Kind::Time, "T", CONNECTIONS, "", "65s",
        |builder, values| builder.config.keepalive_timeout_ns = Some(time_ns(values[0])?);
    /// Threads of each process
    "threads", Kind::Count(1), "N", MACHINE, "1", "2", { short: Some('t') },
        |builder, values| builder.config.threads = count(values[0], 0)?;
    /// Processes that share the addresses (SO_REUSEPORT)
    "processes", Kind::Count(1), "N", MACHINE, "1", "2",
        |builder, values| match count(values[0], 0)? {
            0 => return Err("0 processes serve nothing; give at least 1".to_owned()),
            processes => builder.processes = processes,
        };
    /// Processors to pin the threads to, such as 0,2-3
    "cpus", Kind::Numbers, "LIST", MACHINE, "", "0,2-3",
        |builder, values| builder.config.cpus = parse_cpus(values[0]).map_err(error_text)?;
    /// Seed of everything random
    "seed", Kind::Count(0), "N", MACHINE, "1", "9",
        |builder, values| builder.config.seed = count(values[0], 0)?;
    /// Stop after this time
    "duration", Kind::Time, "T", "", "", "1m", { short: Some('d') },
        |builder, values| builder.config.duration_ns = Some(time_ns(values[0])?);
};

impl ServeArgs {
    /// Returns the validated configuration and the number of processes. The caller gives each process a different seed.
    ///
    /// # Errors
    /// All mistakes: first those in single options, then those in combinations.
    pub(crate) fn config(&self) -> Result<(Config, u32), Vec<String>> {
        let mut builder = ConfigBuilder::new();
        let mut mistakes = self.given.apply(&mut builder);
        let ConfigBuilder { mut config, processes, servers, service_time, queue, when_full, .. } = builder;
        let has = |key: &str| self.given.has(key);
        config.reuse_port = processes > 1;
        for (is_wrong, mistake) in [
            (has("body") && has("body_file"), "--body and --body-file: leave out one"),
            (
                config.reuse_port && (has("capacity") || has("service_time")),
                "--processes: each process would have its own capacity and queue; leave out --processes and use more \
                 --threads",
            ),
            (
                has("capacity") && !has("service_time"),
                "--capacity needs --service-time: how long each request takes",
            ),
            (
                has("service_time") && !has("capacity"),
                "--service-time needs --capacity: how many requests are served at once",
            ),
            (
                has("queue") && !has("capacity"),
                "--queue needs --capacity: without a capacity no request waits",
            ),
            (
                has("queue_full") && !has("queue"),
                "--queue-full needs --queue: an unlimited queue is never full",
            ),
            (has("cert") != has("key"), "--cert and --key: give both, a certificate and its key, or none"),
            (
                !has("tls") && !has("cert") && TLS_DETAILS.iter().any(|key| has(key)),
                "--tls-ca-out, --client-ca, --tls-min, --tls-max, --tls-fault: they need --tls, or --cert and --key",
            ),
            (
                has("token_lifetime") && !has("pages"),
                "--token-lifetime needs --pages: without them nobody logs in",
            ),
            (
                has("record_body") && !has("record"),
                "--record-body needs --record: where requests are written",
            ),
        ] {
            if is_wrong {
                mistakes.push(mistake.to_owned());
            }
        }
        if let (Some(servers), Some(service_time)) = (servers, service_time) {
            config.capacity = Some(Capacity { servers, service_time, queue, when_full });
        }
        if let Some(pages) = &mut config.pages {
            pages.token_lifetime_ns = builder.token_lifetime_ns;
        }
        config.record = builder.record.map(|file| Record { file, body_bytes: builder.record_body_bytes });
        config.tls = builder.tls.build();
        // An invalid option keeps its default here, so validation does not report it a second time.
        mistakes.extend(config.validate().err().into_iter().flatten().map(error_text));
        if mistakes.is_empty() { Ok((config, processes)) } else { Err(mistakes) }
    }
}

impl TlsBuilder {
    fn build(self) -> Option<Tls> {
        let files = self.certificates.zip(self.key);
        let files = files.map(|(certificates, key)| TlsFiles { certificates, key });
        (self.wanted || files.is_some()).then_some(Tls { files, ..self.tls })
    }
}

/// Parses each text. Returns the mistakes of all texts if any is invalid.
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

fn time_ns(text: &str) -> Result<u64, String> {
    parse_time(text).map(|time| time.as_nanos() as u64).map_err(|e| e.to_string())
}

fn stall(text: &str) -> Result<Stall, String> {
    let expected = || UnitError::new(text, "a period and a time, such as 10s,300ms").to_string();
    let (every, duration) = text.split_once(',').ok_or_else(expected)?;
    let time = |part: &str| time_ns(part.trim()).map_err(|_| expected());
    Ok(Stall { every_ns: time(every)?, for_ns: time(duration)? })
}

fn share(text: &str) -> Result<(Misbehaviour, f64), String> {
    let (kind, ratio) = text
        .split_once('=')
        .ok_or_else(|| UnitError::new(text, "a kind and its share, such as error=1%").to_string())?;
    Ok((kind.trim().parse()?, parse_ratio(ratio.trim()).map_err(|e| e.to_string())?))
}

#[cfg(test)]
mod tests;
