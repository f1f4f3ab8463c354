//! Finds what bounded a trial, by rules over the counts of kernels, links and the generator. Uses no clock, and no input or output.
//!
//! `docs/verdict.md` explains each rule with its bound. A rule sees the whole trial and says one of three things: this bounded
//! it, this did not, or a counter is missing. What bounded it is ranked by the share of the users' time that it took ([`account`]). Where
//! that is unknown, as for programs, the rules' order decides: an earlier cause can produce the signs of later ones, but not the other way
//! round.

mod account;
mod cost;
mod independence;
mod rules;

use account::{Account, MIN_SHARE};
use cost::Cost;
pub use independence::is_disturbed_by_others;
use record::{Bottleneck, Cause, Certainty, Excluded, Trial, TrialCounters, Verdict};

/// Everything that is known of a trial.
#[derive(Debug, Clone, Copy)]
pub struct Observed<'a> {
    /// The trial, judged.
    pub trial: &'a Trial,
    /// Whether it met all goals.
    pub goals_met: bool,
    /// The counters of its hosts' kernels.
    pub counters: &'a TrialCounters,
    /// The roles of the hosts, in the order of the counters.
    pub roles: &'a [Role],
    /// The traffic of the links, separately for each direction.
    pub links: &'a [LinkUse],
}

/// The role of a host in a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It generates the load.
    Load,
    /// It is the target, or is in front of the target.
    Target,
    /// It generates the load and is the target, as this machine does without a lab.
    Both,
}

impl Role {
    fn is_target(self) -> bool {
        self != Self::Load
    }
}

/// The traffic of one direction of a link.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LinkUse {
    /// The link and the direction, such as `link sea a to b`.
    pub name: String,
    /// Capacity in bits per second; none if unlimited.
    pub rate_bits_per_s: Option<f64>,
    /// Carried bits per second, on the layer that the capacity counts.
    pub carried_bits_per_s: f64,
    /// Time of the trial in which the link was full, in seconds.
    pub full_s: f64,
    /// Packets that arrived at the link.
    pub offered_packets: u64,
    /// Packets dropped because its queue was full.
    pub dropped_packets: u64,
    /// Packets lost on the wire.
    pub lost_packets: u64,
}

/// The result of a rule.
enum Finding {
    /// This bounded the trial.
    Bound { place: String, evidence: String, certainty: Certainty },
    /// This did not bound the trial.
    Not(String),
    /// Counters are missing.
    Unknown(String),
    /// The rule does not apply to this trial.
    Irrelevant,
}

/// Shortest trial, in seconds, whose shares of time are reliable: counters are read one after the other, which takes some milliseconds.
const MIN_ELAPSED_S: f64 = 0.2;
/// Causes that show in counts. They need no shares of time, so even a short trial can show them.
const COUNTED: [Cause; 5] =
    [Cause::SourcePorts, Cause::Descriptors, Cause::Conntrack, Cause::AcceptQueue, Cause::SynQueue];

