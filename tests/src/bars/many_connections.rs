//! Many connections that are open at the same time and all in use.

use anyhow::{Result, ensure};

use super::{Outcome, seconds};
use crate::{Proofload, Serve, machine, proofload::adds_up};

/// The number of connections, and how they are spread.
pub(super) struct Plan {
    /// Users, with one connection each.
    pub users: u64,
    /// Number of processes of the generator.
    pub client_processes: u64,
    /// Number of processes of the target.
    pub serve_processes: u64,
    /// Source addresses of the connections, as for the option `--source`.
    pub sources: &'static str,
    /// Addresses that the target listens on.
    pub listen: &'static [&'static str],
    /// Time over which the connections are opened, in seconds.
    pub ramp_up_s: u64,
    /// Pause of every user between requests, in seconds.
    pub think_s: u64,
    /// Time for which all must be open, in seconds.
    pub hold_s: u64,
}

/// Descriptors that a process needs in addition to its connections, rounded up generously.
const SPARE_DESCRIPTORS: u64 = 1_000;

impl Plan {
    /// Number of processes that can hold this many connections under this machine's limit.
    pub(super) fn processes_for(users: u64) -> u64 {
        users.div_ceil(machine::raise_descriptor_limit().saturating_sub(SPARE_DESCRIPTORS).max(1))
    }

    /// Opens the connections, holds them, and judges the counts.
    pub(super) fn run(&self) -> Result<Outcome> {
        let limit = machine::raise_descriptor_limit();
        let per_process = self.users.div_ceil(self.client_processes);
        ensure!(
            per_process + 100 < limit,
            "{per_process} connections in a process need a hard limit of open files above {limit}; \
             raise it (ulimit -Hn) and run again"
        );
        let listen: String = self.listen.iter().map(|address| format!(" --listen {address}")).collect();
        let serve = Serve::start(&format!("--processes {}{listen}", self.serve_processes))?;
        // Two seconds longer than needed, because the time series is cut at whole seconds.
        let duration_s = self.ramp_up_s + self.hold_s + 2;
        let words = format!(
            "-u {} --ramp-up {}s --think-time {}s -d {duration_s}s --processes {} --connect-to {} --source {} -q",
            self.users,
            self.ramp_up_s,
            self.think_s,
            self.client_processes,
            serve.addresses().join(","),
            self.sources,
        );
        let output = Proofload::http(&serve.url(), &words)?.timeout(seconds(duration_s + 120)).run()?;
        // The bar `pacing` tests lateness. Here, both sides and the kernel's work for so many connections share a few processors, so
        // requests may be late.
        let trial = output.counted(0)?;
        let report = serve.stop()?;
        let mut outcome = Outcome::default();
        outcome.time().equal("connections_peak", trial.counts.connections_peak, self.users, "as planned");
        outcome.time().equal("accepted", report.connections_accepted, self.users, "by serve: none twice");
        let held = trial.series.iter().filter(|second| second.open_connections == self.users).count();
        outcome.time().figure("held_s", held, format!(">= {}", self.hold_s), held as u64 >= self.hold_s);
        let errors = trial.errors.total() + trial.connection_errors.total();
        outcome.time().equal("errors", errors, 0, "none of any class");
        outcome.time().equal("never_sent", trial.counts.never_sent, 0, "all were sent");
        outcome.holds("adds_up", adds_up(trial), "scheduled is the sum of the four ends");
        for reason in trial.validity.reasons() {
            outcome.note(format!("void by {:?}: {}", reason.rule, reason.evidence));
        }
        outcome.note(format!(
            "{} requests completed in {:.1} s by {} processes; resident memory {:.1} MiB, {:.0} bytes a \
             connection; response p50 {:.3} ms, p99 {:.3} ms",
            trial.counts.completed,
            trial.elapsed_s,
            trial.plan.processes,
            trial.cpu.max_resident_bytes as f64 / 1_048_576.0,
            trial.cpu.max_resident_bytes as f64 / self.users as f64,
            super::ms(trial.response_time.percentile(0.5).value as u64),
            super::ms(trial.response_time.percentile(0.99).value as u64),
        ));
        Ok(outcome)
    }
}
