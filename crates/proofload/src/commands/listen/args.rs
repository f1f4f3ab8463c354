//! The command line of `proofload listen`: every setting, and what only a command line says.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches, value_parser};

use super::settings::{self, Setting};
use crate::commands::options;

/// What was given on the command line.
#[derive(Debug, Default)]
pub struct ListenArgs {
    /// Settings that were given, with their values as they were.
    pub given: Vec<(&'static Setting, Vec<String>)>,
    /// The settings file.
    pub config: Option<PathBuf>,
    /// Fluentd's configuration.
    pub import: Option<PathBuf>,
    /// A file given as to Fluentd, which is no option here.
    pub fluentd_config: Option<PathBuf>,
    /// Only reads the settings.
    pub check: bool,
    /// Only prints the schema of the settings file.
    pub schema: bool,
    /// Prints no report.
    pub quiet: bool,
}

const END: &str = "POST /a/b stores the body's events under the tag a.b: a JSON object, an array of objects, or one object a line, \
compressed or not.

SIGTERM and Ctrl-C finish what was begun, sync it and end; the second one does not wait for requests. SIGHUP opens \
files and certificates anew. Exit status: 0 everything taken is on the disk, 1 not everything, 2 wrong use, 130 ended by \
the second signal.";

impl Args for ListenArgs {
    fn augment_args(command: Command) -> Command {
        let file = |id: &'static str, help: &'static str| {
            Arg::new(id).long(id).value_name("FILE").value_parser(value_parser!(PathBuf)).help(help)
        };
        let command = command
            .about("Take events over HTTP and store them in files, acknowledged at a chosen level")
            .after_help(END)
            .arg(file(
                "config",
                "Settings file in TOML: the same names with underscores; options win over it",
            ))
            .arg(file(
                "import",
                "Fluentd's configuration: what it says holds unless a setting says otherwise",
            ))
            .arg(
                Arg::new("check")
                    .long("check")
                    // As Fluentd calls it.
                    .alias("dry-run")
                    .action(ArgAction::SetTrue)
                    .help("Read all settings and the files they name, tell every mistake, and start nothing"),
            )
            .arg(file("fluentd-config", "Fluentd's option").short('c').hide(true))
            .arg(
                Arg::new("schema")
                    .long("schema")
                    .action(ArgAction::SetTrue)
                    .help("Print the JSON Schema of the settings file, and start nothing"),
            )
            .arg(
                Arg::new("quiet")
                    .short('q')
                    .long("quiet")
                    .action(ArgAction::SetTrue)
                    .help("Print no report at the end"),
            );
        settings::all().fold(command, |command, setting| command.arg(options::argument(setting)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ListenArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        Ok(Self {
            given: options::given(settings::all(), matches),
            config: matches.get_one::<PathBuf>("config").cloned(),
            import: matches.get_one::<PathBuf>("import").cloned(),
            fluentd_config: matches.get_one::<PathBuf>("fluentd-config").cloned(),
            check: matches.get_flag("check"),
            schema: matches.get_flag("schema"),
            quiet: matches.get_flag("quiet"),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        listen: ListenArgs,
    }

    #[test]
    fn options_are_given_as_they_were_typed() {
        let line = "listen --listen 127.0.0.1:0 --listen [::1]:0 --max-body 1MiB --no-tag --config f.toml -q";
        let given = Cli::try_parse_from(line.split(' ')).unwrap().listen;
        let values: Vec<(&str, Vec<String>)> =
            given.given.iter().map(|(setting, values)| (setting.key, values.clone())).collect();
        let text = |list: &[&str]| list.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        assert_eq!(
            values,
            [
                ("listen", text(&["127.0.0.1:0", "[::1]:0"])),
                ("no_tag", text(&["true"])),
                ("max_body", text(&["1MiB"]))
            ]
        );
        assert_eq!((given.config, given.quiet, given.check), (Some("f.toml".into()), true, false));
    }

    #[test]
    fn what_fluentd_users_type_is_understood() {
        let given = Cli::try_parse_from(["listen", "--dry-run", "-c", "fluent.conf"]).unwrap().listen;
        assert_eq!((given.check, given.fluentd_config), (true, Some("fluent.conf".into())));
    }

    #[test]
    fn the_command_is_sound() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