/// Finds the bottleneck of a trial.
pub fn judge(observed: &Observed<'_>) -> Verdict {
    let mut verdict = Verdict { account: rules::parts(observed), ..Verdict::default() };
    let lost = observed.counters.hosts.iter().filter_map(|host| Some((&host.host, rules::is_lost(host)?)));
    verdict.missing.extend(lost.map(|(host, why)| format!("{host}: {why}")));
    let is_short = observed.counters.elapsed_s < MIN_ELAPSED_S;
    if is_short {
        let why = format!("shares of time: the trial was shorter than {} ms", MIN_ELAPSED_S * 1e3);
        verdict.missing.push(why);
    }
    for (cause, rule) in rules::RULES.into_iter().filter(|(cause, _)| !is_short || COUNTED.contains(cause)) {
        match rule(observed) {
            Finding::Bound { place, evidence, certainty } => {
                verdict.bottlenecks.push(Bottleneck { cause, place, evidence, certainty });
            }
            Finding::Not(evidence) => verdict.excluded.push(Excluded { cause, evidence }),
            Finding::Unknown(why) => verdict.missing.push(format!("{}: {why}", cause.words())),
            Finding::Irrelevant => {}
        }
    }
    rank(observed, &mut verdict);
    // A trial that is void for other reasons than its generator shows nothing about the target.
    let validity = &observed.trial.validity;
    let is_own = |named: &Bottleneck| matches!(named.cause, Cause::Generator | Cause::SourcePorts);
    if validity.is_void() && !verdict.bottlenecks.iter().any(is_own) {
        verdict
            .missing
            .extend(validity.reasons().iter().map(|why| format!("the trial is void: {}", why.evidence)));
        exclude(&mut verdict, "the trial is void");
    }
    if observed.trial.command().is_some_and(|command| command.stalled.is_some()) {
        verdict.missing.push("an emulated link stalled".to_owned());
        exclude(&mut verdict, "an emulated link stalled");
    }
    // If the target carried the load, likely causes have not limited it yet. In a closed load, users who wait may send less than they
    // could, so counted causes stand.
    if !is_short
        && let Some(evidence) = rules::carried(observed)
        && (observed.trial.is_open()
            || verdict.bottlenecks.iter().all(|known| known.certainty == Certainty::Likely))
    {
        exclude(&mut verdict, "the load was carried anyway");
        let (cause, certainty) = (Cause::OfferedLoad, Certainty::Counted);
        verdict.bottlenecks = vec![Bottleneck { cause, place: String::new(), evidence, certainty }];
    }
    verdict
}

/// Puts what took most of the users' time first, and excludes what took little. The service itself takes what the other causes leave, so it is
/// named only if that is more than any of them took.
fn rank(observed: &Observed<'_>, verdict: &mut Verdict) {
    let is_service = |named: &Bottleneck| named.cause == Cause::SlowHandler;
    let costs = cost::costs(observed, verdict);
    let named: Vec<(Cost, Bottleneck)> = costs.into_iter().zip(verdict.bottlenecks.drain(..)).collect();
    let others: Vec<Cost> = named.iter().filter(|one| !is_service(&one.1)).map(|one| one.0).collect();
    let most = others.iter().map(|cost| cost.all).fold(0.0, f64::max);
    let served = Account::of(observed).map_or(0.0, |account| account.served());
    let left = if others.is_empty() {
        f64::INFINITY
    } else {
        served - others.iter().map(|cost| cost.served).sum::<f64>()
    };
    let mut named: Vec<(f64, Bottleneck)> = named
        .into_iter()
        .map(|(cost, named)| (if is_service(&named) { left } else { cost.all }, named))
        .collect();
    named.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (share, mut named) in named {
        // A busy core is certainly what bounds the load only if most of the time of requests passed there.
        if named.cause == Cause::HotCore && share < served / 2.0 {
            named.certainty = Certainty::Likely;
        }
        let why = match share {
            _ if is_service(&named) && share <= most => "what stands before it explains the time",
            _ if share < MIN_SHARE => "it took little of the users' time",
            _ => {
                verdict.bottlenecks.push(named);
                continue;
            }
        };
        let evidence = format!("{}{}; {why}", at(&named.place), named.evidence);
        verdict.excluded.push(Excluded { cause: named.cause, evidence });
    }
}

/// A share in words, such as `8.5 %`.
fn percent(share: f64) -> String {
    format!("{:.*} %", usize::from(share < 0.1), share * 100.0)
}

fn at(place: &str) -> String {
    if place.is_empty() { String::new() } else { format!("{place}: ") }
}

/// Moves all named causes to the excluded ones and adds this reason to their evidence.
fn exclude(verdict: &mut Verdict, why: &str) {
    let excluded = verdict.bottlenecks.drain(..).map(|Bottleneck { cause, place, evidence, .. }| Excluded {
        cause,
        evidence: format!("{}{evidence}; {why}", at(&place)),
    });
    verdict.excluded.extend(excluded);
}

#[cfg(test)]
mod tests;
