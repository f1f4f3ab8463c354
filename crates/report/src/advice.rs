//! Advice on the host settings that a study varies: the gain of each change, and the lines to change.

use std::collections::{BTreeMap, BTreeSet};

use record::{Factor, Level, Quantity, Setting, quantity::main_figures};

use crate::{
    Results,
    bounded::{self, Bounded},
    reading::Reading,
    setting, text,
};

/// Minimum gain (a ratio) that is worth a change.
const LEAST_GAIN: f64 = 1.1;
/// A setting is as good as the best if it reaches this share of the best value; the advice then prefers the first one.
const AS_GOOD: f64 = 0.95;

/// A setting with its main figure.
#[derive(Clone, Copy)]
struct Measured<'a> {
    number: usize,
    setting: &'a Setting,
    value: f64,
}

/// Advice for each group of settings that differ only in host settings, followed by the gain from other levels. Empty
/// if the study does not vary host settings.
pub(crate) fn sentences(results: &Results, readings: &[Reading]) -> Vec<String> {
    let all = &results.plan.settings;
    let quantities = results.quantities();
    let main = main_figures(&quantities).enumerate().find(|(_, (quantity, _))| quantity.more_is_better);
    let Some((index, (quantity, _))) =
        main.filter(|_| all.iter().any(|setting| !setting.host_settings.is_empty()))
    else {
        return Vec::new();
    };
    let measured = all.iter().enumerate().filter_map(|(number, setting)| {
        let value = setting::figures(results, readings, number).figures[index].median?.value;
        (!setting.searched && value > 0.0).then_some(Measured { number, setting, value })
    });
    let (of_hosts, others): (Vec<&Factor>, Vec<&Factor>) = results
        .plan
        .factors
        .iter()
        .filter(|factor| factor.levels.len() > 1)
        .partition(|factor| changes_hosts(all, factor));
    let groups = groups(measured, &others);
    let bounded = bounded::bounded(results);
    let about = Words { quantity, of_hosts: &of_hosts, bounded: &bounded };
    let best: Vec<Measured<'_>> = groups.iter().map(|group| best_of(group)).collect();
    let by_host = groups.iter().zip(&best).filter(|(group, _)| group.len() > 1);
    let mut sentences: Vec<String> =
        by_host.map(|(group, best)| about.of_hosts(group, best, &others)).collect();
    if let Some((factor, rest)) = others.split_first() {
        sentences.extend(
            self::groups(best.into_iter(), rest)
                .iter()
                .filter_map(|group| about.of_levels(group, factor, rest)),
        );
    }
    sentences
}

/// Whether a factor changes host settings while all other levels stay the same.
fn changes_hosts(settings: &[Setting], factor: &Factor) -> bool {
    let mut seen: BTreeMap<String, &Setting> = BTreeMap::new();
    settings.iter().any(|setting| {
        let others: Vec<_> = setting.levels.iter().filter(|(name, _)| **name != factor.name).collect();
        let first = *seen.entry(format!("{others:?}")).or_insert(setting);
        first.host_settings != setting.host_settings
    })
}

/// Settings with the same levels of these factors, in the order of the plan.
fn groups<'a>(all: impl Iterator<Item = Measured<'a>>, same: &[&Factor]) -> Vec<Vec<Measured<'a>>> {
    let mut groups: Vec<Vec<Measured<'_>>> = Vec::new();
    for one in all {
        let is_same = |group: &&mut Vec<Measured<'_>>| {
            same.iter().all(|factor| {
                group[0].setting.levels.get(&factor.name) == one.setting.levels.get(&factor.name)
            })
        };
        match groups.iter_mut().find(is_same) {
            Some(group) => group.push(one),
            None => groups.push(vec![one]),
        }
    }
    groups
}

/// The first setting that is as good as the best.
fn best_of<'a>(group: &[Measured<'a>]) -> Measured<'a> {
    let most = group.iter().fold(0.0, |most: f64, one| most.max(one.value));
    *group.iter().find(|one| one.value >= AS_GOOD * most).unwrap_or(&group[0])
}

struct Words<'a> {
    quantity: &'a Quantity,
    of_hosts: &'a [&'a Factor],
    bounded: &'a [Bounded<'a>],
}

