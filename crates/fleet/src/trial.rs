//! One trial on several members, seen by its controller: a state machine without clock, input and output. It knows which
//! are ready, which have sent a result and which are lost, and merges what the members measured.

use load::{Tick, TickMerger, WorkerResult};
use record::{HttpPlan, MachineTrial};

use crate::{error::FleetError, protocol::FromMember};

/// How long after the planned end members may take to send their results, in nanoseconds. Members without a result then count as
/// lost.
pub(crate) const RESULT_TIMEOUT_NS: u64 = 30_000_000_000;

/// A trial on several members.
#[derive(Debug)]
pub(crate) struct Trial {
    members: Vec<Member>,
    /// The part of each member that is a machine; empty if the members are worker processes of this machine.
    machines: Vec<MachineTrial>,
    has_started: bool,
    /// Time from the start to the planned end, with the drain time; `None` if only the requests decide.
    length_ns: Option<u64>,
    /// When members without a result count as lost.
    deadline_ns: Option<u64>,
    merger: TickMerger,
    merged: WorkerResult,
    has_result: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Member {
    Preparing,
    Ready,
    Done,
    Lost,
}

impl Trial {
    /// A trial on worker processes of this machine.
    pub(crate) fn of_processes(plan: &HttpPlan, processes: usize) -> Self {
        Self {
            members: vec![Member::Preparing; processes],
            machines: Vec::new(),
            has_started: false,
            length_ns: plan.duration_ns.map(|ns| ns + plan.drain_ns),
            deadline_ns: None,
            merger: TickMerger::new(processes),
            merged: WorkerResult::default(),
            has_result: false,
        }
    }

    /// A trial on machines.
    pub(crate) fn of_machines(plan: &HttpPlan, machines: Vec<MachineTrial>) -> Self {
        let members = machines.len();
        Self { machines, ..Self::of_processes(plan, members) }
    }

    /// Whether all members wait for the start.
    pub(crate) fn is_ready(&self) -> bool {
        !self.has_started && self.members.iter().all(|member| *member == Member::Ready)
    }

    /// Whether the load was started.
    pub(crate) fn has_started(&self) -> bool {
        self.has_started
    }

    /// The load starts at this time.
    pub(crate) fn starts(&mut self, t0_ns: u64) {
        self.has_started = true;
        // A plan without a duration has no deadline here: its requests end by their own timeouts.
        self.deadline_ns = self.length_ns.map(|length_ns| t0_ns + length_ns + RESULT_TIMEOUT_NS);
    }

    /// The members were told to stop at this time.
    pub(crate) fn stopped(&mut self, now_ns: u64) {
        self.deadline_ns = Some(now_ns + RESULT_TIMEOUT_NS);
    }

    /// At this time, a member was still sending what it had written, so its result is later.
    pub(crate) fn is_heard(&mut self, now_ns: u64) {
        self.deadline_ns = self.deadline_ns.map(|deadline_ns| deadline_ns.max(now_ns + RESULT_TIMEOUT_NS));
    }

    /// Takes a member's message. Returns the intervals that are complete now.
    ///
    /// # Errors
    /// If the member fails before the start.
    pub(crate) fn message(&mut self, member: usize, message: FromMember) -> Result<Vec<Tick>, FleetError> {
        match message {
            // What a member sends after its result, or after it was given up, belongs to no trial.
            _ if !self.is_open(member) => Ok(Vec::new()),
            FromMember::Ready => {
                self.members[member] = Member::Ready;
                Ok(Vec::new())
            }
            FromMember::Tick(tick) if self.has_started => Ok(self.merger.push(&tick)),
            FromMember::Done(result) if self.has_started => Ok(self.has_measured(member, *result)),
            FromMember::Failed(why) => self.is_lost(member, why, FleetError::Worker),
            FromMember::OutOfResources(why) => self.is_lost(member, why, FleetError::OutOfResources),
            FromMember::Tick(_)
            | FromMember::Written { .. }
            | FromMember::Done(_)
            | FromMember::Hello(_)
            | FromMember::Clock { .. }
            | FromMember::Host { .. } => Ok(Vec::new()),
        }
    }

