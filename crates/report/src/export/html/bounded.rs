//! The causes that bounded the trials of each setting, and those excluded.

use maud::{Markup, html};
use record::UsersTime;

use super::{
    Page, Section,
    parts::{Column, left_out, table},
};
use crate::{
    bounded::{self, Bounded},
    proofs,
};

pub(super) fn section(page: &Page) -> Option<Section> {
    let all = bounded::bounded(page.results);
    let shown = &all[..all.len().min(page.limits.settings)];
    let heads = bounded::HEADER.into_iter().zip([Column::Short, Column::Short, Column::Long, Column::Word]);
    let columns: Vec<(Column, &str)> = std::iter::once((Column::Name, "setting"))
        .chain(heads.map(|(head, column)| (column, head)))
        .collect();
    let cells = |bounded: &Bounded<'_>| {
        let name = page.results.setting_name(bounded.setting);
        std::iter::once(name).chain(bounded.row()).map(|cell| page.text(&cell)).collect()
    };
    let rows: Vec<Vec<String>> = shown.iter().map(cells).collect();
    let body = html! {
        p {
            "What kept the trials of each setting from carrying more, according to the counters of the kernels. For a \
             search: what kept the trials that missed a goal. The rules are in docs/verdict.md."
        }
        (table("What bounded each setting", &columns, &rows))
        (left_out(shown.len(), all.len(), "setting"))
        @for proof in proofs::sentences(page.results) { p { bdi { (page.text(&proof)) } } }
        @for bounded in shown.iter().take(page.limits.figures) {
            (users_time(page, bounded))
            (rest(page, bounded))
        }
    };
    (!all.is_empty()).then_some(Section { anchor: "bounded", heading: "What bounded it", body })
}

/// The time of the users of a setting's valid trials, as a bar with a part for each state. Empty for programs.
fn users_time(page: &Page, bounded: &Bounded<'_>) -> Markup {
    let of_setting = page.results.trials.iter().filter(|entry| entry.setting == bounded.setting);
    let valid = of_setting.filter(|entry| !entry.trial.validity.is_void());
    let mut users = UsersTime::default();
    valid.filter_map(|entry| entry.trial.http()).for_each(|http| users.merge(&http.users_time));
    let shares = users.shares();
    let words = format!("Users' time, {}: {}", page.results.setting_name(bounded.setting), users.in_words());
    html! {
        @if !shares.is_empty() {
            figure {
                div.states {
                    @for (state, share) in &shares {
                        span class={ "state-" (state.replace(' ', "-")) } style={ "width:" (format!("{:.2}", share * 100.0)) "%" } title=(state) {}
                    }
                }
                figcaption { bdi { (page.text(&words)) } }
            }
        }
    }
}

/// The other causes that the verdict names, and what it excludes or misses.
fn rest(page: &Page, bounded: &Bounded<'_>) -> Markup {
    let verdict = bounded.bounding.verdict;
    let others = verdict.bottlenecks.iter().skip(1).map(|next| ("also", next.cause, &next.evidence));
    let excluded = verdict.excluded.iter().map(|excluded| ("not", excluded.cause, &excluded.evidence));
    let summary = format!("What else was seen: {}", page.results.setting_name(bounded.setting));
    html! {
        details {
            summary { bdi { (page.text(&summary)) } }
            ul {
                @for (what, cause, evidence) in others.chain(excluded) {
                    li { (what) " " (cause.words()) ": " bdi { (page.text(evidence)) } }
                }
                @for missing in &verdict.missing { li { "not known: " bdi { (page.text(missing)) } } }
            }
        }
    }
}
