//! The void trials with their reasons, and a table of all trials.

use maud::{Markup, html};
use record::{Purpose, TrialEntry, quantity::main_figures};

use super::{
    Page, Section,
    parts::{Column, details, left_out, table},
};
use crate::{reading::Reading, text};

pub(super) fn section(page: &Page) -> Section {
    let void: Vec<&TrialEntry> =
        page.results.trials.iter().filter(|entry| entry.trial.validity.is_void()).collect();
    let all = page.results.trials.len();
    let disturbed =
        page.results.trials.iter().filter(|entry| entry.trial.told("generator_away").is_some()).count();
    let body = html! {
        @if all == 0 {
            p { "No trial was run." }
        } @else if void.is_empty() && disturbed > 0 {
            p { "No trial is void. The generator was delayed in " (disturbed) " of " (text::counted(all, "trial")) "; figures \
             that this may have changed are intervals." }
        } @else if void.is_empty() {
            p { "No trial is void: there is no sign that the generator was the limit in any of \
             the " (text::counted(all, "trial")) "." }
        } @else {
            p { (void.len()) " of " (text::counted(all, "trial")) " are void: the generator or this machine was, or may \
             have been, the limit. They decide nothing about the target." }
            (reasons(page, &void))
        }
        @if all > 0 { (details("Every trial", every_trial(page))) }
    };
    Section { anchor: "validity", heading: "Validity", body }
}

fn reasons(page: &Page, void: &[&TrialEntry]) -> Markup {
    let shown = void.len().min(page.limits.lines);
    let mut columns = vec![(Column::Name, "trial")];
    if page.several_settings() {
        columns.push((Column::Short, "setting"));
    }
    columns.extend([(Column::Number, "load"), (Column::Short, "rule"), (Column::Long, "evidence")]);
    let rows: Vec<Vec<String>> = void[..shown]
        .iter()
        .flat_map(|entry| {
            entry.trial.validity.reasons().iter().enumerate().map(|(number, reason)| {
                // A trial has one row for each reason; only the first row repeats the trial's own cells.
                let once = |cell: String| if number == 0 { cell } else { String::new() };
                let mut row = vec![once(entry.index.to_string())];
                if page.several_settings() {
                    row.push(once(page.setting(entry.setting)));
                }
                row.push(once(entry.load.map_or_else(|| "–".to_owned(), |load| page.load(load))));
                row.push(reason.rule.words().to_owned());
                row.push(page.text(&reason.evidence));
                row
            })
        })
        .collect();
    html! {
        (table("Void trials and why", &columns, &rows))
        (left_out(shown, void.len(), "void trial"))
    }
}

fn every_trial(page: &Page) -> Markup {
    let shown = page.readings.len().min(page.limits.trials);
    let mut columns = vec![(Column::Name, "trial")];
    if page.several_settings() {
        columns.push((Column::Short, "setting"));
    }
    columns.extend([(Column::Number, "block"), (Column::Word, "purpose"), (Column::Number, "load")]);
    let quantities = page.results.quantities();
    let heads: Vec<String> = main_figures(&quantities).map(|(_, column)| page.text(&column.head)).collect();
    columns.extend(heads.iter().map(|head| (Column::Number, head.as_str())));
    columns.push((Column::Word, "outcome"));
    let rows: Vec<Vec<String>> = page.readings[..shown].iter().map(|reading| row(page, reading)).collect();
    html! {
        (table("Every trial, in the order of the runs", &columns, &rows))
        (left_out(shown, page.readings.len(), "trial"))
    }
}

fn row(page: &Page, reading: &Reading) -> Vec<String> {
    let mut row = vec![reading.index.to_string()];
    if page.several_settings() {
        row.push(text::clipped(&page.results.setting_name(reading.setting), page.limits.text_chars.min(60)));
    }
    let purpose = match reading.purpose {
        Purpose::WarmUp => "warm-up",
        Purpose::Search => "search",
        Purpose::Repeat => "repeat",
        Purpose::Confirm => "confirmation",
    };
    row.extend([
        (reading.block + 1).to_string(),
        purpose.to_owned(),
        reading.load.map_or_else(|| "–".to_owned(), |load| page.load(load)),
    ]);
    row.extend(reading.figures.iter().map(|(name, figure)| text::value(name, *figure)));
    row.push(outcome(reading));
    row
}

/// The outcome of a trial in words: `met`, `not met`, `met 1 of 2`, `void`, `undecided`.
fn outcome(reading: &Reading) -> String {
    if reading.void {
        return "◇ void".to_owned();
    }
    if reading.undecided {
        return "◇ undecided".to_owned();
    }
    let judged: Vec<bool> = reading.met.iter().copied().flatten().collect();
    let met = judged.iter().filter(|&&met| met).count();
    let word = match (met, judged.len()) {
        (_, 0) => "–".to_owned(),
        (met, all) if met == all => "✓ met".to_owned(),
        (0, _) => "✗ not met".to_owned(),
        (met, all) => format!("✗ met {met} of {all}"),
    };
    if reading.response_time_grows { format!("{word}, response time growing") } else { word }
}