    /// A member's connection has ended. Returns the intervals that are complete now.
    ///
    /// # Errors
    /// If that was before the start.
    pub(crate) fn ended(&mut self, member: usize, why: String) -> Result<Vec<Tick>, FleetError> {
        // Counts as a resource shortage, because the kernel may have killed a worker for lack of memory.
        if self.is_open(member) {
            self.is_lost(member, why, FleetError::OutOfResources)
        } else {
            Ok(Vec::new())
        }
    }

    /// Whether the trial has ended: every member has sent its result or is lost, or the deadline is over.
    pub(crate) fn has_ended(&self, now_ns: u64) -> bool {
        self.has_started
            && (self.deadline_ns.is_some_and(|deadline_ns| now_ns > deadline_ns)
                || (0..self.members.len()).all(|member| !self.is_open(member)))
    }

    /// The merged result. Members without a result are lost.
    pub(crate) fn conclude(mut self) -> WorkerResult {
        for member in 0..self.members.len() {
            if self.is_open(member) {
                let seconds = RESULT_TIMEOUT_NS / 1_000_000_000;
                let why = format!("it sent no result within {seconds} s of the end");
                let _ = self.is_lost(member, why, FleetError::Worker);
            }
        }
        let lost = self.members.iter().filter(|member| **member == Member::Lost).count() as u64;
        self.merged.lost_workers += lost;
        self.merged.http.machines = self.machines;
        self.merged
    }

    fn is_open(&self, member: usize) -> bool {
        matches!(self.members[member], Member::Preparing | Member::Ready)
    }

    fn has_measured(&mut self, member: usize, result: WorkerResult) -> Vec<Tick> {
        self.members[member] = Member::Done;
        if let Some(machine) = self.machines.get_mut(member) {
            *machine = std::mem::take(machine).measured(&result.http);
            let lost_processes = result.lost_workers;
            machine.lost = match (result.lost_lease, lost_processes) {
                (true, _) => {
                    Some("it stopped, because it heard nothing from its controller for too long".to_owned())
                }
                (false, 0) => None,
                (false, lost) => Some(format!("{lost} of its worker processes ended without a result")),
            };
        }
        if self.has_result {
            self.merged.merge(&result);
        } else {
            self.merged = result;
        }
        // A machine that stopped by itself is lost, like one from which nothing is heard.
        if !self.machines.is_empty() {
            self.merged.lost_workers += u64::from(std::mem::take(&mut self.merged.lost_lease));
        }
        self.has_result = true;
        self.merger.worker_ended()
    }

