//! How the bounds of a search closed in, trial by trial.

use std::collections::BTreeMap;

use record::{Purpose, SearchPlan, TrialEntry};
use serde::Deserialize;

use crate::{Results, reading::counted_s};

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

/// What decides about a load.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
struct Rule {
    /// Seconds of a trial that counts in full.
    final_trial_duration_s: f64,
    /// Seconds of trials that decide.
    duration_sum_s: f64,
    /// Share of them that may be bad.
    exceed_ratio: f64,
}

impl Rule {
    /// The rules of a goal's lower and upper bound. A search may have a goal of its own for each, the first for
    /// the lower one and the second for the upper; its settings tell which belong to which goal of the plan.
    fn of(plan: &SearchPlan, goal: usize) -> [Self; 2] {
        let common = Self {
            final_trial_duration_s: plan.trial_duration_s,
            duration_sum_s: plan.duration_sum_s,
            exceed_ratio: plan.exceed_ratio,
        };
        let places = plan.method_settings["goals"].as_array().into_iter().flatten();
        let own = places.enumerate().filter(|(_, place)| place.as_u64() == Some(goal as u64));
        let rules: Vec<Self> = own
            .filter_map(|(number, _)| Self::deserialize(&plan.method_settings["plan"]["goals"][number]).ok())
            .collect();
        let first = rules.first().copied().unwrap_or(common);
        [first, rules.get(1).copied().unwrap_or(first)]
    }
}

/// The path of a search for a goal in one block of a setting.
pub fn path(results: &Results, setting: usize, block: usize, goal: usize) -> Vec<Step> {
    let Some(plan) = results.plan.search_of(setting) else { return Vec::new() };
    let rules = Rule::of(plan, goal);
    let mut loads: [BTreeMap<u64, (f64, Seconds)>; 2] = Default::default();
    let trials =
        results.trials_of(setting).filter(|entry| entry.block == block && entry.purpose != Purpose::Confirm);
    let searched =
        trials.filter_map(|entry| Some((entry, entry.load.filter(|load| load.is_finite() && *load >= 0.0)?)));
    searched
        .map(|(entry, load)| {
            let said = said(results, entry, goal);
            let [of_lower, of_upper] = [0, 1].map(|which| {
                let seconds = loads[which].entry(load.to_bits()).or_insert((load, Seconds::default()));
                seconds.1.add(counted_s(entry), said, &rules[which]);
                bounds_of(loads[which].values(), &rules[which])
            });
            let bounds = BoundsSoFar { lower: of_lower.lower, upper: of_upper.upper };
            Step { index: entry.index, load, said, bounds }
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
    fn add(&mut self, seconds: f64, said: Said, rule: &Rule) {
        let full = seconds >= rule.final_trial_duration_s * 0.999;
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
    fn estimates(&self, rule: &Rule) -> (bool, bool) {
        let exceed = rule.exceed_ratio;
        let balance = if exceed < 1.0 { self.short_met * exceed / (1.0 - exceed) } else { f64::INFINITY };
        let bad_s = self.full_not + (self.short_not - balance).max(0.0);
        let whole_s = (self.full_met + bad_s).max(rule.duration_sum_s);
        let allowed_s = whole_s * exceed + 1e-9;
        (bad_s <= allowed_s, whole_s - self.full_met <= allowed_s)
    }
}

/// Where larger loads met a goal that a smaller one did not, the smaller one counts.
fn bounds_of<'a>(loads: impl Iterator<Item = &'a (f64, Seconds)>, rule: &Rule) -> BoundsSoFar {
    let mut bounds = BoundsSoFar::default();
    // In rising order: the bits of positive numbers are in the numbers' own order.
    for (load, seconds) in loads {
        match seconds.estimates(rule) {
            (true, true) => bounds.lower = Some(*load),
            (false, false) => {
                bounds.upper = Some(*load);
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

    fn rule(exceed_ratio: f64, duration_sum_s: f64) -> Rule {
        Rule { final_trial_duration_s: 1.0, duration_sum_s, exceed_ratio }
    }

    #[test]
    fn a_goal_may_have_a_rule_for_each_bound() {
        let mut plan = SearchPlan {
            unit: record::LoadUnit::Rate,
            min: 1.0,
            max: 1e6,
            width: 0.01,
            method: "mlrsearch".to_owned(),
            trial_duration_s: 1.0,
            duration_sum_s: 3.0,
            exceed_ratio: 0.5,
            confirm: 0,
            method_settings: serde_json::Value::Null,
        };
        assert_eq!(Rule::of(&plan, 0), [rule(0.5, 3.0); 2]);
        let goal = |exceed_ratio: f64| {
            serde_json::json!({
                "name": "p99", "exceed_ratio": exceed_ratio, "final_trial_duration_s": 1.0, "duration_sum_s": 7.0,
            })
        };
        plan.method_settings = serde_json::json!({
            "goals": [0, 1, 1],
            "plan": { "goals": [goal(0.1), goal(0.0), goal(0.9)] },
        });
        assert_eq!(Rule::of(&plan, 0), [rule(0.1, 7.0); 2]);
        assert_eq!(Rule::of(&plan, 1), [rule(0.0, 7.0), rule(0.9, 7.0)]);
    }

    #[test]
    fn a_load_is_decided_as_soon_as_the_missing_seconds_cannot_change_it() {
        let of = |full_met, full_not| Seconds { full_met, full_not, ..Seconds::default() };
        let rule = rule(0.5, 4.0);
        assert_eq!(of(1.0, 0.0).estimates(&rule), (true, false));
        assert_eq!(of(2.0, 0.0).estimates(&rule), (true, true));
        assert_eq!(of(1.0, 3.0).estimates(&rule), (false, false));
        assert_eq!(of(2.0, 2.0).estimates(&rule), (true, true));
    }

    #[test]
    fn short_trials_can_condemn_but_not_acquit() {
        let short = |short_met, short_not| Seconds { short_met, short_not, ..Seconds::default() };
        let rule = rule(0.5, 2.0);
        assert_eq!(short(9.0, 0.0).estimates(&rule), (true, false));
        assert_eq!(short(0.0, 3.0).estimates(&rule), (false, false));
    }

    #[test]
    fn an_inversion_is_resolved_below() {
        let met = Seconds { full_met: 9.0, ..Seconds::default() };
        let not = Seconds { full_not: 9.0, ..Seconds::default() };
        let loads = [(10.0, met), (20.0, not), (30.0, met)];
        let bounds = bounds_of(loads.iter(), &rule(0.0, 1.0));
        assert_eq!(bounds, BoundsSoFar { lower: Some(10.0), upper: Some(20.0) });
    }
}
