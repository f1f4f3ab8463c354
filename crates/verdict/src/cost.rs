//! What each cause took of the users' time.

use record::{Cause, TimePart, TimeState, Verdict};

use crate::{
    Observed,
    account::Account,
    rules::{self, INSIDE, RequestsAt},
};

/// What a cause took, as shares of the users' time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost {
    /// All that it took. The causes of failures come first, whatever time they took.
    pub(crate) all: f64,
    /// The part of it that belongs to requests on their connections.
    pub(crate) served: f64,
}

/// What each of the named causes took; all of the time if the trial has no account.
pub(crate) fn costs(observed: &Observed<'_>, verdict: &Verdict) -> Vec<Cost> {
    let causes: Vec<Cause> = verdict.bottlenecks.iter().map(|named| named.cause).collect();
    let all = |_| Cost { all: f64::INFINITY, served: f64::INFINITY };
    Account::of(observed).map_or_else(
        || causes.iter().map(all).collect(),
        |account| {
            causes.iter().map(|cause| cost(&account, observed, &verdict.account, &causes, *cause)).collect()
        },
    )
}

fn cost(
    account: &Account<'_>,
    observed: &Observed<'_>,
    parts: &[TimePart],
    named: &[Cause],
    cause: Cause,
) -> Cost {
    let served = account.served();
    let of = |is_it: &dyn Fn(&TimePart) -> bool| -> f64 {
        parts.iter().filter(|part| is_it(part)).map(|part| part.share).sum()
    };
    let state = |state| of(&|part| part.state == state);
    let queue = state(TimeState::AcceptQueue);
    // Requests that wait to be accepted wait for those inside, unless a limit of connections keeps them out.
    let held = if named.contains(&Cause::ConnectionLimit) { served - queue } else { served };
    let (inside, unknown) = (of(&|part| INSIDE.contains(&part.state)), state(TimeState::Unknown));
    // What nobody could see divides as the times of whole programs.
    let took = |seen: f64, share_if_unseen: f64| match inside > 0.0 {
        true => held * (seen + unknown * share_if_unseen) / inside,
        false => held * share_if_unseen,
    };
    let runs = |part: &TimePart| matches!(part.state, TimeState::Running | TimeState::Ready);
    let is_asleep = |part: &TimePart| part.state == TimeState::Asleep;
    let share = match cause {
        Cause::Generator
        | Cause::SourcePorts
        | Cause::Descriptors
        | Cause::Conntrack
        | Cause::RateLimiter
        | Cause::OfferedLoad => f64::INFINITY,
        Cause::AcceptQueue | Cause::SynQueue if rules::fails_to_connect(account.http()) => f64::INFINITY,
        Cause::AcceptQueue | Cause::SynQueue if named.contains(&Cause::ConnectionLimit) => 0.0,
        Cause::AcceptQueue | Cause::SynQueue => return Cost { all: account.slow_connects(), served: 0.0 },
        // While the queue before the limit is full, other connections cannot be opened.
        Cause::ConnectionLimit => {
            let behind = account.share(rules::mean_waiting(observed, false) * observed.counters.elapsed_s);
            let queue = queue.max(behind.min(served));
            return Cost { all: queue + account.slow_connects(), served: queue };
        }
        Cause::CpuQuota => took(state(TimeState::Throttled), rules::throttled_share(observed)),
        Cause::HotCore | Cause::LacksProcessor => match rules::busy_share(observed, cause) {
            (share, RequestsAt::Elsewhere) => served * share,
            (share, _) if cause == Cause::LacksProcessor => took(state(TimeState::Ready), share),
            // Its own threads wait for each other.
            (share, RequestsAt::Program(host, program)) => {
                took(of(&|part| part.is_in(host, program) && runs(part)), share)
            }
            (share, RequestsAt::Turns(host, program)) => {
                took(of(&|part| part.is_in(host, program) && (runs(part) || is_asleep(part))), share)
            }
            (share, RequestsAt::Behind) => took(of(&|part| runs(part) || is_asleep(part)), share),
        },
        Cause::Stopped => took(state(TimeState::Stopped), rules::stopped_share(observed)),
        Cause::DelayedAck => served * rules::delayed_ack_share(observed),
        // One thread may write for all others, who sleep meanwhile.
        Cause::Disk => {
            let written = (state(TimeState::Asleep) * rules::blocked_share(observed)).min(rules::disk_share(observed));
            took(state(TimeState::Blocked).max(written), rules::disk_share(observed))
        }
        Cause::PacketLoss | Cause::PacketQueue | Cause::LinkQueue => account.lost(rules::lost(observed)),
        Cause::CongestionWindow => served * rules::window_share(observed),
        Cause::LinkRate
        | Cause::ReceiveWindow
        | Cause::SendBuffer
        | Cause::SshWindow
        // What no other cause explains.
        | Cause::SlowHandler => served,
    };
    Cost { all: share, served: share }
}
