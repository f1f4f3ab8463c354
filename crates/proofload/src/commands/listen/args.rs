//! The command line of `proofload listen`: every setting, and the options that are not settings.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{
    config_builder::ConfigBuilder,
    settings::{self, OptionSpec},
};
use crate::commands::{
    init::InitArgs,
    options::{Given, Table},
};

const AFTER_HELP: &str = "POST /a/b stores the events of the body with the tag a.b. The body is a JSON object, an array \
of objects, or one object per line, and may be compressed.

SIGTERM and Ctrl-C wait for requests in flight, sync the files and end; a second signal does not wait for requests. SIGHUP \
reopens files and certificates. Exit status: 0 all acknowledged events are on the disk, 1 some are not, 2 wrong use or \
failed, 130 ended by a second signal.";

/// Take events over HTTP and store them in files, acknowledged at a chosen level
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP, args_conflicts_with_subcommands = true)]
pub(crate) struct ListenArgs {
    #[command(subcommand)]
    pub command: Option<ListenCommand>,
    /// Settings file in TOML; keys are option names with underscores, and options override it
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Configuration file of Fluentd; settings override it
    #[arg(long, value_name = "FILE")]
    pub import: Option<PathBuf>,
    /// Check all settings and the files they name, without starting
    // Fluentd calls this option `--dry-run`.
    #[arg(long, alias = "dry-run")]
    pub check: bool,
    /// Fluentd's option for its configuration
    #[arg(short = 'c', long, value_name = "FILE", hide = true)]
    pub fluentd_config: Option<PathBuf>,
    /// Print the JSON Schema of the settings file, without starting
    #[arg(long)]
    pub schema: bool,
    /// Print no report at the end
    #[arg(short, long)]
    pub quiet: bool,
    #[command(flatten)]
    pub given: Given<Settings>,
}

/// What `proofload listen` does instead of listening.
#[derive(Debug, Subcommand)]
pub(crate) enum ListenCommand {
    Init(InitArgs),
}

/// The option table of the listener's settings.
#[derive(Debug)]
pub(crate) struct Settings;

impl Table for Settings {
    type Config = ConfigBuilder;
    const HAS_POSITIONALS: bool = false;

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
    fn options_keep_their_text() {
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
    fn options_of_fluentd_are_accepted() {
        let given = Cli::try_parse_from(["listen", "--dry-run", "-c", "fluent.conf"]).unwrap().listen;
        assert_eq!((given.check, given.fluentd_config), (true, Some("fluent.conf".into())));
    }

    #[test]
    fn clap_accepts_the_definition() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
