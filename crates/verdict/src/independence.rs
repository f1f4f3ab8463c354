//! Decides whether the generator's absences were independent of the target.

use std::collections::BTreeSet;

use record::{HostCounters, HttpPlan, HttpTrial, ProgramUse, units::parse_cpus};

use crate::{MIN_ELAPSED_S, Observed, Role, rules::target_programs};

/// If the generator waited for a processor for a smaller share of the trial, the wait needs no explanation.
const MAX_UNEXPLAINED_SHARE: f64 = 0.001;
/// If the generator waited for a smaller share of the trial, other programs may have run that long by coincidence.
const MAX_LITTLE_SHARE: f64 = 0.02;

/// Others' processor time explains a wait if it is as long as this share of it: the accounts of the kernel, the generator and the target
/// begin and end at different moments.
const MIN_EXPLAINED: f64 = 0.9;

/// A deviation beyond this many standard deviations of a Poisson distribution is not due to chance.
const CHANCE: f64 = 4.0;
/// A percentile of all requests may exceed that of the sound time by this share of the latter, or by `MAX_HIDDEN_NS` if that is more.
const MAX_HIDDEN: f64 = 0.1;
const MAX_HIDDEN_NS: f64 = 250_000.0;

/// Whether the generator's absences were independent of the target, so that a trial may be judged by the time between them.
///
/// A stop, a quota or a hypervisor acts regardless of what the target does. A thread of the target does not: it keeps the generator away
/// exactly while the target works, so the remaining time shows a target with little to do. If the target runs on this machine, the
/// processor time of other programs must therefore explain all waits for a processor. Only programs that may use the generator's processors
/// count: those of `--cpus`, or all that this process may use (`own_cpus`). Other programs may explain short waits by coincidence; then
/// slow answers must not be more frequent while the generator was away.
pub fn is_disturbed_by_others(observed: &Observed<'_>, own_cpus: &BTreeSet<u32>) -> bool {
    let Some(http) = observed.trial.http().filter(|_| observed.links.is_empty()) else { return false };
    let is_of_target = observed.roles.iter().any(|role| *role != Role::Load);
    if !is_of_target || hosts_here(observed).all(|(role, _)| *role == Role::Load) {
        return true;
    }
    let counters = observed.counters;
    let cpus = may_use(&http.plan, own_cpus);
    let targets: Vec<&ProgramUse> =
        target_programs(observed).into_iter().map(|(_, program)| program).collect();
    let (Some(waited_s), false) =
        (http.cpu.runqueue_wait_s, targets.is_empty() || counters.elapsed_s < MIN_ELAPSED_S)
    else {
        return false;
    };
    let is_other = |program: &&ProgramUse| {
        may_meet(program, &cpus) && !targets.iter().any(|target| target.pid == program.pid)
    };
    let programs = hosts_here(observed).flat_map(|(_, host)| &host.programs).filter(is_other);
    // The programs include this one, whose time is subtracted.
    let own_s = http.cpu.user_s + http.cpu.system_s;
    let ran_s = programs.map(|program| program.running_s).sum::<f64>() - own_s;
    let (away_s, elapsed_s) = (http.away.total_s, counters.elapsed_s);
    // Other programs may have run on other processors. Their time on these processors is at most the busy time, less that of this program
    // and of the target.
    let unused_s: f64 = ["idle", "steal"].map(|way| counters.machine.processors_s(&cpus, way)).iter().sum();
    let kept_here = |target: &&&ProgramUse| allowed(target).is_some_and(|allowed| allowed.is_subset(&cpus));
    let targets_s: f64 = targets.iter().filter(kept_here).map(|target| target.running_s).sum();
    let others_s = ran_s.min(elapsed_s * cpus.len() as f64 - unused_s - own_s - targets_s);
    let is_explained = MIN_EXPLAINED * waited_s.min(away_s) <= others_s + MAX_UNEXPLAINED_SHARE * elapsed_s;
    // On any machine, other programs use enough time to explain such short waits. If waits are a small part of the absence, stops caused
    // it.
    let is_little = waited_s < MAX_LITTLE_SHARE * elapsed_s && waited_s > away_s / 4.0;
    is_explained && !(is_little && is_slower_outside(http))
}

