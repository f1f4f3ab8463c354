//! Describes a study in words before it is run.

use std::{fmt::Write, net::SocketAddr, time::Duration};

use lab::plan::{LinkKind, Plan, Program};
use record::{
    LoadUnit, printable,
    units::{show_count, show_nominal_time_ns},
};

use super::{
    length::{show_minutes, show_minutes_alike, trial_s, worst_case},
    searches::preset_trials,
};
use crate::{
    CommandWorkload, Workload,
    study::{Fresh, Search, Setup, Study},
};

/// Number of lines that a list shows before "… and n more".
const MAX_LINES: usize = 6;
/// Maximum number of settings whose durations are computed. The others are assumed to have the mean of these.
const MAX_SETUPS: usize = 300;

impl Study {
    /// Describes what would be run: hosts, targets, workload, settings, goals and the expected duration. At most 60 lines.
    pub fn describe(&self) -> String {
        let title = printable(&self.title);
        let mut text =
            format!("{}\n", if self.title.is_empty() { "a study without a title" } else { &title });
        let mut row = |name: &str, what: &str| {
            for (number, line) in what.lines().enumerate() {
                let name = if number == 0 { name } else { "" };
                let _ = writeln!(text, "  {name:<10} {line}");
            }
        };
        let setups = self.some_setups();
        match setups.first() {
            Some(setup) => {
                if let Some(plan) = &setup.lab {
                    row("hosts", &hosts(plan));
                    row("links", &links(plan));
                    row("processes", &processes(plan, setup));
                } else {
                    row("hosts", "none: the load leaves from this machine");
                }
                row("targets", &targets(&setups));
                if let Some(balancers) = balancers(&setups) {
                    row("balancers", &balancers);
                }
                row("workload", &workload(setup, self));
            }
            None => row("hosts", "the first setting cannot be set up"),
        }
        if !self.observe.is_empty() {
            let names: Vec<String> = self.observe.iter().map(|host| printable(&host.name)).collect();
            row("observed", &shorten(&names.join(", ")));
        }
        row("factors", &self.factors_in_words());
        row("settings", &self.settings_in_words());
        row("goals", &list(self.goals.iter().map(|goal| printable(&goal.name)), "none: measurements only"));
        for search in self.search.iter().chain(&self.other_searches) {
            row("search", &search_in_words(search));
        }
        if let Some(Setup { audit: Some(audit), .. }) = setups.first() {
            let flush = seconds(audit.flush);
            row("audit", &format!("{} after each trial, within {flush}", shorten(&audit.files.join(", "))));
        }
        row("trials", &self.trials_in_words());
        row("takes", &self.time_in_words(&setups));
        let receipts = if setups.iter().any(|setup| setup.audit.is_some()) { ", receipts" } else { "" };
        row(
            "writes",
            &format!(
                "study.toml, plan.json, environment.json, trials.jsonl (one line per trial){receipts}, result.json and \
                 reports"
            ),
        );
        for warning in self.warnings.iter().take(MAX_LINES) {
            row("warning", &printable(&warning.message));
        }
        secrets::mask(&text).into_owned()
    }

    /// The setups of the first settings, at the search's largest load.
    fn some_setups(&self) -> Vec<Setup> {
        let load = self.search.as_ref().map(|search| search.max);
        let mut setups = Vec::new();
        let wanted = (0..self.settings.len().min(MAX_SETUPS)).map(|number| (number, load));
        self.each_setup(wanted, &mut |_, setup| {
            setups.extend(setup);
            true
        });
        setups
    }

    fn factors_in_words(&self) -> String {
        let factor = |factor: &record::Factor| {
            let levels = factor.levels.iter().map(|level| printable(&level.to_string()));
            format!("{}: {}", factor.name, on_a_line(levels))
        };
        let mut factors: Vec<String> = self.factors.iter().map(factor).collect();
        if let Some(LoadUnit::Factor(name)) = self.search.as_ref().map(|search| &search.unit) {
            factors.push(format!("{name}: searched for"));
        }
        list(factors.into_iter(), "none")
    }

    fn settings_in_words(&self) -> String {
        let searched = self.settings.iter().filter(|setting| setting.searched).count();
        let count = show_count(self.settings.len() as u64);
        let mut head = match (self.settings.len(), searched) {
            (_, 0) => format!("{count}, in {}, shuffled by the seed", blocks(self.trial.repeats)),
            (1, _) => format!("1, searched in {}", blocks(self.trial.repeats)),
            _ => format!(
                "{count}, of which {} {} searched, in {}, shuffled by the seed",
                show_count(searched as u64),
                if searched == 1 { "is" } else { "are" },
                blocks(self.trial.repeats)
            ),
        };
        if self.settings.iter().any(|setting| !setting.name.is_empty()) {
            let mark = |searched: bool| if searched { "  (searched)" } else { "" };
            let names =
                self.settings.iter().map(|setting| format!("{}{}", setting.name, mark(setting.searched)));
            head = format!("{head}\n{}", list(names, ""));
        }
        head
    }

