//! The causes that bounded the trials of each setting, and those excluded.

use maud::{Markup, html};

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
        @for bounded in shown.iter().take(page.limits.figures) { (rest(page, bounded)) }
    };
    (!all.is_empty()).then_some(Section { anchor: "bounded", heading: "What bounded it", body })
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
