//! The options that describe a workload, shared by the commands that make load.

use clap::Args;
use load::{FieldMistake, HttpWorkload, OPTIONS};
use settings::options::OptionSpec;

use super::{
    foreign_options::ForeignOptions,
    options::{Given, Table},
};

/// A workload as given on the command line; [`HttpWorkload::plan`] parses it. With `SEARCH`, it has no options that a
/// search sets itself.
#[derive(Debug, Args)]
pub(crate) struct WorkloadArgs<const SEARCH: bool> {
    /// URL to send requests to, such as http://127.0.0.1:8080/path
    url: String,
    #[command(flatten)]
    given: Given<Workload<SEARCH>>,
    /// Seed of everything random
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Machine")]
    seed: u64,
    /// Run even if the plan does not fit this machine (the trial will be void)
    #[arg(long, help_heading = "Machine")]
    force: bool,

    #[command(flatten)]
    foreign: ForeignOptions,
}

impl<const SEARCH: bool> WorkloadArgs<SEARCH> {
    /// The URL as given.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Seed of everything random.
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// Mistakes in options of other tools.
    pub(crate) fn foreign_mistakes(&self) -> Vec<String> {
        self.foreign.mistakes(self.given.has("keepalive"))
    }

    /// The workload as given.
    pub(crate) fn workload(&self) -> HttpWorkload {
        let Self { url, seed, force, .. } = self;
        let mut workload =
            HttpWorkload { url: url.clone(), seed: *seed, force: *force, ..HttpWorkload::default() };
        // Values are stored as text, so storing them cannot fail.
        self.given.apply(&mut workload);
        workload
    }
}

/// The options of a workload; with `SEARCH`, without those that a search sets itself.
#[derive(Debug)]
struct Workload<const SEARCH: bool>;

impl<const SEARCH: bool> Table for Workload<SEARCH> {
    type Config = HttpWorkload;
    const HAS_POSITIONALS: bool = true;

    fn settings() -> impl Iterator<Item = &'static OptionSpec<HttpWorkload>> {
        let options = OPTIONS.iter().filter(|option| !(SEARCH && option.excluded_from_search));
        options.map(|option| &option.spec)
    }
}

/// The message of a mistake in a field, under the name of its option.
pub(crate) fn option_mistake(mistake: FieldMistake) -> String {
    let option = OPTIONS.iter().find(|option| option.spec.key == mistake.field);
    let name = match (mistake.field, option) {
        ("fault", _) => "--inject-fault".to_owned(),
        (_, Some(option)) => format!("--{}", option.spec.flag()),
        (_, None) => "URL".to_owned(),
    };
    format!("{name}: {}", mistake.message)
}
