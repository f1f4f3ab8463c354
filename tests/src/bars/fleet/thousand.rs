//! What a controller costs that has a thousand agents. They wait at a real NATS server, and speak the agents' protocol, but make no
//! load: a thousand real ones would need the processors of a thousand machines.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context, Error, Result, ensure};
use broker::{Accepted, Access, Arrival, Broker, Input, Key, Listener, Output, PublicKey, Session};
use record::Histogram;
use serde_json::{Value, json};
use testing::PATIENCE;

use crate::{
    Serve,
    bars::{Bar, By, Outcome, Scale},
    nginx::free_address,
    process::{Finished, Launch, Process, cpu_of_ended_children_s},
    proofload::{binary, parse_trial, patient},
    temporary::TemporaryFolder,
};

pub(super) const BAR: Bar = Bar {
    name: "fleet-thousand",
    what: "1,000 agents that dialled out to one NATS server make one load: assembly and merge take at most 10 s of the controller's processor \
           time, memory is printed, each result is counted once",
    full_seconds: 300,
    decided_by: By::Times,
    run,
};

/// The controller's processor time, in seconds.
const MOST_PROCESSOR_S: f64 = 10.0;
/// Requests that each agent says to have made in each second, all of them answered.
const RATE: u64 = 20;

fn run(scale: Scale) -> Result<Outcome> {
    let (count, seconds) = scale.pick((50, 10), (1_000, 10));
    let mut outcome = Outcome::default();
    let site = Site::start()?;
    let agents = site.agents(count)?;
    let target = Serve::start("")?;
    let (used_before_s, carried_before) = (cpu_of_ended_children_s()?, site.carried_bytes()?);
    let words = patient(&format!("-q --json - -R {} -d {seconds}s -c {count}", RATE * count));
    let (finished, peak_kib) = watched(site.controller("http")?.words(&words).arg(target.url()).start()?)?;
    let processor_s = cpu_of_ended_children_s()? - used_before_s;
    let carried = site.carried_bytes()? - carried_before;
    ensure!(matches!(finished.code, Some(0 | 3)), "the load: {finished:?}");
    let trial = parse_trial(&finished.stdout)?;
    drop(agents);
    let lost = trial.machines.iter().filter(|machine| machine.lost.is_some()).count() as u64;
    if let Some(why) = trial.machines.iter().find_map(|machine| machine.lost.as_ref()) {
        outcome.note(format!("the first that was lost: {why}"));
    }
    outcome.equal("machines", trial.machines.len() as u64, count, "agents");
    outcome.equal("lost", lost, 0, "of them");
    outcome.equal("completed", trial.counts.completed, RATE * count * seconds, "said by all agents together");
    let answered = trial.response_time.observed.count();
    outcome.equal("response_times", answered, RATE * count * seconds, "said by all agents together");
    let wall_s = finished.wall.as_secs_f64();
    outcome.note(format!("wall time {wall_s:.1} s for a load of {seconds} s"));
    outcome.note(format!("the broker received {} bytes for each agent, in all", carried / count));
    outcome.note(format!("memory of the controller at most {} MiB", peak_kib / 1024));
    let bound = format!("<= {MOST_PROCESSOR_S} s");
    let value = format!("{processor_s:.2}");
    outcome.time().figure("controller_processor_s", value, bound, processor_s <= MOST_PROCESSOR_S);
    outcome.note(format!("{:.2} ms of it for each agent", 1e3 * processor_s / count as f64));
    Ok(outcome)
}

/// A NATS server, and the keys of both sides.
struct Site {
    folder: TemporaryFolder,
    server: SocketAddr,
    /// Where the server tells its statistics.
    monitor: SocketAddr,
    controller_key: String,
    _nats: Process,
}

impl Site {
    fn start() -> Result<Self> {
        let folder = TemporaryFolder::new()?;
        let (server, monitor) = (free_address()?, free_address()?);
        let line = format!("--addr {} --port {} --http_port {}", server.ip(), server.port(), monitor.port());
        let mut nats = Launch::new("nats-server").words(&line).start()?;
        nats.says("Server is ready", PATIENCE)?;
        let key = |name: &str| -> Result<String> {
            let made = program()?.words("fleet key").arg(folder.file(name)).run(PATIENCE)?;
            ensure!(made.code == Some(0), "fleet key: {made:?}");
            Ok(made.stdout.trim().to_owned())
        };
        let (controller_key, agent) = (key("controller.key")?, key("agent.key")?);
        fs::write(folder.file("agents"), format!("a* {agent}\n"))?;
        Ok(Self { folder, server, monitor, controller_key, _nats: nats })
    }