impl Words<'_> {
    fn value(&self, one: &Measured<'_>) -> String {
        text::quantity(&self.quantity.name, one.value)
    }

    /// States the gain from the host settings of the best setting of a group, and the lines to change on each host.
    fn of_hosts(&self, group: &[Measured<'_>], best: &Measured<'_>, others: &[&Factor]) -> String {
        let name = levels(best.setting, others);
        let least = group.iter().min_by(|a, b| a.value.total_cmp(&b.value)).unwrap_or(best);
        let range = format!("{} → {}", self.value(least), self.value(best));
        let bound = self.bound(best);
        if best.value < LEAST_GAIN * least.value {
            let bound = bound.map_or_else(String::new, |bound| format!("; {bound}"));
            return format!("{name}: keep the hosts' settings; a change brings little ({range}){bound}.");
        }
        let [from, to] = [least, best].map(|one| levels(one.setting, self.of_hosts));
        let times = best.value / least.value;
        let bound = bound.map_or_else(String::new, |bound| format!("; then {bound}"));
        format!(
            "{name}: {to} in place of {from} brings {range}, {times:.1} times as much: {}{bound}.",
            lines(least.setting, best.setting)
        )
    }

    /// States the gain from the best level of a factor; `None` if it is below [`LEAST_GAIN`].
    fn of_levels(&self, group: &[Measured<'_>], factor: &Factor, rest: &[&Factor]) -> Option<String> {
        let first = group.first()?;
        let best = group.iter().max_by(|a, b| a.value.total_cmp(&b.value))?;
        let times = best.value / first.value;
        let [from, to] = [first, best].map(|one| levels(one.setting, &[factor]));
        let at = levels(best.setting, rest);
        let at = if at.is_empty() { at } else { format!("{at}: ") };
        (times >= LEAST_GAIN).then(|| {
            format!(
                "{at}{to} in place of {from} brings {} → {}, {times:.1} times as much.",
                self.value(first),
                self.value(best)
            )
        })
    }

    /// States the cause that bounds a setting, and the change that would remove this bound.
    fn bound(&self, one: &Measured<'_>) -> Option<String> {
        let bounded = self.bounded.iter().find(|bounded| bounded.setting == one.number);
        bounded
            .and_then(|bounded| bounded.bounding.verdict.first_cause())
            .map(|cause| format!("bound by {}, which may be raised by: {}", cause.words(), cause.raised_by()))
    }
}

/// The levels of these factors in a setting, as `name=level`.
fn levels(setting: &Setting, factors: &[&Factor]) -> String {
    let level = |factor: &&Factor| {
        setting.levels.get(&factor.name).map(|level: &Level| format!("{}={level}", factor.name))
    };
    factors.iter().filter_map(level).collect::<Vec<_>>().join(" ")
}

/// The lines to change between two settings, and the hosts to change them on.
fn lines(from: &Setting, to: &Setting) -> String {
    let mut lines: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for (host, names) in &to.host_settings {
        let before = from.host_settings.get(host);
        for (name, value) in names
            .iter()
            .filter(|(name, value)| before.and_then(|settings| settings.get(*name)) != Some(value))
        {
            lines.entry(format!("{name} = {value}")).or_default().insert(host);
        }
    }
    let line = |(line, hosts): (String, BTreeSet<&str>)| {
        format!("{line} on {}", hosts.into_iter().collect::<Vec<_>>().join(" and "))
    };
    lines.into_iter().map(line).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use record::{Bottleneck, Cause, Certainty, DeclaredQuantity, HttpTrial, Kind, TrialEntry, Verdict};
    use testing::plans;

    use super::*;
    use crate::reading::readings;

    /// Makes a setting with a program and a buffer size in MB.
    fn setting(program: &str, mb: u32) -> Setting {
        let text = |text: &str| Level::Text(text.to_owned());
        let line = ("net.ipv4.tcp_rmem".to_owned(), format!("4096 131072 {mb}000000"));
        let lines: BTreeMap<_, _> = [line].into();
        Setting {
            levels: [("program".to_owned(), text(program)), ("buffer".to_owned(), text(&format!("{mb}MB")))]
                .into(),
            host_settings: [("far".to_owned(), lines.clone()), ("near".to_owned(), lines)].into(),
            name: format!("program={program} buffer={mb}MB"),
            ..Setting::default()
        }
    }

    #[test]
    fn the_smallest_change_that_suffices_is_advised() {
        let rates =
            [("scp", 2, 50.0), ("scp", 8, 51.0), ("ours", 2, 90.0), ("ours", 8, 590.0), ("ours", 32, 600.0)];
        let mut plan = plans::study("a", Vec::new());
        plan.kind = Kind::Command;
        plan.quantities = vec![DeclaredQuantity {
            name: "goodput_bit_per_s".to_owned(),
            words: "goodput".to_owned(),
            more_is_better: true,
            is_main: true,
        }];
        plan.settings = rates.iter().map(|(program, mb, _)| setting(program, *mb)).collect();
        let factor = |name: &str, levels: &[&str]| Factor {
            name: name.to_owned(),
            levels: levels.iter().map(|level| Level::Text((*level).to_owned())).collect(),
        };
        plan.factors = vec![factor("program", &["scp", "ours"]), factor("buffer", &["2MB", "8MB", "32MB"])];
        let entry = |(number, (_, _, rate)): (usize, &(&str, u32, f64))| {
            let mut trial = plans::trial(HttpTrial { plan: plans::closed(1), ..HttpTrial::default() });
            trial.quantities.insert("goodput_bit_per_s".to_owned(), rate * 1e6);
            let (place, evidence) = ("near".to_owned(), String::new());
            let bottleneck =
                Bottleneck { cause: Cause::SshWindow, place, evidence, certainty: Certainty::Likely };
            trial.verdict = Some(Verdict { bottlenecks: vec![bottleneck], ..Verdict::default() });
            TrialEntry { setting: number, ..TrialEntry::alone(number as u64 + 1, trial) }
        };
        let trials = rates.iter().enumerate().map(entry).collect();
        let mut results = Results { plan, environment: None, trials, result: None, so_far: Vec::new() };
        let raised = Cause::SshWindow.raised_by();
        assert_eq!(
            sentences(&results, &readings(&results)),
            [
                format!(
                    "program=scp: keep the hosts' settings; a change brings little (50 Mbit/s → 50 Mbit/s); bound by SSH's window, which may be raised by: {raised}."
                ),
                format!(
                    "program=ours: buffer=8MB in place of buffer=2MB brings 90 Mbit/s → 590 Mbit/s, 6.6 times as much: \
                     net.ipv4.tcp_rmem = 4096 131072 8000000 on far and near; then bound by SSH's window, which may be raised by: {raised}."
                ),
                "program=ours in place of program=scp brings 50 Mbit/s → 590 Mbit/s, 11.8 times as much."
                    .to_owned(),
            ]
        );
        for setting in &mut results.plan.settings {
            setting.host_settings.clear();
        }
        assert!(sentences(&results, &readings(&results)).is_empty(), "nothing on hosts was varied");
    }
}
