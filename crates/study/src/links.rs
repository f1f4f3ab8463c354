//! The emulated links of a study: measured before anything runs over them, once a shape, and counted in every trial.

mod quantities;

use std::{collections::BTreeMap, io};

use lab::{
    Lab,
    link::{Carried, Certificate, CertifyOptions, Counters, Link, LinkAway, LinkError, LinkSpec},
};
use record::{
    Goal, GoalQuantity, ResultFolder, Trial, VoidReason, VoidRule, study::LINK_SCHEMA, units::show_time_ns,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(crate) use quantities::quantities;
use quantities::{COUNTED, WAYS, product_bytes, product_name, quantity};

/// How often a link is measured in a row until it is certified: others on the machine may disturb it for a moment.
const ATTEMPTS: u32 = 3;
/// How often in all: they may disturb it for longer, and it is tried again where hosts are set up anew.
const MOST_ATTEMPTS: u32 = 6;
/// The share of packets that may be handed over late in a trial: one in so many.
const LATE_ONE_IN: u64 = 20;

/// So many late ones are no share of anything.
const FEW_LATE: u64 = 5;
/// The share of a trial for which the emulator may be away where no goal tells what that changes. About as many of the
/// requests are held up then: what is shown as the 99th percentile is the 98.5th at the least.
const MOST_AWAY: f64 = 0.005;
/// The same, where none was longer than this, in nanoseconds: a virtual processor that slept may wake up so late. What
/// such absences hold up is judged by the share of late packets.
const SHORT_AWAY_NS: u64 = 10_000_000;

use crate::{
    observer::{At, Observer, Seen},
    stand::StandError,
    stop_reason::StopReason,
};

/// What is known of an emulated link: a line of `links.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinkRecord {
    /// The form of this record, [`LINK_SCHEMA`].
    pub schema: String,
    /// The link's name.
    pub link: String,
    /// What was found.
    #[serde(flatten)]
    pub found: LinkFound,
}

/// What was found of a link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum LinkFound {
    /// What the idle link was measured to be. The last one holds for all links of the study that are asked to be the same.
    Certificate(Box<Certificate>),
    /// It could not be measured.
    NotMeasured {
        /// Why.
        why: String,
    },
    /// What it carried in a trial.
    Trial {
        /// The trial's number. Where it comes twice for a link, the study was ended and resumed in between: the last one
        /// counts.
        trial: u64,
        /// From the first host to the second.
        a_to_b: Box<Carried>,
        /// From the second host to the first.
        b_to_a: Box<Carried>,
        /// When the emulator was away, so that no packet was moved either way.
        #[serde(default)]
        away: LinkAway,
    },
}

/// What a study knows of its links so far.
#[derive(Debug)]
pub(crate) struct Links {
    folder: ResultFolder,
    measured: Vec<Measured>,
    /// The counters of the links that are up, before the trial.
    before: BTreeMap<String, [Counters; 2]>,
}

/// What is known of all links that are asked to be the same.
#[derive(Debug)]
struct Measured {
    shape: LinkSpec,
    attempts: u32,
    /// Why it is not what it should be.
    reasons: Vec<String>,
}

impl Measured {
    fn may_be_certified_yet(&self) -> bool {
        !self.reasons.is_empty() && self.attempts < MOST_ATTEMPTS
    }
}

impl Observer for Links {
    fn before(&mut self, at: &mut At<'_>) -> Result<(), StopReason> {
        let Some(lab) = at.stand.lab() else { return Ok(()) };
        self.before = counters(lab).map_err(link_cut)?;
        // Workers may have pinned themselves since they were started.
        lab.pin_links().map_err(|error| StopReason::Failed(StandError::Lab(error).to_string()))
    }

    fn after(&mut self, at: &mut At<'_>, trial: &Trial) -> Result<Seen, StopReason> {
        match at.stand.lab() {
            Some(lab) => self.look_after(lab, at.number, trial, at.goals).map_err(link_cut),
            None => Ok(Seen::default()),
        }
    }
}

fn link_cut(error: LinkError) -> StopReason {
    StopReason::Failed(format!("a link of the lab: {error}"))
}

impl Links {
    pub(crate) fn new(folder: &ResultFolder) -> Self {
        Self { folder: folder.clone(), measured: Vec::new(), before: BTreeMap::new() }
    }

    /// Measures an idle link unless one of its shape has been certified, or has failed too often. Returns what to tell of
    /// it.
    pub(crate) fn measure(&mut self, name: &str, link: &mut Link) -> Result<Option<String>, LinkError> {
        let shape = shape_of(link.spec());
        let mut measured = match self.measured.iter().position(|known| known.shape == shape) {
            Some(index) if !self.measured[index].may_be_certified_yet() => return Ok(None),
            Some(index) => self.measured.swap_remove(index),
            None => Measured { shape, attempts: 0, reasons: Vec::new() },
        };
        for attempt in 1.. {
            let (told, found) = match link.certify(&CertifyOptions::short()) {
                Ok(certificate) => {
                    measured.reasons.clone_from(&certificate.reasons);
                    (summary(name, &certificate), LinkFound::Certificate(Box::new(certificate)))
                }
                Err(LinkError::Refused(why)) => {
                    measured.reasons = vec![why.clone()];
                    let told = format!("link {name}: NOT MEASURED, so trials over it are void: {why}");
                    (told, LinkFound::NotMeasured { why })
                }
                Err(error) => return Err(error),
            };
            measured.attempts += 1;
            if attempt >= ATTEMPTS || !measured.may_be_certified_yet() {
                self.measured.push(measured);
                self.write(name, found)?;
                return Ok(Some(told));
            }
        }
        Ok(None)
    }