    fn trials_in_words(&self) -> String {
        let trial = &self.trial;
        let mut words = Vec::new();
        words.extend(
            trial.warm_up.map(|time| format!("{} of warm-up whenever the target is new", seconds(time))),
        );
        if !trial.pause.is_zero() {
            words.push(format!("{} pause before each", seconds(trial.pause)));
        }
        words.push(match trial.fresh {
            Fresh::Setting => "new hosts and targets when the setting changes".to_owned(),
            Fresh::Trial => "new hosts and targets for each".to_owned(),
        });
        match trial.settle {
            None => words.push("waits until closed connections have released their ports".to_owned()),
            Some(Duration::ZERO) => {}
            Some(most) => {
                words.push(format!(
                    "waits up to {} until closed connections have released their ports",
                    seconds(most)
                ));
            }
        }
        words.push(format!("a void trial is repeated up to {} times", trial.void_attempts));
        words.join("; ")
    }

    /// Sum of the known durations. The number of trials of a search is not known beforehand, so the estimate ranges from two loads to the
    /// worst case.
    fn time_in_words(&self, setups: &[Setup]) -> String {
        let trial = &self.trial;
        let share = self.settings.len() as f64 / setups.len().max(1) as f64;
        let around_s = trial.pause.as_secs_f64() + trial.warm_up.map_or(0.0, |time| time.as_secs_f64());
        let (mut min_s, mut max_s, mut is_open) = (0.0, 0.0, false);
        for (setting, setup) in self.settings.iter().zip(setups) {
            match self.search_of(setting) {
                Some(search) => {
                    let (loads, at_a_load_s) = worst_case(search);
                    let confirmed_s = f64::from(search.confirm) * trial_s(search);
                    is_open |= setup.workload.ends_itself();
                    min_s += 2.0 * at_a_load_s + confirmed_s + around_s;
                    max_s += loads * at_a_load_s + confirmed_s + around_s;
                }
                None => {
                    let length = setup.workload.length_s();
                    is_open |= length.is_none();
                    let least_s = length.unwrap_or_else(|| setup.workload.least_length_s());
                    min_s += least_s + around_s;
                    max_s += least_s + around_s;
                }
            }
        }
        let scale = share * f64::from(trial.repeats);
        let (min, max) = show_minutes_alike(min_s * scale, max_s * scale);
        let mut words = format!("at least about {min}");
        if max_s > min_s {
            let _ = write!(words, ", and {max} if the search measures every load in full");
        }
        if is_open {
            words += ", plus the trials that loops or requests end";
        }
        if let Some(budget) = self.budget {
            let _ = write!(words, "; no trial begins after {}", show_minutes(budget.as_secs_f64()));
        }
        words
    }
}

fn hosts(plan: &Plan) -> String {
    let shown = plan.hosts.iter().enumerate().map(|(number, host)| {
        let address = plan.address_of(number).map_or("127.0.0.1".to_owned(), |address| address.to_string());
        format!("{} {address}", host.name)
    });
    format!("{}: {}", plan.hosts.len(), on_a_line(shown))
}

fn links(plan: &Plan) -> String {
    let link = |link: &lab::plan::Link| {
        let ends = link.ends.iter().map(|end| plan.hosts[end.host].name.clone());
        let kind = match &link.kind {
            LinkKind::Segment { .. } => "segment",
            LinkKind::Pair => "pair",
            LinkKind::Emulated(_) => "emulated link",
        };
        format!("{}: {kind} of {}", link.name, on_a_line(ends))
    };
    list(plan.links.iter().map(link), "none")
}

fn processes(plan: &Plan, setup: &Setup) -> String {
    let target = setup.target.as_ref().map(|target| format!("-{}", target.name)).unwrap_or_default();
    let is_target = |name: &str| !target.is_empty() && name.ends_with(&target);
    let others = plan.processes.iter().filter(|process| !is_target(&process.name));
    let words = others.map(|process| match &process.program {
        Program::Known(known) => format!("{}: {} on port {}", process.name, known.kind.name(), known.port),
        Program::Command(words) => format!("{}: {}", process.name, shorten(&words.join(" "))),
    });
    list(words, "none except the target")
}

