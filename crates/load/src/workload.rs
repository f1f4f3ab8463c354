//! An HTTP workload as users write it, on a command line or in a study file, and the plan made from it.
//!
//! Every quantity is stored as a value together with its text (`5k`, `300ms`). All mistakes are reported together, each with
//! its field.

mod connection;
mod description;
mod events;
mod headers;
mod model;
mod options;
mod request;
mod script;
mod text;
mod tls;
mod typed;

use record::{
    AbortRule, AckLevel, Arrivals, Distribution, EventFraming, HttpPlan, LoadModel, Stage, StatusSet,
    units::parse_cpus,
};
use settings::options::Kind;

use crate::{FieldMistake, MachineLimits, addresses};
use connection::Lookup;
use options::Field as _;
pub use options::HttpOption;
use script::Expectations;
pub use script::StepText;
pub use text::split_port;
use text::{Mistakes, parse_addresses, parse_url};
pub use typed::{Count, Rate, Time, Typed};
use typed::{Ratio, TimeLimit, UpTo};

const LOAD: &str = "Load";
const REQUEST: &str = "Request";
const SESSIONS: &str = "Templates and answers";
const GUARDS: &str = "Guards";
const EVENTS: &str = "Numbered events";
const TLS: &str = "TLS, with an https:// URL";
const CONNECTIONS: &str = "Connections";
const MACHINE: &str = "Machine";

/// Requests per second that one worker thread is expected to handle, for the default number of threads.
const RATE_PER_THREAD: f64 = 50_000.0;
/// Default of the maximum polling time before a send, in nanoseconds.
const DEFAULT_SPIN_NS: u64 = 500_000;

/// Maximum number of retries of an event. Receipts count up to 255 attempts.
const MAX_RETRIES: u64 = 250;
/// Maximum number of redirects of a request.
const MAX_REDIRECTS: u64 = 100;

/// The settings that the user has fixed and the pre-flight check must not change.
#[derive(Debug, Clone, Copy, Default)]
pub struct FixedByUser {
    /// The number of worker processes.
    pub processes: bool,
    /// The source addresses.
    pub sources: bool,
}

