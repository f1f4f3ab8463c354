//! The workload of a trial: its plan, load, duration and description by kind.

mod command;
mod http;

use std::{collections::BTreeSet, path::Path, time::Duration};

use load::HttpWorkload;
use record::{DeclaredQuantity, Kind, LoadUnit};

pub(crate) use command::GOODPUT;
pub use command::{CommandWorkload, Reading};

/// Marks the places in a command where the path of the scratch folder belongs. The folder is removed with hosts and target.
///
/// The enclosing characters are from the private use area, so they do not occur in users' texts.
pub(crate) const SCRATCH_MARKER: &str = "\u{e000}scratch\u{e001}";
/// Placeholders that are replaced when a trial runs: the name in the file, and the marker used until then.
pub(crate) const RUNTIME_PLACEHOLDERS: [(&str, &str); 2] =
    [("scratch", SCRATCH_MARKER), ("copy", ::command::COPY_MARKER)];

/// A command line for users, with markers turned back into the placeholders of the file.
pub(crate) fn show_command(words: &[String]) -> String {
    let line = match words {
        [shell, option, line] if shell == "sh" && option == "-c" => {
            line.split_whitespace().collect::<Vec<_>>().join(" ")
        }
        words => words.join(" "),
    };
    RUNTIME_PLACEHOLDERS.iter().fold(line, |line, (name, kept)| line.replace(kept, &format!("{{{name}}}")))
}

/// The workload of a trial.
#[derive(Debug, Clone, PartialEq)]
pub enum Workload {
    /// Requests of our own generator.
    Http(Box<HttpWorkload>),
    /// A program, in one or more copies.
    Command(Box<CommandWorkload>),
}

impl Workload {
    /// The kind of the workload.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Http(_) => Kind::Http,
            Self::Command(_) => Kind::Command,
        }
    }

    /// The HTTP workload; none if the workload is of another kind.
    pub fn http(&self) -> Option<&HttpWorkload> {
        match self {
            Self::Http(http) => Some(http),
            Self::Command(_) => None,
        }
    }

    /// The quantities that trials of this workload yield.
    pub(crate) fn quantities(&self, has_hosts: bool) -> Vec<DeclaredQuantity> {
        match self {
            Self::Http(_) => Vec::new(),
            Self::Command(command) => command.quantities(has_hosts),
        }
    }

    /// Whether trials end by themselves, independent of their duration.
    pub fn ends_itself(&self) -> bool {
        match self {
            Self::Http(http) => http.loops.is_some() || http.requests.is_some(),
            Self::Command(command) => command.stop_after.is_none(),
        }
    }

    /// The shortest time of a trial that ends by itself, in seconds.
    pub(crate) fn least_length_s(&self) -> f64 {
        match self {
            Self::Http(http) => http::least_length_s(http),
            Self::Command(_) => 0.0,
        }
    }

    /// Duration of a trial in seconds; `None` if the trial ends only by itself.
    pub(crate) fn length_s(&self) -> Option<f64> {
        match self {
            Self::Http(http) => http::length_s(http),
            Self::Command(command) => command.stop_after.map(|length| length.as_secs_f64()),
        }
    }

    /// Time over which users start; zero if all start at the same time.
    pub(crate) fn ramp_up(&self) -> Duration {
        self.http().map(http::ramp_up).unwrap_or_default()
    }

    /// Sets the load of a search. The load of a factor is set through the file's placeholders instead.
    pub(crate) fn set_load(&mut self, unit: &LoadUnit, load: f64) {
        match (self, unit) {
            (Self::Http(http), unit) => http::set_load(http, unit, load),
            (Self::Command(command), LoadUnit::Copies) => command.copies = load.round().max(1.0) as u32,
            (Self::Command(_), _) => {}
        }
    }

    /// Sets the duration of a trial, unless it ends by itself.
    pub(crate) fn set_length(&mut self, length: Duration) {
        if self.ends_itself() {
            return;
        }
        match self {
            Self::Http(http) => http::set_length(http, length),
            Self::Command(command) => command.stop_after = Some(length),
        }
    }

    /// Sets the folder for the receipts of numbered events.
    pub(crate) fn set_receipts(&mut self, folder: Option<&Path>) {
        if let Self::Http(http) = self {
            http.receipts = folder.map(|folder| folder.display().to_string());
        }
    }

    /// Secrets that the workload sends, as pairs of a description and the secret.
    pub(crate) fn secrets(&self) -> BTreeSet<(String, String)> {
        match self {
            Self::Http(http) => http.secrets().into_iter().collect(),
            Self::Command(command) => {
                let secret = |(name, value): (&String, &String)| {
                    (secrets::mask(value) != value.as_str())
                        .then(|| (format!("the variable {name}"), value.clone()))
                };
                command.environment.iter().filter_map(secret).collect()
            }
        }
    }

    /// A text of everything that affects a trial, without secrets.
    pub(crate) fn fingerprint(&self) -> String {
        match self {
            Self::Http(http) => format!("{:?}", http.masked()),
            Self::Command(command) => secrets::mask(&format!("{command:?}")).into_owned(),
        }
    }

    /// Processors to which the workers are pinned.
    pub(crate) fn cpus(&self) -> Option<&str> {
        self.http().and_then(|http| http.cpus.as_deref())
    }
}