fn targets(setups: &[Setup]) -> String {
    let mut targets: Vec<String> = Vec::new();
    for target in setups.iter().filter_map(|setup| setup.target.as_ref()) {
        let words = format!("{}: {}", target.name, shorten(&target.what));
        if !targets.contains(&words) {
            targets.push(words);
        }
    }
    list(targets.into_iter(), "none")
}

fn balancers(setups: &[Setup]) -> Option<String> {
    let mut balancers: Vec<String> = Vec::new();
    for setup in setups {
        let Some((balancer, plan)) = setup.balancer.as_ref().zip(setup.lab.as_ref()) else { continue };
        let (kind, servers) = (balancer.kind.name(), show_count(balancer.servers.len() as u64));
        let to = SocketAddr::new(balancer.vip, balancer.port);
        let words = format!("{kind} on {}: {to} over {servers} servers", plan.hosts[balancer.host].name);
        if !balancers.contains(&words) {
            balancers.push(words);
        }
    }
    (!balancers.is_empty()).then(|| list(balancers.into_iter(), ""))
}

fn workload(setup: &Setup, study: &Study) -> String {
    let searched =
        study.search.as_ref().filter(|_| study.settings.first().is_some_and(|first| first.searched));
    let unit = searched.map(|search| &search.unit);
    let mut words = match &setup.workload {
        Workload::Http(workload) => {
            let mut words = vec![format!("{} {}", workload.method(), shorten(&workload.url))];
            words.extend(workload.summary(unit.and_then(LoadUnit::key)));
            words
        }
        Workload::Command(workload) => command(workload, unit),
    };
    if study.settings.len() > 1 {
        words.push("in the first setting".to_owned());
    }
    words.join(", ")
}

fn command(workload: &CommandWorkload, searched: Option<&LoadUnit>) -> Vec<String> {
    let mut words = vec![shorten(&workload.in_words())];
    match searched {
        Some(LoadUnit::Copies) => words.push("copies searched for".to_owned()),
        _ if workload.copies > 1 => words.push(format!("{} at once", show_count(workload.copies.into()))),
        _ => {}
    }
    words.extend(workload.stop_after.map(|time| format!("stopped after {}", seconds(time))));
    words.extend(workload.timeout.map(|time| format!("timeout {}", seconds(time))));
    let steps = [
        ("setup", &workload.setup),
        ("prepare", &workload.prepare),
        ("conclude", &workload.conclude),
        ("cleanup", &workload.cleanup),
    ];
    let steps = steps.into_iter().filter(|(_, words)| words.is_some()).map(|(name, _)| name);
    let steps: Vec<&str> = steps.collect();
    if !steps.is_empty() {
        words.push(format!("with {}", steps.join(", ")));
    }
    words
}

fn search_in_words(search: &Search) -> String {
    let (loads, at_a_load_s) = worst_case(search);
    let (_, trials) = preset_trials(&search.preset);
    let trials = search.repeats.unwrap_or(trials);
    let confirm = match search.confirm {
        0 => String::new(),
        confirm => format!("\nthen {confirm} trials at the lower bound"),
    };
    format!(
        "{} from {} to {}, bounds {} % apart, by {}\ntrials of {} s, of which {trials} decide about a load; at \
         most {loads} loads, {} of trials a search{confirm}",
        search.unit.name(),
        search.unit.show(search.min),
        search.unit.show(search.max),
        (search.width * 1e6).round() / 1e4,
        search.preset,
        trial_s(search),
        show_minutes(loads * at_a_load_s),
    )
}

fn list(lines: impl Iterator<Item = String>, nothing: &str) -> String {
    let lines: Vec<String> = lines.collect();
    if lines.is_empty() {
        return nothing.to_owned();
    }
    let more = lines.len().saturating_sub(MAX_LINES);
    let mut shown: Vec<String> = lines.into_iter().take(MAX_LINES).map(|line| shorten(&line)).collect();
    if more > 0 {
        shown.push(format!("… and {} more", show_count(more as u64)));
    }
    shown.join("\n")
}

fn on_a_line(words: impl ExactSizeIterator<Item = String>) -> String {
    let more = words.len().saturating_sub(MAX_LINES);
    let shown = words.take(MAX_LINES).collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{shown}, … and {more} more") } else { shown }
}

fn shorten(text: &str) -> String {
    // Mask before shortening, because a part of a secret is still secret.
    let text = printable(&secrets::mask(text));
    let mut short: String = text.chars().take(120).collect();
    if text.chars().nth(120).is_some() {
        short.push('…');
    }
    short
}

fn blocks(repeats: u32) -> String {
    if repeats == 1 { "one block".to_owned() } else { format!("{repeats} blocks") }
}

fn seconds(time: Duration) -> String {
    show_nominal_time_ns(time.as_nanos() as u64)
}