    /// The bytes that the server has received so far.
    fn carried_bytes(&self) -> Result<u64> {
        let mut stream = TcpStream::connect(self.monitor)?;
        stream.write_all(b"GET /varz HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (_, body) = answer.split_once("\r\n\r\n").context("the server told nothing")?;
        let told: Value = serde_json::from_str(body)?;
        told["in_bytes"].as_u64().with_context(|| format!("no bytes: {body}"))
    }

    fn pool(&self) -> String {
        format!("nats://{}/load", self.server)
    }

    /// Starts so many agents, and waits until all are there.
    fn agents(&self, count: u64) -> Result<Vec<Agent>> {
        let access = Access {
            address: self.pool().parse().map_err(Error::msg)?,
            credentials: None,
            authorities: None,
        };
        let key = Key::read(self.folder.file("agent.key").as_ref()).map_err(Error::msg)?;
        let controllers = [self.controller_key.parse::<PublicKey>().map_err(Error::msg)?];
        let broker = Broker::connect(&access, PATIENCE).map_err(Error::msg)?;
        let listen = |number| broker.listen(&format!("a{number}"), &key, &controllers).map_err(Error::msg);
        let listeners = (0..count).map(listen).collect::<Result<Vec<_>>>()?;
        let agents: Vec<Agent> = listeners.into_iter().map(Agent::start).collect();
        let is_all = || {
            let list =
                program().and_then(|program| program.words("fleet list").arg(self.pool()).run(PATIENCE));
            list.is_ok_and(|list| list.stdout.matches(" idle ").count() == count as usize).then_some(())
        };
        testing::find(PATIENCE, is_all).with_context(|| format!("not all of {count} agents are idle"))?;
        // The connection lasts as long as its listeners.
        std::mem::forget(broker);
        Ok(agents)
    }

    /// A command that uses all agents.
    fn controller(&self, command: &str) -> Result<Launch> {
        let launch = program()?.words(command).arg("--on").arg(self.pool());
        let launch = launch.arg("--fleet-key").arg(self.folder.file("controller.key"));
        Ok(launch.arg("--agent-keys").arg(self.folder.file("agents")))
    }
}

/// An agent. Dropping it ends it.
struct Agent {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Agent {
    fn start(listener: Listener) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let is_stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            while !is_stopped.load(Ordering::Relaxed) {
                if let Arrival::Session(accepted) = listener.accept(Duration::from_millis(100)) {
                    let Accepted { session: Session { input, output, .. }, .. } = *accepted;
                    // The controller tells what goes wrong.
                    let _ = obey(input, output);
                }
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Speaks the agents' side of the protocol until the controller ends the session.
fn obey(mut input: Input, output: Output) -> Result<()> {
    let mut say = |trial: u64, message: Value| -> Result<()> {
        Ok(input.write_all(format!("{}\n", json!({ "trial": trial, "message": message })).as_bytes())?)
    };
    let hello = json!({ "version": env!("CARGO_PKG_VERSION"), "limits": load::MachineLimits::EXAMPLE });
    say(0, json!({ "hello": hello }))?;
    let mut seconds = 0;
    for line in BufReader::new(output).lines() {
        let line: Value = serde_json::from_str(&line?)?;
        let (trial, message) = (line["trial"].as_u64().unwrap_or(0), &line["message"]);
        if let Some(number) = message["clock"]["number"].as_u64() {
            let (monotonic_ns, boottime_ns) = (clock::monotonic_ns(), clock::boottime_ns());
            let now = json!({ "number": number, "monotonic_ns": monotonic_ns, "boottime_ns": boottime_ns });
            say(trial, json!({ "clock": now }))?;
        } else if message.get("prepare").is_some() {
            seconds = message["prepare"]["plan"]["duration_ns"].as_u64().unwrap_or(0) / 1_000_000_000;
            say(trial, json!("ready"))?;
        } else if let Some(t0_ns) = message["start"]["t0_ns"].as_u64() {
            for index in 0..seconds {
                let end_ns = t0_ns + (index + 1) * 1_000_000_000;
                thread::sleep(Duration::from_nanos(end_ns.saturating_sub(clock::monotonic_ns())));
                let tick = load::Tick {
                    index,
                    end_ns: end_ns - t0_ns,
                    sent: RATE,
                    completed: RATE,
                    response_time: Box::new(times(RATE)),
                    ..load::Tick::default()
                };
                say(trial, json!({ "tick": tick }))?;
            }
            let mut result = load::WorkerResult { elapsed_ns: seconds * 1_000_000_000, ..Default::default() };
            let counts = &mut result.http.counts;
            (counts.scheduled, counts.sent, counts.completed) =
                (seconds * RATE, seconds * RATE, seconds * RATE);
            result.http.response_time.observed = times(seconds * RATE);
            say(trial, json!({ "done": result }))?;
        }
    }
    Ok(())
}

/// So many response times, between 1 and 2 ms.
fn times(count: u64) -> Histogram {
    let mut times = Histogram::default();
    (0..count).for_each(|number| times.record_ns(1_000_000 + 1_000_000 * number / count));
    times
}

fn program() -> Result<Launch> {
    Ok(Launch::new(binary()?.display().to_string()))
}

/// The end of a process, and the most memory that it had, in KiB.
fn watched(mut process: Process) -> Result<(Finished, u64)> {
    let mut peak_kib = 0;
    while process.is_running() {
        let status = fs::read_to_string(format!("/proc/{}/status", process.pid())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        peak_kib = peak_kib.max(kib.unwrap_or(0));
        thread::sleep(Duration::from_millis(20));
    }
    Ok((process.finish(PATIENCE)?, peak_kib))
}
