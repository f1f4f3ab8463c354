//! The command line of `proofload listen`: every setting, and what only a command line says.

use std::path::PathBuf;

use clap::Args;

use super::{
    draft::Draft,
    settings::{self, OptionSpec},
};
use crate::commands::options::{Given, Table};

const END: &str = "POST /a/b stores the body's events under the tag a.b: a JSON object, an array of objects, or one object a line, \
compressed or not.

SIGTERM and Ctrl-C finish what was begun, sync it and end; the second one does not wait for requests. SIGHUP opens \
files and certificates anew. Exit status: 0 everything taken is on the disk, 1 not everything, 2 wrong use, 130 ended by \
the second signal.";

/// Take events over HTTP and store them in files, acknowledged at a chosen level
#[derive(Debug, Args)]
#[command(after_help = END)]
pub(crate) struct ListenArgs {
    /// Settings file in TOML: the same names with underscores; options win over it
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Fluentd's configuration: what it says holds unless a setting says otherwise
    #[arg(long, value_name = "FILE")]
    pub import: Option<PathBuf>,
    /// Read all settings and the files they name, tell every mistake, and start nothing
    // The alias is what Fluentd calls it.
    #[arg(long, alias = "dry-run")]
    pub check: bool,
    /// Fluentd's option, given as to it
    #[arg(short = 'c', long, value_name = "FILE", hide = true)]
    pub fluentd_config: Option<PathBuf>,
    /// Print the JSON Schema of the settings file, and start nothing
    #[arg(long)]
    pub schema: bool,
    /// Print no report at the end
    #[arg(short, long)]
    pub quiet: bool,
    #[command(flatten)]
    pub given: Given<Settings>,
}

/// Every setting.
#[derive(Debug)]
pub(crate) struct Settings;

impl Table for Settings {
    type Into = Draft;
    const HAS_WORDS: bool = false;

    fn settings() -> impl Iterator<Item = &'static OptionSpec> {
        settings::all()
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
            given.given.0.iter().map(|(setting, values)| (setting.key, values.clone())).collect();
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
