//! The options that describe a workload, shared by the commands that make load.

use clap::Args;
use load::{FieldMistake, HttpWorkload, OPTIONS};
use settings::options::Setting;

use super::{
    habits::HabitArgs,
    options::{Given, Table},
};

/// A workload, as written; [`HttpWorkload::plan`] reads it. Of a `SEARCH` without what a search says.
#[derive(Debug, Args)]
pub(crate) struct WorkloadArgs<const SEARCH: bool> {
    /// What to send requests to, such as http://127.0.0.1:8080/path
    url: String,
    #[command(flatten)]
    given: Given<Workload<SEARCH>>,
    /// Seed of everything random
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Machine")]
    seed: u64,
    /// Run even though the plan does not fit this machine (the trial will be void)
    #[arg(long, help_heading = "Machine")]
    force: bool,

    #[command(flatten)]
    habits: HabitArgs,
}

impl<const SEARCH: bool> WorkloadArgs<SEARCH> {
    /// What requests are sent to, as given.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Seed of everything random.
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// Mistakes in options that other tools have and this one has not.
    pub(crate) fn habit_mistakes(&self) -> Vec<String> {
        self.habits.mistakes(self.given.has("keepalive"))
    }

    /// The workload, as written.
    pub(crate) fn workload(&self) -> HttpWorkload {
        let Self { url, seed, force, .. } = self;
        let mut workload =
            HttpWorkload { url: url.clone(), seed: *seed, force: *force, ..HttpWorkload::default() };
        // It keeps texts, of which none is wrong before they are read.
        self.given.put(&mut workload);
        workload
    }
}

/// The table, of a `SEARCH` without what a search says.
#[derive(Debug)]
struct Workload<const SEARCH: bool>;

impl<const SEARCH: bool> Table for Workload<SEARCH> {
    type Into = HttpWorkload;
    const HAS_WORDS: bool = true;

    fn settings() -> impl Iterator<Item = &'static Setting<HttpWorkload>> {
        let options = OPTIONS.iter().filter(|option| !(SEARCH && option.excluded_from_search));
        options.map(|option| &option.setting)
    }
}

/// A mistake in a field, told by its option.
pub(crate) fn told_by_option(mistake: FieldMistake) -> String {
    let option = OPTIONS.iter().find(|option| option.setting.key == mistake.field);
    let name = match (mistake.field, option) {
        ("fault", _) => "--inject-fault".to_owned(),
        (_, Some(option)) => format!("--{}", option.setting.flag()),
        (_, None) => "URL".to_owned(),
    };
    format!("{name}: {}", mistake.message)
}