options::workload! {
    /// Users of a closed load, each with a connection of its own
    users: Option<Typed<Count>> = "users", Kind::Count(1), "N", LOAD, "10", "100"
        { short: Some('u') } and { excluded_from_search: true, label: "users" };
    /// Requests of each user
    loops: Option<Typed<Count>> = "loops", Kind::Count(1), "N", LOAD, "", "100" and { label: "loops" };
    /// Start the users evenly over this time, shorter than the duration
    ramp_up: Option<Typed<Time>> = "ramp_up", Kind::Time, "TIME", LOAD, "", "5s";
    /// Pause of a user between answer and next request: 300ms, uniform:10ms..50ms, exp:20ms, lognormal:20ms,0.5 or file:PATH
    think_time: Option<Typed<Distribution>> = "think_time", Kind::Text, "DIST", LOAD, "", "exp:1s" and { label: "think time" };
    /// Requests per second of an open load, such as 500 or 5k
    rate: Option<Typed<Rate>> = "rate", Kind::Rate, "RATE", LOAD, "", "5k" { short: Some('R') } and { label: "rate" };
    /// How the arrivals of an open load are spaced: constant or poisson
    arrivals: Option<Typed<Arrivals>> = "arrivals", Kind::Choice(&["constant", "poisson"]), "KIND", LOAD, "constant", "poisson"
        and { label: "arrivals" };
    /// A stage of an open load: 10s:500 holds a rate, 30s:0..5k ramps; stages follow each other
    stages: Vec<Typed<Stage>> = "stages", Kind::List, "TIME:RATE", LOAD, "", "10s:500 30s:0..5k"
        { flag: "stage" } and { excluded_from_search: true, label: "stages" };
    /// Number of connections: in a closed load the same as users; in an open load, opened before the start
    connections: Option<Typed<Count>> = "connections", Kind::Count(1), "N", LOAD, "in an open load, opened on demand", "200"
        { short: Some('c') } and { label: "connections" };
    /// Send requests for this long
    duration: Option<Typed<Time>> = "duration", Kind::Time, "TIME", LOAD,
        "10s, beyond the ramp-up, if nothing else ends the trial", "30s" { short: Some('d') } and { excluded_from_search: true };
    /// Requests in all; with Poisson arrivals the time that they take is random
    requests: Option<Typed<Count>> = "requests", Kind::Count(1), "N", LOAD, "", "100000"
        { short: Some('n') } and { excluded_from_search: true, label: "requests" };
    /// A new connection for every request
    no_keepalive: bool = "keepalive", Kind::On, "", LOAD, "", "false";
    /// Most requests in flight on each connection. With a think time, each of these pauses on its own; an open load pipelines
    /// only requests that find no free connection
    pipeline: Option<Typed<Count>> = "pipeline", Kind::Count(1), "DEPTH", LOAD, "1", "4" and { label: "pipeline" };
    /// Method
    method: Option<String> = "method", Kind::Text, "METHOD", REQUEST, "GET, or POST with a body", "PUT"
        { short: Some('X') };
    /// A header field, such as 'Accept:text/html'; @FILE reads a file with one field a line. ${NAME} in a value, in the URL
    /// and in the body's text is an environment variable, which keeps secrets off the command line and out of files
    headers: Vec<String> = "headers", Kind::List, "NAME: VALUE|@FILE", REQUEST, "", "Accept:text/html"
        { short: Some('H'), flag: "header" } and { names_files: true, is_text: true };
    /// The field Content-Type of the body, as in ab and oha
    content_type: Option<String> = "content_type", Kind::Text, "TYPE", REQUEST, "", "application/json"
        { short: Some('T') } and { is_text: true };
    /// The body of a request: text, @FILE, or on a command line @- for standard input
    body: Option<String> = "body", Kind::Text, "BODY", REQUEST, "", "@event.json"
        { short: Some('b') } and { names_files: true, is_text: true };
    /// Send numbered events, which `proofload audit` looks for in the receiver's files: a JSON object, @FILE, or default (on
    /// a command line also without a value), the event of the published test of an HTTP data listener
    events: Option<String> = "events", Kind::Text, "EVENT", EVENTS, "", "default"
        { bare_value: "default" } and { names_files: true, label: "events" };
    /// Events in each request
    events_per_request: Option<Typed<Count>> = "events_per_request", Kind::Count(1), "N", EVENTS, "1", "100";
    /// Format of the events in the body: json (one event), ndjson or array
    events_as: Option<Typed<EventFraming>> = "as", Kind::Choice(&["json", "ndjson", "array"]), "KIND", EVENTS,
        "json; ndjson for several", "array";
    /// Retry a failed request up to this many times; an event counts as failed when all attempts failed
    retries: Option<Typed<UpTo<MAX_RETRIES>>> = "retries", Kind::Count(0), "N", EVENTS, "0", "3" and { label: "retries" };
    /// Level of acknowledgement to ask the receiver for: accepted, written or synced
    ack: Option<Typed<AckLevel>> = "ack", Kind::Choice(&["accepted", "written", "synced"]), "LEVEL", EVENTS,
        "the receiver's own", "synced" and { label: "acknowledged as" };
    /// Send an Idempotency-Key with every request; retries have the same key
    idempotency: bool = "idempotency", Kind::Flag, "", EVENTS, "", "true";
    /// Write the outcome of every event to this folder, for `proofload audit`; an audited study has its own folder
    receipts: Option<String> = "receipts", Kind::Text, "FOLDER", EVENTS, "", "receipts" and { is_file: true };
    /// What an answer must have: statuses (200, 2xx,304 or 200-299), or text:WORDS, no-text:WORDS, json:$.path = VALUE,
    /// header:NAME = VALUE, cookie:NAME, regex:EXPRESSION, size:>= 1KiB; can be repeated
    expect: Vec<String> = "expect", Kind::List, "STATUSES|CHECK", REQUEST, "2xx,3xx; with events or redirects, 2xx", "200,404"
        and { label: "expect" };
    /// A file whose rows give values to {{COLUMN}} in URL, header fields and body: CSV with a line of names first, or NDJSON.
    /// Each iteration of a user takes the next row. FILE,once ends the load with the last row; FILE,random takes any row;
    /// FILE,per-user takes the row of the user's number
    feeders: Vec<String> = "feeders", Kind::List, "FILE", SESSIONS, "", "users.csv,once"
        { flag: "feeder" } and { is_file: true, label: "feeder" };
    /// Keep the cookies that the target sets, and send them back; each iteration of a user begins without cookies
    cookies: bool = "cookies", Kind::Flag, "", SESSIONS, "", "true";
    /// Follow up to this many redirects of a request, on the same host
    redirects: Option<Typed<UpTo<MAX_REDIRECTS>>> = "redirects", Kind::Count(0), "N", SESSIONS, "0", "5" and { label: "redirects" };
    /// Ask for answers compressed with gzip; expectations read them decompressed
    compressed: bool = "compressed", Kind::Flag, "", SESSIONS, "", "true";
    /// Fail a request that takes longer, including its connection
    timeout: Option<Typed<TimeLimit>> = "timeout", Kind::Time, "TIME", REQUEST, "30s", "2s" and { label: "timeout" };
    /// With a duration: wait this long at its end for missing answers
    drain: Option<Typed<Time>> = "drain", Kind::Time, "TIME", REQUEST, "2s", "5s";
    /// Abort the trial once more than this share of the requests fails for this long, such as 'errors > 10% for 5s': a search
    /// goes on with smaller loads
    abort_if: Option<Typed<AbortRule>> = "abort_if", Kind::Text, "RULE", GUARDS, "", "errors > 10% for 5s" and { label: "abort if" };
    /// Refuse any load above this: users, or requests per second
    ceiling: Option<Typed<Rate>> = "ceiling", Kind::Rate, "LOAD", GUARDS, "", "5k";
    /// Connect to these addresses in turn instead of the URL's host: ADDRESS:PORT or NAME:PORT, separated by commas
    connect_to: Option<String> = "connect_to", Kind::Text, "ADDRESSES", CONNECTIONS, "", "10.0.0.3:80,10.0.0.4:80";
    /// Which addresses of a name to use, if it has several: of those that accept a connection, the first, or all in turn
    address: Option<String> = "address", Kind::Choice(&["first", "all"]), "KIND", CONNECTIONS, "first", "all"
        and { label: "addresses of a name" };
    /// Connect to this Unix socket instead of the URL's host
    unix_socket: Option<String> = "unix_socket", Kind::Text, "PATH", CONNECTIONS, "", "/run/app.sock"
        and { is_file: true, label: "Unix socket" };
    /// Reach the target through a tunnel of this HTTP proxy (CONNECT), which finds the target's address by itself. The time
    /// that the proxy takes is part of the measured times
    proxy: Option<String> = "proxy", Kind::Text, "URL", CONNECTIONS, "", "http://10.0.0.2:3128" { short: Some('x') }
        and { is_text: true };
    /// Begin each connection with the line of the PROXY protocol (version 1) that a load balancer would send, with the
    /// connection's own addresses
    proxy_protocol: bool = "proxy_protocol", Kind::Flag, "", CONNECTIONS, "", "true";
    /// Longest time until a TCP connection is made
    connect_timeout: Option<Typed<TimeLimit>> = "connect_timeout", Kind::Time, "TIME", CONNECTIONS, "that of the request", "1s"
        and { label: "connect timeout" };
    /// Longest time from sending a request to the end of its answer
    answer_timeout: Option<Typed<TimeLimit>> = "answer_timeout", Kind::Time, "TIME", CONNECTIONS, "that of the request", "500ms"
        and { label: "answer timeout" };
    /// Close a connection after this many requests; the next request opens another
    connection_requests: Option<Typed<Count>> = "connection_requests", Kind::Count(1), "N", CONNECTIONS, "", "100"
        and { label: "requests per connection" };
    /// Close a connection of this age after its next answer
    connection_lifetime: Option<Typed<TimeLimit>> = "connection_lifetime", Kind::Time, "TIME", CONNECTIONS, "", "60s"
        and { label: "connection lifetime" };
    /// Do not check the target's certificate, as with -k of curl
    insecure: bool = "insecure", Kind::Flag, "", TLS, "", "true";
    /// Trust the authorities in this PEM file, not the system's (SSL_CERT_FILE, /etc/ssl/certs/ca-certificates.crt)
    cacert: Option<String> = "cacert", Kind::Text, "FILE", TLS, "the system's", "ca.pem"
        and { is_file: true };
    /// The client's certificate chain, as PEM
    cert: Option<String> = "cert", Kind::Text, "FILE", TLS, "", "client.pem" and { is_file: true };
    /// The private key of the client's certificate, as PEM
    key: Option<String> = "key", Kind::Text, "FILE", TLS, "in the file of the certificate", "client.key"
        and { is_file: true };
    /// The name to ask for (SNI), which the target's certificate must have
    sni: Option<String> = "sni", Kind::Text, "NAME", TLS, "the URL's host", "example.org";
    /// The earliest TLS version to offer
    tls_min: Option<String> = "tls_min", Kind::Choice(&["1.2", "1.3"]), "VERSION", TLS, "1.2", "1.3" and { label: "TLS at least" };
    /// The latest TLS version to offer
    tls_max: Option<String> = "tls_max", Kind::Choice(&["1.2", "1.3"]), "VERSION", TLS, "1.3", "1.2" and { label: "TLS at most" };
    /// The cipher suites to offer, the most preferred first: names of IANA's registry, separated by commas
    ciphers: Option<String> = "ciphers", Kind::Text, "NAMES", TLS, "all known", "TLS_AES_128_GCM_SHA256" and { label: "ciphers" };
    /// A full handshake for every connection. By default a further connection of a user, or in the same place of an open load's
    /// pool, resumes the earlier session, as browsers do
    no_resumption: bool = "resumption", Kind::On, "", TLS, "", "false";
    /// The protocols to offer (ALPN), separated by commas; the word none offers no protocol
    alpn: Option<String> = "alpn", Kind::Text, "NAMES", TLS, "http/1.1", "none";
    /// Longest time of the TLS handshake
    handshake_timeout: Option<Typed<TimeLimit>> = "handshake_timeout", Kind::Time, "TIME", TLS, "that of the request", "2s"
        and { label: "handshake timeout" };
    /// Add a line of JSON to this file for every failed request and for a sample of the others. A line has the request's times,
    /// its status, and the traceparent (W3C Trace Context) that was sent with it
    log: Option<String> = "log", Kind::Text, "FILE", SESSIONS, "", "requests.ndjson" and { is_file: true };
    /// The share of completed requests that are logged
    log_sample: Option<Typed<Ratio>> = "log_sample", Kind::Text, "RATIO", SESSIONS, "1%", "100%";
    /// Worker threads of each process
    threads: Option<Typed<Count>> = "threads", Kind::Count(1), "N", MACHINE,
        "half the processors, as far as the load can use them", "2" { short: Some('t') } and { label: "threads" };
    /// Worker processes
    processes: Option<Typed<Count>> = "processes", Kind::Count(1), "N", MACHINE,
        "as many as the descriptor limit makes necessary", "2";
    /// Processors to pin the worker threads to, such as 1 or 0,2-3
    cpus: Option<String> = "cpus", Kind::Numbers, "LIST", MACHINE, "", "0,2-3";
    /// Local addresses to connect from: 10.0.0.5, 10.0.0.5-10.0.0.9, separated by commas
    source: Option<String> = "source", Kind::Text, "ADDRESSES", MACHINE, "", "10.0.0.5-10.0.0.9";
    /// Before a send is due, poll for up to this long instead of sleeping; 0: never poll
    spin: Option<Typed<Time>> = "spin", Kind::Time, "TIME", MACHINE, "500us", "0";
}

