//! Rules about the load before it reaches the target.

use record::{
    ErrorClass, HttpTrial, LoadModel, VoidReason, VoidRule,
    study::UNDECIDED,
    units::{show_count, show_rate},
};

use super::{
    busiest_target, core_full_of_interrupts, counted, likely, percent, targets,
    work::{Work, processors_of},
};
use crate::{Finding, Observed, account::Account};

/// A carried load completes at least this share of the planned requests.
const CARRIED_SHARE: f64 = 0.99;
/// At most one in this many requests of a carried load fails.
pub(super) const MIN_REQUESTS_PER_FAILURE: u64 = 1_000;
/// From this share of their processors on, the generator takes them from the target.
const TAKEN_SHARE: f64 = 0.2;
/// From this share of the users' time on, the generator itself bounds a load.
const OWN_SHARE: f64 = 0.5;
/// Answers pile up only if at least this share of an open load's requests is unanswered when the last one is due.
const PILED_UP_SHARE: f64 = 0.01;
/// Answers pile up only if they take at least this many times as long in the last third of an open load as in the first.
const PILED_UP_GROWTH: f64 = 1.5;

/// The generator had no processor, or this machine lacked a resource.
pub(super) fn generator(observed: &Observed<'_>) -> Finding {
    let is_of_generator = |rule: VoidRule| {
        matches!(
            rule,
            VoidRule::Late
                | VoidRule::RateNotReached
                | VoidRule::CpuExhausted
                | VoidRule::ProcessorShared
                | VoidRule::UnopenedConnections
                | VoidRule::LocalExhaustion
                | VoidRule::PoolLimited
                | VoidRule::WorkerLost
        )
    };
    if ports(observed).is_some() {
        return Finding::Irrelevant;
    }
    let mut reasons = observed.trial.validity.reasons().iter();
    if let Some(reason) = reasons.find(|reason| is_of_generator(reason.rule)) {
        return counted("", reason.evidence.clone());
    }
    // The generator may have lacked processor time in a valid trial, too.
    if let Some(evidence) =
        [UNDECIDED, "cpu_exhausted"].into_iter().find_map(|code| observed.trial.told(code))
        && observed.trial.http().is_some()
    {
        return counted("", evidence.to_owned());
    }
    if let Some(own) = Account::of(observed).map(|account| account.own()).filter(|own| *own >= OWN_SHARE) {
        return counted("", format!("the users waited for it in {} of their time", percent(own)));
    }
    // Without a target on this machine, its interrupts are those of the load.
    let is_load_only = targets(observed).all(|host| host.machine.is_some());
    if is_load_only && let Some(evidence) = core_full_of_interrupts(observed, "", &observed.counters.machine)
    {
        return counted("", format!("on this machine, {evidence}"));
    }
    // Its processor time is missing to a target on the same processors, unless that carries the load.
    if let Some(work) = busiest_target(observed).filter(|work| !work.is_hot())
        && let Some(processors) = processors_of(observed, &work)
        && processors.is_full()
        && processors.generator >= TAKEN_SHARE
        && work.waits()
    {
        let evidence = format!(
            "it used {} of the processors of {}, which had no time left",
            percent(processors.generator),
            work.program
        );
        return likely("", evidence);
    }
    match observed.trial.http() {
        Some(http) => {
            Finding::Not(format!("its busiest thread was {} busy", percent(http.cpu.busiest_thread_ratio)))
        }
        None => Finding::Irrelevant,
    }
}

/// The kernel found no port for a new connection.
pub(super) fn source_ports(observed: &Observed<'_>) -> Finding {
    ports(observed).map_or(Finding::Irrelevant, |evidence| counted("", evidence))
}

/// The evidence that the ports were used up.
fn ports(observed: &Observed<'_>) -> Option<String> {
    let http = observed.trial.http()?;
    let failed = http.errors.of(ErrorClass::Ports) + http.connection_errors.of(ErrorClass::Ports);
    if failed > 0 {
        return Some(format!(
            "{} times, a new connection found no free port towards the target",
            show_count(failed)
        ));
    }
    // A trial that needs more ports than there are is void before it starts, and the reason says so.
    let lacks_ports = |reason: &&VoidReason| reason.evidence.contains("ports: ");
    observed.trial.validity.reasons().iter().find(lacks_ports).map(|reason| reason.evidence.clone())
}

/// The evidence that the load itself bounded the trial, because the target carried it; none if it did not.
pub(crate) fn carried(observed: &Observed<'_>) -> Option<String> {
    let http = observed.trial.http()?;
    let (counts, busiest) = (&http.counts, busiest_target(observed));
    let is_complete =
        counts.completed as f64 >= CARRIED_SHARE * counts.scheduled as f64 && counts.scheduled > 0;
    let is_sound = counts.failed <= counts.scheduled / MIN_REQUESTS_PER_FAILURE;
    let is_carried = observed.goals_met
        && is_complete
        && is_sound
        && !piles_up(http)
        && !observed.trial.validity.is_void();
    let is_hot = busiest.as_ref().is_some_and(|work| work.is_hot() || work.lacks_processors());
    let account = Account::of(observed);
    let spare = busiest.map_or_else(String::new, |work| format!("; {}", at_host(&work)));
    match &http.plan.load {
        LoadModel::Open { .. } if is_carried => Some(format!(
            "{} of {} requests at {} were completed{spare}",
            show_count(counts.completed),
            show_count(counts.scheduled),
            show_rate(observed.trial.offered_load())
        )),
        LoadModel::Closed { users, .. } if is_carried && !is_hot => {
            let account = account.filter(Account::rests)?;
            Some(format!("{users} users, {}{spare}", account.rests_in_words()))
        }
        _ => None,
    }
}

/// Whether the number of unanswered requests grew while an open load was sent. If the target answers them after the load has ended, all
/// requests are complete although the target was too slow.
fn piles_up(http: &HttpTrial) -> bool {
    let answered_in_time = http.throughput_per_s * http.measured_s;
    if http.counts.scheduled as f64 * (1.0 - PILED_UP_SHARE) <= answered_in_time {
        return false;
    }
    let Some(medians) = http.medians_over_time() else { return false };
    let (_, medians): (Vec<f64>, Vec<f64>) = medians.into_iter().unzip();
    let third = medians.len() / 3;
    let slowest_first = medians[..third].iter().copied().fold(0.0, f64::max);
    let fastest_last = medians[medians.len() - third..].iter().copied().fold(f64::INFINITY, f64::min);
    fastest_last >= PILED_UP_GROWTH * slowest_first
}

/// The work of the processes in words, with their host.
pub(super) fn at_host(work: &Work<'_>) -> String {
    let words = work.in_words();
    if work.host.is_empty() { words } else { format!("at {}, {words}", work.host) }
}
