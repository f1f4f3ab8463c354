//! Output for GitHub jobs: a summary in Markdown, and lines that become errors and warnings of the job.

use std::fmt::Write;

use crate::{
    Results, Status, advice,
    answer::{self, Answer},
    bounded, confirmed, headline,
    reading::{Reading, readings},
    summary::{self, Repeats, banner, cost_line, trials_line},
    text,
    warnings::warnings,
};

/// Maximum number of settings and trials listed with a warning.
const MAX_LOCATIONS: usize = 4;

/// Markdown for the file that `GITHUB_STEP_SUMMARY` names.
pub(crate) fn render(results: &Results) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write_summary(&mut out, results);
    out
}

/// `::error::` and `::warning::` lines for standard output.
pub(crate) fn render_annotations(results: &Results) -> String {
    let title = text::clipped(&results.plan.title, 80);
    let not_met = |setting: usize, sentence: String| {
        let message = format!("{}: {sentence}", results.setting_name(setting));
        let message = message_escaped(&text::printable(&message));
        format!("::error title={}::{message}\n", property_escaped(&title))
    };
    let audits = confirmed::audited(results).into_iter();
    let audits = audits.filter(|audited| audited.status() == Status::NotMet);
    let audits: String = audits.map(|audited| not_met(audited.setting, audited.sentence())).collect();
    let confirmed = confirmed::confirmed(results).into_iter();
    let unconfirmed = confirmed.filter(|confirmed| confirmed.status() == Status::NotMet);
    let unconfirmed: String =
        unconfirmed.map(|confirmed| not_met(confirmed.setting, confirmed.sentence())).collect();
    let lines = answer::answers(results).into_iter().filter_map(|answer| {
        let command = match answer.status {
            Status::NotMet | Status::Void => "error",
            Status::Unfound | Status::Unfinished => "warning",
            Status::Met => return None,
        };
        let mut setting = String::new();
        if results.plan.settings.len() > 1 {
            setting = format!("{}: ", text::printable(&results.setting_name(answer.setting)));
        }
        let block = answer.block.map(|block| format!("{}: ", text::block(block))).unwrap_or_default();
        let message = message_escaped(&format!("{setting}{block}{}", answer.sentence));
        Some(format!("::{command} title={}::{message}\n", property_escaped(&title)))
    });
    lines.collect::<String>() + &unconfirmed + &audits
}

fn write_summary(out: &mut String, results: &Results) -> std::fmt::Result {
    let readings = readings(results);
    let answers = answer::answers_with(results, &readings);
    writeln!(out, "## {}\n", markdown(&results.plan.title))?;
    for (_, sentence) in headline::headline(results, &answers) {
        writeln!(out, "**{}**\n", markdown(&sentence))?;
    }
    writeln!(out, "{}\n", markdown(&results.plan.workload))?;
    if let Some(banner) = banner(results) {
        writeln!(out, "> **{}**\n", markdown(&banner))?;
    }
    write_searches(out, results, &answers)?;
    write_confirmed(out, results)?;
    write_repeats(out, results, &readings, &answers)?;
    if let Some((header, rows)) = bounded::table(results) {
        write_table(out, &header, &rows)?;
    }
    for sentence in advice::sentences(results, &readings) {
        writeln!(out, "Advice: {}\n", markdown(&sentence))?;
    }
    if let Some((header, rows)) = confirmed::audit_table(results) {
        write_table(out, &header, &rows)?;
    }
    writeln!(out, "{}\n", trials_line(results))?;
    for warning in warnings(results) {
        writeln!(out, "- Warning: {}", markdown(&warning.sentence(MAX_LOCATIONS)))?;
    }
    writeln!(out, "\nRepeat it:\n\n{}", fenced(&text::shell_line(&results.plan.command)))
}

