//! Trials of proofload's own HTTP generator.

use std::{
    io,
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, Instant},
};

use fleet::{FleetError, Machines, Workers};
use lab::Lab;
use load::{HttpWorkload, MachineLimits, Tick, WorkerResult, addresses, conclude, preflight};
use record::{
    Decision, Distribution, HttpPlan, LoadModel, NamePlan, ScriptPlan, Trial, Validity, VoidReason, VoidRule,
};

use super::{Testbed, TestbedError};
use crate::single;

/// Number of probes before a target counts as silent: a target may answer only a share of its requests.
const MAX_PROBES: u32 = 10;

impl Testbed {
    /// Plans a trial and fits the plan to the load's hosts. Returns the plan and the adjustments made to it; the inner error is the reason
    /// why it does not fit. `known` has the addresses of names, which stay the same in all trials. `decision_for` returns the decision that
    /// the trial must make.
    pub(crate) fn plan(
        &self,
        workload: &HttpWorkload,
        seed: u64,
        known: &mut Vec<NamePlan>,
        decision_for: impl FnOnce(&HttpPlan) -> Option<Decision>,
    ) -> Result<(HttpPlan, Result<Vec<String>, String>), TestbedError> {
        let (of_one, host) = self.limits().map_err(TestbedError::MachineLimits)?;
        let message = |mistake: load::FieldMistake| format!("{}: {}", mistake.field, mistake.message);
        let plan = workload.plan(&of_one);
        let mut plan = plan.map_err(|mistakes| {
            TestbedError::Unfit(mistakes.into_iter().map(message).collect::<Vec<_>>().join("; "))
        })?;
        plan.seed = seed;
        plan.decides = decision_for(&plan);
        if let (Some(decides), None) = (plan.decides, &workload.drain) {
            // The trial must wait as long as the goals allow a request to take.
            plan.drain_ns = plan.drain_ns.max(decides.longest_ns.min(plan.timeout_ns));
        }
        let mut notes =
            self.inside(|| Ok(addresses::choose(&mut plan, known))).map_err(TestbedError::MachineLimits)?;
        // Each of the load's hosts runs at least one worker.
        let hosts = self.least_workers();
        plan.processes = plan.processes.max(hosts);
        let fitted = match preflight::fit(&mut plan, &host, workload.fixed_by_user()) {
            Err(refusals) if plan.forced => Ok(refusals
                .into_iter()
                .map(|r| format!("--force although the plan does not fit this machine: {r}"))
                .collect()),
            fitted => fitted.map_err(|refusals| refusals.join("; ")),
        };
        if workload.processes.is_none() && u64::from(plan.processes) < plan.connections() {
            plan.processes = plan.processes.next_multiple_of(hosts);
        }
        Ok((
            plan,
            fitted.map(|fitted| {
                notes.extend(fitted);
                notes
            }),
        ))
    }

