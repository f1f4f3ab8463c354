//! Selects the trials that represent a study in the charts over time.

use maud::{Markup, html};
use record::{Goal, TrialEntry, quantity::main_figures};

use super::{Page, Section, parts::folded};
use crate::reading::{is_decisive, median};

/// A selected trial.
pub(super) struct RepresentativeTrial<'a> {
    /// The trial.
    pub entry: &'a TrialEntry,
    /// Why it was selected: `last at the lower bound of p99 ≤ 10 ms, 17,250/s`.
    pub why: String,
}

/// A section with the content that `read` returns for each selected trial; `None` if it returns nothing. `unfolded` and
/// `most` are the maximum numbers of unfolded trials and of all trials shown.
pub(super) fn section_of_trials<'a, T>(
    page: &'a Page,
    (anchor, heading, introduction): (&'static str, &'static str, &str),
    (unfolded, most): (usize, usize),
    read: impl Fn(&'a TrialEntry) -> Option<T>,
    show: impl Fn(&RepresentativeTrial<'a>, &T) -> Markup,
) -> Option<Section> {
    let trials: Vec<_> = representative_trials(page)
        .into_iter()
        .filter_map(|trial| Some((read(trial.entry)?, trial)))
        .collect();
    let body = html! {
        p { (introduction) }
        (folded(&trials, (unfolded, most), ("trial", "selected trial"), |(read, trial)| show(trial, read)))
    };
    (!trials.is_empty()).then_some(Section { anchor, heading, body })
}

/// Selects three kinds of trials: for each search, the last trial at the lower bound and the first missed one at the
/// upper bound; for each other setting, the trial nearest to the median; and the first void trial of the study.
fn representative_trials<'a>(page: &'a Page) -> Vec<RepresentativeTrial<'a>> {
    let settings = page.results.plan.settings.iter().enumerate();
    let mut selected: Vec<RepresentativeTrial> = settings
        .flat_map(
            |(number, setting)| {
                if setting.searched { of_search(page, number) } else { of_repeats(page, number) }
            },
        )
        .collect();
    let void = page.results.trials.iter().find(|entry| entry.trial.validity.is_void());
    selected.extend(void.map(|entry| RepresentativeTrial { entry, why: "the first void trial".to_owned() }));
    let mut seen = Vec::new();
    selected.retain(|trial| {
        let new = !seen.contains(&trial.entry.index);
        seen.push(trial.entry.index);
        new
    });
    if selected.is_empty() {
        let last = page.results.trials.last();
        selected.extend(last.map(|entry| RepresentativeTrial { entry, why: "the last trial".to_owned() }));
    }
    selected
}

/// The trials at the bounds of the first goal that has bounds.
fn of_search<'a>(page: &'a Page, setting: usize) -> Vec<RepresentativeTrial<'a>> {
    for search in page.results.searches_of(setting) {
        for (goal, (outcome, plan)) in search.goals.iter().zip(&page.results.plan.goals).enumerate() {
            let at = |load: f64| {
                let trials = page.results.trials_of(setting).filter(move |entry| entry.load == Some(load));
                trials.filter(|entry| entry.block == search.block && is_decisive(entry))
            };
            let mut selected = Vec::new();
            if let Some(lower) = &outcome.lower {
                let trial = at(lower.load).filter(|entry| entry.meets(goal, &page.results.plan)).last();
                selected.extend(trial.map(|entry| of_bound(page, entry, "last", "lower", plan, lower.load)));
            }
            if let Some(upper) = &outcome.upper {
                let trial = at(upper.load).find(|entry| !entry.meets(goal, &page.results.plan));
                let first = |entry| of_bound(page, entry, "first not met", "upper", plan, upper.load);
                selected.extend(trial.map(first));
            }
            if !selected.is_empty() {
                return selected;
            }
        }
    }
    Vec::new()
}

fn of_bound<'a>(
    page: &Page,
    entry: &'a TrialEntry,
    which: &str,
    bound: &str,
    goal: &Goal,
    load: f64,
) -> RepresentativeTrial<'a> {
    let setting =
        if page.several_settings() { format!("{}, ", page.setting(entry.setting)) } else { String::new() };
    let (goal, load) = (page.text(&goal.name), page.load(load));
    RepresentativeTrial { entry, why: format!("{setting}{which} at the {bound} bound of {goal}, {load}") }
}

fn of_repeats<'a>(page: &'a Page, setting: usize) -> Vec<RepresentativeTrial<'a>> {
    let valid = || {
        let trials = page.results.trials_of(setting);
        trials.filter(|entry| is_decisive(entry))
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
    let setting_name =
        if page.several_settings() { format!("{}, ", page.setting(setting)) } else { String::new() };
    let selected = nearest.map(|entry| RepresentativeTrial {
        entry,
        why: format!("{setting_name}nearest to the median {}", page.text(head)),
    });
    selected.into_iter().collect()
}
