//! The observer of emulated links: certifies one link of each shape before it is used, and reads the counters of all
//! links around every trial.

mod absences;
mod quantities;

use std::{collections::BTreeMap, io};

use lab::{
    Lab,
    link::{Carried, Certificate, CertifyOptions, Counters, Link, LinkAway, LinkError, LinkSpec},
};
use record::{
    Flow, Goal, LinkStall, ResultFolder, Trial, VoidReason, VoidRule, study::LINK_SCHEMA, units::show_time_ns,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use verdict::LinkUse;

use crate::{
    counted::Counted,
    observer::{Observation, Observer, TrialContext},
    stop_reason::{Result, StopReason},
    testbed::TestbedError,
};

use absences::{Stalls, may_have_changed_result};
use quantities::{COUNTERS, DIRECTIONS, bdp_bytes, bdp_name, buffer_bits_per_s, buffer_name, quantity_name};
pub(crate) use quantities::{normalized, quantities};

/// Maximum number of measurements of a link in one lab. Other processes may disturb a measurement for a moment, so it is repeated.
const ATTEMPTS_IN_A_ROW: u32 = 3;
/// Maximum number of measurements of a link in all labs of a study. A disturbance may last, so each new lab measures the link again.
const MAX_ATTEMPTS: u32 = 6;
/// A link voids a trial if more than one in this number of packets is late.
const MIN_PACKETS_PER_LATE: u64 = 20;

/// Fewer late packets than this do not void a trial.
const IGNORED_LATE_PACKETS: u64 = 5;
/// A finding about an emulated link: a line of `links.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct LinkRecord {
    /// The format of this record, [`LINK_SCHEMA`].
    pub schema: String,
    /// The link's name.
    pub link: String,
    /// The finding.
    #[serde(flatten)]
    pub found: LinkFound,
}

/// A finding about a link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum LinkFound {
    /// The certificate of the idle link. The last certificate applies to all links of the study with the same shape.
    Certificate(Box<Certificate>),
    /// The link could not be measured.
    NotMeasured {
        /// Why.
        why: String,
    },
    /// What the link carried in a trial.
    Trial {
        /// The trial's index. If an index occurs twice for a link, the study was resumed in between, and the last one
        /// counts.
        trial: u64,
        /// From the first host to the second.
        a_to_b: Box<Carried>,
        /// From the second host to the first.
        b_to_a: Box<Carried>,
        /// When the emulator was away, so that no packet moved in either direction.
        #[serde(default)]
        away: LinkAway,
    },
}

/// The measurements and counters of a study's links.
#[derive(Debug)]
pub(crate) struct Links {
    folder: ResultFolder,
    measured: Vec<MeasuredLink>,
    /// Counters of all links before the trial.
    before: BTreeMap<String, [Counters; 2]>,
    /// For each link that carried something in the trial, when its emulator was away.
    stalls: Vec<Stalls>,
}

/// Measurements of all links of one shape.
#[derive(Debug)]
struct MeasuredLink {
    shape: LinkSpec,
    attempts: u32,
    /// Why the link is not certified; empty if it is.
    reasons: Vec<String>,
}

impl MeasuredLink {
    fn may_be_measured_again(&self) -> bool {
        !self.reasons.is_empty() && self.attempts < MAX_ATTEMPTS
    }
}

impl Observer for Links {
    fn before(&mut self, context: &mut TrialContext<'_>) -> Result {
        let Some(lab) = context.testbed.lab() else { return Ok(()) };
        self.stalls.clear();
        lab.links().try_for_each(|(_, link)| link.forget_longest_absence()).map_err(link_failed)?;
        self.before = counters(lab).map_err(link_failed)?;
        // Workers may have been pinned to processors since the links were started.
        lab.pin_links().map_err(|error| StopReason::Failed(TestbedError::Lab(error).to_string()))
    }

    fn after(&mut self, context: &mut TrialContext<'_>, trial: &Trial) -> Result<Observation> {
        match context.testbed.lab() {
            Some(lab) => self.observe(lab, context.number, trial, context.goals).map_err(link_failed),
            None => Ok(Observation::default()),
        }
    }
}

fn link_failed(error: LinkError) -> StopReason {
    StopReason::Failed(format!("a link of the lab: {error}"))
}

impl Links {
    pub(crate) fn new(folder: &ResultFolder) -> Self {
        Self { folder: folder.clone(), measured: Vec::new(), before: BTreeMap::new(), stalls: Vec::new() }
    }

