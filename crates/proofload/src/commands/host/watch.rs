//! `proofload host watch`: prints kernel counters, one line per second.

use std::{
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

use clap::Args;
use kernel::{
    counters::{of_machine, of_network, read_own, since},
    tcp::{self, Passing},
};
use record::{Counters, units::parse_time};
use serde::Serialize;

use crate::{
    commands::mistakes::Mistakes,
    exit::{Exit, Refusal, Result},
    output::standard,
};

/// Time between two lines.
const INTERVAL: Duration = Duration::from_secs(1);
/// Time between two checks of the stop flag.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum number of sockets to list per state, which limits the time of a reading.
const MAX_SOCKETS: usize = 10_000;
/// Number of lines between two headings.
const LINES_PER_HEADING: usize = 20;

/// Show sockets, drops, descriptors, processors and pressure, a line each second.
///
/// Needs no root. Ends with Ctrl-C or --duration; exit status 0.
#[derive(Debug, Args)]
pub(super) struct WatchArgs {
    /// Print one JSON object per line
    #[arg(long)]
    json_lines: bool,
    /// Stop after this time
    #[arg(short, long, value_name = "T")]
    duration: Option<String>,
}

/// The figures of one interval. Counts are increases during it.
#[derive(Debug, Serialize)]
struct Second {
    /// Seconds since the start of the command.
    time_s: f64,
    established: u64,
    /// Half-open connections. Like the next two, at most 10,000; `None` if the kernel cannot list sockets.
    syn_received: Option<u64>,
    fin_wait: Option<u64>,
    close_wait: Option<u64>,
    time_wait: u64,
    orphaned: u64,
    opened_per_s: f64,
    /// Connections dropped because an accept queue was full.
    accept_queue_overflows: u64,
    /// SYNs dropped for any reason, including full accept queues.
    listen_drops: u64,
    /// Packets dropped because a processor's input queue was full.
    packet_queue_drops: u64,
    /// Packets that network interfaces dropped.
    interface_drops: u64,
    retransmitted_segments: u64,
    open_files: u64,
    /// Number of busy processors; includes the next two.
    cores_busy: f64,
    cores_softirq: f64,
    /// Processor time that the hypervisor gave to other machines, as a number of processors.
    cores_stolen: f64,
    /// Share of the time in which a process waited for a processor. Like the next two, `None` if the kernel does not
    /// report pressure.
    pressure_cpu_ratio: Option<f64>,
    pressure_memory_ratio: Option<f64>,
    pressure_io_ratio: Option<f64>,
}

/// Prints lines until a signal or the end of the duration.
pub(super) fn run(arguments: &WatchArgs) -> Result<Exit> {
    let mut m = Mistakes::default();
    let duration = m.optional("--duration", arguments.duration.as_deref(), parse_time);
    m.into_result(()).map_err(Refusal::new)?;
    let stop = crate::stop::on_signal()?;
    let begin = Instant::now();
    let (mut before, mut before_at) = (read(), begin);
    for line in 0_usize.. {
        let next = begin + INTERVAL * (line as u32 + 1);
        if duration.is_some_and(|duration| begin + duration < next) {
            break;
        }
        while Instant::now() < next && !stop.load(Ordering::Relaxed) {
            thread::sleep(POLL_INTERVAL.min(next.saturating_duration_since(Instant::now())));
        }
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let (now, at) = (read(), Instant::now());
        let change = since(now.clone(), &before);
        // Listing sockets fails without the kernel module tcp_diag; the other figures are still valid.
        let passing = tcp::passing(MAX_SOCKETS).ok();
        let second = Second::of(&change, passing, (at - before_at).as_secs_f64(), (at - begin).as_secs_f64());
        if arguments.json_lines {
            let json = serde_json::to_string(&second).map_err(Refusal::one)?;
            standard::print_raw(&format!("{json}\n"))?;
        } else {
            if line % LINES_PER_HEADING == 0 {
                standard::print_raw(HEADING)?;
            }
            standard::print_raw(&second.text())?;
        }
        (before, before_at) = (now, at);
    }
    Ok(Exit::GoalsMet)
}

/// Reads all counters of this network namespace and of the machine.
fn read() -> Counters {
    let mut all = of_network(&read_own);
    all.values.extend(of_machine(&read_own).values);
    all
}

const HEADING: &str = "connections                            |        | drops                        |       | processors           | waiting %
  estab   syn   fin close    tw orphan | opened | accept listen queue  if  re-tx |  files | busy softirq stolen |  cpu  mem   io
";

impl Second {
    fn of(change: &Counters, passing: Option<Passing>, elapsed_s: f64, time_s: f64) -> Self {
        let count = |name: &str| change.get(name).unwrap_or(0);
        let sum = |begin: &str, end: &str| {
            let values =
                change.values.iter().filter(|(name, _)| name.starts_with(begin) && name.ends_with(end));
            values.map(|(_, value)| *value).sum::<u64>()
        };
        let cores = |what: &str| sum("cpu", &format!(".{what}_ms")) as f64 / 1e3 / elapsed_s;
        let pressure = |what: &str| {
            let waited_us = change.get(&format!("pressure.{what}.some_us"))?;
            Some((waited_us as f64 / 1e6 / elapsed_s).min(1.0))
        };
        let softirq = cores("softirq");
        Self {
            time_s,
            established: count("Tcp.CurrEstab"),
            syn_received: passing.map(|passing| passing.syn_received),
            fin_wait: passing.map(|passing| passing.fin_wait),
            close_wait: passing.map(|passing| passing.close_wait),
            time_wait: count("sockstat.TCP.tw"),
            orphaned: count("sockstat.TCP.orphan"),
            opened_per_s: (count("Tcp.ActiveOpens") + count("Tcp.PassiveOpens")) as f64 / elapsed_s,
            accept_queue_overflows: count("TcpExt.ListenOverflows"),
            listen_drops: count("TcpExt.ListenDrops"),
            packet_queue_drops: count("softnet.drops"),
            interface_drops: sum("interface.", "_drops"),
            retransmitted_segments: count("Tcp.RetransSegs"),
            open_files: count("files.open"),
            cores_busy: cores("user") + cores("system") + cores("interrupt") + softirq,
            cores_softirq: softirq,
            cores_stolen: cores("steal"),
            pressure_cpu_ratio: pressure("cpu"),
            pressure_memory_ratio: pressure("memory"),
            pressure_io_ratio: pressure("io"),
        }
    }

    fn text(&self) -> String {
        let percent = |ratio: Option<f64>| {
            ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{:.0}", ratio * 100.0))
        };
        let count = |count: Option<u64>| count.map_or_else(|| "–".to_owned(), |count| count.to_string());
        format!(
            "{:>7} {:>5} {:>5} {:>5} {:>5} {:>6} | {:>6.0} | {:>6} {:>6} {:>5} {:>3} {:>6} | {:>6} | {:>4.1} {:>7.1} {:>6.1} | {:>4} {:>4} {:>4}\n",
            self.established,
            count(self.syn_received),
            count(self.fin_wait),
            count(self.close_wait),
            self.time_wait,
            self.orphaned,
            self.opened_per_s,
            self.accept_queue_overflows,
            self.listen_drops,
            self.packet_queue_drops,
            self.interface_drops,
            self.retransmitted_segments,
            self.open_files,
            self.cores_busy,
            self.cores_softirq,
            self.cores_stolen,
            percent(self.pressure_cpu_ratio),
            percent(self.pressure_memory_ratio),
            percent(self.pressure_io_ratio),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_stands_below_its_heading() {
        let names = ["Tcp.CurrEstab", "TcpExt.ListenOverflows", "Tcp.PassiveOpens"];
        let values = names.iter().zip(7..).map(|(name, value)| ((*name).to_owned(), value)).collect();
        let mut change = Counters { values, ..Counters::default() };
        change.values.insert("cpu0.user_ms".to_owned(), 500);
        change.values.insert("cpu1.softirq_ms".to_owned(), 250);
        let passing = Passing { syn_received: 5, ..Passing::default() };
        let second = Second::of(&change, Some(passing), 0.5, 3.0);
        assert_eq!((second.established, second.accept_queue_overflows), (7, 8));
        assert_eq!((second.opened_per_s, second.cores_busy, second.cores_softirq), (18.0, 1.5, 0.5));
        assert_eq!(second.pressure_io_ratio, None);
        let bars =
            |text: &str| text.char_indices().filter(|(_, c)| *c == '|').map(|(at, _)| at).collect::<Vec<_>>();
        // A dash is one column wide but three bytes long.
        let columns = |text: &str| bars(&text.replace('–', "-"));
        assert_eq!(bars(HEADING.lines().last().unwrap()), columns(&second.text()));
        let unlisted = Second::of(&change, None, 0.5, 3.0);
        assert_eq!(columns(&unlisted.text()), columns(&second.text()));
        assert!(second.text().starts_with("      7     5     0     0"), "{}", second.text());
        assert!(unlisted.text().starts_with("      7     –     –     –"), "{}", unlisted.text());
    }
}