fn write_searches(out: &mut String, results: &Results, answers: &[Answer]) -> std::fmt::Result {
    let several = results.plan.settings.len() > 1;
    for (number, _) in results.plan.settings.iter().enumerate().filter(|(_, setting)| setting.searched) {
        if several {
            writeln!(out, "### {}\n", markdown(&results.setting_name(number)))?;
        }
        let rows: Vec<Vec<String>> = answers
            .iter()
            .filter(|answer| answer.setting == number)
            .map(|answer| {
                let mut row = summary::search_row(answer);
                row[0].extend(answer.block.map(|block| format!(" ({})", text::block(block))));
                row
            })
            .collect();
        write_table(out, &summary::SEARCH_HEADER, &rows)?;
        if several {
            writeln!(out, "{}\n", cost_line(results, number))?;
        }
    }
    Ok(())
}

fn write_confirmed(out: &mut String, results: &Results) -> std::fmt::Result {
    for confirmed in confirmed::confirmed(results) {
        let mut words = Vec::new();
        if results.plan.settings.len() > 1 {
            words.push(results.setting_name(confirmed.setting));
        }
        words.extend(confirmed.block.map(text::block));
        words.push(confirmed.sentence());
        writeln!(out, "{} {}\n", confirmed.status().sign(), markdown(&words.join(", ")))?;
        write_table(out, &confirmed::HEADER, &confirmed.rows())?;
        write_brackets(out, confirmed.confidence())?;
    }
    Ok(())
}

fn write_repeats(
    out: &mut String,
    results: &Results,
    readings: &[Reading],
    answers: &[Answer],
) -> std::fmt::Result {
    let Repeats { header, rows, confidence } = summary::repeats(results, readings, answers, usize::MAX);
    if rows.is_empty() {
        return Ok(());
    }
    let header: Vec<&str> = std::iter::once("setting").chain(header.iter().map(String::as_str)).collect();
    let rows = rows.into_iter().map(|(_, name, cells)| std::iter::once(name).chain(cells).collect());
    write_table(out, &header, &rows.collect::<Vec<_>>())?;
    write_brackets(out, confidence)
}

fn write_brackets(out: &mut String, confidence: Option<String>) -> std::fmt::Result {
    if confidence.is_some() { writeln!(out, "{}", summary::brackets_line(confidence)) } else { Ok(()) }
}

fn write_table(out: &mut String, header: &[&str], rows: &[Vec<String>]) -> std::fmt::Result {
    writeln!(out, "| {} |", header.join(" | "))?;
    writeln!(out, "|{}", "---|".repeat(header.len()))?;
    for row in rows {
        let cells: Vec<String> = row.iter().map(|cell| markdown(cell)).collect();
        writeln!(out, "| {} |", cells.join(" | "))?;
    }
    writeln!(out)
}

/// Escapes text so that Markdown does not interpret it.
fn markdown(text: &str) -> String {
    let mut escaped = String::new();
    for c in text::printable(text).chars() {
        match c {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            // The escape prevents links, and also mentions, because these would notify people.
            '@' => escaped.push_str("&#64;"),
            ':' => escaped.push_str("&#58;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' | '~' | '$' => {
                escaped.push('\\');
                escaped.push(c);
            }
            c => escaped.push(c),
        }
    }
    // GitHub also turns names that start with `www.` into links.
    escaped.replace("www.", "www&#46;")
}

/// A code block with a fence longer than any run of backticks in the code.
fn fenced(code: &str) -> String {
    let longest = code.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}sh\n{code}\n{fence}")
}

fn message_escaped(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn property_escaped(text: &str) -> String {
    message_escaped(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn foreign_text_is_escaped(text in any::<String>()) {
            let shown = markdown(&text);
            prop_assert!(!shown.contains(['<', '>', '@', '\n']));
            let code = fenced(&text::printable(&text));
            let fence: String = code.chars().take_while(|&c| c == '`').collect();
            prop_assert_eq!(code.matches(&fence).count(), 2);
            let property = property_escaped(&text::printable(&text));
            prop_assert!(!property.contains([':', ',', '\n']));
        }
    }
}