    /// Measures an idle link, unless a link of its shape is already certified or has failed too often. Returns a message about
    /// the measurement.
    pub(crate) fn measure(&mut self, name: &str, link: &mut Link) -> Result<Option<String>, LinkError> {
        let shape = shape_of(link.spec());
        let mut measured = match self.measured.iter().position(|known| known.shape == shape) {
            Some(index) if !self.measured[index].may_be_measured_again() => return Ok(None),
            Some(index) => self.measured.swap_remove(index),
            None => MeasuredLink { shape, attempts: 0, reasons: Vec::new() },
        };
        for attempt in 1.. {
            let (message, finding) = match link.certify(&CertifyOptions::short()) {
                Ok(certificate) => {
                    measured.reasons.clone_from(&certificate.reasons);
                    (summary(name, &certificate), LinkFound::Certificate(Box::new(certificate)))
                }
                Err(LinkError::Refused(why)) => {
                    measured.reasons = vec![why.clone()];
                    let message = format!("link {name}: NOT MEASURED, so trials over it are void: {why}");
                    (message, LinkFound::NotMeasured { why })
                }
                Err(error) => return Err(error),
            };
            measured.attempts += 1;
            if attempt >= ATTEMPTS_IN_A_ROW || !measured.may_be_measured_again() {
                self.measured.push(measured);
                self.write(name, finding)?;
                return Ok(Some(message));
            }
        }
        Ok(None)
    }

    /// Whether a link of this lab is not certified and will be measured again in a new lab.
    pub(crate) fn may_be_measured_again(&self, lab: &mut Lab) -> bool {
        lab.links().any(|(_, link)| self.measured(link).is_some_and(MeasuredLink::may_be_measured_again))
    }

    fn measured(&self, link: &Link) -> Option<&MeasuredLink> {
        let shape = shape_of(link.spec());
        self.measured.iter().find(|known| known.shape == shape)
    }

    fn observe(
        &mut self,
        lab: &mut Lab,
        number: u64,
        trial: &Trial,
        goals: &[Goal],
    ) -> Result<Observation, LinkError> {
        let reason = |evidence: String| VoidReason { rule: VoidRule::Link, evidence };
        let mut observed = Observation::default();
        observed.void_reasons.extend(lab.cpu_contention().map(|why| reason(why.to_owned())));
        let mut specs = BTreeMap::new();
        for (name, link) in lab.links() {
            specs.insert(name.to_owned(), link.spec().clone());
            let reasons = self.measured(link).map_or(&[][..], |known| &known.reasons).join("; ");
            if !reasons.is_empty() {
                observed.void_reasons.push(reason(format!("link {name} is not certified: {reasons}")));
            }
            observed.quantities.extend(bdp_bytes(link.spec()).map(|bytes| (bdp_name(name), bytes)));
        }
        for link in &lab.plan().links {
            let rate = buffer_bits_per_s(lab.plan(), link);
            observed.quantities.extend(rate.map(|rate| (buffer_name(&link.name), rate)));
        }
        for (name, after) in counters(lab)? {
            let Some((before, spec)) = self.before.get(&name).zip(specs.get(&name)) else { continue };
            let [a_to_b, b_to_a] = [0, 1].map(|index| Carried::between(&before[index], &after[index]));
            for (direction, carried) in DIRECTIONS.into_iter().zip([a_to_b, b_to_a]) {
                if carried.not_emulated_packets > 0 {
                    observed.void_reasons.push(reason(format!(
                        "link {name} lost {} packets because this machine was too slow; lower the load, or leave a processor to the \
                         emulator",
                        carried.not_emulated_packets
                    )));
                }
                if carried.late_packets.saturating_sub(IGNORED_LATE_PACKETS) * MIN_PACKETS_PER_LATE
                    > carried.delivered_packets
                {
                    observed.stalls.push(reason(format!(
                        "link {name} delivered {} of {} packets more than 1 ms late; leave a processor to the emulator",
                        carried.late_packets, carried.delivered_packets
                    )));
                }
                for (counter, _, _, value) in COUNTERS {
                    let name = quantity_name(&name, direction, counter);
                    observed.quantities.insert(name, value(&carried) as f64);
                }
            }
            let rates = [&spec.a_to_b, &spec.b_to_a].map(|shape| shape.rate_bits_per_s);
            let uses = Flow::names_of_link(&name).into_iter().zip([a_to_b, b_to_a]).zip(rates);
            let uses = uses.map(|((name, carried), rate)| link_use(name, &carried, rate, trial.elapsed_s));
            let uses: Vec<LinkUse> = uses.collect();
            observed.links.extend(uses);
            let away = after[0].away.since(before[0].away);
            let late_packets = a_to_b.late_packets + b_to_a.late_packets;
            let is_used = a_to_b.offered_packets + b_to_a.offered_packets > 0;
            // If the emulator was away for most of the trial, packets that arrived in that time may still be unread.
            if is_used || away.total_ns as f64 / 1e9 > trial.elapsed_s / 2.0 {
                if may_have_changed_result(away, late_packets, trial, goals) {
                    observed.stalls.push(reason(format!(
                        "link {name} moved no packet for {} in total and {} at most ({} times), because its emulator stalled \
                         (stopped, or without a processor); leave a processor to it",
                        show_time_ns(away.total_ns),
                        show_time_ns(away.longest_ns),
                        away.times
                    )));
                }
                observed.stall = observed.stall.merged(LinkStall {
                    total_s: away.total_ns as f64 / 1e9,
                    in_three_seconds_s: Some(away.in_three_seconds_ns as f64 / 1e9),
                    rate_bits_per_s: rates[0].zip(rates[1]).map(|(up, down)| up.max(down) as f64),
                });
                self.stalls.push(Stalls::of(&name, spec, away));
            }
            let (a_to_b, b_to_a) = (Box::new(a_to_b), Box::new(b_to_a));
            self.write(&name, LinkFound::Trial { trial: number, a_to_b, b_to_a, away })?;
        }
        Ok(observed)
    }

