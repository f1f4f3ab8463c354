//! The options of `proofload limit` and the study made from them.

mod percentiles;
mod saved;

use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};
use load::{Count, MachineLimits, Typed};
use record::{
    Goal, LoadUnit,
    units::{parse_count, parse_ratio, parse_time},
};
use search::Preset;
use settings::options::OptionSpec;
use study::{
    Begin, Search, Setup, Source, Study, Target, TrialShape, Workload,
    file::keys::{SEARCH, SEARCH_KEYS, SearchKeys, TRIAL_KEYS, TrialKeys, default_loads, parse_load},
};

use self::percentiles::PercentileBounds;
use super::{
    fleet_args::FleetArgs,
    mistakes::Mistakes,
    noise_args::NoiseArgs,
    observe_args::ObserveArgs,
    options::{Given, Table},
    workload_args::{WorkloadArgs, option_mistake},
};

const GOALS: &str = "Goals";
const OUTPUT: &str = "Output";

/// Loops of each user with the preset `jmeter`. The published test that the preset reproduces has the same number.
const JMETER_LOOPS: Count = Count(100);

const EXIT_STATUS: &str = "Exit status: 0 a load that meets all goals was found, 1 a goal is not met even at \
                           the smallest load, or a confirmation trial missed it, 2 wrong use, refused or \
                           failed, 3 void (nothing may be concluded), 130 interrupted.";

/// Find the largest number of users, rate or connections that meets the goals.
///
/// The answer is two bounds for each goal: the largest load that met it, and the smallest load that did not.
#[derive(Debug, Args)]
#[command(after_help = EXIT_STATUS)]
pub(crate) struct LimitArgs {
    /// What to increase until a goal is missed
    #[arg(value_enum)]
    unit: UnitArg,
    #[command(flatten)]
    common: WorkloadArgs<true>,
    #[command(flatten)]
    observe: ObserveArgs,
    #[command(flatten)]
    noise: NoiseArgs,
    #[command(flatten)]
    pub fleet: FleetArgs,
    /// Option of other commands; a search has --trial instead
    #[arg(short, long, value_name = "TIME", hide = true)]
    duration: Option<String>,

    /// Largest share of requests that may fail or never be sent: 0, 0.001 or 0.1% [default without other goals: what the preset allows, mostly 0]
    #[arg(long, visible_alias = "error-ratio", value_name = "SHARE", help_heading = GOALS)]
    errors: Option<String>,
    #[command(flatten)]
    percentiles: PercentileBounds,
    /// Largest 99th percentile of the time to open a connection, such as 900ms, just below the first SYN retransmission
    #[arg(long, value_name = "TIME", help_heading = GOALS)]
    connect_p99: Option<String>,
    /// Bound of any quantity of the trials, by its name: 'first_byte_p99_us <= 5ms'; repeatable
    #[arg(long = "goal", value_name = "GOAL", help_heading = GOALS)]
    other_goals: Vec<String>,

    #[command(flatten)]
    search: Given<SearchOptions>,
    #[command(flatten)]
    trial: Given<TrialOptions>,
    /// Begin at the smallest load, without first measuring 1, 4 and 16 users for a quarter of a second each; `limit rate` measures them unless --min is given
    #[arg(long, help_heading = SEARCH)]
    no_look: bool,
    /// Start no further trial after this time; the bounds found so far are the result
    #[arg(long, value_name = "TIME", help_heading = SEARCH)]
    budget: Option<String>,
    /// Void trials in a row after which a load counts as too large for this machine
    #[arg(long, value_name = "N", default_value = "5", help_heading = SEARCH)]
    void_attempts: String,

    /// Folder for the result [default: results/limit-DATE-TIME]
    #[arg(long, value_name = "FOLDER", help_heading = OUTPUT)]
    pub out: Option<PathBuf>,
    /// Resume an interrupted search with the same options; needs --out
    #[arg(long, requires = "out", help_heading = OUTPUT)]
    pub resume: bool,
    /// Raise each limit that bounded the search, and run the same load without and with the change; for a target that
    /// proofload does not run, say what may raise the limit
    #[arg(long, help_heading = SEARCH)]
    pub prove: bool,
    /// Write the result as JSON; - writes it, and nothing else, to standard output
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub json: Option<PathBuf>,
    /// Write the study file that does the same, and run nothing; variables stand in the place of secrets
    #[arg(long, value_name = "STUDY.toml", help_heading = OUTPUT, conflicts_with_all = ["json", "out", "resume", "prove", "on"])]
    pub save: Option<PathBuf>,
    /// Print no progress on standard error
    #[arg(short, long, help_heading = OUTPUT)]
    pub quiet: bool,
}

/// The option table of a study's `[search]` keys.
#[derive(Debug)]
struct SearchOptions;

