//! An audit as text: the conclusion, the events by acknowledgement, and the findings.

use std::fmt::{self, Write};

use record::{
    AuditExample, AuditResult, EventOutcome,
    audit::MAX_EXAMPLES,
    units::{show_bytes, show_count},
};

pub(super) fn render(result: &AuditResult) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_all(&mut text, result);
    text
}

fn write_all(out: &mut String, result: &AuditResult) -> fmt::Result {
    writeln!(out, "{}", answer(result))?;
    for reason in &result.incomplete {
        writeln!(out, "  - {reason}")?;
    }
    write_events(out, result)?;
    write_findings(out, result)?;
    let read = &result.read;
    let per_s = read.bytes as f64 / read.elapsed_s.max(1e-9);
    writeln!(
        out,
        "\nRead         {} files, {} lines, {} in {:.2} s ({}/s)",
        show_count(read.files),
        show_count(read.lines),
        show_bytes(read.bytes),
        read.elapsed_s,
        show_bytes(per_s as u64),
    )
}

fn answer(result: &AuditResult) -> String {
    let promised = match result.level {
        None => "acknowledged event".to_owned(),
        Some(level) => format!("event acknowledged as {level}"),
    };
    match (result.is_clean(), result.is_conclusive()) {
        (true, true) => format!("Every {promised} is stored intact, and none more often than it was sent."),
        (true, false) => "Nothing may be concluded: receipts are missing.".to_owned(),
        (false, whole) => {
            let found = [
                (result.lost, "lost"),
                (result.duplicated, "duplicated"),
                (result.corrupt, "corrupt"),
                (result.never_sent, "stored and never sent"),
                (result.places.wrong, "not at the position in their receipts"),
            ];
            let found: Vec<String> = found
                .iter()
                .filter(|(n, _)| *n > 0)
                .map(|(n, what)| format!("{} {what}", show_count(*n)))
                .collect();
            let rest = if whole { "" } else { " Receipts are missing too:" };
            format!("FOUND: {}.{rest}", found.join(", "))
        }
    }
}

fn write_events(out: &mut String, result: &AuditResult) -> fmt::Result {
    writeln!(out, "\n{:<14}{:>14}{:>14}{:>14}", "Events", "sent", "stored", "missing")?;
    for outcome in EventOutcome::ALL {
        let (sent, missing) = (result.sent.of(outcome), result.missing.of(outcome));
        if sent > 0 {
            let stored = show_count(sent - missing);
            writeln!(
                out,
                "  {:<12}{:>14}{stored:>14}{:>14}",
                outcome.name(),
                show_count(sent),
                show_count(missing)
            )?;
        }
    }
    let (sent, missing) = (result.sent.total(), result.missing.total());
    let stored = show_count(sent - missing);
    writeln!(out, "  {:<12}{:>14}{stored:>14}{:>14}", "total", show_count(sent), show_count(missing))
}

fn write_findings(out: &mut String, result: &AuditResult) -> fmt::Result {
    writeln!(out)?;
    let places = &result.places;
    for (name, n, meaning) in [
        ("Lost", result.lost, "acknowledged, but not stored"),
        ("Duplicated", result.duplicated, "copies beyond the number of times an event was sent"),
        ("Corrupt", result.corrupt, "not as sent, torn, or with NUL bytes"),
        ("Never sent", result.never_sent, "stored, but never sent"),
        ("Misplaced", places.wrong, "not at the position in the receipt"),
    ] {
        writeln!(out, "{name:<13}{:>15}  {meaning}", show_count(n))?;
    }
    for (name, n, meaning) in [
        ("In position", places.right, "at the position in the receipt"),
        ("Unchecked", places.unchecked, "events whose receipts name a file that was not given"),
        ("Repeated", result.repeated, "further copies of events that the client sent again"),
        ("Out of order", result.out_of_order, "after a later event of the same client in the same file"),
        ("Refused", result.refused_stored, "stored, although the client got a refusal"),
        ("Unknown", result.unknown_stored, "stored, although the client got no answer"),
        ("Unaccounted", result.unaccounted, "stored, but their receipts are missing"),
        ("Foreign", result.foreign_events, "events of other runs, not counted"),
        ("Other lines", result.other_lines, "lines without an event"),
    ] {
        if n > 0 {
            writeln!(out, "{name:<13}{:>15}  {meaning}", show_count(n))?;
        }
    }
    let mut last = None;
    for example in &result.examples {
        if last.replace(example.finding) != Some(example.finding) {
            let name = example.finding.name().replace('_', " ");
            writeln!(out, "\nThe first {name} (at most {MAX_EXAMPLES}):")?;
        }
        writeln!(out, "  {}", example_line(example))?;
    }
    Ok(())
}

fn example_line(example: &AuditExample) -> String {
    let position = match (&example.file, example.line) {
        (Some(file), Some(line)) => format!("{file}:{line}: "),
        (Some(file), None) => format!("{file}: "),
        (None, _) => String::new(),
    };
    let event = example.event.as_ref().map_or_else(String::new, |event| format!("event {event}: "));
    format!("{position}{event}{}", example.detail)
}

#[cfg(test)]
mod tests {
    use record::{AuditFinding, EventCounts};

    use super::*;

    #[test]
    fn the_answer_comes_first_and_findings_say_where() {
        let clean = AuditResult {
            runs: 1,
            sent: EventCounts { written: 1_000, ..EventCounts::default() },
            stored: 1_000,
            ..AuditResult::default()
        };
        let text = render(&clean);
        assert!(text.starts_with("Every acknowledged event is stored"), "{text}");
        let broken = AuditResult {
            lost: 1,
            corrupt: 2,
            examples: vec![AuditExample {
                finding: AuditFinding::Corrupt,
                event: None,
                file: Some("x.log".to_owned()),
                line: Some(7),
                detail: "torn".to_owned(),
            }],
            ..clean
        };
        let text = render(&broken);
        assert!(
            text.starts_with("FOUND: 1 lost, 2 corrupt.\n") && text.contains("\n  x.log:7: torn\n"),
            "{text}"
        );
        let missing = AuditResult { incomplete: vec!["no receipts".to_owned()], ..AuditResult::default() };
        assert!(render(&missing).starts_with("Nothing may be concluded"));
    }
}
