//! The answers: sentences, the bounds as a chart, and the tables.

use maud::{Markup, html};
use record::Factor;

use super::{
    Page, Section, ladder,
    parts::{Column, details, left_out, table},
};
use crate::{
    Status, confirmed, headline,
    summary::{self, Repeats},
    text,
};

/// If there are more factors than this, they share one column of the table.
const MAX_FACTOR_COLUMNS: usize = 4;

/// The sentences at the top of the page.
pub(super) fn headline(page: &Page) -> Markup {
    let sentences = headline::headline(page.results, &page.answers);
    let shown = sentences.len().min(page.limits.settings);
    html! {
        ul.answers {
            @for (status, sentence) in &sentences[..shown] {
                li {
                    @if let Some(status) = status {
                        span class={ "sign " (class(*status)) } aria-hidden="true" { (status.sign()) }
                    }
                    bdi { (page.text(sentence)) }
                }
            }
            (left_out(shown, sentences.len(), "answer"))
        }
    }
}

pub(super) fn section(page: &Page) -> Section {
    let body = html! {
        (ladder::figure(page))
        (searches(page))
        (confirmed(page))
        (repeats(page))
        (audits(page))
    };
    Section { anchor: "answer", heading: "The answer", body }
}

/// The CSS class of a status.
pub(super) fn class(status: Status) -> &'static str {
    match status {
        Status::Met => "met",
        Status::NotMet => "not-met",
        Status::Unfound | Status::Void => "void",
        Status::Unfinished => "unfinished",
    }
}

fn searches(page: &Page) -> Markup {
    let searched: Vec<usize> = (0..page.results.plan.settings.len())
        .filter(|&number| page.results.plan.settings[number].searched)
        .take(page.limits.settings)
        .collect();
    if searched.is_empty() {
        return html! {};
    }
    let several = page.several_settings();
    let blocks = page.answers.iter().any(|answer| answer.block.is_some());
    let mut columns: Vec<(Column, &str)> = vec![
        (Column::Name, summary::SEARCH_HEADER[0]),
        (Column::Number, summary::SEARCH_HEADER[1]),
        (Column::Number, summary::SEARCH_HEADER[2]),
        (Column::Short, summary::SEARCH_HEADER[3]),
        (Column::Number, summary::SEARCH_HEADER[4]),
    ];
    if blocks {
        columns.insert(1, (Column::Number, "block"));
    }
    if several {
        columns.insert(0, (Column::Name, "setting"));
    }
    let answers = page.answers.iter().filter(|answer| searched.contains(&answer.setting));
    let rows: Vec<Vec<String>> = answers
        .take(page.limits.settings)
        .map(|answer| {
            let mut row: Vec<String> =
                summary::search_row(answer).iter().map(|cell| page.text(cell)).collect();
            if blocks {
                row.insert(1, answer.block.map_or_else(String::new, |block| (block + 1).to_string()));
            }
            if several {
                row.insert(0, page.setting(answer.setting));
            }
            row
        })
        .collect();
    html! {
        (table("Bounds of every goal", &columns, &rows))
    }
}

fn confirmed(page: &Page) -> Markup {
    let all = confirmed::confirmed(page.results);
    let shown = all.len().min(page.limits.figures);
    html! {
        @for confirmed in &all[..shown] {
            @let status = confirmed.status();
            h3 {
                "Further trials at the lower bound"
                @if page.several_settings() { ", " bdi { (page.setting(confirmed.setting)) } }
                @if let Some(block) = confirmed.block { ", " (text::block(block)) }
            }
            p {
                span class={ "sign " (class(status)) } aria-hidden="true" { (status.sign()) } " "
                bdi { (page.text(&confirmed.sentence())) } "."
            }
            @let columns = [Column::Name, Column::Number, Column::Number];
            @let columns: Vec<(Column, &str)> = columns.into_iter().zip(confirmed::HEADER).collect();
            @let caption = match confirmed.confidence() {
                Some(confidence) => format!("Over the valid further trials; in brackets the interval of the true median at {confidence} confidence"),
                None => "Over the valid further trials".to_owned(),
            };
            (table(&caption, &columns, &confirmed.rows()))
        }
        (left_out(shown, all.len(), "confirmation"))
    }
}