/// Whether the sound time leaves out slow answers of the target. It does if a percentile of all requests, even less the most that the
/// generator may have added to each, exceeds that of the sound time by more than `MAX_HIDDEN` and by more than chance.
fn is_slower_outside(http: &HttpTrial) -> bool {
    let Some(sound) = http.sound.as_ref().map(|sound| &sound.response_time) else { return false };
    let all = &http.response_time;
    let outside = (all.observed.count() + all.censored.count()).saturating_sub(sound.count());
    [0.9, 0.99].into_iter().any(|quantile| {
        let bound_ns = sound.quantile_ns(quantile);
        let hidden_ns = all.percentile(quantile).least - bound_ns as f64;
        let slow_inside = sound.count() - sound.count_up_to_ns(bound_ns);
        let (_, fast) = all.count_up_to_ns(bound_ns);
        let slow_outside = (sound.count() + outside).saturating_sub(fast + slow_inside) as f64;
        let expected = outside as f64 * slow_inside as f64 / sound.count().max(1) as f64;
        hidden_ns > (MAX_HIDDEN * bound_ns as f64).max(MAX_HIDDEN_NS)
            && slow_outside > expected + CHANCE * (expected + 1.0).sqrt()
    })
}

/// The processors that the generator's threads may use.
fn may_use(plan: &HttpPlan, own_cpus: &BTreeSet<u32>) -> BTreeSet<u32> {
    match &plan.cpus[..] {
        [] => own_cpus.clone(),
        cpus => cpus.iter().copied().take(plan.threads.max(1) as usize).collect(),
    }
}

/// Whether a program may run on one of these processors.
fn may_meet(program: &ProgramUse, cpus: &BTreeSet<u32>) -> bool {
    allowed(program).is_none_or(|allowed| !allowed.is_disjoint(cpus))
}

/// The processors that a program may use, if they are known.
fn allowed(program: &ProgramUse) -> Option<BTreeSet<u32>> {
    Some(parse_cpus(program.cpus.as_deref()?).ok()?.into_iter().collect())
}

/// The hosts of this machine, whose programs may share processors with the generator, each with its role.
fn hosts_here<'a>(observed: &'a Observed<'_>) -> impl Iterator<Item = (&'a Role, &'a HostCounters)> {
    let hosts = observed.roles.iter().zip(&observed.counters.hosts);
    hosts.filter(|(_, host)| host.machine.is_none() && host.elapsed_s.is_none())
}

#[cfg(test)]
mod tests {
    use record::{Away, Counters, CpuUse, SoundTime, Trial, TrialCounters};
    use testing::plans;

    use super::*;
    use crate::LinkUse;

    /// Judges ten seconds in which the generator waited for `waited_s`, the target worked for `target_s`, and another program for
    /// `other_s`.
    fn is_independent(waited_s: f64, target_s: f64, other_s: f64, role: Role) -> bool {
        with_cpus(waited_s, [target_s, other_s], role, [None; 3], 0.0)
    }

    /// The same, with generator, target and the other program limited to some of two processors; the first one was idle for `idle_s`.
    fn with_cpus(
        waited_s: f64,
        [target_s, other_s]: [f64; 2],
        role: Role,
        [generator, target, other]: [Option<&str>; 3],
        idle_s: f64,
    ) -> bool {
        let program = |pid, running_s, cpus: Option<&str>| ProgramUse {
            pid,
            running_s,
            cpus: cpus.map(str::to_owned),
            ..ProgramUse::default()
        };
        let target = ProgramUse { listens: vec!["127.0.0.1:80".to_owned()], ..program(1, target_s, target) };
        let own = program(2, 2.0, generator);
        let programs = vec![target, own, program(3, other_s, other)];
        let counters = TrialCounters {
            elapsed_s: 10.0,
            machine: Counters {
                values: [("cpu0.idle_ms".to_owned(), (idle_s * 1e3) as u64)].into(),
                ..Counters::default()
            },
            hosts: vec![HostCounters { programs, ..HostCounters::default() }],
            ..TrialCounters::default()
        };
        let cpu = CpuUse { user_s: 2.0, runqueue_wait_s: Some(waited_s), ..CpuUse::default() };
        let away = Away { total_s: waited_s, ..Away::default() };
        let targets = vec!["127.0.0.1:80".parse().unwrap()];
        let cpus = generator.map(|list| parse_cpus(list).unwrap()).unwrap_or_default();
        let plan = HttpPlan { targets, cpus, ..plans::closed(1) };
        let trial: Trial = plans::trial(HttpTrial { plan, cpu, away, ..HttpTrial::default() });
        is_disturbed_by_others(
            &Observed { trial: &trial, goals_met: true, counters: &counters, roles: &[role], links: &[] },
            &BTreeSet::from([0, 1]),
        )
    }