impl Table for SearchOptions {
    type Config = SearchKeys;
    const HAS_POSITIONALS: bool = true;

    fn settings() -> impl Iterator<Item = &'static OptionSpec<SearchKeys>> {
        SEARCH_KEYS.iter()
    }
}

/// The keys of a study's `[trial]` that apply to a search without factors, as options.
#[derive(Debug)]
struct TrialOptions;

impl Table for TrialOptions {
    type Config = TrialKeys;
    const HAS_POSITIONALS: bool = true;

    fn settings() -> impl Iterator<Item = &'static OptionSpec<TrialKeys>> {
        TRIAL_KEYS.iter().filter(|key| !key.heading.is_empty())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum UnitArg {
    /// Users that send a request, wait for the answer and send the next
    Users,
    /// Requests per second, whatever the service does
    Rate,
    /// Connections that share the requests of --rate
    Connections,
}

impl LimitArgs {
    /// Creates the study.
    ///
    /// # Errors
    /// Every mistake in the options.
    pub(crate) fn study(&self, host: &MachineLimits) -> Result<Study, Vec<String>> {
        let mut m = Mistakes::default();
        let unit = match self.unit {
            UnitArg::Users => LoadUnit::Users,
            UnitArg::Rate => LoadUnit::Rate,
            UnitArg::Connections => LoadUnit::Connections,
        };
        let (mut keys, mut trial) = (SearchKeys::default(), TrialKeys::default());
        self.search.apply(&mut keys).into_iter().for_each(|mistake| m.add(mistake));
        self.trial.apply(&mut trial).into_iter().for_each(|mistake| m.add(mistake));
        let (least, largest) = default_loads(&unit);
        let load = |text: &str| parse_load(text, unit.is_whole());
        let min = m.optional("--min", keys.min.as_deref(), load).unwrap_or(least);
        let max = m.optional("--max", keys.max.as_deref(), load).unwrap_or(largest);
        if min >= max {
            m.add(format!("--min: {} is not below the largest load, {}", unit.show(min), unit.show(max)));
        }
        let time = |text: &str| match parse_time(text) {
            Ok(Duration::ZERO) => Err("it must be longer than 0, such as 5s".to_owned()),
            read => read.map_err(|error| error.to_string()),
        };
        let count = |text: &str| match parse_count(text) {
            Ok(count @ 1..=1_000) => Ok(count as u32),
            Ok(_) => Err("it must be 1 to 1,000".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        let preset = keys.preset.unwrap_or(Preset::Mlrsearch);
        let width = keys.width.unwrap_or_else(|| Search::default_width(preset, &unit, min..=max));
        let search = Search {
            unit: unit.clone(),
            min,
            max,
            width,
            preset: preset.name().to_owned(),
            trial_duration: keys.trial,
            repeats: keys.repeats,
            confirm: keys.confirm.unwrap_or(0),
            begin: match (&unit, preset) {
                (LoadUnit::Rate, Preset::Mlrsearch) if keys.min.is_none() && !self.no_look => Begin::Looks,
                _ => Begin::Smallest,
            },
        };
        let study = Study {
            title: format!("Limit of {} at {}", unit.name(), self.common.url()),
            seed: self.common.seed(),
            budget: m.optional("--budget", self.budget.as_deref(), time),
            factors: Vec::new(),
            settings: vec![record::Setting { searched: true, ..record::Setting::default() }],
            goals: self.goals(preset, &mut m),
            trial: TrialShape {
                // The option includes the first attempt; `void_attempts` counts only repeats.
                void_attempts: m
                    .optional("--void-attempts", Some(&self.void_attempts), count)
                    .map_or(4, |attempts| attempts.saturating_sub(1)),
                on_noise: self.noise.on_noise.unwrap_or_default(),
                ..trial.shape
            },
            observe: self.observe.observe.clone(),
            search: Some(search),
            other_searches: Vec::new(),
            noise: None,
            warnings: Vec::new(),
            source: Source::Fixed(Box::new(self.setup(preset, &mut m))),
        };
        let study = m.into_result(study)?;
        let mistakes = check_ends(&study, host, self.fleet.on.is_empty());
        if mistakes.is_empty() { Ok(study) } else { Err(mistakes) }
    }

    /// A note that times without a unit are seconds, if the command line has such a time.
    pub(crate) fn time_note(&self) -> Option<String> {
        self.common.time_note()
    }

    /// Notes for the user on the translation of curl's command line.
    pub(crate) fn curl_notes(&self) -> Vec<String> {
        self.common.curl_notes()
    }

    fn goals(&self, preset: Preset, m: &mut Mistakes) -> Vec<Goal> {
        let mut goals = Vec::new();
        let bound = |text: &str| match study::file::parse_bound(text)? {
            Duration::ZERO => Err("it must be longer than 0, such as 10ms".to_owned()),
            time => Ok(time.as_nanos() as u64),
        };
        let ratio = |text: &str| match parse_ratio(text) {
            Ok(ratio) if ratio < 1.0 => Ok(ratio),
            Ok(_) => Err("every load meets it; give a share below 1".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        goals.extend(m.optional("--errors", self.errors.as_deref(), ratio).map(Goal::errors));
        for (percentile, given) in &self.percentiles.0 {
            let goal = m.optional(&format!("--{}", percentile.name), Some(given), bound);
            goals.extend(goal.map(|bound_ns| Goal::response_time(percentile.quantile, bound_ns)));
        }
        let connect = m.optional("--connect-p99", self.connect_p99.as_deref(), bound);
        goals.extend(connect.map(|bound_ns| Goal::connect_time(0.99, bound_ns)));
        for given in &self.other_goals {
            goals.extend(m.optional("--goal", Some(given), study::file::parse_goal));
        }
        if goals.is_empty() {
            goals.push(Goal::errors(preset.loss_ratio()));
        }
        goals
    }

    fn setup(&self, preset: Preset, m: &mut Mistakes) -> Setup {
        self.common.foreign_mistakes().into_iter().for_each(|mistake| m.add(mistake));
        if self.duration.is_some() {
            m.add("--duration: use --trial for the length of the trials of a search");
        }
        let mut workload = self.common.workload();
        if workload.body.as_deref() == Some("@-") {
            m.add(
                "--body: every trial needs the body, and standard input can be read only once; write it to a file and give @FILE",
            );
        }
        if workload.receipts.is_some() {
            m.add(
                "--receipts: each trial of a search needs its own folder; use a study with an audit (proofload run), or run one \
                 trial (proofload http)",
            );
        }
        match (self.unit, &workload.rate) {
            (UnitArg::Connections, None) => {
                m.add(
                    "--rate is missing: the requests per second that the connections share (for users that each wait for \
                     their own answers, use `limit users`)",
                );
            }
            (UnitArg::Users, Some(_)) => {
                m.add("--rate: users send as soon as they have their answer; leave it out")
            }
            (UnitArg::Rate, Some(_)) => {
                m.add("--rate: the search varies the rate; bound it with --min and --max")
            }
            _ => {}
        }
        if self.unit == UnitArg::Users && preset == Preset::Jmeter && workload.loops.is_none() {
            workload.loops = Some(Typed::set(JMETER_LOOPS));
        }
        let target = Target { name: "target".to_owned(), what: workload.url.clone() };
        let workload = Workload::Http(Box::new(workload));
        Setup {
            lab: None,
            target: Some(target),
            from: Vec::new(),
            workload,
            audit: None,
            books_time: false,
            balancer: None,
            actions: Vec::new(),
        }
    }
}

/// Plans the smallest and the largest load, so that a search that would exceed this machine's limits is refused at
/// its start; `is_here`: whether this machine makes the load.
fn check_ends(study: &Study, host: &MachineLimits, is_here: bool) -> Vec<String> {
    let Some(search) = &study.search else { return Vec::new() };
    let mut mistakes = Vec::new();
    for load in [search.min, search.max] {
        let Ok(setup) = study.setup(0, Some(load)) else { continue };
        let workload = setup.workload.http().expect("`setup` makes an HTTP workload");
        match workload.plan(host) {
            Err(wrong) => {
                mistakes.extend(wrong.into_iter().map(option_mistake));
            }
            Ok(mut plan) => {
                let goals = study.goals.iter();
                mistakes.extend(goals.filter_map(|goal| {
                    Some(format!("the goal {}: {}", goal.name, study::file::unreachable(goal, &plan)?))
                }));
                if !is_here {
                    continue;
                }
                let missing = load::preflight::missing_here(&plan).into_iter().filter(|_| !plan.forced);
                mistakes.extend(missing.map(option_mistake));
                let asked = workload.fixed_by_user();
                let option = if search.unit == LoadUnit::Rate { "--connections" } else { "--max" };
                if let Err(refusals) = load::preflight::fit_or_advise(&mut plan, host, asked, option)
                    && !plan.forced
                {
                    let at_load = |refusal| format!("at {}: {refusal}", search.unit.show(load));
                    mistakes.extend(refusals.into_iter().map(at_load));
                }
            }
        }
    }
    if let Err(why) = study::plan(study, Vec::new()) {
        mistakes.push(why);
    }
    let mut seen = std::collections::BTreeSet::new();
    mistakes.retain(|mistake| seen.insert(mistake.clone()));
    mistakes
}

#[cfg(test)]
mod tests;
