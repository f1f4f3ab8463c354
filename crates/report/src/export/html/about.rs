//! The sections on environment, command and warnings.

use maud::html;
use record::units::{show_bytes, show_count};

use super::{
    Page, Section,
    parts::{Column, left_out, table},
};
use crate::{advice, text, warnings};

/// Maximum number of settings and trials listed with a warning.
const MAX_LOCATIONS: usize = 6;

pub(super) fn environment(page: &Page) -> Option<Section> {
    let environment = page.results.environment.as_ref()?;
    let mut facts: Vec<(&str, String)> = vec![
        ("Processor", page.text(&environment.cpu_model)),
        ("Processors used", show_count(u64::from(environment.cpus))),
        ("Memory", show_bytes(environment.memory_bytes)),
        ("System", page.text(&environment.system)),
        ("Kernel", page.text(&environment.kernel)),
        ("Virtualisation", page.text(&environment.virtualisation)),
        ("Descriptor limit of a process", show_count(environment.hard_descriptors)),
        ("Load average before", text::number(environment.load_average)),
        ("proofload", page.text(&environment.proofload_version)),
    ];
    facts.retain(|(_, value)| !value.is_empty());
    let settings: Vec<Vec<String>> = environment
        .sysctls
        .iter()
        .take(page.limits.lines)
        .map(|(name, value)| vec![page.text(name), page.text(&value.replace('\t', " "))])
        .collect();
    let body = html! {
        dl { @for (name, value) in &facts { dt { (name) } dd { (value) } } }
        @if !settings.is_empty() {
            (table("Kernel settings", &[(Column::Name, "setting"), (Column::Short, "value")], &settings))
            (left_out(settings.len(), environment.sysctls.len(), "kernel setting"))
        }
    };
    Some(Section { anchor: "environment", heading: "Environment", body })
}

/// The advice: which settings to change, and the gain.
pub(super) fn advice(page: &Page) -> Option<Section> {
    let all = advice::sentences(page.results, &page.readings);
    let shown = all.len().min(page.limits.settings);
    let body = html! {
        p {
            "By the medians of the valid trials; proofload compare shows whether repeats differ by more than chance. Put the \
             lines for a host into a file in /etc/sysctl.d on that host."
        }
        ul { @for sentence in &all[..shown] { li { bdi { (page.text(sentence)) } } } }
        (left_out(shown, all.len(), "advice"))
    };
    (!all.is_empty()).then_some(Section { anchor: "advice", heading: "What to change", body })
}

pub(super) fn command(page: &Page) -> Section {
    let plan = &page.results.plan;
    let words: Vec<String> = plan.command.iter().take(page.limits.lines * 4).cloned().collect();
    let line = text::shell_line(&words);
    let body = html! {
        p { "The same command with the same seed runs the same plan in the same order:" }
        pre { code { (text::clipped(&line, page.limits.text_chars * 8)) } }
        p.note { "Seed " (plan.seed) ". The plan is in plan.json, the trials with their full histograms are in \
         trials.jsonl." }
    };
    Section { anchor: "repeat", heading: "Repeat it", body }
}

pub(super) fn warnings(page: &Page) -> Option<Section> {
    let all = warnings::warnings(page.results);
    if all.is_empty() {
        return None;
    }
    let shown = all.len().min(page.limits.lines);
    let body = html! {
        ul { @for warning in &all[..shown] { li { bdi { (page.text(&warning.sentence(MAX_LOCATIONS))) } } } }
        (left_out(shown, all.len(), "warning"))
    };
    Some(Section { anchor: "warnings", heading: "Warnings", body })
}
