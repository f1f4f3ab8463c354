//! The answer: a sentence for each goal in each setting, the bounds as a ladder, and the tables.

use maud::{Markup, html};
use record::{BoundKind, Factor};

use super::{
    Page, Section, ladder,
    parts::{Column, details, left_out, table},
};
use crate::{
    Status,
    answer::{Answer, searches_of},
    confirmed,
    summary::{self, Repeats},
    text,
};

/// A sentence each for so many answers; for more, one for each goal.
const MOST_SENTENCES: usize = 12;
/// Factors with a column of their own.
const MOST_FACTORS: usize = 4;
pub fn section(page: &Page) -> Section {
    let told = told(page);
    let shown = told.len().min(page.limits.settings);
    let body = html! {
        @if page.answers.is_empty() {
            p { "The study has no goals: it says what was measured, and nothing is met or not met." }
        } @else {
            ul.answers {
                @if told.len() > MOST_SENTENCES {
                    @for goal in 0..page.results.plan.goals.len().min(page.limits.lines) {
                        (over_settings(page, goal))
                    }
                } @else {
                    @for (answer, sentence) in &told[..shown] { (item(page, answer, sentence)) }
                    (left_out(shown, told.len(), "answer"))
                }
            }
        }
        (ladder::figure(page))
        (searches(page))
        (confirmed(page))
        (repeats(page))
        (audits(page))
    };
    Section { anchor: "answer", heading: "The answer", body }
}

/// The class that colours a status.
pub fn class(status: Status) -> &'static str {
    match status {
        Status::Met => "met",
        Status::NotMet => "not-met",
        Status::Void => "void",
        Status::Unfinished => "unfinished",
    }
}

/// One sentence for each goal of each setting, with the answer whose names and status it carries.
fn told<'a>(page: &'a Page) -> Vec<(&'a Answer, String)> {
    let same = |a: &Answer, b: &Answer| a.setting == b.setting && a.goal == b.goal;
    let mut told = Vec::new();
    for answers in page.answers.chunk_by(same) {
        match over_blocks(page, answers) {
            Some(sentence) => told.push((&answers[0], sentence)),
            None => told.extend(answers.iter().map(|answer| {
                let block =
                    answer.block.map(|block| format!(" ({})", text::block(block))).unwrap_or_default();
                (answer, format!("{}{block}", answer.sentence))
            })),
        }
    }
    told
}

/// Several searches in a sentence, if all of them found both bounds.
fn over_blocks(page: &Page, answers: &[Answer]) -> Option<String> {
    let outcomes = answers.iter().map(|answer| {
        let search =
            searches_of(page.results, answer.setting).iter().find(|s| Some(s.block) == answer.block)?;
        let outcome = search.goals.get(answer.goal).filter(|outcome| outcome.kind == BoundKind::Regular)?;
        Some((outcome.lower.as_ref()?.load, outcome.upper.as_ref()?.load))
    });
    let bounds: Vec<(f64, f64)> = outcomes.collect::<Option<_>>()?;
    let range = |of: fn(&(f64, f64)) -> f64| {
        let (least, most) =
            bounds.iter().map(of).fold((f64::INFINITY, 0.0_f64), |(l, h), v| (l.min(v), h.max(v)));
        if least < most { format!("{} to {}", page.load(least), page.load(most)) } else { page.load(most) }
    };
    Some(format!(
        "in {} searches, met up to {} (lower bounds), not met at {} (upper bounds)",
        bounds.len(),
        range(|(lower, _)| *lower),
        range(|(_, upper)| *upper)
    ))
}

