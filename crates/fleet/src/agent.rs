//! An agent: this program on another machine, which makes its part of the load in worker processes of its own.
//!
//! A thread reads the controller's messages, and answers questions for the time at once. The agent ends with its input.

use std::{
    fs::File,
    io::{self, BufRead, BufReader},
    net::{IpAddr, SocketAddr},
    os::fd::AsFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use clock::{boottime_ns, monotonic_ns};
use load::{Lease, MachineLimits, RunError, preflight};
use processes::send_to_parent;
use record::HttpPlan;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};
use settings::Network;

use crate::{
    drive::drive,
    error::FleetError,
    files_of_plan::{Files, take_part},
    protocol::{FromMember, Hello, Numbered, Order, ToMember},
    trial::Trial,
    workers::WorkerProcesses,
};

/// How often the wait for the start checks whether the trial is cancelled.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// An agent that has heard nothing from its controller for this time, in seconds, undoes what it has changed, and ends.
/// Controllers send something every 5 s.
const CONTROLLER_SILENCE_S: i64 = 30;

/// Questions to this machine as a host of a study, in order. They end when the controller is gone.
#[derive(Debug)]
pub struct HostQuestions {
    questions: mpsc::Receiver<(u64, serde_json::Value)>,
    /// Is set when the controller is gone.
    pub stop: Arc<AtomicBool>,
}

impl HostQuestions {
    /// Answers all questions, one after the other.
    pub fn answer_all(self, mut answer: impl FnMut(serde_json::Value) -> Result<serde_json::Value, String>) {
        for (number, question) in self.questions {
            if send(0, FromMember::Host { number, answer: answer(question) }).is_err() {
                return;
            }
        }
    }
}

/// What an agent may do for its controller.
#[derive(Debug, Clone, Default)]
pub struct Permissions {
    /// The networks that it may load; `None` means all.
    pub networks: Option<Vec<Network>>,
    /// Whether it only makes load, and refuses to be a host of a study.
    pub load_only: bool,
}

impl Permissions {
    /// Why a plan may not be carried out here; none if it may.
    fn refusal(&self, plan: &HttpPlan) -> Option<String> {
        // Files of a plan are never those of an agent's machine.
        if plan.connection.unix_socket.is_some() {
            return Some("unix_socket: an agent loads no socket of its machine".to_owned());
        }
        let networks = self.networks.as_ref()?;
        let names = plan.connection.names.iter().flat_map(|name| &name.used);
        let tunnel = plan.connection.tunnel.as_ref().map(|tunnel| tunnel.to.as_str());
        let (mut addresses, mut named) = (Vec::new(), None);
        addresses.extend(plan.targets.iter().chain(names).map(|target| target.ip().to_canonical()));
        match tunnel.map(|to| (to, to.parse::<SocketAddr>())) {
            Some((_, Ok(to))) => addresses.push(to.ip().to_canonical()),
            Some((to, Err(_))) => named = Some(to),
            None => {}
        }
        let is_allowed = |address: &IpAddr| networks.iter().any(|network| network.contains(*address));
        let allow = "start the agent with --allow NETWORK there";
        if let Some(to) = named {
            return Some(format!(
                "a proxy would decide which address {to} has; name the target by its address"
            ));
        }
        if addresses.is_empty() {
            return Some("the plan has no address that could be allowed".to_owned());
        }
        let refused = addresses.iter().find(|address| !is_allowed(address))?;
        Some(format!(
            "it does not load {refused}, which is in none of the networks that it is allowed to load; {allow}"
        ))
    }
}

/// Runs an agent until its standard input ends. `worker`: the arguments that make this program a worker process. `serve`
/// answers what the machine is asked as a host of a study; it is called in a thread of its own at the first question.
///
/// # Errors
/// If this machine's limits cannot be read, or the controller is gone.
pub fn run_agent(
    worker: &[String],
    permissions: &Permissions,
    serve: impl FnOnce(HostQuestions) + Send + 'static,
) -> io::Result<()> {
    // The folder of the copy may be removed while this runs.
    std::env::set_current_dir("/")?;
    let hello = Hello { version: env!("CARGO_PKG_VERSION").to_owned(), limits: MachineLimits::read()? };
    send(0, FromMember::Hello(Box::new(hello)))?;
    let (sender, orders) = mpsc::channel();
    let refuse = |questions: HostQuestions| {
        questions.answer_all(|_| Err("this agent makes load only; reach its machine by ssh".to_owned()));
    };
    let serve: Box<dyn FnOnce(HostQuestions) + Send> =
        if permissions.load_only { Box::new(refuse) } else { Box::new(serve) };
    let reader =
        OrderReader { orders: sender, current: None, serve: Some(serve), host: None, files: Arc::default() };
    let messages = Messages::of_controller()?;
    let reader = thread::Builder::new().spawn(move || reader.read(messages))?;
    for ordered in orders {
        let trial = ordered.trial;
        let message = match ordered.run(worker, permissions) {
            Ok(message) => message,
            Err(error @ (FleetError::OutOfResources(_) | FleetError::Start(_))) => {
                FromMember::OutOfResources(error.to_string())
            }
            Err(error) => FromMember::Failed(error.to_string()),
        };
        send(trial, message)?;
    }
    // What was changed on the host is undone before the agent ends.
    if let Ok(Some(host)) = reader.join() {
        let _ = host.join();
    }
    Ok(())
}