    fn is_lost(
        &mut self,
        member: usize,
        why: String,
        error: fn(String) -> FleetError,
    ) -> Result<Vec<Tick>, FleetError> {
        self.members[member] = Member::Lost;
        let error = match self.machines.get_mut(member) {
            None => error(why),
            Some(machine) => {
                machine.lost = Some(why.clone());
                FleetError::Machine { name: machine.name.clone(), why }
            }
        };
        if self.has_started { Ok(self.merger.worker_ended()) } else { Err(error) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn plan() -> HttpPlan {
        HttpPlan { duration_ns: Some(10 * SECOND_NS), drain_ns: 5 * SECOND_NS, ..HttpPlan::default() }
    }

    fn machines(count: usize) -> Trial {
        let machine = |index| MachineTrial { name: format!("c{index}"), ..MachineTrial::default() };
        Trial::of_machines(&plan(), (0..count).map(machine).collect())
    }

    fn result(completed: u64) -> WorkerResult {
        let mut result = WorkerResult::default();
        result.http.counts.completed = completed;
        result
    }

    #[test]
    fn a_member_that_fails_before_the_start_ends_the_trial_with_its_name() {
        let mut trial = machines(2);
        assert!(trial.message(0, FromMember::Ready).unwrap().is_empty() && !trial.is_ready());
        let error = trial.message(1, FromMember::Failed("no processor".to_owned())).unwrap_err();
        assert_eq!(error.to_string(), "c1 could not take its part of the load: no processor");
    }

    #[test]
    fn a_machine_whose_lease_ended_is_lost_and_its_counts_are_kept() {
        let mut trial = machines(2);
        (0..2).for_each(|member| drop(trial.message(member, FromMember::Ready)));
        trial.starts(0);
        let stopped = WorkerResult { lost_lease: true, ..result(3) };
        trial.message(0, FromMember::Done(Box::new(stopped))).unwrap();
        trial.message(1, FromMember::Done(Box::new(result(5)))).unwrap();
        assert!(trial.has_ended(1));
        let merged = trial.conclude();
        assert_eq!((merged.http.counts.completed, merged.lost_workers), (8, 1));
        assert!(merged.http.machines[0].lost.is_some() && merged.http.machines[1].lost.is_none());
    }

    #[test]
    fn an_agent_tells_that_its_workers_lost_the_lease() {
        let mut trial = Trial::of_processes(&plan(), 1);
        drop(trial.message(0, FromMember::Ready));
        trial.starts(0);
        let stopped = WorkerResult { lost_lease: true, ..result(3) };
        trial.message(0, FromMember::Done(Box::new(stopped))).unwrap();
        let merged = trial.conclude();
        assert!(merged.lost_lease && merged.lost_workers == 0 && !merged.interrupted);
    }

    #[derive(Debug, Clone)]
    enum Fault {
        Nothing,
        Twice,
        Ends { after_result: bool },
        Silent,
    }

    fn fault() -> impl Strategy<Value = Fault> {
        prop_oneof![
            4 => Just(Fault::Nothing),
            1 => Just(Fault::Twice),
            1 => any::<bool>().prop_map(|after_result| Fault::Ends { after_result }),
            1 => Just(Fault::Silent),
        ]
    }

    proptest! {
        /// Whatever happens to members after the start, each result counts once, each member without one is lost and named, and the
        /// trial ends at its deadline at the latest.
        #[test]
        fn each_result_counts_once(faults in prop::collection::vec((fault(), any::<u64>()), 1..20)) {
            let mut trial = machines(faults.len());
            for member in 0..faults.len() {
                trial.message(member, FromMember::Ready).unwrap();
            }
            prop_assert!(trial.is_ready());
            trial.starts(SECOND_NS);
            let mut order: Vec<usize> = (0..faults.len()).collect();
            order.sort_by_key(|member| faults[*member].1);
            let mut sent = 0;
            for member in order {
                let completed = 1 << member;
                let done = || FromMember::Done(Box::new(result(completed)));
                match faults[member].0 {
                    Fault::Nothing => drop(trial.message(member, done())),
                    Fault::Twice => {
                        trial.message(member, done()).unwrap();
                        trial.message(member, done()).unwrap();
                        trial.message(member, FromMember::Failed("late".to_owned())).unwrap();
                    }
                    Fault::Ends { after_result } => {
                        if after_result {
                            trial.message(member, done()).unwrap();
                        }
                        trial.ended(member, "gone".to_owned()).unwrap();
                        trial.message(member, done()).unwrap();
                    }
                    Fault::Silent => {}
                }
                let is_sent = matches!(faults[member].0, Fault::Nothing | Fault::Twice | Fault::Ends { after_result: true });
                sent += if is_sent { completed } else { 0 };
            }
            let is_silent = faults.iter().any(|(fault, _)| matches!(fault, Fault::Silent));
            prop_assert_eq!(trial.has_ended(17 * SECOND_NS), !is_silent);
            prop_assert!(trial.has_ended(46 * SECOND_NS + 1));
            let merged = trial.conclude();
            let named = merged.http.machines.iter().filter(|machine| machine.lost.is_some()).count() as u64;
            let counted: u64 = merged.http.machines.iter().map(|machine| machine.counts.completed).sum();
            prop_assert_eq!((merged.http.counts.completed, counted), (sent, sent));
            prop_assert_eq!(merged.lost_workers, faults.len() as u64 - sent.count_ones() as u64);
            prop_assert_eq!(named, merged.lost_workers);
        }
    }
}
