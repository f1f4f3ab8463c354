//! The options that describe a workload, shared by the commands that make load.

use clap::{Arg, ArgMatches, Args, Command, Error, FromArgMatches, error::ErrorKind::ValueValidation};
use load::{FieldMistake, HttpOption, HttpWorkload, OPTIONS};

use super::{habits::HabitArgs, options};

/// A workload, as written; [`HttpWorkload::plan`] reads it. Of a `SEARCH` without what a search says.
#[derive(Debug, Args)]
pub struct WorkloadArgs<const SEARCH: bool> {
    /// What to send requests to, such as http://127.0.0.1:8080/path
    url: String,
    #[command(flatten)]
    given: Given<SEARCH>,
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
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Seed of everything random.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Mistakes in options that other tools have and this one has not.
    pub fn habit_mistakes(&self) -> Vec<String> {
        self.habits.mistakes(self.given.0.no_keepalive)
    }

    /// The workload, as written.
    pub fn workload(&self) -> HttpWorkload {
        let Self { url, seed, force, .. } = self;
        HttpWorkload { url: url.clone(), seed: *seed, force: *force, ..self.given.0.clone() }
    }
}

/// What was given of the table of options.
#[derive(Debug)]
struct Given<const SEARCH: bool>(HttpWorkload);

impl<const SEARCH: bool> Given<SEARCH> {
    fn options() -> impl Iterator<Item = &'static HttpOption> {
        OPTIONS.iter().filter(|option| !(SEARCH && option.is_of_one_trial))
    }
}

impl<const SEARCH: bool> Args for Given<SEARCH> {
    fn augment_args(command: Command) -> Command {
        Self::options().fold(command, |command, option| command.arg(argument(option)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<const SEARCH: bool> FromArgMatches for Given<SEARCH> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut workload = HttpWorkload::default();
        for (setting, values) in options::given(Self::options().map(|option| &option.setting), matches) {
            let values: Vec<&str> = values.iter().map(String::as_str).collect();
            (setting.apply)(&mut workload, &values).map_err(|why| Error::raw(ValueValidation, why))?;
        }
        Ok(Self(workload))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn argument(option: &'static HttpOption) -> Arg {
    let argument = options::argument(&option.setting).long(option.flag());
    let argument = option.short.into_iter().fold(argument, Arg::short);
    match option.bare {
        "" => argument,
        bare => argument.num_args(0..=1).require_equals(true).default_missing_value(bare),
    }
}

/// A mistake in a field, told by its option.
pub fn told_by_option(mistake: FieldMistake) -> String {
    let option = OPTIONS.iter().find(|option| option.setting.key == mistake.field);
    let name = option.map_or("URL".to_owned(), |option| format!("--{}", option.flag()));
    format!("{name}: {}", mistake.message)
}