    /// The reason why the trial is void, if a stalled emulator may have ended the slow start of a program's transfer.
    pub(crate) fn ended_slow_start(&self, trial: &Trial, counted: Option<&Counted>) -> Option<VoidReason> {
        let hosts = counted.iter().flat_map(|counted| &counted.counters.hosts);
        absences::ended_slow_start(&self.stalls, trial, hosts)
    }

    fn write(&self, link: &str, found: LinkFound) -> Result<(), LinkError> {
        let record = LinkRecord { schema: LINK_SCHEMA.to_owned(), link: link.to_owned(), found };
        let failed =
            |error| LinkError::Traffic { what: "write down what was found", cause: io::Error::other(error) };
        self.folder.append_link(&record).map_err(failed)
    }
}

/// The use of one direction of a link in a trial of `elapsed_s` seconds.
fn link_use(name: String, carried: &Carried, rate_bits_per_s: Option<u64>, elapsed_s: f64) -> LinkUse {
    LinkUse {
        name,
        rate_bits_per_s: rate_bits_per_s.map(|rate| rate as f64),
        carried_bits_per_s: carried.delivered_bytes as f64 * 8.0 / elapsed_s.max(f64::MIN_POSITIVE),
        full_s: carried.full_ns as f64 / 1e9,
        offered_packets: carried.offered_packets,
        dropped_packets: carried.dropped_queue_packets,
        lost_packets: carried.dropped_loss_packets,
    }
}

fn counters(lab: &mut Lab) -> Result<BTreeMap<String, [Counters; 2]>, LinkError> {
    lab.links().map(|(name, link)| Ok((name.to_owned(), link.counters()?))).collect()
}

/// The shape of a link without the seed of its random numbers.
fn shape_of(spec: &LinkSpec) -> LinkSpec {
    let mut shape = spec.clone();
    (shape.a_to_b.seed, shape.b_to_a.seed) = (0, 0);
    shape
}

fn summary(name: &str, certificate: &Certificate) -> String {
    let ms = |ns: u64| ns as f64 / 1e6;
    let directions =
        [("a to b", &certificate.a_to_b), ("b to a", &certificate.b_to_a)].map(|(direction, measured)| {
            let rate =
                measured.rate_bits_per_s.map_or(String::new(), |rate| format!(", {:.1} Mbit/s", rate / 1e6));
            let (p50, asked) = (ms(measured.delay.p50_ns), ms(measured.delay.expected_p50_ns));
            let lost = measured.loss_ratio * 100.0;
            format!("{direction} {p50:.2} ms (asked for {asked:.2}){rate}, {lost:.3} % lost")
        });
    let verdict = if certificate.certified {
        "certified".to_owned()
    } else {
        format!("NOT CERTIFIED, so trials over it are void: {}", certificate.reasons.join("; "))
    };
    format!("link {name}: {}; {verdict}", directions.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_schema_is_the_one_of_this_code() {
        let schema = serde_json::to_string_pretty(&schemars::schema_for!(LinkRecord)).unwrap() + "\n";
        testing::assert_published("schema/link.schema.json", |_| schema);
    }

    #[test]
    fn shapes_do_not_depend_on_the_seed() {
        let spec = LinkSpec::symmetric(lab::link::Shape { seed: 7, ..lab::link::Shape::default() });
        assert_eq!(shape_of(&spec), shape_of(&LinkSpec::default()));
    }
}
