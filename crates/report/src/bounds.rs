//! How the bounds of a search closed in, trial by trial.

use std::collections::BTreeMap;

use record::{Purpose, SearchPlan, TrialEntry};

use crate::Results;

/// The bounds after a trial.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct BoundsSoFar {
    /// Largest load known to meet the goal, below all known not to.
    pub lower: Option<f64>,
    /// Smallest load known not to.
    pub upper: Option<f64>,
}

/// What a trial of a search was, in the order they ran.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// The trial's number in the study.
    pub index: u64,
    /// The load.
    pub load: f64,
    /// What it said of the goal.
    pub said: Said,
    /// The bounds after it.
    pub bounds: BoundsSoFar,
}

/// What a trial says of a goal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    /// It was met.
    Met,
    /// It was not met.
    NotMet,
    /// Nothing.
    Void,
    /// It was run to get the target warm.
    WarmUp,
}

/// Seconds of trials at a load, by what they said.
#[derive(Debug, Clone, Copy, Default)]
struct Seconds {
    full_met: f64,
    full_not: f64,
    short_met: f64,
    short_not: f64,
}

/// The path of a search for a goal in one block of a setting.
pub fn path(results: &Results, setting: usize, block: usize, goal: usize) -> Vec<Step> {
    let Some(plan) = &results.plan.search else { return Vec::new() };
    let mut loads: BTreeMap<u64, (f64, Seconds)> = BTreeMap::new();
    let trials = results.trials_of(setting).filter(|entry| entry.block == block);
    let searched =
        trials.filter_map(|entry| Some((entry, entry.load.filter(|load| load.is_finite() && *load >= 0.0)?)));
    searched
        .map(|(entry, load)| {
            let said = said(results, entry, goal);
            let (_, seconds) = loads.entry(load.to_bits()).or_insert((load, Seconds::default()));
            seconds.add(entry, said, plan);
            Step { index: entry.index, load, said, bounds: bounds_of(loads.values(), plan) }
        })
        .collect()
}

fn said(results: &Results, entry: &TrialEntry, goal: usize) -> Said {
    match entry.purpose {
        _ if entry.trial.validity.is_void() => Said::Void,
        Purpose::WarmUp => Said::WarmUp,
        _ if entry.meets(goal, &results.plan) => Said::Met,
        _ => Said::NotMet,
    }
}

impl Seconds {
    fn add(&mut self, entry: &TrialEntry, said: Said, plan: &SearchPlan) {
        let planned_s = entry.trial.plan.duration_ns.map(|ns| ns as f64 / 1e9);
        let seconds = planned_s.unwrap_or(entry.trial.elapsed_s);
        let full = seconds >= plan.trial_duration_s * 0.999;
        match (said, full) {
            (Said::Met, true) => self.full_met += seconds,
            (Said::NotMet, true) => self.full_not += seconds,
            (Said::Met, false) => self.short_met += seconds,
            (Said::NotMet, false) => self.short_not += seconds,
            (Said::Void | Said::WarmUp, _) => {}
        }
    }

    /// Whether the load meets the goal even if all seconds still missing are good (optimistic), and even if
    /// they are bad (pessimistic): RFC 9971, classification of a load.
    fn estimates(&self, plan: &SearchPlan) -> (bool, bool) {
        let exceed = plan.exceed_ratio;
        let balance = if exceed < 1.0 { self.short_met * exceed / (1.0 - exceed) } else { f64::INFINITY };
        let bad_s = self.full_not + (self.short_not - balance).max(0.0);
        let whole_s = (self.full_met + bad_s).max(plan.duration_sum_s);
        let allowed_s = whole_s * exceed + 1e-9;
        (bad_s <= allowed_s, whole_s - self.full_met <= allowed_s)
    }
}

/// Where larger loads met a goal that a smaller one did not, the smaller one counts.
fn bounds_of<'a>(loads: impl Iterator<Item = &'a (f64, Seconds)> + Clone, plan: &SearchPlan) -> BoundsSoFar {
    let mut estimated = loads.map(|(load, seconds)| (*load, seconds.estimates(plan)));
    let mut bounds = BoundsSoFar::default();
    // In rising order: the bits of positive numbers are in the numbers' own order.
    for (load, (optimistic, pessimistic)) in estimated.by_ref() {
        match (optimistic, pessimistic) {
            (true, true) => bounds.lower = Some(load),
            (false, false) => {
                bounds.upper = Some(load);
                break;
            }
            _ => {}
        }
    }
    bounds
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(exceed_ratio: f64, duration_sum_s: f64) -> SearchPlan {
        SearchPlan {
            unit: record::LoadUnit::Rate,
            min: 1.0,
            max: 1e6,
            width: 0.01,
            method: "mlrsearch".to_owned(),
            trial_duration_s: 1.0,
            duration_sum_s,
            exceed_ratio,
            method_settings: serde_json::Value::Null,
        }
    }

    #[test]
    fn a_load_is_decided_as_soon_as_the_missing_seconds_cannot_change_it() {
        let of = |full_met, full_not| Seconds { full_met, full_not, ..Seconds::default() };
        let plan = plan(0.5, 4.0);
        assert_eq!(of(1.0, 0.0).estimates(&plan), (true, false));
        assert_eq!(of(2.0, 0.0).estimates(&plan), (true, true));
        assert_eq!(of(1.0, 3.0).estimates(&plan), (false, false));
        assert_eq!(of(2.0, 2.0).estimates(&plan), (true, true));
    }

    #[test]
    fn short_trials_can_condemn_but_not_acquit() {
        let short = |short_met, short_not| Seconds { short_met, short_not, ..Seconds::default() };
        let plan = plan(0.5, 2.0);
        assert_eq!(short(9.0, 0.0).estimates(&plan), (true, false));
        assert_eq!(short(0.0, 3.0).estimates(&plan), (false, false));
    }

    #[test]
    fn an_inversion_is_resolved_below() {
        let met = Seconds { full_met: 9.0, ..Seconds::default() };
        let not = Seconds { full_not: 9.0, ..Seconds::default() };
        let loads = [(10.0, met), (20.0, not), (30.0, met)];
        let bounds = bounds_of(loads.iter(), &plan(0.0, 1.0));
        assert_eq!(bounds, BoundsSoFar { lower: Some(10.0), upper: Some(20.0) });
    }
}
