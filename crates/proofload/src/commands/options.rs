//! Tables of options as clap takes them.

use clap::{Arg, ArgAction, ArgMatches};
use settings::options::{Kind, Setting};

/// An option of a table.
pub fn argument<T: 'static>(setting: &'static Setting<T>) -> Arg {
    let argument =
        Arg::new(setting.key).long(setting.flag()).help(setting.help()).help_heading(setting.heading);
    match setting.kind {
        Kind::Flag | Kind::On => argument.action(ArgAction::SetTrue),
        Kind::List => argument.value_name(setting.value_name).action(ArgAction::Append),
        _ => argument.value_name(setting.value_name).action(ArgAction::Set),
    }
}

/// Options that were given, with their values as they were.
pub fn given<T: 'static>(
    settings: impl Iterator<Item = &'static Setting<T>>,
    matches: &ArgMatches,
) -> Vec<(&'static Setting<T>, Vec<String>)> {
    let given = settings.filter_map(|setting| {
        let values = match setting.kind {
            Kind::Flag | Kind::On if !matches.get_flag(setting.key) => return None,
            Kind::Flag => vec!["true".to_owned()],
            Kind::On => vec!["false".to_owned()],
            _ => matches.get_many::<String>(setting.key)?.cloned().collect(),
        };
        Some((setting, values))
    });
    given.collect()
}
