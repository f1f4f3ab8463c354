//! The options of `proofload http`, and the plan they make.

use std::{
    io::Read,
    net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs},
    path::PathBuf,
};

use clap::Args;
use load::{Host, preflight::Asked};
use record::{
    Arrivals, Connections, Distribution, HttpPlan, LoadModel, Request, Stage, StatusSet,
    units::{parse_count, parse_rate, parse_time},
};
use url::Url;

use super::text::{Mistakes, parse_cpus};

const LOAD: &str = "Load";
const REQUEST: &str = "Request";
const MACHINE: &str = "Machine";
const OUTPUT: &str = "Output";

/// Connections that an open load opens at the most when none were asked for.
const MOST_ON_DEMAND: u64 = 10_000;
/// Rate that one worker thread is trusted with when the number of threads is left open.
const RATE_PER_THREAD: f64 = 50_000.0;
/// Longest polling before a send when none was asked for.
const SPIN_NS: u64 = 500_000;

/// Without --rate or --stage, users send, wait for the answer, and send again (closed load). With them,
/// requests leave when the schedule says, whatever the service does (open load).
#[derive(Debug, Args)]
pub struct HttpArgs {
    /// What to send requests to, such as http://127.0.0.1:8080/path
    url: String,

    /// Users of a closed load, each with a connection of its own [default: 10]
    #[arg(short, long, value_name = "N", help_heading = LOAD)]
    users: Option<String>,
    /// Requests of each user
    #[arg(long, value_name = "N", help_heading = LOAD)]
    loops: Option<String>,
    /// Start the users evenly over this time
    #[arg(long, value_name = "TIME", help_heading = LOAD)]
    ramp_up: Option<String>,
    /// Pause of a user between answer and next request: 300ms, uniform:10ms..50ms, exp:20ms,
    /// lognormal:20ms,0.5 or file:PATH
    #[arg(long, value_name = "DIST", help_heading = LOAD)]
    think_time: Option<String>,
    /// Requests per second of an open load, such as 500 or 5k
    #[arg(short = 'R', long, value_name = "RATE", help_heading = LOAD)]
    rate: Option<String>,
    /// How the arrivals of an open load are spaced: constant or poisson
    #[arg(long, value_name = "KIND", default_value = "constant", help_heading = LOAD)]
    arrivals: String,
    /// A stage of an open load: 10s:500 holds a rate, 30s:0..5k ramps; stages follow each other
    #[arg(long = "stage", value_name = "TIME:RATE", help_heading = LOAD)]
    stages: Vec<String>,
    /// Connections: of a closed load, the same as --users; of an open one, opened before the start
    /// [default there: opened on demand]
    #[arg(short, long, value_name = "N", help_heading = LOAD)]
    connections: Option<String>,
    /// Begin requests for this long [default: 10s, if nothing else ends the trial]
    #[arg(short, long, value_name = "TIME", help_heading = LOAD)]
    duration: Option<String>,
    /// Requests in all
    #[arg(short = 'n', long, value_name = "N", help_heading = LOAD)]
    requests: Option<String>,
    /// A new connection for every request
    #[arg(long, help_heading = LOAD)]
    no_keepalive: bool,
    /// Requests in flight at once on each connection
    #[arg(long, value_name = "DEPTH", default_value = "1", help_heading = LOAD)]
    pipeline: String,

    /// Method [default: GET, or POST with a body]
    #[arg(short = 'X', long, value_name = "METHOD", help_heading = REQUEST)]
    method: Option<String>,
    /// A header field, such as 'Accept: text/html'
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", help_heading = REQUEST)]
    headers: Vec<String>,
    /// The body: text, @FILE, or @- for standard input
    #[arg(short, long, value_name = "BODY", help_heading = REQUEST)]
    body: Option<String>,
    /// Statuses that are a success: 200, 2xx,304 or 200-299
    #[arg(long, value_name = "STATUSES", default_value = "2xx,3xx", help_heading = REQUEST)]
    expect: String,
    /// A request that takes longer, its connection included, has failed
    #[arg(long, value_name = "TIME", default_value = "30s", help_heading = REQUEST)]
    timeout: String,
    /// With a duration: wait this long for answers still missing at its end
    #[arg(long, value_name = "TIME", default_value = "2s", help_heading = REQUEST)]
    drain: String,