    /// Whether a link of this lab failed when it was measured, and would be measured again in a new one.
    pub(crate) fn may_be_certified_yet(&self, lab: &mut Lab) -> bool {
        lab.links().any(|(_, link)| self.of(link).is_some_and(Measured::may_be_certified_yet))
    }

    fn of(&self, link: &Link) -> Option<&Measured> {
        let shape = shape_of(link.spec());
        self.measured.iter().find(|known| known.shape == shape)
    }

    fn look_after(
        &mut self,
        lab: &mut Lab,
        number: u64,
        trial: &Trial,
        goals: &[Goal],
    ) -> Result<Seen, LinkError> {
        let reason = |evidence: String| VoidReason { rule: VoidRule::Link, evidence };
        let mut seen = Seen::default();
        seen.certain.extend(lab.cpu_contention().map(|why| reason(why.to_owned())));
        for (name, link) in lab.links() {
            let reasons = self.of(link).map_or(&[][..], |known| &known.reasons).join("; ");
            if !reasons.is_empty() {
                seen.certain.push(reason(format!("link {name} is not certified: {reasons}")));
            }
            seen.quantities.extend(product_bytes(link.spec()).map(|bytes| (product_name(name), bytes)));
        }
        for (name, after) in counters(lab)? {
            let Some(before) = self.before.get(&name) else { continue };
            let [a_to_b, b_to_a] = [0, 1].map(|index| Carried::between(&before[index], &after[index]));
            for (way, carried) in WAYS.into_iter().zip([a_to_b, b_to_a]) {
                if carried.not_emulated_packets > 0 {
                    seen.certain.push(reason(format!(
                        "link {name} lost {} packets because this machine was too slow for it; ask for less, or leave it a \
                         processor",
                        carried.not_emulated_packets
                    )));
                }
                if carried.late_packets.saturating_sub(FEW_LATE) * LATE_ONE_IN > carried.delivered_packets {
                    seen.perhaps.push(reason(format!(
                        "link {name} handed {} of {} packets over more than 1 ms late; leave it a processor",
                        carried.late_packets, carried.delivered_packets
                    )));
                }
                for (counter, _, _, value) in COUNTED {
                    seen.quantities.insert(quantity(&name, way, counter), value(&carried) as f64);
                }
            }
            let away = after[0].away.since(before[0].away);
            if may_have_decided(away, a_to_b.late_packets + b_to_a.late_packets, trial, goals) {
                seen.perhaps.push(reason(format!(
                    "link {name} moved nothing {} times, for {} in all and {} at the longest, because its emulator was away: \
                     stopped, or without a processor; leave it one",
                    away.times,
                    show_time_ns(away.total_ns),
                    show_time_ns(away.longest_ns)
                )));
            }
            let (a_to_b, b_to_a) = (Box::new(a_to_b), Box::new(b_to_a));
            self.write(&name, LinkFound::Trial { trial: number, a_to_b, b_to_a, away })?;
        }
        Ok(seen)
    }

    fn write(&self, link: &str, found: LinkFound) -> Result<(), LinkError> {
        let record = LinkRecord { schema: LINK_SCHEMA.to_owned(), link: link.to_owned(), found };
        let failed =
            |error| LinkError::Traffic { what: "write down what was found", cause: io::Error::other(error) };
        self.folder.append_link(&record).map_err(failed)
    }
}

/// Whether a trial would perhaps have had another result, had the emulator never been away.
///
/// No request takes longer because of absences of *d* in all than *d* (as in the generator's own, see `load`). They hold up
/// requests that had a packet on its way, and requests that the target gets in one burst with those: at most as many
/// again. So a goal that is not met even if all times were shorter by *d*, or if twice as many requests as there were late
/// packets were in time, is not met because of the target. Where no goal is missed, the time tells.
fn may_have_decided(away: LinkAway, late_packets: u64, trial: &Trial, goals: &[Goal]) -> bool {
    let is_missed = |goal: &Goal| goal.is_met_by(trial, None) == Some(false);
    let mut missed = goals.iter().filter(|goal| !goal.quantity.is_audited() && is_missed(goal)).peekable();
    if missed.peek().is_none() {
        return away.longest_ns > SHORT_AWAY_NS && away.total_ns as f64 / 1e9 > trial.elapsed_s * MOST_AWAY;
    }
    // A program may have been held up by any of it.
    let Some(http) = trial.http() else { return away.total_ns as f64 / 1e9 > trial.elapsed_s * MOST_AWAY };
    let held_up = 2.0 * late_packets as f64 / http.counts.scheduled.max(1) as f64;
    missed.any(|goal| {
        let later = |bound_ns: u64| bound_ns.saturating_add(away.total_ns);
        let quantity = match goal.quantity {
            GoalQuantity::ResponseTime { bound_ns } => {
                GoalQuantity::ResponseTime { bound_ns: later(bound_ns) }
            }
            GoalQuantity::ConnectTime { bound_ns } => GoalQuantity::ConnectTime { bound_ns: later(bound_ns) },
            // Only what is given up is an error.
            _ => return away.total_ns >= http.plan.timeout_ns.min(http.plan.drain_ns),
        };
        let shorter = Goal { quantity, ..goal.clone() };
        let fewer = Goal { loss_ratio: goal.loss_ratio + held_up, ..goal.clone() };
        !is_missed(&shorter) && !is_missed(&fewer)
    })
}

