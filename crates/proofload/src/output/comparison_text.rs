//! A comparison as text: a table with one row per quantity, then the overall verdict and the warnings.

use comfy_table::{CellAlignment, Table, TableComponent, presets};
use record::printable;
use record::units::show_number;
use report::show_quantity;
use search::statistics::{Scale, Verdict};
use study::compare::{Comparison, Gate, Overall, Row};

/// Renders comparisons that have the same A, one after the other.
pub(crate) fn render_ranking(ranked: &[Comparison]) -> String {
    let texts =
        ranked.iter().enumerate().map(|(at, comparison)| format!("{}.\n{}", at + 1, render(comparison)));
    texts.collect::<Vec<_>>().join("\n")
}

pub(crate) fn render(comparison: &Comparison) -> String {
    let mut out = format!("A  {}\nB  {}\n\n", printable(&comparison.a), printable(&comparison.b));
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_style(TableComponent::HeaderLines, '─');
    table.set_header(["setting", "quantity", "A", "B", "B vs. A", "interval", "detectable", "verdict"]);
    table.add_rows(comparison.rows.iter().map(cells));
    for column in 2..6 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for line in table.lines() {
        out += line.trim_end();
        out.push('\n');
    }
    out += &format!("\n{}\n", overall(comparison));
    for warning in &comparison.warnings {
        out += &format!("\nWarning: {}\n", printable(&warning.message));
    }
    let mut seen: Vec<&str> = Vec::new();
    for warning in comparison.rows.iter().flat_map(|row| &row.statistics.warnings) {
        if !seen.contains(&warning.message.as_str()) {
            seen.push(&warning.message);
            out += &format!("\nWarning: {}\n", printable(&warning.message));
        }
    }
    out
}

fn cells(row: &Row) -> [String; 8] {
    let statistics = &row.statistics;
    // The difference of two shares is in percentage points.
    let difference = |value: f64| match row.quantity.ends_with("_ratio") {
        true => format!("{:.3} pp", value * 100.0),
        false => show_quantity(&row.quantity, value),
    };
    let effect = |value: f64| match statistics.scale {
        Scale::Ratio => format!("{:+.2} %", (value - 1.0) * 100.0),
        Scale::Difference if value > 0.0 => format!("+{}", difference(value)),
        Scale::Difference => difference(value),
    };
    let quantity = match &row.goal {
        Some(goal) => format!("{} ({})", row.quantity, printable(goal)),
        None => row.quantity.clone(),
    };
    let resolvable = match (statistics.resolvable, statistics.scale) {
        (Some(share), Scale::Ratio) => format!("{:.1} %", share * 100.0),
        (Some(value), Scale::Difference) => difference(value),
        (None, _) => "–".to_owned(),
    };
    let verdict = match statistics.verdict {
        Verdict::ABetter => "A is better",
        Verdict::BBetter => "B is better",
        Verdict::NoDifferenceShown => "no difference shown",
        Verdict::CannotTell => "cannot tell",
    };
    let gate = match row.gate {
        Some(Gate::Failed) => "; worse than allowed",
        Some(Gate::Undecided) => "; may be worse than allowed",
        Some(Gate::Passed) | None => "",
    };
    [
        printable(&row.setting),
        quantity,
        show_quantity(&row.quantity, row.a_median),
        show_quantity(&row.quantity, row.b_median),
        effect(statistics.effect),
        format!("{} to {}", effect(statistics.low), effect(statistics.high)),
        resolvable,
        format!("{verdict}{gate}"),
    ]
}

fn overall(comparison: &Comparison) -> String {
    let verdict = match comparison.verdict {
        Overall::ABetter => "A is better.",
        Overall::BBetter => "B is better.",
        Overall::Mixed => "A is better in some quantities, B in others.",
        Overall::NoDifferenceShown => {
            "No difference shown. A and B may still differ by less than the column “detectable” says."
        }
        Overall::CannotTell => "These runs cannot show whether A and B differ: the warnings say why.",
    };
    let gate = match comparison.gate {
        Some(Gate::Passed) => " B is no worse than allowed.",
        Some(Gate::Undecided) => " These runs cannot show whether B is worse than allowed.",
        Some(Gate::Failed) => " B is worse than allowed.",
        None => "",
    };
    format!(
        "{verdict}{gate} (Confidence of all verdicts together: {} %.)",
        show_number(comparison.confidence * 100.0)
    )
}