    /// Worker threads of each process [default: half the processors, as far as the load can use them]
    #[arg(short, long, value_name = "N", help_heading = MACHINE)]
    threads: Option<String>,
    /// Worker processes [default: as many as the descriptor limit makes necessary]
    #[arg(long, value_name = "N", help_heading = MACHINE)]
    processes: Option<String>,
    /// Processors to pin the worker threads to, such as 1 or 0,2-3
    #[arg(long, value_name = "LIST", help_heading = MACHINE)]
    cpus: Option<String>,
    /// Local addresses to connect from: 10.0.0.5, 10.0.0.5-10.0.0.9, several with commas
    #[arg(long, value_name = "ADDRESSES", help_heading = MACHINE)]
    source: Option<String>,
    /// Connect to these instead of the URL's host, in turn: ADDRESS:PORT, several with commas
    #[arg(long, value_name = "ADDRESSES", help_heading = MACHINE)]
    connect_to: Option<String>,
    /// Poll for at most this long before a send is due, instead of sleeping; 0 never polls
    #[arg(long, value_name = "TIME", help_heading = MACHINE)]
    spin: Option<String>,
    /// Seed of everything random
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = MACHINE)]
    seed: u64,
    /// Run even though the plan does not fit this machine (the trial will be void)
    #[arg(long, help_heading = MACHINE)]
    force: bool,

    /// Write the result as JSON; - is standard output, and then nothing else is written there
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub json: Option<PathBuf>,
    /// Write the histograms as an HdrHistogram log
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub hlog: Option<PathBuf>,
    /// No progress on standard error
    #[arg(short, long, help_heading = OUTPUT)]
    pub quiet: bool,

    /// A deliberate fault in the instrument, to see the trial voided
    #[arg(long, value_name = "FAULT", hide = true)]
    inject_fault: Option<String>,
}

impl HttpArgs {
    /// What was given and may not be changed by the pre-flight check.
    pub fn asked(&self) -> Asked {
        Asked { processes: self.processes.is_some(), sources: self.source.is_some() }
    }

    /// The plan.
    ///
    /// # Errors
    /// Every mistake in the options.
    pub fn plan(&self, host: &Host) -> Result<HttpPlan, Vec<String>> {
        let mut mistakes = Mistakes::default();
        let url = mistakes.read("URL", parse_url(&self.url).map(Some));
        let targets = self.targets(url.as_ref(), &mut mistakes);
        let request = self.request(url.as_ref(), &mut mistakes);
        let requests = mistakes.optional("--requests", self.requests.as_deref(), positive);
        let (load, duration_ns) = self.load(requests, host, &mut mistakes);
        let threads = mistakes
            .optional("--threads", self.threads.as_deref(), positive)
            .unwrap_or_else(|| default_threads(&load, host))
            .min(u64::from(u16::MAX)) as u32;
        let processes =
            mistakes.optional("--processes", self.processes.as_deref(), positive).unwrap_or(1) as u32;
        let pipeline = mistakes.read("--pipeline", positive(&self.pipeline)).clamp(1, 10_000) as u32;
        if pipeline > 1 && self.no_keepalive {
            mistakes.add("--pipeline needs kept connections: leave out one of --pipeline and --no-keepalive");
        }
        let timeout = time_ns(&self.timeout).and_then(|ns| match ns {
            0 => Err("0 would fail every request; give a time such as 30s".to_owned()),
            ns => Ok(ns),
        });
        let timeout_ns = mistakes.read("--timeout", timeout);
        let plan = HttpPlan {
            url: self.url.clone(),
            targets,
            request,
            load,
            duration_ns,
            requests,
            keepalive: !self.no_keepalive,
            pipeline,
            expect: mistakes
                .optional("--expect", Some(&self.expect), str::parse)
                .unwrap_or(StatusSet::success()),
            timeout_ns,
            drain_ns: mistakes.read("--drain", time_ns(&self.drain)),
            threads,
            processes,
            cpus: mistakes.optional("--cpus", self.cpus.as_deref(), parse_cpus).unwrap_or_default(),
            sources: mistakes
                .optional("--source", self.source.as_deref(), parse_addresses)
                .unwrap_or_default(),
            spin_ns: mistakes.optional("--spin", self.spin.as_deref(), time_ns).unwrap_or(SPIN_NS),
            seed: self.seed,
            forced: self.force,
            fault: mistakes.optional("--inject-fault", self.inject_fault.as_deref(), str::parse),
        };
        mistakes.none_or(plan)
    }

