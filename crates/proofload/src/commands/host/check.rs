//! `proofload host check`: compares the current settings with a profile, and finds faults in settings files.

use std::{
    collections::BTreeMap,
    fmt::Write,
    path::{Path, PathBuf},
};

use clap::Args;
use kernel::{
    hardware::{self, Finding},
    tune::{self, Fault, FaultKind, Justification, KNOWN, Known, Line, Machine, Wanted, faults},
};
use record::{
    input,
    units::{show_bytes, show_time_ns},
};
use serde::Serialize;

use super::{Asked, ProfileArgs};
use crate::{
    commands::mistakes::Mistakes,
    exit::{Exit, Refusal, Result},
    output::destination::{Destination, write_result},
};

const EXIT_STATUS: &str = "Exit status: 0 every setting is as the profile wants and none is faulty, 1 a setting differs, is \
                           faulty or could not be read, 2 wrong use, or a file cannot be read.";

/// Compare the kernel's settings with a profile, and say what is wrong with them or with files of settings.
///
/// Without a profile, all known settings are shown. Nothing is changed. Files are in the form of sysctl.conf.
#[derive(Debug, Args)]
#[command(after_help = EXIT_STATUS)]
pub(super) struct CheckArgs {
    #[command(flatten)]
    profile: ProfileArgs,
    /// Files of settings, such as /etc/sysctl.d/90-web.conf
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Write the result as JSON; - writes it, and nothing else, to standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The result for `--json`.
#[derive(Serialize)]
struct Report {
    /// The profile, if requested.
    profile: Option<&'static str>,
    bandwidth_delay_product_bytes: Option<u64>,
    /// The settings that the profile requires.
    wanted: Vec<Wanted>,
    /// The current values of known settings, if no profile was requested.
    present: Vec<Judged>,
    /// The settings in the files.
    lines: Vec<Judged>,
    hardware: Vec<Finding>,
    /// Whether all settings match the profile and none is faulty.
    ok: bool,
}

/// A setting and its faults.
#[derive(Serialize)]
struct Judged {
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
    name: String,
    value: String,
    unit: &'static str,
    faults: Vec<Fault>,
    /// What the setting does; `None` if unknown.
    remark: Option<&'static str>,
    /// Kernel counters that justify the setting; `None` if none do.
    justification: Option<Justification>,
}

/// Checks the settings and prints the findings.
pub(super) fn run(arguments: &CheckArgs) -> Result<Exit> {
    let mut m = Mistakes::default();
    let asked = arguments.profile.read(&mut m);
    let mut files = Vec::new();
    for path in &arguments.files {
        match input::read_text(path) {
            Ok(text) => files.push((path.as_path(), tune::parse(&text))),
            Err(error) => m.add(error),
        }
    }
    m.into_result(()).map_err(Refusal::new)?;
    let json = Destination::open_optional("--json", arguments.json.as_deref())?;
    // Reading requires weaker evidence than writing that /sys belongs to this host.
    let sys_is_own = || tune::sys_looks_own() || undo::sys_is_own();
    let report = Judge { machine: Machine { sys_is_own, ..Machine::own() } }.report(asked, &files);
    write_result(json, &report, false, || text(&report, asked))?;
    Ok(if report.ok { Exit::GoalsMet } else { Exit::GoalsNotMet })
}

/// Finds the faults of settings on this machine.
struct Judge {
    machine: Machine<'static>,
}

impl Judge {
    fn report(&self, asked: Option<Asked>, files: &[(&Path, Vec<Line>)]) -> Report {
        let wanted = asked.map_or_else(Vec::new, |asked| asked.profile.wanted(asked.path, &self.machine));
        let present = |known: &Known| {
            let mut judged = self.judge(known.name, (self.machine.read)(known.name)?, &self.machine.read);
            // Other kinds of faults matter only in settings that a person wrote, and these may be the kernel's defaults.
            judged.faults.retain(|fault| matches!(fault.kind, FaultKind::Harmful | FaultKind::WrongUnit));
            Some(judged)
        };
        let present: Vec<Judged> = if asked.is_none() && files.is_empty() {
            KNOWN.iter().filter_map(present).collect()
        } else {
            Vec::new()
        };
        let lines: Vec<Judged> =
            files.iter().flat_map(|(path, lines)| self.judge_file(path, lines)).collect();
        let judged: Vec<&Judged> = present.iter().chain(&lines).collect();
        let ok = is_ok(&judged, &wanted);
        Report {
            profile: asked.map(|asked| asked.profile.name),
            bandwidth_delay_product_bytes: asked.and_then(|asked| asked.path).map(tune::LongPath::bdp_bytes),
            wanted,
            present,
            lines,
            hardware: hardware::look(Path::new("/")),
            ok,
        }
    }

    fn judge_file(&self, path: &Path, lines: &[Line]) -> Vec<Judged> {
        let given: BTreeMap<&str, &str> = lines
            .iter()
            .filter_map(|line| {
                line.setting.as_ref().ok().map(|(name, value)| (name.as_str(), value.as_str()))
            })
            .collect();
        let others = |name: &str| {
            given.get(name).map(|value| (*value).to_owned()).or_else(|| (self.machine.read)(name))
        };
        let judge = |line: &Line| {
            let judged = match &line.setting {
                Ok((name, value)) => self.judge(name, value.clone(), &others),
                Err(text) => {
                    let reason =
                        "is not a setting, so sysctl refuses it; write one such as net.core.somaxconn = 4096";
                    let reason = reason.to_owned();
                    let faults = vec![Fault { kind: FaultKind::Malformed, reason }];
                    Judged { faults, ..self.judge("", text.clone(), &others) }
                }
            };
            Judged { file: Some(path.to_owned()), line: Some(line.number), ..judged }
        };
        lines.iter().map(judge).collect()
    }

