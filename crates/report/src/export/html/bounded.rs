//! The causes that bounded the trials of each setting, and those excluded.

use maud::{Markup, html};
use record::{TimePart, Verdict};

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

/// The time of the users of a setting's valid trials, as a bar with its parts, the longest first. Empty for programs.
fn users_time(page: &Page, bounded: &Bounded<'_>) -> Markup {
    let of_setting = page.results.trials.iter().filter(|entry| entry.setting == bounded.setting);
    let valid = of_setting.filter(|entry| !entry.trial.validity.is_void());
    let parts = mean_account(valid.filter_map(|entry| {
        let total_s = entry.trial.http()?.users_time.total_s();
        Some((total_s, &entry.trial.verdict.as_ref()?.account[..]))
    }));
    let verdict = Verdict { account: parts, ..Verdict::default() };
    let words = verdict.account_in_words();
    let words = format!("Users' time, {}: {words}", page.results.setting_name(bounded.setting));
    html! {
        @if !verdict.account.is_empty() {
            figure {
                div.states {
                    @for part in &verdict.account {
                        span class={ "state-" (format!("{:?}", part.state).to_lowercase()) }
                            style={ "width:" (format!("{:.2}", part.share * 100.0)) "%" }
                            title=(page.text(&part.state_in_words())) {}
                    }
                }
                figcaption { bdi { (page.text(&words)) } }
            }
        }
    }
}

/// The mean of accounts, each weighted with its time.
fn mean_account<'a>(accounts: impl Iterator<Item = (f64, &'a [TimePart])>) -> Vec<TimePart> {
    let (mut all_s, mut parts) = (0.0, Vec::<TimePart>::new());
    for (total_s, account) in accounts.filter(|(_, account)| !account.is_empty()) {
        all_s += total_s;
        for part in account {
            let of = |part: &TimePart| (part.state, part.place.clone(), part.program.clone());
            match parts.iter_mut().find(|known| of(known) == of(part)) {
                Some(known) => known.share += part.share * total_s,
                None => parts.push(TimePart { share: part.share * total_s, ..part.clone() }),
            }
        }
    }
    parts.iter_mut().for_each(|part| part.share /= all_s);
    parts.sort_by(|a, b| b.share.total_cmp(&a.share));
    parts
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