/// A goal over many settings: in how many it is met, and where it is not.
fn over_settings(page: &Page, goal: usize) -> Markup {
    let of_goal: Vec<&Answer> = page.answers.iter().filter(|answer| answer.goal == goal).collect();
    let met = of_goal.iter().filter(|answer| answer.status == Status::Met).count();
    let statuses = [Status::NotMet, Status::Void, Status::Unfinished];
    let worst = statuses.into_iter().find(|status| of_goal.iter().any(|answer| answer.status == *status));
    let status = worst.unwrap_or(Status::Met);
    let others = statuses.into_iter().filter_map(|status| {
        let mut places: Vec<String> = of_goal
            .iter()
            .filter(|answer| answer.status == status)
            .map(|answer| {
                let block = answer.block.map(|block| format!(" {}", text::block(block))).unwrap_or_default();
                format!("{}{block}", page.setting(answer.setting))
            })
            .collect();
        let more = places.len().saturating_sub(MOST_SENTENCES);
        places.truncate(MOST_SENTENCES);
        if more > 0 {
            places.push(format!("{more} more"));
        }
        (!places.is_empty()).then(|| format!("; {} with {}", status.word(), places.join(", ")))
    });
    let others: String = others.collect();
    let name = page.results.plan.goals.get(goal).map_or("", |goal| goal.name.as_str());
    html! {
        li {
            span class={ "sign " (class(status)) } aria-hidden="true" { (status.sign()) }
            span.goal { bdi { (page.text(name)) } }
            ": met in " (met) " of " (of_goal.len())
            @if page.results.plan.search.is_some() { " searches" } @else { " settings" }
            (others) "."
        }
    }
}

fn item(page: &Page, answer: &Answer, sentence: &str) -> Markup {
    html! {
        li {
            span class={ "sign " (class(answer.status)) } aria-hidden="true" { (answer.status.sign()) }
            @if page.several_settings() { bdi { (page.setting(answer.setting)) } ", " }
            span.goal { bdi { (page.text(&answer.goal_name)) } }
            ": " (page.text(sentence)) "."
        }
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
                "The lower bound again"
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
                Some(at) => format!("Over its valid trials; in brackets where the true median lies at {at}"),
                None => "Over its valid trials".to_owned(),
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
        (table("Events: what was acknowledged, held against what was stored", &columns, &rows))
        (left_out(shown, all.len(), "setting"))
        (examples(page))
    }
}

/// The first findings of the audits, with where they are.
fn examples(page: &Page) -> Markup {
    let examples = page.results.trials.iter().flat_map(|entry| {
        let audit = entry.audit.iter();
        audit.flat_map(|audit| &audit.examples).map(move |example| (entry.index, example))
    });
    let rows: Vec<Vec<String>> = examples
        .take(page.limits.lines)
        .map(|(index, example)| {
            let place = match (&example.file, example.line) {
                (Some(file), Some(line)) => format!("{file}:{line}"),
                (Some(file), None) => file.clone(),
                (None, _) => "–".to_owned(),
            };
            vec![
                index.to_string(),
                example.finding.name().replace('_', " "),
                example.event.clone().unwrap_or_else(|| "–".to_owned()),
                page.text(&place),
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
        (Column::Long, "what is known"),
    ];
    details(
        "What the audits found",
        table("Findings of the audits, the first of each trial", &columns, &rows),
    )
}

fn repeats(page: &Page) -> Markup {
    let Repeats { header, rows, confidence } =
        summary::repeats(page.results, &page.readings, &page.answers, page.limits.settings);
    if rows.is_empty() {
        return html! {};
    }
    let factors = &page.results.plan.factors;
    let by_factor = (1..=MOST_FACTORS).contains(&factors.len());
    let names: Vec<String> = if by_factor {
        factors.iter().map(|factor| page.text(&factor.name)).collect()
    } else {
        vec!["setting".to_owned()]
    };
    let kinds = std::iter::once(Column::Name).chain(std::iter::repeat(Column::Short));
    let mut columns: Vec<(Column, &str)> = kinds.zip(names.iter().map(String::as_str)).collect();
    columns.extend(
        header.iter().map(|&head| (if head == "goals" { Column::Short } else { Column::Number }, head)),
    );
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
    let at = confidence.unwrap_or_else(|| "the confidence given".to_owned());
    let caption = format!(
        "Medians over the valid trials of each setting; in brackets where the true median lies at {at}"
    );
    let all = page.results.plan.settings.iter().filter(|setting| !setting.searched).count();
    html! {
        (table(&caption, &columns, &cells))
        (left_out(shown, all, "setting"))
    }
}
