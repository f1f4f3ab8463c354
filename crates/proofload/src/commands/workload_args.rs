//! The options that describe a workload, shared by the commands that make load.

use clap::Args;
use load::{FieldMistake, HttpWorkload};

use super::habits::HabitArgs;

const LOAD: &str = "Load";
const REQUEST: &str = "Request";
const EVENTS: &str = "Numbered events";
const MACHINE: &str = "Machine";

/// A workload without the size of its load. Values are kept as given; [`HttpWorkload::plan`] reads them.
#[derive(Debug, Args)]
pub struct WorkloadArgs {
    /// What to send requests to, such as http://127.0.0.1:8080/path
    url: String,
    /// Start the users evenly over this time, shorter than the duration
    #[arg(long, value_name = "TIME", help_heading = LOAD)]
    ramp_up: Option<String>,
    /// Requests of each user
    #[arg(long, value_name = "N", help_heading = LOAD)]
    loops: Option<String>,
    /// Pause of a user between answer and next request: 300ms, uniform:10ms..50ms, exp:20ms,
    /// lognormal:20ms,0.5 or file:PATH
    #[arg(long, value_name = "DIST", help_heading = LOAD)]
    think_time: Option<String>,
    /// How the arrivals of an open load are spaced: constant or poisson [default: constant]
    #[arg(long, value_name = "KIND", help_heading = LOAD)]
    arrivals: Option<String>,
    /// Connections: of a closed load, the same as --users; of an open one, opened before the start
    /// [default there: opened on demand]
    #[arg(short, long, value_name = "N", help_heading = LOAD)]
    connections: Option<String>,
    /// A new connection for every request
    #[arg(long, help_heading = LOAD)]
    no_keepalive: bool,
    /// Requests in flight at once on each connection; each of them pauses for itself where users think, and an open load
    /// sends behind others only what finds no free connection [default: 1]
    #[arg(long, value_name = "DEPTH", help_heading = LOAD)]
    pipeline: Option<String>,

    /// Method [default: GET, or POST with a body]
    #[arg(short = 'X', long, value_name = "METHOD", help_heading = REQUEST)]
    method: Option<String>,
    /// A header field, such as 'Accept: text/html'; @FILE takes those of a file, one a line. ${NAME} in a value, in the URL
    /// and in the body's text is that environment variable: so secrets stay off the command line
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE|@FILE", help_heading = REQUEST)]
    headers: Vec<String>,
    /// The body: text, @FILE, or @- for standard input
    #[arg(short, long, value_name = "BODY", help_heading = REQUEST)]
    body: Option<String>,
    /// Statuses that are a success: 200, 2xx,304 or 200-299 [default: 2xx,3xx; of events 2xx]
    #[arg(long, value_name = "STATUSES", help_heading = REQUEST)]
    expect: Option<String>,
    /// A request that takes longer, its connection included, has failed [default: 30s]
    #[arg(long, value_name = "TIME", help_heading = REQUEST)]
    timeout: Option<String>,
    /// With a duration: wait this long for answers still missing at its end [default: 2s]
    #[arg(long, value_name = "TIME", help_heading = REQUEST)]
    drain: Option<String>,

    /// Send numbered events, which `proofload audit` finds again: the event is a JSON object, @FILE, or (without a
    /// value) that of the published test of an HTTP data listener
    #[arg(long, value_name = "EVENT", num_args = 0..=1, require_equals = true, default_missing_value = "default",
          help_heading = EVENTS)]
    events: Option<String>,
    /// Events in each request [default: 1]
    #[arg(long, value_name = "N", help_heading = EVENTS)]
    events_per_request: Option<String>,
    /// How events stand in the body: json (one), ndjson or array [default: json; ndjson for several]
    #[arg(long = "as", value_name = "KIND", help_heading = EVENTS)]
    events_as: Option<String>,
    /// Leave what becomes of every event in this folder, for `proofload audit`
    #[arg(long, value_name = "FOLDER", help_heading = EVENTS)]
    receipts: Option<String>,
    /// Make a request that failed again up to so many times; an event counts as failed when all have [default: 0]
    #[arg(long, value_name = "N", help_heading = EVENTS)]
    retries: Option<String>,
    /// Ask for this level of acknowledgement: accepted, written or synced [default: the receiver's own]
    #[arg(long, value_name = "LEVEL", help_heading = EVENTS)]
    ack: Option<String>,
    /// Send an Idempotency-Key with every request, the same with its retries
    #[arg(long, help_heading = EVENTS)]
    idempotency: bool,

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

    #[command(flatten)]
    habits: HabitArgs,
}

impl WorkloadArgs {
    /// What requests are sent to, as given.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Seed of everything random.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Mistakes in options that other tools have and this one has not.
    pub fn habit_mistakes(&self) -> Vec<String> {
        self.habits.mistakes(self.no_keepalive)
    }

    /// The workload, as written.
    pub fn workload(&self) -> HttpWorkload {
        HttpWorkload {
            url: self.url.clone(),
            ramp_up: self.ramp_up.clone(),
            loops: self.loops.clone(),
            think_time: self.think_time.clone(),
            arrivals: self.arrivals.clone(),
            connections: self.connections.clone(),
            no_keepalive: self.no_keepalive,
            pipeline: self.pipeline.clone(),
            method: self.method.clone(),
            headers: self.headers.clone(),
            body: self.body.clone(),
            events: self.events.clone(),
            events_per_request: self.events_per_request.clone(),
            events_as: self.events_as.clone(),
            receipts: self.receipts.clone(),
            retries: self.retries.clone(),
            ack: self.ack.clone(),
            idempotency: self.idempotency,
            expect: self.expect.clone(),
            timeout: self.timeout.clone(),
            drain: self.drain.clone(),
            threads: self.threads.clone(),
            processes: self.processes.clone(),
            cpus: self.cpus.clone(),
            source: self.source.clone(),
            connect_to: self.connect_to.clone(),
            spin: self.spin.clone(),
            seed: self.seed,
            force: self.force,
            ..HttpWorkload::default()
        }
    }
}

/// A mistake in a field, told by its option.
pub fn told_by_option(mistake: FieldMistake) -> String {
    format!("{}: {}", option_of(mistake.field), mistake.message)
}

/// A field's name as its option.
fn option_of(field: &str) -> String {
    match field {
        "url" => "URL".to_owned(),
        "headers" => "--header".to_owned(),
        "stages" => "--stage".to_owned(),
        field => format!("--{}", field.replace('_', "-")),
    }
}