    fn judge(&self, name: &str, value: String, others: &dyn Fn(&str) -> Option<String>) -> Judged {
        let known = tune::known(name);
        Judged {
            file: None,
            line: None,
            name: name.to_owned(),
            unit: known.map_or("", |known| known.unit),
            faults: faults(name, &value, &self.machine, others),
            value,
            remark: known.map(|known| known.remark),
            justification: self.machine.justification(name),
        }
    }
}

/// Whether no setting is faulty and all required settings have their values.
fn is_ok(judged: &[&Judged], wanted: &[Wanted]) -> bool {
    judged.iter().all(|judged| judged.faults.is_empty())
        && wanted.iter().all(|wanted| wanted.to_write.is_none() && !wanted.is_unseen)
}

fn text(report: &Report, asked: Option<Asked>) -> String {
    let mut text = String::new();
    if let Some(Asked { profile, path }) = asked {
        let _ = writeln!(text, "{}: {}", profile.name, profile.purpose);
        if let Some(path) = path {
            let _ = writeln!(
                text,
                "bandwidth-delay product: {} × {} = {} bytes ({}); a buffer holds twice as much",
                lab::link::text::show_rate(Some(path.rate_bits_per_s)),
                show_time_ns(path.rtt_ns),
                path.bdp_bytes(),
                show_bytes(path.bdp_bytes()),
            );
        }
        text += &wanted_text(&report.wanted);
    }
    let judged = || report.present.iter().chain(&report.lines);
    judged().for_each(|judged| text += &judged_text(judged));
    for Finding { what, found, advice } in &report.hardware {
        let advice = advice.as_ref().map_or_else(String::new, |advice| format!("; {advice}"));
        let _ = writeln!(text, "  {what}: {found}{advice}");
    }
    let differing = report.wanted.iter().filter(|wanted| wanted.to_write.is_some()).count();
    let faulty = judged().filter(|judged| !judged.faults.is_empty()).count();
    let unseen = report.wanted.iter().filter(|wanted| wanted.is_unseen).count();
    if unseen > 0 {
        let _ = writeln!(text, "{unseen} setting(s) could not be read.");
    }
    text += &match (differing, faulty) {
        (0, 0) if unseen > 0 => String::new(),
        (0, 0) => "Nothing needs to be changed.\n".to_owned(),
        (0, faulty) => format!("{faulty} setting(s) are faulty.\n"),
        (differing, 0) => format!("{differing} setting(s) differ; proofload host tune changes them.\n"),
        (differing, faulty) => {
            format!("{differing} setting(s) differ from the profile; {faulty} are faulty.\n")
        }
    };
    text
}

/// The settings that a profile requires, one line each.
pub(super) fn wanted_text(all: &[Wanted]) -> String {
    let line = |wanted: &Wanted| {
        let Wanted { name, now, wants, why, justification, to_write, not_applied, .. } = wanted;
        let counter = counter_text(justification.as_ref());
        match (not_applied, to_write, now.as_deref().unwrap_or_default()) {
            (Some(reason), ..) => format!("  – {name}: not applied here: {reason}\n"),
            (_, Some(_), now) => format!("  ✗ {name} = {now}, wanted {wants}: {why}{counter}\n"),
            (_, None, now) => format!("  ✓ {name} = {now}\n"),
        }
    };
    all.iter().map(line).collect()
}

fn judged_text(judged: &Judged) -> String {
    let Judged { file, line, name, value, unit, faults, remark, justification } = judged;
    let place = match (file, line) {
        (Some(file), Some(line)) => format!("{}:{line}: ", file.display()),
        _ => String::new(),
    };
    let setting = if name.is_empty() { value.clone() } else { format!("{name} = {value}") };
    let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
    let mut text = match (&faults[..], remark) {
        ([], Some(remark)) => format!("  ✓ {place}{setting}{unit}: {remark}"),
        ([], None) => format!("  ✓ {place}{setting}"),
        (faults, _) => {
            let reasons = faults.iter().map(|fault| format!("{}: {}", words(fault.kind), fault.reason));
            format!("  ✗ {place}{setting}: {}", reasons.collect::<Vec<_>>().join("; "))
        }
    };
    text += &counter_text(justification.as_ref());
    text + "\n"
}

fn counter_text(justification: Option<&Justification>) -> String {
    let Some(Justification { counter, now }) = justification else { return String::new() };
    let now = now.map_or_else(|| "this kernel does not count it".to_owned(), |now| format!("now {now}"));
    format!(" [justified if {counter} rises; {now}]")
}

fn words(kind: FaultKind) -> &'static str {
    match kind {
        FaultKind::Obsolete => "obsolete",
        FaultKind::WrongUnit => "wrong unit",
        FaultKind::NoEffect => "without effect",
        FaultKind::Misunderstood => "misunderstood",
        FaultKind::Harmful => "harmful",
        FaultKind::Malformed => "malformed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_looked_at_is_not_as_wanted() {
        let report = |sys_is_own| {
            let machine =
                Machine { sys_is_own, is_initial: false, read: &|_| Some("1".to_owned()), ..Machine::own() };
            let wanted = Wanted::asked("nosuch.txqueuelen", "1", &machine);
            Report {
                ok: is_ok(&[], std::slice::from_ref(&wanted)),
                wanted: vec![wanted],
                present: Vec::new(),
                ..Judge { machine }.report(None, &[])
            }
        };
        let (seen, unseen) = (report(|| true), report(|| false));
        assert!(seen.ok && !unseen.ok);
        let last = |report: &Report| text(report, None).lines().last().unwrap().to_owned();
        assert_eq!(last(&seen), "Nothing needs to be changed.");
        assert_eq!(last(&unseen), "1 setting(s) could not be read.");
    }
}