fn audits(page: &Page) -> Markup {
    let all = confirmed::audited(page.results);
    if all.is_empty() {
        return html! {};
    }
    let several = page.several_settings();
    let counts = std::iter::once(Column::Name).chain(std::iter::repeat(Column::Number));
    let mut columns: Vec<(Column, &str)> = counts.zip(confirmed::AUDIT_HEADER).collect();
    if several {
        columns.insert(0, (Column::Name, "setting"));
    }
    let shown = all.len().min(page.limits.settings);
    let rows: Vec<Vec<String>> = all[..shown]
        .iter()
        .map(|audited| {
            let name = several.then(|| page.setting(audited.setting));
            name.into_iter().chain(audited.row()).collect()
        })
        .collect();
    html! {
        (table("Events: acknowledged compared with stored", &columns, &rows))
        (left_out(shown, all.len(), "setting"))
        (examples(page))
    }
}

/// The first findings of the audits and their positions.
fn examples(page: &Page) -> Markup {
    let examples = page.results.trials.iter().flat_map(|entry| {
        let audit = entry.audit.iter();
        audit.flat_map(|audit| &audit.examples).map(move |example| (entry.index, example))
    });
    let rows: Vec<Vec<String>> = examples
        .take(page.limits.lines)
        .map(|(index, example)| {
            let position = match (&example.file, example.line) {
                (Some(file), Some(line)) => format!("{file}:{line}"),
                (Some(file), None) => file.clone(),
                (None, _) => "–".to_owned(),
            };
            vec![
                index.to_string(),
                example.finding.name().replace('_', " "),
                example.event.clone().unwrap_or_else(|| "–".to_owned()),
                page.text(&position),
                page.text(&example.detail),
            ]
        })
        .collect();
    if rows.is_empty() {
        return html! {};
    }
    let columns = [
        (Column::Name, "trial"),
        (Column::Word, "finding"),
        (Column::Word, "event"),
        (Column::Short, "where"),
        (Column::Long, "detail"),
    ];
    details("What the audits found", table("The first findings of each audited trial", &columns, &rows))
}

fn repeats(page: &Page) -> Markup {
    let Repeats { header, rows, confidence } =
        summary::repeats(page.results, &page.readings, &page.answers, page.limits.settings);
    if rows.is_empty() {
        return html! {};
    }
    let factors = &page.results.plan.factors;
    let by_factor = (1..=MAX_FACTOR_COLUMNS).contains(&factors.len());
    let names: Vec<String> = if by_factor {
        factors.iter().map(|factor| page.text(&factor.name)).collect()
    } else {
        vec!["setting".to_owned()]
    };
    let kinds = std::iter::once(Column::Name).chain(std::iter::repeat(Column::Short));
    let mut columns: Vec<(Column, &str)> = kinds.zip(names.iter().map(String::as_str)).collect();
    let heads = header.iter().map(String::as_str);
    columns.extend(heads.map(|head| (if head == "goals" { Column::Short } else { Column::Number }, head)));
    let level = |number: usize, factor: &Factor| {
        let level = page.results.plan.settings[number].levels.get(&factor.name);
        level.map_or_else(|| "–".to_owned(), |level| page.text(&level.to_string()))
    };
    let shown = rows.len();
    let cells = rows.into_iter().map(|(number, name, cells)| {
        let names: Vec<String> = if by_factor {
            factors.iter().map(|factor| level(number, factor)).collect()
        } else {
            vec![page.text(&name)]
        };
        names.into_iter().chain(cells.iter().map(|cell| page.text(cell))).collect()
    });
    let cells: Vec<Vec<String>> = cells.collect();
    let confidence = confidence.unwrap_or_else(|| "the given".to_owned());
    let caption = format!(
        "Medians over the valid trials of each setting; in brackets the interval of the true median at {confidence} confidence"
    );
    let all = page.results.plan.settings.iter().filter(|setting| !setting.searched).count();
    html! {
        (table(&caption, &columns, &cells))
        (left_out(shown, all, "setting"))
    }
}