    /// Runs `work` on the first of the load's hosts.
    fn inside<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        let first = self.setup.from.first();
        match first.and_then(|&number| self.lab.iter().flat_map(Lab::hosts).nth(number)) {
            Some(host) => host.inside(work),
            None => work(),
        }
    }

    /// A void trial that was not run. If the plan exceeds this machine's limits, a search then looks for a smaller load.
    pub(crate) fn not_run(plan: HttpPlan, command: &[String], rule: VoidRule, why: String) -> Trial {
        let mut trial = conclude(plan, WorkerResult::default(), single::new_trial_context(command));
        trial.validity = Validity::from_reasons(vec![VoidReason { rule, evidence: why }]);
        trial
    }

    /// Runs one trial.
    pub(crate) fn run(
        &self,
        plan: HttpPlan,
        stop: &Arc<AtomicBool>,
        command: &[String],
        on_tick: impl FnMut(&Tick),
    ) -> Result<Trial, TestbedError> {
        let hosts = self.workers();
        let workers = if hosts.is_empty() { self.generator.workers() } else { Workers::On(&hosts) };
        match single::run(plan, workers, stop, command, on_tick) {
            Ok(trial) => Ok(trial),
            // If this machine lacks a resource, the trial is void, but the study goes on.
            Err((error, plan)) if error.is_resource_shortage() => {
                let rule = match error {
                    FleetError::Machine { .. } => VoidRule::WorkerLost,
                    _ => VoidRule::LocalExhaustion,
                };
                Ok(Self::not_run(*plan, command, rule, error.to_string()))
            }
            Err((error, _)) => Err(error.into()),
        }
    }

    /// Sends single requests of this plan from each of the load's hosts. Returns `None` once every host has an answer as expected,
    /// otherwise the reason why there was none. Probes write no receipts. An answer counts if it comes within the length `trial` plus the
    /// drain time.
    pub(crate) fn probe(
        &self,
        plan: &HttpPlan,
        trial: Option<Duration>,
        stop: &Arc<AtomicBool>,
    ) -> Result<Option<String>, TestbedError> {
        let mut plan = plan.clone();
        let hosts = self.least_workers();
        let think_time = Distribution::Fixed { ns: 0 };
        plan.load = LoadModel::Closed { users: u64::from(hosts), loops: Some(1), ramp_up_ns: 0, think_time };
        (plan.duration_ns, plan.requests, plan.decides) = (None, None, None);
        (plan.processes, plan.threads, plan.pipeline) = (hosts, 1, 1);
        plan.script = plan.script.map(ScriptPlan::once);
        if let Some(events) = &mut plan.events {
            (events.receipts, events.retries) = (None, 0);
        }
        if let Some(trial) = trial {
            plan.timeout_ns = plan.timeout_ns.min(trial.as_nanos() as u64 + plan.drain_ns);
        }
        let until = Instant::now() + Duration::from_nanos(plan.timeout_ns);
        let mut why = None;
        for _ in 0..MAX_PROBES {
            let trial = self.run(plan.clone(), stop, &[], |_| ())?;
            let answered = trial.http().map_or(0, |http| http.counts.completed);
            why = (answered < u64::from(hosts)).then(|| trial.main_failure()).flatten();
            if why.is_none() || Instant::now() >= until {
                break;
            }
        }
        Ok(why)
    }

    /// The number of worker processes with which each of the load's hosts has at least one.
    fn least_workers(&self) -> u32 {
        match self.fleet() {
            Some(machines) => machines.weight(),
            None => self.setup.from.len().max(1) as u32,
        }
    }

    /// The machines that make the load; `None` if hosts of a lab do, or this machine.
    fn fleet(&self) -> Option<&Machines> {
        self.generator.machines.as_deref().filter(|_| self.lab.is_none())
    }

    /// Limits for the plan of one machine, and limits of all of the load's hosts.
    fn limits(&self) -> io::Result<(MachineLimits, MachineLimits)> {
        match self.fleet() {
            Some(machines) => Ok(machines.limits()),
            None => self.host().map(|limits| (limits, limits)),
        }
    }

    /// Limits of the load's hosts. All share this machine, but each host has its own ports. Every host makes an equal share of
    /// the load, so the host with the fewest ports decides.
    fn host(&self) -> io::Result<MachineLimits> {
        let hosts: Vec<_> = self.lab.iter().flat_map(Lab::hosts).collect();
        let limits = self.setup.from.iter().filter_map(|&number| hosts.get(number));
        let limits: Vec<MachineLimits> =
            limits.map(|host| host.inside(MachineLimits::read)).collect::<io::Result<_>>()?;
        match limits.iter().min_by_key(|host| host.ports) {
            Some(least) => Ok(MachineLimits { ports: least.ports * limits.len() as u64, ..*least }),
            None => MachineLimits::read(),
        }
    }

    fn workers(&self) -> Vec<Vec<String>> {
        let (Some(lab), Ok(program)) = (&self.lab, std::env::current_exe()) else { return Vec::new() };
        let mut command = vec![program.display().to_string()];
        command.extend(self.generator.worker.iter().cloned());
        let hosts: Vec<_> = lab.hosts().collect();
        self.setup.from.iter().map(|&host| hosts[host].arguments_to_run(&command)).collect()
    }
}
