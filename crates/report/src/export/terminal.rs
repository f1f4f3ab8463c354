//! Sentences and tables for a terminal.

use std::fmt::Write;

use crate::{
    Options, Results, Status, advice,
    answer::{self, Answer},
    bounded::{self, SettingTable},
    confirmed::{self, Confirmed},
    headline, proofs,
    reading::{Reading, readings},
    summary::{self, Repeats, banner, cost_line, trials_line},
    text,
    warnings::warnings,
};
use anstyle::{AnsiColor, Style};
use comfy_table::{
    Cell, CellAlignment, ColumnConstraint, ContentArrangement, Table, TableComponent, Width, presets,
};

/// Text for standard output.
pub(crate) fn render(results: &Results, options: &Options) -> String {
    let mut out = Page { text: String::new(), options };
    // Writing to a string cannot fail.
    let _ = write_all(&mut out, results);
    out.text
}

/// Maximum number of settings and trials listed with a warning.
const MAX_LOCATIONS: usize = 4;
/// Longest name in a table, in characters.
const MAX_NAME_CHARS: usize = 90;
const HEADING: Style = Style::new().bold();
const GOOD: Style = AnsiColor::Green.on_default();
const BAD: Style = AnsiColor::Red.on_default();
const DOUBTFUL: Style = AnsiColor::Yellow.on_default();

struct Page<'a> {
    text: String,
    options: &'a Options,
}

impl Page<'_> {
    fn styled(&self, style: Style, text: &str) -> String {
        if self.options.colour { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }

    fn table(&mut self, header: &[&str], rows: Vec<Vec<String>>) -> std::fmt::Result {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING);
        table.set_style(TableComponent::HeaderLines, '─');
        table.set_style(TableComponent::MiddleHeaderIntersections, '─');
        table.set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(header.iter().map(|title| Cell::new(title).set_alignment(CellAlignment::Left)));
        let longest = longest_words(header, &rows);
        table.add_rows(rows);
        if let Some(width) = self.options.width_columns {
            table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width.max(40));
            keep_words_whole(&mut table, &longest, width);
        }
        for line in table.lines() {
            let line = line.trim_end().to_owned();
            let line = [(Status::Met, GOOD), (Status::NotMet, BAD), (Status::Void, DOUBTFUL)]
                .into_iter()
                .fold(line, |line, (status, style)| {
                    line.replace(status.sign(), &self.styled(style, status.sign()))
                });
            writeln!(self.text, "{line}")?;
        }
        Ok(())
    }
}

/// The length of the longest word in each column.
fn longest_words(header: &[&str], rows: &[Vec<String>]) -> Vec<u16> {
    let longest = |text: &str| text.split_whitespace().map(|word| word.chars().count() as u16).max();
    let longest_in_column = |(column, title): (usize, &&str)| {
        let cells = rows.iter().filter_map(|row| row.get(column)).filter_map(|cell| longest(cell));
        cells.chain(longest(title)).max().unwrap_or(0)
    };
    header.iter().enumerate().map(longest_in_column).collect()
}

/// Makes each column at least as wide as its longest word, with less padding if necessary.
fn keep_words_whole(table: &mut Table, longest: &[u16], width: u16) {
    let words: u16 = longest.iter().sum();
    let columns = longest.len() as u16;
    // A column takes its longest word, the padding on both sides and one separator.
    let Some(left) = [1, 0].into_iter().find(|left| words + columns * (left + 2) < width) else { return };
    for (column, longest) in table.column_iter_mut().zip(longest) {
        column.set_padding((left, 1));
        column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(longest + left + 1)));
    }
}

