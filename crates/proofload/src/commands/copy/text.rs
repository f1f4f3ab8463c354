//! The text output of `proofload copy`.

use copy::{Bottleneck, Progress, Report, Verified};
use record::units::{show_bytes, show_count};

/// Maximum number of missing files that are listed after an interrupted copy.
const MAX_SHOWN: usize = 20;

/// The progress of a copy as one line.
pub(super) fn progress(progress: &Progress) -> String {
    let elapsed_s = progress.elapsed.as_secs_f64();
    let rate = progress.done_bytes as f64 / elapsed_s.max(0.1);
    let left_s = (progress.total_bytes.saturating_sub(progress.done_bytes)) as f64 / rate.max(1.0);
    let left = if progress.done_bytes == 0 { String::new() } else { format!("  {left_s:.0} s left") };
    let lost = progress.lost.as_ref().map_or_else(String::new, |why| format!("  {why}; trying again"));
    format!(
        "{} of {}  {} of {} files  {}{left}  {} channels{lost}",
        show_bytes(progress.done_bytes),
        show_bytes(progress.total_bytes),
        show_count(progress.done_files),
        show_count(progress.total_files),
        rate_in_words(rate),
        progress.channels
    )
}

/// A count with its noun in the right number, such as `2 files`.
fn counted(count: u64, what: &str) -> String {
    format!("{} {what}{}", show_count(count), if count == 1 { "" } else { "s" })
}

fn rate_in_words(bytes_per_s: f64) -> String {
    format!("{:.1} Mbit/s", bytes_per_s * 8.0 / 1e6)
}

/// A name with escaped line breaks, so that it stays on one line.
fn one_line(name: &str) -> String {
    name.replace('\n', "\\n")
}

/// The failed files, the notes and the warnings, one line each.
pub(super) fn problems(report: &Report) -> Vec<String> {
    let failed = report
        .files
        .iter()
        .filter_map(|file| Some(format!("{}: {}", one_line(&file.source), file.error.as_ref()?)));
    let mut lines: Vec<_> = failed.collect();
    // An interrupted copy may have left thousands of files, so the list is cut.
    let more = lines.len().saturating_sub(MAX_SHOWN);
    if report.is_interrupted && more > 0 {
        lines.truncate(MAX_SHOWN);
        lines.push(format!("and {} more; --json lists all of them", show_count(more as u64)));
    }
    let warnings = report.warnings.iter().map(|words| format!("warning: {words}"));
    lines.into_iter().chain(report.notes.iter().cloned()).chain(warnings).collect()
}

/// The result of a copy or of a dry run.
pub(super) fn render(report: &Report, is_dry: bool) -> String {
    let there: Vec<_> = report.files.iter().filter(|file| file.error.is_none()).collect();
    let bytes = there.iter().fold(0_u64, |sum, file| sum.saturating_add(file.size_bytes));
    if is_dry {
        let lines = there
            .iter()
            .map(|file| format!("{} -> {} ({})\n", file.source, file.target, show_bytes(file.size_bytes)));
        return lines.collect::<String>()
            + &format!("{}, {}, would be copied\n", counted(there.len() as u64, "file"), show_bytes(bytes));
    }
    let resumed: u64 = there.iter().map(|file| file.resumed_bytes).sum();
    let mut text = format!(
        "Copied {}, {} in {:.1} s: {}",
        counted(there.len() as u64, "file"),
        show_bytes(bytes),
        report.elapsed_s,
        rate_in_words(report.carried_bytes as f64 / report.elapsed_s.max(0.001))
    );
    if let Some(steady) = steady(&report.rate_bytes_per_s) {
        text += &format!(", steady {}", rate_in_words(steady));
    }
    if resumed > 0 {
        text += &format!("; {} were there already", show_bytes(resumed));
    }
    text += &format!(
        "\n{}, {}, round trip {:.1} ms, login {:.1} s, up to {} on the way\n",
        counted(report.connections.into(), "connection"),
        counted(report.channels.into(), "channel"),
        report.round_trip_s * 1e3,
        report.login_s,
        show_bytes(report.in_flight_bytes)
    );
    if let Some(held) = &report.held_back {
        text += &held_back(held);
    }
    let of = |how: Verified| there.iter().filter(|file| file.verified == Some(how)).count() as u64;
    let ways = [
        (Verified::ByChecksum, "verified by checksums from the other machine"),
        (Verified::ReadBack, "read back over the connection"),
        (Verified::HereOnly, "not compared, only read again on this machine"),
        (Verified::No, "not verified"),
    ];
    for (how, words) in ways {
        let lacks_sum = matches!(how, Verified::ReadBack | Verified::HereOnly);
        let why = report.no_checksum_because.as_ref().filter(|_| lacks_sum);
        let why = why.map_or_else(String::new, |why| format!(": {why}"));
        if of(how) > 0 {
            text += &format!("{} {words}{why}\n", counted(of(how), "file"));
        }
    }
    text
}

/// Rate and bottleneck of copies to a host and from it.
pub(super) fn why(up: &Report, down: &Report) -> String {
    let of = |way: &str, report: &Report| {
        let rate = steady(&report.rate_bytes_per_s).map_or("unknown".to_owned(), rate_in_words);
        let held = report.held_back.as_ref().map_or_else(String::new, held_back);
        let connections = counted(report.connections.into(), "connection");
        let channels = counted(report.channels.into(), "channel");
        format!("{way}: {rate} over {connections}, {channels}. {held}")
    };
    let round_trip = format!("Round trip {:.1} ms, login {:.1} s\n", up.round_trip_s * 1e3, up.login_s);
    round_trip + &of("Upload", up) + &of("Download", down)
}

/// What limited a copy, and what would help, in one or two lines.
pub(super) fn held_back(held: &Bottleneck) -> String {
    let advice = held.advice.iter().map(|advice| format!("  would help: {advice}\n"));
    format!("Held back by {}: {}\n{}", held.cause.words(), held.evidence, advice.collect::<String>())
}

/// The mean rate without the ramp-up: leaves out the first fifth of the seconds, and the last second, which may be
/// partial.
fn steady(rates: &[f64]) -> Option<f64> {
    let rates = rates.get(rates.len() / 5..rates.len().saturating_sub(1)).filter(|rates| rates.len() >= 5)?;
    Some(rates.iter().sum::<f64>() / rates.len() as f64)
}
