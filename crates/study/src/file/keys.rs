//! The keys of the tables `[search]` and `[trial]`. Those with a heading are also options of `proofload limit`.

use std::time::Duration;

use record::{
    LoadUnit, OnNoise,
    units::{parse_count, parse_rate, parse_ratio, parse_time},
};
use search::Preset;
use settings::options::{Kind, OptionSpec, error_text, whole};

use crate::study::{Fresh, TrialShape};

/// Heading of the options in the help of `proofload limit`.
pub const SEARCH: &str = "Search";

/// The shortest duration of a trial.
const MIN_TRIAL: Duration = Duration::from_millis(100);
const PRESETS: &[&str] = &["mlrsearch", "rfc2544", "tst009", "csit-ndr", "csit-pdr", "jmeter", "noise-aware"];
const FRESH: &[&str] = &["setting", "trial", "hosts"];
const ON_NOISE: &[&str] = &["widen", "void", "wait"];

/// The keys that a file or command line gives for `[search]`, except those that refer to other parts of the study.
#[derive(Debug, Clone, Default)]
pub struct SearchKeys {
    /// Smallest load, as text for [`parse_load`].
    pub min: Option<String>,
    /// Largest load, as text for [`parse_load`].
    pub max: Option<String>,
    /// Requested distance between the bounds, as a share of the load.
    pub width: Option<f64>,
    /// How loads are selected and judged.
    pub preset: Option<Preset>,
    /// Duration of a full trial.
    pub trial: Option<Duration>,
    /// Number of full trials that decide about a load.
    pub repeats: Option<u32>,
    /// Number of trials at the lower bound after the search.
    pub confirm: Option<u32>,
}

/// The keys of `[trial]`.
#[derive(Debug, Clone, Default)]
pub struct TrialKeys {
    /// How trials are run.
    pub shape: TrialShape,
    /// Duration of a trial.
    pub duration: Option<Duration>,
    /// Whether processor time is measured for each host.
    pub processor_time: bool,
}

/// The rows of `[search]`.
pub static SEARCH_KEYS: &[OptionSpec<SearchKeys>] = settings::option_table! {
    /// Smallest load; a study must give it, and limit begins at 1 user, 1 connection or 10 requests per second unless it is given
    "min", Kind::Rate, "LOAD", SEARCH, "", "100",
        |keys, text| keys.min = Some(text[0].to_owned());
    /// Largest load; a study must give it, and limit goes up to 10,000 users or connections, or 1,000,000 requests per second unless it is given
    "max", Kind::Rate, "LOAD", SEARCH, "", "100k",
        |keys, text| keys.max = Some(text[0].to_owned());
    /// Relative distance between the bounds at the end
    "width", Kind::Share, "SHARE", SEARCH, "the preset's (mlrsearch: 5%), but at most 0.5% where only whole loads are tried", "2%",
        |keys, text| keys.width = Some(width(text[0])?);
    /// Search method: mlrsearch (noise-aware is the same), jmeter, rfc2544, tst009, csit-ndr, csit-pdr
    "preset", Kind::Choice(PRESETS), "NAME", SEARCH, "mlrsearch", "jmeter",
        |keys, text| keys.preset = Some(text[0].parse().map_err(error_text)?);
    /// Duration of a full trial; in a study, that of [trial] or of the workload comes before the default
    "trial", Kind::Time, "TIME", SEARCH, "the preset's; mlrsearch: 5s", "2s",
        |keys, text| keys.trial = Some(trial(text[0])?);
    /// Trials that decide about a load
    "repeats", Kind::Count(1), "N", SEARCH, "the preset's; mlrsearch: 3", "3",
        |keys, text| keys.repeats = Some(whole(text[0], 1..=1_000)?);
    /// Number of further trials at the lower bound after the search; six give a 95 % confidence interval of the median
    "confirm", Kind::Count(1), "N", SEARCH, "", "6", |keys, text| keys.confirm = Some(whole(text[0], 1..=1_000)?);
};