fn write_all(out: &mut Page, results: &Results) -> std::fmt::Result {
    let readings = readings(results);
    let answers = answer::answers_with(results, &readings);
    for (status, sentence) in headline::headline(results, &answers) {
        let style = match status {
            Some(Status::Met) => GOOD,
            Some(Status::NotMet) => BAD,
            Some(Status::Unfound | Status::Void | Status::Unfinished) => DOUBTFUL,
            None => HEADING,
        };
        let sentence = out.styled(style, &sentence);
        writeln!(out.text, "{sentence}")?;
    }
    writeln!(out.text)?;
    let title = out.styled(HEADING, &text::printable(&results.plan.title));
    writeln!(out.text, "{title}\n{}", text::printable(&results.plan.workload))?;
    if let Some(banner) = banner(results) {
        let banner = out.styled(BAD, &banner);
        writeln!(out.text, "\n{banner}")?;
    }
    write_searches(out, results, &answers)?;
    for confirmed in confirmed::confirmed(results) {
        write_confirmed(out, results, &confirmed)?;
    }
    write_repeats(out, results, &readings, &answers)?;
    write_settings(out, true, bounded::table(results))?;
    for proof in proofs::sentences(results) {
        writeln!(out.text, "\n{}", text::printable(&proof))?;
    }
    for sentence in advice::sentences(results, &readings) {
        writeln!(out.text, "\nAdvice: {}", text::printable(&sentence))?;
    }
    write_settings(out, results.plan.settings.len() > 1, confirmed::audit_table(results))?;
    writeln!(out.text, "\n{}", trials_line(results))?;
    for warning in warnings(results) {
        let label = out.styled(DOUBTFUL, "Warning");
        writeln!(out.text, "\n{label}: {}", warning.sentence(MAX_LOCATIONS))?;
    }
    match &out.options.page {
        Some(page) => writeln!(out.text, "\nFigures: {}", text::printable(page)),
        None => Ok(()),
    }
}

fn write_searches(out: &mut Page, results: &Results, answers: &[Answer]) -> std::fmt::Result {
    let several = results.plan.settings.len() > 1;
    for (number, setting) in results.plan.settings.iter().enumerate().filter(|(_, setting)| setting.searched)
    {
        writeln!(out.text)?;
        if several || !setting.name.is_empty() {
            let name = out.styled(HEADING, &text::printable(&results.setting_name(number)));
            writeln!(out.text, "{name}")?;
        }
        let own_answers: Vec<&Answer> = answers.iter().filter(|answer| answer.setting == number).collect();
        let blocks = own_answers.iter().any(|answer| answer.block.is_some());
        let mut header = summary::SEARCH_HEADER.to_vec();
        if blocks {
            header.insert(1, "block");
        }
        let rows = own_answers.into_iter().map(|answer| {
            let mut row = summary::search_row(answer);
            row[0] = text::clipped(&row[0], MAX_NAME_CHARS);
            if blocks {
                row.insert(1, answer.block.map_or_else(String::new, |block| (block + 1).to_string()));
            }
            row
        });
        out.table(&header, rows.collect())?;
        if several && results.trials_of(number).next().is_some() {
            writeln!(out.text, "{}", cost_line(results, number))?;
        }
    }
    Ok(())
}

fn write_confirmed(out: &mut Page, results: &Results, confirmed: &Confirmed) -> std::fmt::Result {
    let sign = confirmed.status().sign();
    let mut location = Vec::new();
    if results.plan.settings.len() > 1 {
        location.push(text::printable(&results.setting_name(confirmed.setting)));
    }
    location.extend(confirmed.block.map(text::block));
    let location = if location.is_empty() { String::new() } else { format!("{}: ", location.join(", ")) };
    writeln!(out.text, "\n{sign} {location}{}", text::printable(&confirmed.sentence()))?;
    let rows = confirmed.rows();
    if rows.is_empty() {
        return Ok(());
    }
    out.table(&confirmed::HEADER, rows)?;
    write!(out.text, "{}", summary::brackets_line(confirmed.confidence()))
}

/// A table whose first column has the names of settings; omits that column if there is only one setting.
fn write_settings(out: &mut Page, has_names: bool, table: Option<SettingTable>) -> std::fmt::Result {
    let Some((header, mut rows)) = table else { return Ok(()) };
    rows.iter_mut().for_each(|row| row[0] = text::clipped(&row[0], MAX_NAME_CHARS));
    let first = usize::from(!has_names);
    writeln!(out.text)?;
    out.table(&header[first..], rows.into_iter().map(|row| row[first..].to_vec()).collect())
}

fn write_repeats(
    out: &mut Page,
    results: &Results,
    readings: &[Reading],
    answers: &[Answer],
) -> std::fmt::Result {
    let Repeats { header, rows, confidence } = summary::repeats(results, readings, answers, usize::MAX);
    if rows.is_empty() {
        return Ok(());
    }
    let header: Vec<&str> = std::iter::once("setting").chain(header.iter().map(String::as_str)).collect();
    let rows = rows.into_iter().map(|(_, name, cells)| {
        std::iter::once(name).chain(cells).map(|cell| text::clipped(&cell, MAX_NAME_CHARS)).collect()
    });
    writeln!(out.text)?;
    out.table(&header, rows.collect())?;
    write!(out.text, "{}", summary::brackets_line(confidence))
}