    fn targets(&self, url: Option<&Url>, mistakes: &mut Mistakes) -> Vec<SocketAddr> {
        if let Some(list) = &self.connect_to {
            let parsed: Result<Vec<SocketAddr>, _> = list.split(',').map(|a| a.trim().parse()).collect();
            return parsed.unwrap_or_else(|_| {
                mistakes
                    .add(format!("--connect-to: '{list}' is not a list of ADDRESS:PORT such as 10.0.0.3:80"));
                Vec::new()
            });
        }
        let Some(url) = url else { return Vec::new() };
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        let port = url.port().unwrap_or(80);
        match (host, port).to_socket_addrs() {
            // The first, as every client takes; --connect-to spreads over several.
            Ok(mut addresses) => addresses.next().into_iter().collect(),
            Err(error) => {
                mistakes.add(format!(
                    "URL: cannot find the address of '{host}': {error}; give one with --connect-to"
                ));
                Vec::new()
            }
        }
    }

    fn request(&self, url: Option<&Url>, mistakes: &mut Mistakes) -> Request {
        let body = self.body.as_deref().map_or(Ok(Vec::new()), read_body);
        let body = mistakes.read("--body", body);
        let method = match &self.method {
            Some(method) => method.clone(),
            None => if self.body.is_some() { "POST" } else { "GET" }.to_owned(),
        };
        if !is_token(&method) {
            mistakes.add(format!("--method: '{method}' is not a method such as GET"));
        } else if method == "CONNECT" {
            mistakes.add("--method: CONNECT asks for a tunnel, which is no request to be answered");
        }
        let mut headers = Vec::new();
        for header in &self.headers {
            match header.split_once(':') {
                Some((name, value)) if is_token(name) && !value.contains(['\r', '\n', '\0']) => {
                    headers.push((name.to_owned(), value.trim().to_owned()));
                }
                _ => mistakes.add(format!("--header: '{header}' is not a field such as 'Accept: text/html'")),
            }
        }
        let has = |name: &str| headers.iter().any(|(n, _): &(String, String)| n.eq_ignore_ascii_case(name));
        let mut own = Vec::new();
        if let Some(url) = url
            && !has("host")
        {
            let host = url.host_str().unwrap_or_default();
            own.push((
                "Host".to_owned(),
                url.port().map_or(host.to_owned(), |port| format!("{host}:{port}")),
            ));
        }
        if !has("user-agent") {
            own.push(("User-Agent".to_owned(), concat!("proofload/", env!("CARGO_PKG_VERSION")).to_owned()));
        }
        own.append(&mut headers);
        let target = url.map_or("/".to_owned(), |url| match url.query() {
            Some(query) => format!("{}?{query}", url.path()),
            None => url.path().to_owned(),
        });
        Request { method, target, headers: own, body }
    }

    fn load(&self, requests: Option<u64>, host: &Host, mistakes: &mut Mistakes) -> (LoadModel, Option<u64>) {
        let duration_ns =
            mistakes.optional("--duration", self.duration.as_deref(), |text| match time_ns(text) {
                Ok(0) => Err("0 is no time to measure in; give one such as 10s".to_owned()),
                result => result,
            });
        let connections = mistakes.optional("--connections", self.connections.as_deref(), positive);
        if self.rate.is_some() || !self.stages.is_empty() {
            self.open_load(requests, duration_ns, connections, host, mistakes)
        } else {
            self.closed_load(requests, duration_ns, connections, mistakes)
        }
    }

    fn closed_load(
        &self,
        requests: Option<u64>,
        mut duration_ns: Option<u64>,
        connections: Option<u64>,
        mistakes: &mut Mistakes,
    ) -> (LoadModel, Option<u64>) {
        let users = mistakes.optional("--users", self.users.as_deref(), positive);
        let loops = mistakes.optional("--loops", self.loops.as_deref(), positive);
        if let (Some(users), Some(connections)) = (users, connections)
            && users != connections
        {
            mistakes.add(format!(
                "--connections: each of the {users} users has its own connection; leave --connections out, or use --rate \
                 for a load that shares {connections} connections"
            ));
        }
        if duration_ns.is_none() && loops.is_none() && requests.is_none() {
            duration_ns = Some(10_000_000_000);
        }
        let ramp_up_ns = mistakes.optional("--ramp-up", self.ramp_up.as_deref(), time_ns).unwrap_or(0);
        let think_time = mistakes
            .optional("--think-time", self.think_time.as_deref(), str::parse)
            .unwrap_or(Distribution::Fixed { ns: 0 });
        let users = users.or(connections).unwrap_or(10);
        (LoadModel::Closed { users, loops, ramp_up_ns, think_time }, duration_ns)
    }

