//! `init` of `lab`, `balance` and `listen`: writes a file with comments that is usable without changes.

use std::{
    fmt::Write as _,
    fs::OpenOptions,
    io::{ErrorKind, Write as _},
    path::{Path, PathBuf},
};

use clap::Args;
use settings::options::OptionSpec;

use super::save::toml_value;
use crate::{
    exit::{Exit, Refusal, Result},
    output::standard,
};

/// Write a commented file that runs, to begin with
#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// File to write, which must not exist [default: lab.toml, balance.toml or listen.toml]; - is standard output
    file: Option<PathBuf>,
}

/// Writes a commented lab file.
pub(super) fn lab(arguments: &InitArgs) -> Result<Exit> {
    write(arguments, "lab.toml", "proofload lab up", include_str!("init/lab.toml"))
}

/// Writes a balancer configuration for the device of the default route.
pub(super) fn balance(arguments: &InitArgs) -> Result<Exit> {
    let routes = std::fs::read_to_string("/proc/self/net/route").unwrap_or_default();
    let device = default_device(&routes).unwrap_or("eth0");
    let text = include_str!("init/balance.toml").replace("\"eth0\"", &format!("\"{device}\""));
    write(arguments, "balance.toml", "proofload balance --config", &text)
}

/// Writes a settings file that contains every setting of the table as a comment.
pub(super) fn listen<T: 'static>(
    arguments: &InitArgs,
    table: impl Iterator<Item = &'static OptionSpec<T>>,
) -> Result<Exit> {
    write(arguments, "listen.toml", "proofload listen --config", &commented(table))
}

fn write(arguments: &InitArgs, default: &str, command: &str, text: &str) -> Result<Exit> {
    let path = arguments.file.as_deref().unwrap_or(Path::new(default));
    if path == Path::new("-") {
        standard::print_raw(text)?;
        return Ok(Exit::GoalsMet);
    }
    let shown = path.display();
    let created = files::open_with(OpenOptions::new().write(true).create_new(true), path);
    created.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|error| {
        Refusal::one(match error.kind() {
            ErrorKind::AlreadyExists => {
                format!("{shown} already exists, and init never overwrites a file: name another one")
            }
            _ => format!("cannot write {shown}: {error}"),
        })
    })?;
    standard::note([format!("wrote {shown}; {command} {shown} runs it")]);
    Ok(Exit::GoalsMet)
}

/// Finds the device of the default route in the content of `/proc/net/route`.
fn default_device(routes: &str) -> Option<&str> {
    let mut fields = routes.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    fields.find(|fields| fields.get(1) == Some(&"00000000")).map(|fields| fields[0])
}

/// Lists the settings in groups, each with its help and with its default or an example as the value.
pub(super) fn commented<T: 'static>(table: impl Iterator<Item = &'static OptionSpec<T>>) -> String {
    let mut text =
        "# Settings of `proofload listen`: remove the # from each one that you change.\n".to_owned();
    let mut heading = "";
    for setting in table {
        if setting.heading != heading {
            heading = setting.heading;
            let _ = write!(text, "\n# ---- {heading}\n");
        }
        let value = toml_value(setting.kind, setting.examples().into_iter().map(str::to_owned));
        let _ = write!(text, "\n# {}\n#{} = {value}\n", setting.help(), setting.key);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_balancers_file_is_valid() {
        let config = balance::Config::read("balance.toml", include_str!("init/balance.toml")).unwrap();
        assert_eq!((config.device.as_str(), config.vips.len()), ("eth0", 1));
    }

    #[test]
    fn the_device_of_the_default_route_is_found() {
        let routes = "Iface\tDestination\tGateway\nens3\t0010A8C0\t00000000\nens4\t00000000\t0110A8C0\n";
        assert_eq!(default_device(routes), Some("ens4"));
        assert_eq!(default_device("Iface\tDestination\n"), None);
    }
}