/// Default timeout of a request, in nanoseconds.
pub const DEFAULT_TIMEOUT_NS: u64 = 30_000_000_000;

impl HttpWorkload {
    /// The settings that the pre-flight check must not change.
    pub fn fixed_by_user(&self) -> FixedByUser {
        FixedByUser { processes: self.processes.is_some(), sources: self.source.is_some() }
    }

    /// The plan of a trial of this workload on a machine with these limits.
    ///
    /// # Errors
    /// All mistakes in the workload.
    pub fn plan(&self, limits: &MachineLimits) -> Result<HttpPlan, Vec<FieldMistake>> {
        self.plan_with(limits, &addresses::look_up)
    }

    fn plan_with(&self, limits: &MachineLimits, lookup: Lookup<'_>) -> Result<HttpPlan, Vec<FieldMistake>> {
        let mut mistakes = Mistakes::default();
        let parsed = mistakes.read("url", parse_url(&self.url).map(Some));
        let url = parsed.as_ref().map(|parsed| &parsed.url);
        let sources =
            mistakes.optional("source", self.source.as_deref(), parse_addresses).unwrap_or_default();
        let (targets, connection) = self.connection(url, &sources, lookup, &mut mistakes);
        let request = self.request(parsed.as_ref(), &mut mistakes);
        let tls = self.tls(url, &mut mistakes);
        let expectations = mistakes.read("expect", Expectations::parse(&self.expect));
        let expect = expectations.statuses.clone().unwrap_or_else(|| self.default_expect());
        let script = self.script(&request, &expectations, &expect, &mut mistakes);
        let events = self.events(&mut mistakes);
        let requests = mistakes.count("requests", &self.requests);
        let (load, duration_ns) = self.load(requests, &mut mistakes);
        let threads = mistakes
            .count("threads", &self.threads)
            .unwrap_or_else(|| default_threads(&load, limits))
            .min(u64::from(u16::MAX)) as u32;
        let processes = mistakes.count("processes", &self.processes).unwrap_or(1) as u32;
        let pipeline = mistakes.count("pipeline", &self.pipeline).unwrap_or(1).clamp(1, 10_000) as u32;
        if pipeline > 1 && (self.no_keepalive || connection.max_requests.or(connection.max_age_ns).is_some())
        {
            mistakes
                .add("pipeline", "it needs kept connections: leave out the pipeline, or keep connections");
        }
        let plan = HttpPlan {
            url: self.url.clone(),
            targets,
            request: request.plain(),
            events,
            script,
            tls,
            load,
            duration_ns,
            requests,
            connection,
            keepalive: !self.no_keepalive,
            pipeline,
            expect,
            timeout_ns: mistakes.limit_ns("timeout", &self.timeout).unwrap_or(DEFAULT_TIMEOUT_NS),
            drain_ns: mistakes.time_ns("drain", &self.drain).unwrap_or(2_000_000_000),
            threads,
            processes,
            cpus: mistakes.optional("cpus", self.cpus.as_deref(), parse_cpus).unwrap_or_default(),
            sources,
            spin_ns: mistakes.time_ns("spin", &self.spin).unwrap_or(DEFAULT_SPIN_NS),
            seed: self.seed,
            forced: self.force,
            pool_limit: None,
            decides: None,
            abort_if: mistakes.typed("abort_if", &self.abort_if),
            fault: mistakes.optional("fault", self.fault.as_deref(), str::parse),
        };
        connection::check_timeouts(&plan, &mut mistakes);
        self.check_ceiling(&plan.load, &mut mistakes);
        self.check_script(&plan, &mut mistakes);
        mistakes.into_result(plan)
    }

    /// The default statuses of success. 3xx is no success for events or if redirects are followed: a redirected event is not
    /// stored, and a redirect that remains was not followed.
    fn default_expect(&self) -> StatusSet {
        match self.events.is_some() || self.redirects.is_some() {
            true => StatusSet::acknowledged(),
            false => StatusSet::success(),
        }
    }
}

fn default_threads(load: &LoadModel, limits: &MachineLimits) -> u64 {
    let max = (u64::from(limits.cpus) / 2).clamp(1, 8);
    match load {
        LoadModel::Closed { users, .. } => users.div_ceil(16).clamp(1, max),
        LoadModel::Open { connections, .. } => {
            ((load.peak() / RATE_PER_THREAD).ceil() as u64).min(connections.most).clamp(1, max)
        }
    }
}

#[cfg(test)]
mod tests;