    fn open_load(
        &self,
        requests: Option<u64>,
        duration_ns: Option<u64>,
        connections: Option<u64>,
        host: &Host,
        mistakes: &mut Mistakes,
    ) -> (LoadModel, Option<u64>) {
        for (option, given) in [
            ("--users", self.users.is_some()),
            ("--loops", self.loops.is_some()),
            ("--ramp-up", self.ramp_up.is_some()),
            ("--think-time", self.think_time.is_some()),
        ] {
            if given {
                mistakes.add(format!(
                    "{option} belongs to a closed load (users that wait for their answers), --rate and --stage to an \
                     open one: choose"
                ));
            }
        }
        let rate = mistakes.optional("--rate", self.rate.as_deref(), parse_rate);
        let mut stages: Vec<Stage> = self
            .stages
            .iter()
            .filter_map(|text| mistakes.optional("--stage", Some(text), str::parse))
            .collect();
        match rate {
            Some(_) if !self.stages.is_empty() => {
                mistakes.add(
                    "--rate and --stage both say the rate: leave out one (a stage holds a rate as 10s:500)",
                );
            }
            Some(rate) => {
                let duration_ns = match (duration_ns, requests) {
                    (Some(ns), _) => ns,
                    (None, Some(n)) => (n as f64 / rate * 1e9).ceil() as u64,
                    (None, None) => 10_000_000_000,
                };
                stages.push(Stage { duration_ns, from_rate_per_s: rate, to_rate_per_s: rate });
            }
            None if duration_ns.is_some() => {
                mistakes.add("--duration: the stages say how long the trial is; leave it out");
            }
            None => {}
        }
        let planned: f64 = stages
            .iter()
            .map(|s| (s.from_rate_per_s + s.to_rate_per_s) / 2.0 * s.duration_ns as f64 / 1e9)
            .sum();
        if !stages.is_empty() && planned < 1.0 {
            mistakes.add("--rate: at this rate not one request is due within the duration");
        }
        let connections = match connections {
            Some(n) => Connections { initial: n, most: n },
            None => {
                let descriptors = host.hard_descriptors.saturating_sub(100).max(1);
                Connections { initial: 0, most: MOST_ON_DEMAND.min(descriptors).min(host.ports) }
            }
        };
        let arrivals =
            mistakes.optional("--arrivals", Some(&self.arrivals), str::parse).unwrap_or(Arrivals::Constant);
        let duration_ns = stages.iter().map(|stage| stage.duration_ns).sum();
        (LoadModel::Open { arrivals, stages, connections }, Some(duration_ns))
    }
}

fn default_threads(load: &LoadModel, host: &Host) -> u64 {
    let most = (u64::from(host.cpus) / 2).clamp(1, 8);
    match load {
        LoadModel::Closed { users, .. } => users.div_ceil(16).clamp(1, most),
        LoadModel::Open { stages, .. } => {
            let peak = stages.iter().flat_map(|s| [s.from_rate_per_s, s.to_rate_per_s]).fold(0.0, f64::max);
            ((peak / RATE_PER_THREAD).ceil() as u64).clamp(1, most)
        }
    }
}

fn parse_url(text: &str) -> Result<Url, String> {
    let full = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let url = Url::parse(&full)
        .map_err(|e| format!("'{text}' is not a URL: {e}; such as http://127.0.0.1:8080/"))?;
    match url.scheme() {
        "http" if url.host_str().is_some() => Ok(url),
        "https" => Err(format!(
            "'{text}': TLS is not spoken yet; put a terminating proxy on this machine in front (stunnel, HAProxy), or \
             test the service's plain port"
        )),
        other => Err(format!("'{text}': cannot speak {other}; give an http:// URL")),
    }
}

fn read_body(text: &str) -> Result<Vec<u8>, String> {
    match text.strip_prefix('@') {
        None => Ok(text.as_bytes().to_vec()),
        Some("-") => {
            let mut body = Vec::new();
            std::io::stdin()
                .read_to_end(&mut body)
                .map_err(|e| format!("cannot read standard input: {e}"))?;
            Ok(body)
        }
        Some(path) => std::fs::read(path).map_err(|e| format!("cannot read {path}: {e}")),
    }
}