fn counters(lab: &mut Lab) -> Result<BTreeMap<String, [Counters; 2]>, LinkError> {
    lab.links().map(|(name, link)| Ok((name.to_owned(), link.counters()?))).collect()
}

/// What is asked of a link, but for what is drawn.
fn shape_of(spec: &LinkSpec) -> LinkSpec {
    let mut shape = spec.clone();
    (shape.a_to_b.seed, shape.b_to_a.seed) = (0, 0);
    shape
}

fn summary(name: &str, certificate: &Certificate) -> String {
    let ms = |ns: u64| ns as f64 / 1e6;
    let ways = [("a to b", &certificate.a_to_b), ("b to a", &certificate.b_to_a)].map(|(way, measured)| {
        let rate =
            measured.rate_bits_per_s.map_or(String::new(), |rate| format!(", {:.1} Mbit/s", rate / 1e6));
        let (p50, asked) = (ms(measured.delay.p50_ns), ms(measured.delay.expected_p50_ns));
        let lost = measured.loss_ratio * 100.0;
        format!("{way} {p50:.2} ms (asked for {asked:.2}){rate}, {lost:.3} % lost")
    });
    let verdict = match certificate.certified {
        true => "certified".to_owned(),
        false => {
            format!("NOT CERTIFIED, so trials over it are void: {}", certificate.reasons.join("; "))
        }
    };
    format!("link {name}: {}; {verdict}", ways.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::tests::trial;

    #[test]
    fn an_absence_matters_only_where_it_may_have_made_the_difference() {
        const MS: u64 = 1_000_000;
        let (bound, strict) = (Goal::response_time(0.99, 60 * MS), Goal::response_time(0.99, MS));
        let away = |total_ms: u64, longest_ms: u64| LinkAway {
            times: 1,
            total_ns: total_ms * MS,
            longest_ns: longest_ms * MS,
        };
        let decides = |response_ms: u64, away: LinkAway, late: u64, goals: &[Goal]| {
            let mut trial = trial(response_ms, 0, &[]);
            trial.elapsed_s = 4.0;
            may_have_decided(away, late, &trial, goals)
        };
        let missed = std::slice::from_ref(&bound);
        assert!(decides(160, away(450, 150), 60, missed), "missed because of it");
        assert!(!decides(160, away(450, 150), 10, missed), "20 of 100 requests at the most were held up");
        assert!(!decides(160, away(90, 90), 60, missed), "missed by more than it");
        assert!(!decides(160, away(0, 0), 0, missed), "never away");
        assert!(decides(160, away(450, 150), 60, &[strict, bound.clone()]), "one of two is open");
        assert!(decides(10, away(300, 300), 9, &[]), "no goal, 300 ms of 4 s");
        assert!(!decides(10, away(18, 3), 9, &[]), "a virtual processor wakes up so late");
        assert!(!decides(10, away(15, 15), 9, &[]), "too short a time to move a 99th percentile");
        let mut failed = trial(10, 0, &[]);
        failed.elapsed_s = 4.0;
        let http = failed.http_mut().unwrap();
        (http.counts.failed, http.plan.timeout_ns) = (1, 1_000 * MS);
        let errors = [Goal::errors(0.0)];
        assert!(!may_have_decided(away(300, 300), 9, &failed, &errors), "nobody gave up because of it");
        assert!(may_have_decided(away(1_100, 1_100), 9, &failed, &errors));
    }

    #[test]
    fn the_published_schema_is_the_one_of_this_code() {
        let schema = serde_json::to_string_pretty(&schemars::schema_for!(LinkRecord)).unwrap() + "\n";
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/schema/link.schema.json");
        if std::env::var_os("UPDATE_SCHEMA").is_some() {
            std::fs::write(path, &schema).unwrap();
        }
        let published = std::fs::read_to_string(path).unwrap_or_default();
        assert!(published == schema, "run `UPDATE_SCHEMA=1 cargo test -p study` and commit docs/schema");
    }

    #[test]
    fn the_seed_makes_no_other_shape() {
        let spec = LinkSpec::symmetric(lab::link::Shape { seed: 7, ..lab::link::Shape::default() });
        assert_eq!(shape_of(&spec), shape_of(&LinkSpec::default()));
    }
}