    #[test]
    fn a_hog_explains_waits_and_the_targets_own_work_does_not() {
        assert!(is_independent(1.0, 3.0, 1.2, Role::Both), "a hog worked for 1.2 s");
        assert!(!is_independent(1.0, 4.2, 0.0, Role::Both), "only the target did");
        assert!(is_independent(0.0, 4.2, 0.0, Role::Both), "it was stopped, or the host took the processor");
        assert!(is_independent(1.0, 4.2, 0.0, Role::Load), "the target is elsewhere");
    }

    #[test]
    fn only_work_on_the_generators_own_processors_explains_its_waits() {
        let of = |other_s, generator, other| {
            with_cpus(1.0, [4.0, other_s], Role::Both, [generator, Some("0-1"), other], 0.0)
        };
        assert!(of(1.0, Some("0"), Some("0")) && of(1.0, Some("0"), None) && of(1.0, None, Some("1")));
        assert!(!of(5.0, Some("0"), Some("1")), "a hog on the other processor");
        assert!(!of(0.5, Some("0"), Some("0")), "half of the waits");
        // Of 10 s, the generator worked for 2 s and the target for 4 s.
        let may_run_here =
            |idle_s| with_cpus(1.0, [4.0, 40.0], Role::Both, [Some("0"), Some("0"), None], idle_s);
        assert!(may_run_here(3.0) && !may_run_here(3.5), "a hog on any processor, while this one was idle");
    }

    #[test]
    fn slow_answers_where_the_generator_was_away_are_not_left_out() {
        // A thousand requests, a tenth of them outside the sound time; of these, `slow` take 5 ms and the others 2 ms, 1 ms of which is
        // the generator's.
        let of = |slow: u64| {
            let mut http = HttpTrial::default();
            let mut sound = SoundTime::default();
            for index in 0..900_u64 {
                // One of 100 takes 2 ms, the others 1 ms.
                let ns = if index % 100 == 0 { 2_000_000 } else { 1_000_000 };
                http.response_time.record_ns(ns, 0);
                sound.response_time.record_ns(ns);
            }
            (0..100).for_each(|index| {
                http.response_time.record_ns(if index < slow { 5_000_000 } else { 2_000_000 }, 1_000_000);
            });
            http.sound = Some(sound);
            is_slower_outside(&http)
        };
        assert!(!of(0) && !of(5), "what is the generator's is no slowness");
        assert!(of(12));
        assert!(!is_slower_outside(&HttpTrial::default()));
    }

    #[test]
    fn nothing_is_known_of_a_link_or_a_target_that_cannot_be_seen() {
        let trial = plans::trial(HttpTrial::default());
        let counters = TrialCounters {
            elapsed_s: 10.0,
            hosts: vec![HostCounters::default()],
            ..TrialCounters::default()
        };
        let of = |roles: &[Role], links: &[LinkUse]| {
            is_disturbed_by_others(
                &Observed { trial: &trial, goals_met: true, counters: &counters, roles, links },
                &BTreeSet::from([0, 1]),
            )
        };
        assert!(of(&[Role::Load], &[]));
        assert!(!of(&[Role::Load], &[LinkUse::default()]) && !of(&[Role::Both], &[]));
    }
}
