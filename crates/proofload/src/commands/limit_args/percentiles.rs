//! The options `--p50` to `--p99.99`, one for each available percentile.

use clap::{Arg, ArgMatches, Args, Command, Error, FromArgMatches};
use record::{
    percentile::{PERCENTILES, Percentile},
    units::show_number,
};

/// The given bounds for percentiles of the response time, as text.
#[derive(Debug)]
pub(super) struct PercentileBounds(pub Vec<(Percentile, String)>);

impl Args for PercentileBounds {
    fn augment_args(command: Command) -> Command {
        PERCENTILES.into_iter().fold(command, |command, percentile| command.arg(argument(percentile)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for PercentileBounds {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let given =
            |percentile: Percentile| Some((percentile, matches.get_one::<String>(percentile.key)?.clone()));
        Ok(Self(PERCENTILES.into_iter().filter_map(given).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn argument(percentile: Percentile) -> Arg {
    let what = match percentile.quantile {
        0.5 => "median".to_owned(),
        quantile => format!("{}th percentile", show_number(quantile * 100.0)),
    };
    let argument = Arg::new(percentile.key)
        .long(percentile.name)
        .value_name("TIME")
        .help(format!("Largest {what} of response time"))
        .help_heading(super::GOALS);
    match percentile.key.contains('_') {
        true => argument.visible_alias(percentile.key.replace('_', "-")),
        false => argument,
    }
}