/// A trial that the controller has ordered.
struct OrderedTrial {
    trial: u64,
    order: Box<Order>,
    files: Arc<Files>,
    stop: Arc<AtomicBool>,
    lease: Arc<Lease>,
    starts: mpsc::Receiver<u64>,
}

impl OrderedTrial {
    fn run(self, worker: &[String], permissions: &Permissions) -> Result<FromMember, FleetError> {
        let Self { trial, order, files, stop, lease, starts } = self;
        order.secrets.iter().for_each(|(text, shown)| secrets::mask::learn_text(text, shown));
        if let Some(why) = permissions.refusal(&order.plan) {
            return Ok(FromMember::Failed(why));
        }
        let missing = preflight::missing_here(&order.plan);
        if !missing.is_empty() {
            let words = missing.iter().map(|mistake| format!("{}: {}", mistake.field, mistake.message));
            return Ok(FromMember::Failed(words.collect::<Vec<_>>().join("; ")));
        }
        let count = order.processes as usize;
        let arguments = std::iter::repeat_n(worker, count);
        let mut workers = WorkerProcesses::start(arguments, &order, Some(lease), &files)?;
        let start = |_: &mut WorkerProcesses| {
            let cancelled = FleetError::Run(RunError::Cancelled);
            if send(trial, FromMember::Ready).is_err() {
                return Err(cancelled);
            }
            let t0_ns = loop {
                match starts.recv_timeout(POLL_INTERVAL) {
                    Ok(t0_ns) => break t0_ns,
                    Err(RecvTimeoutError::Timeout) if !stop.load(Ordering::Relaxed) => {}
                    Err(_) => return Err(cancelled),
                }
            };
            let late_ns = monotonic_ns().saturating_sub(t0_ns);
            if late_ns == 0 { Ok(t0_ns) } else { Err(FleetError::LateStart { late_ns }) }
        };
        let on_tick = &mut |tick| {
            // A failed send means that the controller is gone. The end of standard input then stops the trial.
            let _ = send(trial, FromMember::Tick(tick));
        };
        let on_written = &mut |path, lines| drop(send(trial, FromMember::Written { path, lines }));
        drive(Trial::of_processes(&order.plan, count), &mut workers, &stop, start, on_tick, on_written)
            .map(|result| FromMember::Done(Box::new(result)))
    }
}

/// The controller's messages. They end with the connection, or when nothing has come for too long.
struct Messages(BufReader<File>);

impl Messages {
    fn of_controller() -> io::Result<Self> {
        // Not `io::stdin` itself: a wait for more bytes would not see those in its buffer.
        Ok(Self(BufReader::new(File::from(io::stdin().as_fd().try_clone_to_owned()?))))
    }
}

impl Iterator for Messages {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') {
            if self.0.buffer().is_empty() {
                let silence = Timespec { tv_sec: CONTROLLER_SILENCE_S, tv_nsec: 0 };
                match poll(&mut [PollFd::new(self.0.get_ref(), PollFlags::IN)], Some(&silence)) {
                    Ok(0) => return None,
                    Err(Errno::INTR) => continue,
                    Ok(_) | Err(_) => {}
                }
            }
            let piece = self.0.fill_buf().ok()?;
            if piece.is_empty() {
                return None;
            }
            let length = piece.iter().position(|byte| *byte == b'\n').map_or(piece.len(), |end| end + 1);
            line.extend_from_slice(&piece[..length]);
            self.0.consume(length);
        }
        String::from_utf8(line).ok()
    }
}

/// Reads the controller's messages.
struct OrderReader {
    orders: mpsc::Sender<OrderedTrial>,
    current: Option<Current>,
    /// Answers questions to the host; none once the first question has come.
    serve: Option<Box<dyn FnOnce(HostQuestions) + Send>>,
    host: Option<Host>,
    /// The files that were sent.
    files: Arc<Files>,
}

