//! The part of each machine, for representative trials.

use maud::{Markup, html};
use record::{HttpTrial, TrialEntry};

use super::{
    Page, Section,
    parts::{left_out, numbers, table},
    representative::{RepresentativeTrial, section_of_trials},
};
use crate::machines::{MACHINE_COLUMNS, machine_rows};

pub(super) fn section(page: &Page) -> Option<Section> {
    let introduction = "What each machine did, in the trials that are shown second by second. p50 and p99 are response times of completed \
         requests, late p99 is how late its generator sent, clock is how exactly its start is known. A time far from those of the other \
         machines has a !. The figures of the trial are merged from the machines' histograms.";
    let (texts, counts) = (("machines", "Machines", introduction), (6, page.limits.figures));
    section_of_trials(page, texts, counts, machines, |selected, http| trial_table(page, selected, http))
}

/// A trial for which other machines made the load.
fn machines(entry: &TrialEntry) -> Option<&HttpTrial> {
    entry.trial.http().filter(|http| !http.machines.is_empty())
}

fn trial_table(page: &Page, selected: &RepresentativeTrial, http: &HttpTrial) -> Markup {
    let columns = numbers(MACHINE_COLUMNS[0], &MACHINE_COLUMNS[1..]);
    let mut rows: Vec<Vec<String>> = machine_rows(http).into_iter().take(page.limits.lines).collect();
    rows.iter_mut().for_each(|row| row[0] = page.text(&row[0]));
    let caption = format!("Trial {}, {}", selected.entry.index, page.text(&selected.why));
    html! {
        (table(&caption, &columns, &rows))
        (left_out(rows.len(), http.machines.len(), "machine"))
    }
}
