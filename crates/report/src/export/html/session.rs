//! The results of the steps of sessions, for representative trials.

use maud::{Markup, html};
use record::{ScriptResult, TrialEntry};

use super::{
    Page, Section,
    parts::{left_out, numbers, table},
    representative::{RepresentativeTrial, section_of_trials},
};
use crate::plot::{short_number, short_time_us};

pub(super) fn section(page: &Page) -> Option<Section> {
    let introduction = "The results of each step of the session, in the trials that are shown second by second. Redirects that were followed \
         count as requests of their step. Times are response times of completed requests.";
    let (texts, counts) = (("steps", "Steps of the session", introduction), (6, page.limits.figures));
    section_of_trials(page, texts, counts, script, |selected, script| trial_table(page, selected, script))
}

/// The result of a session; `None` for other loads.
fn script(entry: &TrialEntry) -> Option<&ScriptResult> {
    let http = entry.trial.http()?;
    http.plan.script.as_ref().filter(|plan| plan.is_session())?;
    http.script.as_ref()
}

fn trial_table(page: &Page, selected: &RepresentativeTrial, script: &ScriptResult) -> Markup {
    let columns = numbers("step", &["completed", "failed", "p50", "p99", "max"]);
    let rows: Vec<Vec<String>> = script
        .steps
        .iter()
        .take(page.limits.lines)
        .map(|step| {
            let times = [0.5, 0.99, 1.0].map(|quantile| match step.response_time.is_empty() {
                true => "–".to_owned(),
                false => short_time_us(step.response_time.quantile_ns(quantile) as f64 / 1e3),
            });
            let counts = [step.completed, step.failed].map(|count| short_number(count as f64));
            [page.text(&step.name)].into_iter().chain(counts).chain(times).collect()
        })
        .collect();
    let ended = script.iterations;
    let caption = format!(
        "Trial {}, {}: {} iterations began, {} were completed, {} failed",
        selected.entry.index,
        page.text(&selected.why),
        short_number(ended.begun as f64),
        short_number(ended.completed as f64),
        short_number(ended.failed as f64),
    );
    html! {
        (table(&caption, &columns, &rows))
        (left_out(rows.len(), script.steps.len(), "step"))
    }
}
