//! `proofload link`: emulates a link between two existing hosts.

use std::{
    io::{self, BufRead},
    sync::{atomic::Ordering, mpsc},
    thread,
    time::{Duration, Instant},
};

use lab::link::{
    Certificate, Counters, Direction, Driver, Link, LinkSpec, Namespace, certify::Measured, netem,
    text::show_rate, worker,
};
use record::units::{show_count, show_time_ns};
use serde::Serialize;

use super::link_args::{Job, LinkArgs, LinkCommand};
use crate::{
    exit::{Exit, Refusal, Result},
    output::{destination::Destination, standard},
};

/// Time between two checks of the stop flag.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Prints a line immediately, to standard output or, if the JSON goes there, to standard error.
type Print<'a> = &'a dyn Fn(&str) -> Result;

/// The report that `--json` writes.
#[derive(Serialize)]
struct Report<'a> {
    spec: &'a LinkSpec,
    certificate: Option<&'a Certificate>,
    counters: Option<&'a [Counters; 2]>,
}

/// Runs a link until it is stopped or its duration is over.
pub(crate) fn run(arguments: &LinkArgs) -> Result<Exit> {
    let job = arguments.job().map_err(Refusal::new)?;
    let json = Destination::open_optional("--json", arguments.json.as_deref())?;
    lab::ensure_own_proc().map_err(Refusal::one)?;
    let [a, b] = &job.ends;
    Namespace::wait_until_separate(&a.namespace, &b.namespace).map_err(Refusal::one)?;
    let stop = crate::stop::on_signal()?;
    let is_stopped = || stop.load(Ordering::Relaxed);
    let print_on_stdout = !json.as_ref().is_some_and(Destination::is_stdout);
    let print = |text: &str| {
        if print_on_stdout {
            return standard::print_wrapped(&format!("{text}\n"));
        }
        standard::print_to_stderr(text);
        Ok(())
    };
    let write_report = |report: Report<'_>| json.map_or(Ok(()), |json| json.write_json(&report));
    if job.spec.driver == Driver::Netem {
        run_netem(&job, &print, &is_stopped)?;
        write_report(Report { spec: &job.spec, certificate: None, counters: None })?;
        return Ok(Exit::GoalsMet);
    }
    let [a, b] = job.ends.clone();
    let mut link = Link::start(job.spec.clone(), a, b).map_err(Refusal::one)?;
    let certificate = match &job.certify {
        Some(options) => {
            let max_s = options.max_duration(&job.spec).as_secs();
            standard::print_to_stderr(format_args!(
                "proofload: measuring the link for about 8 s, at most {max_s} s"
            ));
            let certificate = link.certify(options).map_err(Refusal::one)?;
            print(&certificate_text(&certificate))?;
            Some(certificate)
        }
        None => None,
    };
    print(&ready(&job))?;
    run_commands(&mut link, &job, &print, &is_stopped)?;
    let counters = link.counters().map_err(Refusal::one)?;
    write_report(Report { spec: link.spec(), certificate: certificate.as_ref(), counters: Some(&counters) })?;
    print(&counters_text(&counters))?;
    let is_certified = certificate.is_none_or(|certificate| certificate.certified);
    Ok(if is_certified { Exit::GoalsMet } else { Exit::Void })
}

/// Entry point of the process that emulates a link.
pub(crate) fn work() -> Result<Exit> {
    worker::work().map_err(Refusal::one)?;
    Ok(Exit::GoalsMet)
}

fn run_netem(job: &Job, print: Print<'_>, is_stopped: &dyn Fn() -> bool) -> Result {
    let [a, b] = &job.ends;
    netem::apply(&job.spec, a, b).map_err(Refusal::one)?;
    let printed = print(&ready(job));
    let started = Instant::now();
    while printed.is_ok() && !is_stopped() && job.duration.is_none_or(|duration| started.elapsed() < duration)
    {
        thread::sleep(POLL_INTERVAL);
    }
    let removed = [a, b].map(netem::remove);
    removed.into_iter().collect::<Result<Vec<()>, _>>().map_err(Refusal::one)?;
    printed
}

