//! `proofload balance --import FILE`: converts an LVS table to a configuration.

use std::path::{Path, PathBuf};

use balance::Config;
use clap::Args;

use crate::{
    exit::{Exit, Refusal},
    output::destination::Destination,
};

#[derive(Debug, Args)]
pub(super) struct ImportArgs {
    /// Convert an LVS table to a configuration file, and do not balance. FILE, or - for standard input, has the output of ipvsadm-save -n, or ipvsadm command lines
    #[arg(long, value_name = "FILE", conflicts_with_all = ["config", "check", "keep", "name"], help_heading = "Import")]
    pub(super) import: Option<PathBuf>,
    /// The device that the configuration names
    #[arg(long, value_name = "DEVICE", default_value = "eth0", requires = "import", help_heading = "Import")]
    device: String,
    /// Where to write the configuration; - is standard output
    #[arg(long, value_name = "FILE", default_value = "-", requires = "import", help_heading = "Import")]
    output: PathBuf,
}

/// Converts an LVS table to a configuration and writes it, or lists everything that cannot be converted.
pub(super) fn run(path: &Path, arguments: &ImportArgs) -> Result<Exit, Refusal> {
    let path = if path.as_os_str() == "-" { Path::new("/dev/stdin") } else { path };
    let text = record::input::read_text(path).map_err(|why| Refusal::one(format_args!("--import: {why}")))?;
    let config = Config::import_ipvsadm(&path.display().to_string(), &text, &arguments.device);
    let config = config.map_err(Refusal::all)?;
    let output = Destination::open("--output", &arguments.output).map_err(Refusal::one)?;
    output.write(|output| output.write_all(config.text().as_bytes()))?;
    Ok(Exit::GoalsMet)
}
