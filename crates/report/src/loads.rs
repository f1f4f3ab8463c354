//! Curves of latency over load.

use std::collections::BTreeMap;

use record::{
    Level, LoadUnit, Purpose, Span,
    quantity::{RESPONSE_P50, RESPONSE_P99, THROUGHPUT},
};

use crate::{Results, reading::Reading};

/// One curve: a configuration at several loads.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Curve {
    /// The levels that the points have in common; empty if there is only one curve.
    pub name: String,
    /// The settings of the curve.
    pub settings: Vec<usize>,
    /// The points by increasing load.
    pub points: Vec<LoadPoint>,
}

/// The valid trials at one load.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LoadPoint {
    /// The load: in the search's unit, or completed requests per second.
    pub load: f64,
    /// Median of the trials' p50.
    pub p50: Option<Span>,
    /// Median of the trials' p99.
    pub p99: Option<Span>,
    /// Number of trials.
    pub trials: usize,
}

/// The label of the horizontal axis.
pub(crate) fn axis_label(results: &Results) -> String {
    match &results.plan.search {
        Some(search) => match &search.unit {
            LoadUnit::Rate => "offered rate, requests per second".to_owned(),
            unit => crate::text::clipped(unit.name(), 40),
        },
        None => "throughput, completed requests per second".to_owned(),
    }
}

/// The curves of a study; empty if there are no two loads to compare.
pub(crate) fn curves(results: &Results, readings: &[Reading]) -> Vec<Curve> {
    let curves = if results.plan.settings.iter().any(|setting| setting.searched) {
        searched(results, readings)
    } else {
        swept(results, readings)
    };
    curves.into_iter().filter(|curve| curve.points.len() > 1).collect()
}

fn searched(results: &Results, readings: &[Reading]) -> Vec<Curve> {
    let several = results.plan.settings.len() > 1;
    let settings = results.plan.settings.iter().enumerate().filter(|(_, setting)| setting.searched);
    let curve = |number: usize| {
        let mut loads: BTreeMap<u64, Vec<&Reading>> = BTreeMap::new();
        let is_decisive = |r: &&Reading| {
            r.setting == number && !r.void && matches!(r.purpose, Purpose::Search | Purpose::Confirm)
        };
        for reading in readings.iter().filter(is_decisive) {
            if let Some(load) = reading.load.filter(|load| *load >= 0.0) {
                loads.entry(load.to_bits()).or_default().push(reading);
            }
        }
        // Leave out short trials if full ones suffice for a curve: in a short trial, the queue may not have had time to
        // grow.
        let full = loads.iter().map(|(bits, trials)| {
            (f64::from_bits(*bits), trials.iter().copied().filter(|trial| !trial.short).collect::<Vec<_>>())
        });
        let full_points: Vec<LoadPoint> = full
            .filter(|(_, trials)| !trials.is_empty())
            .map(|(load, trials)| point(load, &trials))
            .collect();
        let points = if full_points.len() > 1 {
            full_points
        } else {
            loads.into_iter().map(|(bits, trials)| point(f64::from_bits(bits), &trials)).collect()
        };
        let name = if several { results.setting_name(number) } else { String::new() };
        Curve { name, settings: vec![number], points }
    };
    settings.map(|(number, _)| curve(number)).collect()
}

fn point(load: f64, trials: &[&Reading]) -> LoadPoint {
    LoadPoint {
        load,
        p50: Span::median(trials.iter().filter_map(|reading| reading.figure(RESPONSE_P50))),
        p99: Span::median(trials.iter().filter_map(|reading| reading.figure(RESPONSE_P99))),
        trials: trials.len(),
    }
}

/// One curve for each group of settings that differ only in the factor that sets the load.
fn swept(results: &Results, readings: &[Reading]) -> Vec<Curve> {
    let Some(factor) = load_factor(results, readings) else { return Vec::new() };
    let groups = groups(results, &factor);
    let several = groups.len() > 1;
    let curve = |name: String, settings: Vec<usize>| {
        let points = settings.iter().filter_map(|&number| {
            let valid: Vec<&Reading> =
                readings.iter().filter(|r| r.setting == number && r.is_valid_repeat()).collect();
            let load = Span::median(valid.iter().filter_map(|reading| reading.figure(THROUGHPUT)))?;
            Some(point(load.value, &valid))
        });
        let points = points.collect();
        Curve { name: if several { name } else { String::new() }, settings, points }
    };
    groups.into_iter().map(|(name, settings)| curve(name, settings)).collect()
}

/// The numeric factor that increases the offered load while all other factors stay the same.
fn load_factor(results: &Results, readings: &[Reading]) -> Option<String> {
    let offered: BTreeMap<usize, f64> =
        readings.iter().map(|reading| (reading.setting, reading.offered)).collect();
    let rises = |settings: &Vec<usize>| {
        let loads: Vec<f64> = settings.iter().filter_map(|number| offered.get(number).copied()).collect();
        loads.windows(2).all(|pair| pair[0] < pair[1])
    };
    let factors = results.plan.factors.iter().filter(|factor| {
        let numeric = factor.levels.iter().all(|level| matches!(level, Level::Number(_)));
        numeric && factor.levels.len() > 1 && groups(results, &factor.name).values().all(rises)
    });
    factors.map(|factor| factor.name.clone()).next()
}

/// Groups the settings by their levels of all other factors; each group is sorted by the level of `factor`.
fn groups(results: &Results, factor: &str) -> BTreeMap<String, Vec<usize>> {
    let mut groups: BTreeMap<String, Vec<(f64, usize)>> = BTreeMap::new();
    for (number, setting) in results.plan.settings.iter().enumerate() {
        let Some(Level::Number(level)) = setting.levels.get(factor) else { continue };
        let others: Vec<String> = results
            .plan
            .factors
            .iter()
            .filter(|other| other.name != factor)
            .filter_map(|other| Some(format!("{}={}", other.name, setting.levels.get(&other.name)?)))
            .collect();
        groups.entry(others.join(" ")).or_default().push((*level, number));
    }
    groups
        .into_iter()
        .map(|(name, mut settings)| {
            settings.sort_by(|a, b| a.0.total_cmp(&b.0));
            (name, settings.into_iter().map(|(_, number)| number).collect())
        })
        .collect()
}