/// The rows of `[trial]`.
pub static TRIAL_KEYS: &[OptionSpec<TrialKeys>] = settings::option_table! {
    /// Runs of every setting, each in a block of its own with a new seeded order; six repeats give a 95 % interval of the median
    "repeats", Kind::Count(1), "N", "", "1", "6", |keys, text| keys.shape.repeats = whole(text[0], 1..=1_000)?;
    /// Duration of a trial; here or in the workload, not in both
    "duration", Kind::Time, "TIME", "", "", "10s", |keys, text| keys.duration = Some(trial(text[0])?);
    /// Duration of a warm-up trial, which does not count, before the first trial on a new target
    "warm_up", Kind::Time, "TIME", SEARCH, "", "2s",
        |keys, text| keys.shape.warm_up = Some(time(text[0])?).filter(|time| !time.is_zero());
    /// Pause before every trial
    "pause", Kind::Time, "TIME", SEARCH, "", "500ms", |keys, text| keys.shape.pause = time(text[0])?;
    /// Longest wait before a trial until closed connections have released ports, sockets and conntrack entries; 0s: no wait
    "settle", Kind::Time, "TIME", SEARCH,
        "10s for open connections, 65s for TIME_WAIT, 125s for tracked connections", "30s",
        |keys, text| keys.shape.settle = Some(time(text[0])?);
    /// When hosts and targets are made anew: "setting", when the setting changes, and after a trial that was void because a link was
    /// not certified; "trial" (or "hosts"), for every trial
    "fresh", Kind::Choice(FRESH), "WHEN", "", "setting", "trial", |keys, text| keys.shape.fresh = fresh(text[0])?;
    /// How often a void trial is repeated, also in a search
    "void_attempts", Kind::Count(0), "N", "", "3", "5", |keys, text| keys.shape.void_attempts = whole(text[0], 0..=100)?;
    /// What is done about other programs and a hypervisor that disturb this machine: figures become intervals (widen), trials with such
    /// figures are void (void), or the first trial waits up to 10 s for a quieter machine (wait)
    "on_noise", Kind::Choice(ON_NOISE), "WHAT", "", "widen", "wait",
        |keys, text| keys.shape.on_noise = text[0].parse::<OnNoise>().map_err(error_text)?;
    /// Whether processor time is measured for each host, which costs some
    "processor_time", Kind::Flag, "", "", "", "", |keys, _| keys.processor_time = true;
};

/// Parses a load of this unit.
///
/// # Errors
/// If the text is not a load; the message says what was expected.
pub fn parse_load(text: &str, is_whole: bool) -> Result<f64, String> {
    if !is_whole {
        return parse_rate(text).map_err(error_text);
    }
    match parse_count(text).map_err(error_text)? {
        count @ 1..=1_000_000_000 => Ok(count as f64),
        count => Err(format!("{count} is not a load; give a count from 1 to 1_000_000_000")),
    }
}

/// The default smallest and largest load for a search of `proofload limit`.
pub fn default_loads(unit: &LoadUnit) -> (f64, f64) {
    match unit {
        LoadUnit::Rate => (10.0, 1_000_000.0),
        _ => (1.0, 10_000.0),
    }
}

fn width(text: &str) -> Result<f64, String> {
    let width = parse_ratio(text).ok().filter(|width| (1e-9..1.0).contains(width));
    width.ok_or_else(|| {
        "the width of the interval between the bounds must be above 0 and below 1, as a share of the load, such as \"2%\""
            .to_owned()
    })
}

/// Parses the duration of a trial, which must be at least `MIN_TRIAL`.
fn trial(text: &str) -> Result<Duration, String> {
    let duration = time(text)?;
    let is_long_enough = duration >= MIN_TRIAL;
    is_long_enough.then_some(duration).ok_or_else(|| "too short for a trial; give at least 100ms".to_owned())
}

fn time(text: &str) -> Result<Duration, String> {
    parse_time(text).map_err(error_text)
}

fn fresh(text: &str) -> Result<Fresh, String> {
    match text {
        "setting" => Ok(Fresh::Setting),
        "trial" | "hosts" => Ok(Fresh::Trial),
        _ => Err(format!(
            "'{text}' does not say when hosts and targets are set up anew; use \"setting\" (when the setting changes), \"trial\""
        )),
    }
}