/// The thread that answers questions to the host.
struct Host {
    questions: mpsc::Sender<(u64, serde_json::Value)>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

/// What messages about the current trial change.
struct Current {
    trial: u64,
    stop: Arc<AtomicBool>,
    lease: Arc<Lease>,
    starts: mpsc::Sender<u64>,
}

impl OrderReader {
    /// Returns the thread that answers questions to the host, if there were any.
    fn read(mut self, messages: Messages) -> Option<JoinHandle<()>> {
        for line in messages {
            let (monotonic_ns, boottime_ns) = (monotonic_ns(), boottime_ns());
            let Ok(Numbered { trial, message }) = serde_json::from_str(&line) else { break };
            let current = self.current.as_ref().filter(|current| current.trial == trial);
            match (message, current) {
                (ToMember::Clock { number }, _) => {
                    let message = FromMember::Clock { number, monotonic_ns, boottime_ns };
                    if send(trial, message).is_err() {
                        break;
                    }
                }
                (ToMember::Host { number, question }, _) => {
                    if !self.ask_host(number, question) {
                        break;
                    }
                }
                (ToMember::Prepare(order), _) => self.prepare(trial, order),
                (ToMember::Start { t0_ns }, Some(current)) => drop(current.starts.send(t0_ns)),
                (ToMember::Lease { until_ns }, Some(current)) => current.lease.extend(until_ns),
                (ToMember::Stop, Some(current)) => current.stop.store(true, Ordering::Relaxed),
                (ToMember::ForgetFiles, _) => self.files = Arc::default(),
                (ToMember::FilePart { name, part }, _) => {
                    if take_part(Arc::make_mut(&mut self.files), name, &part).is_err() {
                        break;
                    }
                }
                (ToMember::Alive, _) => {}
                (ToMember::Start { .. } | ToMember::Lease { .. } | ToMember::Stop, None) => {}
            }
        }
        self.stop();
        let Host { questions, stop, thread } = self.host?;
        stop.store(true, Ordering::Relaxed);
        drop(questions);
        Some(thread)
    }

    /// Passes a question on. Returns false if nobody answers any more.
    fn ask_host(&mut self, number: u64, question: serde_json::Value) -> bool {
        if let Some(serve) = self.serve.take() {
            let ((questions, receiver), stop) = (mpsc::channel(), Arc::new(AtomicBool::new(false)));
            let asked = HostQuestions { questions: receiver, stop: Arc::clone(&stop) };
            let Ok(thread) = thread::Builder::new().spawn(move || serve(asked)) else { return false };
            self.host = Some(Host { questions, stop, thread });
        }
        self.host.as_ref().is_some_and(|host| host.questions.send((number, question)).is_ok())
    }

    fn prepare(&mut self, trial: u64, mut order: Box<Order>) {
        self.stop();
        // Whatever a controller says: no plan names files of this machine.
        order.elsewhere = true;
        let files = self.files.clone();
        let (sender, starts) = mpsc::channel();
        // The controller gives every machine a lease.
        let lease = Arc::new(Lease::new(order.lease_until_ns.unwrap_or(0)));
        let current = Current { trial, stop: Arc::default(), lease, starts: sender };
        let (stop, lease) = (Arc::clone(&current.stop), Arc::clone(&current.lease));
        self.current = Some(current);
        let _ = self.orders.send(OrderedTrial { trial, order, files, stop, lease, starts });
    }

    fn stop(&self) {
        self.current.iter().for_each(|current| current.stop.store(true, Ordering::Relaxed));
    }
}

fn send(trial: u64, message: FromMember) -> io::Result<()> {
    send_to_parent(&Numbered { trial, message })
}

#[cfg(test)]
mod tests {
    use record::{ConnectionPlan, TunnelPlan};

    use super::*;

    #[test]
    fn only_allowed_addresses_are_loaded() {
        let refused = |networks: Option<&[&str]>, targets: &[&str], tunnel: Option<&str>| {
            let networks = networks.map(|all| all.iter().map(|network| network.parse().unwrap()).collect());
            let tunnel = tunnel.map(|to| TunnelPlan { to: to.to_owned(), ..TunnelPlan::default() });
            let plan = HttpPlan {
                targets: targets.iter().map(|target| target.parse().unwrap()).collect(),
                connection: ConnectionPlan { tunnel, ..ConnectionPlan::default() },
                ..HttpPlan::default()
            };
            Permissions { networks, load_only: true }.refusal(&plan)
        };
        assert_eq!(refused(None, &["192.0.2.1:80"], None), None);
        assert_eq!(refused(Some(&["10.0.0.0/8"]), &["10.1.0.1:80", "[::ffff:10.2.0.1]:80"], None), None);
        let why = refused(Some(&["10.0.0.0/8"]), &["10.1.0.1:80", "192.0.2.1:80"], None).unwrap();
        assert!(why.contains("192.0.2.1") && why.contains("--allow"), "{why}");
        assert!(refused(Some(&[]), &["10.1.0.1:80"], None).is_some());
        assert!(refused(Some(&["10.0.0.0/8"]), &[], None).is_some());
        // Behind a proxy, the tunnel's end counts as well.
        assert_eq!(refused(Some(&["10.0.0.0/8"]), &["10.1.0.1:80"], Some("10.0.0.2:443")), None);
        assert!(refused(Some(&["10.0.0.0/8"]), &["10.1.0.1:80"], Some("192.0.2.1:443")).is_some());
        assert!(refused(Some(&["10.0.0.0/8"]), &["10.1.0.1:80"], Some("name:443")).is_some());
        let connection = ConnectionPlan { unix_socket: Some("/run/x".into()), ..ConnectionPlan::default() };
        let plan = HttpPlan { connection, ..HttpPlan::default() };
        assert!(
            Permissions { networks: None, load_only: true }.refusal(&plan).unwrap().contains("unix_socket")
        );
    }
}