fn parse_addresses(text: &str) -> Result<Vec<IpAddr>, String> {
    let refuse = || format!("'{text}' is not a list of addresses such as 10.0.0.5 or 10.0.0.5-10.0.0.9");
    let mut addresses = Vec::new();
    for part in text.split(',').map(str::trim) {
        match part.split_once('-') {
            None => addresses.push(part.parse().map_err(|_| refuse())?),
            Some((first, last)) => {
                let first: Ipv4Addr = first.parse().map_err(|_| refuse())?;
                let last: Ipv4Addr = last.parse().map_err(|_| refuse())?;
                let (first, last) = (u32::from(first), u32::from(last));
                if first > last || last - first >= 65_536 {
                    return Err(refuse());
                }
                addresses.extend((first..=last).map(|ip| IpAddr::V4(ip.into())));
            }
        }
    }
    Ok(addresses)
}

fn positive(text: &str) -> Result<u64, String> {
    match parse_count(text) {
        Ok(0) => Err("0 is too few; give at least 1".to_owned()),
        Ok(n) if n > 1_000_000_000_000 => Err(format!("'{text}' is more than can be counted here")),
        Ok(n) => Ok(n),
        Err(error) => Err(error.to_string()),
    }
}

fn time_ns(text: &str) -> Result<u64, String> {
    parse_time(text).map(|time| time.as_nanos() as u64).map_err(|e| e.to_string())
}

fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        http: HttpArgs,
    }

    const HOST: Host =
        Host { hard_descriptors: 20_000, ports: 28_232, available_memory_bytes: 1 << 34, cpus: 2 };

    fn plan(line: &str) -> Result<HttpPlan, Vec<String>> {
        let words = ["http"].into_iter().chain(line.split_whitespace());
        Line::try_parse_from(words).unwrap().http.plan(&HOST)
    }

    #[test]
    fn what_wrk_users_type_works() {
        let plan = plan("-t2 -c400 -d30s http://127.0.0.1:8080/index.html?x=1").unwrap();
        assert!(matches!(plan.load, LoadModel::Closed { users: 400, .. }));
        assert_eq!((plan.threads, plan.duration_ns), (2, Some(30_000_000_000)));
        assert_eq!(plan.request.target, "/index.html?x=1");
        assert_eq!(plan.targets, ["127.0.0.1:8080".parse().unwrap()]);
    }

    #[test]
    fn what_ab_users_type_works() {
        let plan = plan("-n 1000 -c 10 127.0.0.1/").unwrap();
        assert_eq!((plan.requests, plan.duration_ns), (Some(1000), None));
        assert_eq!(plan.targets, ["127.0.0.1:80".parse().unwrap()]);
    }

    #[test]
    fn what_wrk2_users_type_works() {
        let plan = plan("-t1 -c100 -d30s -R2000 http://127.0.0.1/").unwrap();
        let LoadModel::Open { stages, connections, .. } = plan.load else { panic!() };
        assert_eq!(stages[0].from_rate_per_s, 2_000.0);
        assert_eq!(connections, Connections { initial: 100, most: 100 });
    }

    #[test]
    fn all_mistakes_are_told_at_once() {
        let mistakes =
            plan("ftp://x -u 0 --timeout soon --expect ok --cpus x --header nonsense -d never").unwrap_err();
        assert_eq!(mistakes.len(), 7, "{mistakes:#?}");
    }

    #[test]
    fn contradictions_are_refused() {
        for (line, word) in [
            ("http://127.0.0.1/ --rate 5 --users 3", "closed load"),
            ("http://127.0.0.1/ --rate 5 --stage 1s:5", "leave out one"),
            ("http://127.0.0.1/ --stage 1s:5 -d 5s", "stages say"),
            ("http://127.0.0.1/ -u 5 -c 6", "own connection"),
            ("http://127.0.0.1/ --pipeline 4 --no-keepalive", "kept connections"),
            ("https://127.0.0.1/", "TLS"),
            ("http://127.0.0.1/ --rate 0.01 -d 1s", "not one request"),
        ] {
            let mistakes = plan(line).unwrap_err();
            assert!(mistakes.iter().any(|m| m.contains(word)), "{line}: {mistakes:?}");
        }
    }

    #[test]
    fn source_ranges() {
        assert_eq!(parse_addresses("127.0.0.1-127.0.0.3,::1").unwrap().len(), 4);
        for bad in ["", "x", "127.0.0.3-127.0.0.1", "10.0.0.0-10.255.0.0"] {
            assert!(parse_addresses(bad).is_err(), "{bad}");
        }
    }
}