/// Executes commands from standard input until the duration is over or a signal arrives.
fn run_commands(link: &mut Link, job: &Job, print: Print<'_>, is_stopped: &dyn Fn() -> bool) -> Result {
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let started = Instant::now();
    while !is_stopped() && job.duration.is_none_or(|duration| started.elapsed() < duration) {
        if !link.is_running() {
            return Err(Refusal::one("the link's process has ended"));
        }
        let line = match lines.recv_timeout(POLL_INTERVAL) {
            Ok(line) => line,
            Err(mpsc::RecvTimeoutError::Timeout) => continue,
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                thread::sleep(POLL_INTERVAL);
                continue;
            }
        };
        if line.trim().is_empty() {
            continue;
        }
        match line.trim().parse() {
            Ok(command) => match execute(link, &command) {
                Ok(answer) => print(&answer)?,
                Err(mistake) => standard::print_to_stderr(format_args!("proofload: {mistake}")),
            },
            Err(mistake) => standard::print_to_stderr(format_args!("proofload: {mistake}")),
        }
    }
    Ok(())
}

fn execute(link: &mut Link, command: &LinkCommand) -> Result<String, String> {
    let message = |error: lab::link::LinkError| error.to_string();
    match command {
        LinkCommand::Down => link.down().map(|()| "down".to_owned()).map_err(message),
        LinkCommand::Up => link.up().map(|()| "up".to_owned()).map_err(message),
        LinkCommand::Counters => link.counters().map(|counters| counters_text(&counters)).map_err(message),
        LinkCommand::Set(directions, text) => {
            for &direction in directions {
                let spec = link.spec();
                let base = if direction == Direction::AToB { &spec.a_to_b } else { &spec.b_to_a };
                let shape = text.read(base).map_err(|mistakes| {
                    let all = mistakes.iter().map(|mistake| format!("{}: {}", mistake.key, mistake.message));
                    all.collect::<Vec<_>>().join("; ")
                })?;
                link.set(direction, shape).map_err(message)?;
            }
            Ok("set".to_owned())
        }
    }
}

fn ready(job: &Job) -> String {
    let ends = job.ends.iter().map(|end| {
        let addresses: Vec<String> = end.addresses.iter().map(ToString::to_string).collect();
        format!("{} in {} ({})", end.device, end.namespace, addresses.join(", "))
    });
    format!("link ready: {}", ends.collect::<Vec<_>>().join(" to "))
}

fn counters_text(counters: &[Counters; 2]) -> String {
    let shown = |ns: Option<u64>| ns.map_or_else(|| "–".to_owned(), show_time_ns);
    let line = |name: &str, c: &Counters| {
        let p = &c.pipe;
        let mut text = format!(
            "{name}: {} packets offered, {} delivered; dropped: {} queue full, {} lost, {} link down; {} duplicated, \
             {} reordered; lateness p50 {} p99.9 {}",
            show_count(p.offered_packets),
            show_count(p.delivered_packets),
            show_count(p.dropped_queue_packets),
            show_count(p.dropped_loss_packets),
            show_count(p.dropped_down_packets),
            show_count(p.duplicated_packets),
            show_count(p.reordered_packets),
            shown(c.lateness.p50_ns),
            shown(c.lateness.p999_ns),
        );
        let faults = c.not_emulated();
        if faults > 0 {
            text +=
                &format!("; NOT EMULATED: {} packets, because this machine was too slow", show_count(faults));
        }
        text
    };
    let away = match counters[0].away {
        away if away.times == 0 => String::new(),
        away => format!(
            "\nthe emulator stalled (was not scheduled) {} times, {} in total",
            show_count(away.times),
            show_time_ns(away.total_ns)
        ),
    };
    format!("{}\n{}{away}", line("a to b", &counters[0]), line("b to a", &counters[1]))
}

fn certificate_text(certificate: &Certificate) -> String {
    let line = |name: &str, m: &Measured| {
        let delay = &m.delay;
        let rate = m.rate_bits_per_s.map_or_else(
            || "not limited".to_owned(),
            |rate| {
                let expected = m.expected_rate_bits_per_s.map(|rate| rate as u64);
                format!("{:.2} Mbit/s of {}", rate / 1e6, show_rate(expected))
            },
        );
        format!(
            "{name}: delay p50 {:.3} ms (expected {:.3}), p99.9 {:.3} ms; rate {rate}; {:.4} % of {} packets lost \
             (expected {:.4} %)",
            delay.p50_ns as f64 / 1e6,
            delay.expected_p50_ns as f64 / 1e6,
            delay.p999_ns as f64 / 1e6,
            m.loss_ratio * 100.0,
            show_count(m.loss_sent),
            m.expected_loss_ratio * 100.0,
        )
    };
    let verdict = if certificate.certified { "certified".to_owned() } else { "NOT CERTIFIED".to_owned() };
    let reasons = certificate.reasons.iter().map(|reason| format!("\n  {reason}")).collect::<String>();
    format!(
        "{}\n{}\n{verdict}{reasons}",
        line("a to b", &certificate.a_to_b),
        line("b to a", &certificate.b_to_a)
    )
}
