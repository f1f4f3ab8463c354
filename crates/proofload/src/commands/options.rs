//! Creates clap arguments from tables of options.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};
use settings::options::{Kind, OptionSpec};

/// The option table of a command.
pub(crate) trait Table: 'static {
    /// The configuration that stores the values.
    type Config: 'static;
    /// Whether the command also has positional arguments. If so, an optional value needs a `=` before it.
    const HAS_POSITIONALS: bool;

    /// The options in the order of the help.
    fn settings() -> impl Iterator<Item = &'static OptionSpec<Self::Config>>;
}

/// The options given by the user, with their values as text.
#[derive(Debug)]
pub(crate) struct Given<T: Table>(pub Vec<(&'static OptionSpec<T::Config>, Vec<String>)>);

impl<T: Table> Given<T> {
    /// Whether the user gave the option with this key.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.0.iter().any(|(setting, _)| setting.key == key)
    }

    /// Stores the values in `config`. Returns all mistakes in them.
    pub(crate) fn apply(&self, config: &mut T::Config) -> Vec<String> {
        let mut mistakes = Vec::new();
        for (setting, values) in &self.0 {
            let values: Vec<&str> = values.iter().map(String::as_str).collect();
            if let Err(why) = (setting.apply)(config, &values) {
                mistakes.push(format!("--{}: {why}", setting.flag()));
            }
        }
        mistakes
    }
}

impl<T: Table> Args for Given<T> {
    fn augment_args(command: Command) -> Command {
        T::settings().fold(command, |command, setting| command.arg(argument::<T>(setting)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<T: Table> FromArgMatches for Given<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let given = T::settings().filter_map(|setting| {
            let values = match setting.kind {
                Kind::Flag | Kind::On if !matches.get_flag(setting.key) => return None,
                Kind::Flag => vec!["true".to_owned()],
                Kind::On => vec!["false".to_owned()],
                _ => matches.get_many::<String>(setting.key)?.cloned().collect(),
            };
            Some((setting, values))
        });
        Ok(Self(given.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn argument<T: Table>(setting: &'static OptionSpec<T::Config>) -> Arg {
    let heading = Some(setting.heading).filter(|heading| !heading.is_empty());
    let argument = Arg::new(setting.key).long(setting.flag()).help(setting.help()).help_heading(heading);
    let argument = setting.short.into_iter().fold(argument, Arg::short);
    match setting.kind {
        Kind::Flag | Kind::On => argument.action(ArgAction::SetTrue),
        Kind::List => argument.value_name(setting.value_name).action(ArgAction::Append),
        _ if setting.bare_value.is_empty() => argument.value_name(setting.value_name),
        _ => argument
            .value_name(setting.value_name)
            .num_args(0..=1)
            .require_equals(T::HAS_POSITIONALS)
            .default_missing_value(setting.bare_value),
    }
}
