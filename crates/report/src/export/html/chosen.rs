//! Which trials stand for a study.

use record::{Goal, TrialEntry, quantity::main_figures};

use super::Page;
use crate::{
    answer::searches_of,
    reading::{decides, median},
};

/// A trial, and why it was chosen.
pub(super) struct Chosen<'a> {
    /// The trial.
    pub entry: &'a TrialEntry,
    /// `the last at the lower bound of p99 ≤ 10 ms, 17,250/s`.
    pub why: String,
}

/// Of each search, the last trial at the lower bound and the first not met at the upper; of each other setting,
/// the trial nearest to its median; and the first void one of all.
pub(super) fn chosen<'a>(page: &'a Page) -> Vec<Chosen<'a>> {
    let settings = page.results.plan.settings.iter().enumerate();
    let mut chosen: Vec<Chosen> = settings
        .flat_map(
            |(number, setting)| {
                if setting.searched { of_search(page, number) } else { of_repeats(page, number) }
            },
        )
        .collect();
    let void = page.results.trials.iter().find(|entry| entry.trial.validity.is_void());
    chosen.extend(void.map(|entry| Chosen { entry, why: "the first void one".to_owned() }));
    let mut seen = Vec::new();
    chosen.retain(|trial| {
        let new = !seen.contains(&trial.entry.index);
        seen.push(trial.entry.index);
        new
    });
    if chosen.is_empty() {
        chosen
            .extend(page.results.trials.last().map(|entry| Chosen { entry, why: "the last one".to_owned() }));
    }
    chosen
}

/// The first goal of the first search that has bounds.
fn of_search<'a>(page: &'a Page, setting: usize) -> Vec<Chosen<'a>> {
    let mut chosen = Vec::new();
    for search in searches_of(page.results, setting) {
        for (goal, (outcome, plan)) in search.goals.iter().zip(&page.results.plan.goals).enumerate() {
            let trials = || {
                page.results.trials_of(setting).filter(|entry| entry.block == search.block && decides(entry))
            };
            let at = |load: f64| trials().filter(move |entry| entry.load == Some(load));
            if let Some(lower) = &outcome.lower {
                let trial = at(lower.load).filter(|entry| entry.meets(goal, &page.results.plan)).last();
                chosen.extend(trial.map(|entry| of_bound(page, entry, "last", "lower", plan, lower.load)));
            }
            if let Some(upper) = &outcome.upper {
                let trial = at(upper.load).find(|entry| !entry.meets(goal, &page.results.plan));
                chosen.extend(
                    trial.map(|entry| of_bound(page, entry, "first not met", "upper", plan, upper.load)),
                );
            }
            if !chosen.is_empty() {
                return chosen;
            }
        }
    }
    chosen
}

fn of_bound<'a>(
    page: &Page,
    entry: &'a TrialEntry,
    which: &str,
    bound: &str,
    goal: &Goal,
    load: f64,
) -> Chosen<'a> {
    let setting =
        if page.several_settings() { format!("{}, ", page.setting(entry.setting)) } else { String::new() };
    let (goal, load) = (page.text(&goal.name), page.load(load));
    Chosen { entry, why: format!("{setting}{which} at the {bound} bound of {goal}, {load}") }
}

fn of_repeats<'a>(page: &'a Page, setting: usize) -> Vec<Chosen<'a>> {
    let valid = || {
        let trials = page.results.trials_of(setting);
        trials.filter(|entry| decides(entry))
    };
    let quantities = page.results.quantities();
    let first = |entry: &TrialEntry| {
        let figure = main_figures(&quantities).find_map(|(quantity, _)| quantity.read(entry));
        figure.map_or(0.0, |figure| figure.value)
    };
    let head = main_figures(&quantities).next().map_or("time", |(_, column)| &column.head);
    let Some(middle) = median(valid().map(first)) else { return Vec::new() };
    let distance = |entry: &TrialEntry| (first(entry) - middle).abs();
    let nearest = valid().min_by(|a, b| distance(a).total_cmp(&distance(b)));
    let name = if page.several_settings() { format!("{}, ", page.setting(setting)) } else { String::new() };
    let chosen = nearest
        .map(|entry| Chosen { entry, why: format!("{name}nearest to the median {}", page.text(head)) });
    chosen.into_iter().collect()
}
