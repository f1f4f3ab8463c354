//! What makes the load of a trial: each kind knows its plan, its load, its length and its words.

mod command;
mod http;

use std::{collections::BTreeSet, path::Path, time::Duration};

use load::HttpWorkload;
use record::{DeclaredQuantity, Kind, LoadUnit};

pub use command::{CommandWorkload, Reading};

/// Stands in the words of programs for a folder of their own, which goes with hosts and target.
///
/// No text that people write holds these characters, which are for private use.
pub(crate) const SCRATCH: &str = "\u{e000}scratch\u{e001}";
/// What stands for something only when a trial runs: its name in the file, and what is kept in its place until then.
pub(crate) const LATE_PLACES: [(&str, &str); 2] = [("scratch", SCRATCH), ("copy", ::command::COPY)];

/// Words for people, with the names of places that are not filled in yet.
pub(crate) fn shown_words(words: &[String]) -> String {
    let line = match words {
        [shell, option, line] if shell == "sh" && option == "-c" => {
            line.split_whitespace().collect::<Vec<_>>().join(" ")
        }
        words => words.join(" "),
    };
    LATE_PLACES.iter().fold(line, |line, (name, kept)| line.replace(kept, &format!("{{{name}}}")))
}

/// What makes the load of a trial.
#[derive(Debug, Clone, PartialEq)]
pub enum Workload {
    /// Requests of our own generator.
    Http(Box<HttpWorkload>),
    /// Programs.
    Command(Box<CommandWorkload>),
}

impl Workload {
    /// Which kind it is.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Http(_) => Kind::Http,
            Self::Command(_) => Kind::Command,
        }
    }

    /// The requests; none if it is of another kind.
    pub fn http(&self) -> Option<&HttpWorkload> {
        match self {
            Self::Http(http) => Some(http),
            Self::Command(_) => None,
        }
    }

    /// The quantities that its trials give by name.
    pub fn quantities(&self, has_hosts: bool) -> Vec<DeclaredQuantity> {
        match self {
            Self::Http(_) => Vec::new(),
            Self::Command(command) => command.quantities(has_hosts),
        }
    }

    /// Whether its trials end by themselves, whatever time they are given.
    pub fn ends_itself(&self) -> bool {
        match self {
            Self::Http(http) => http.loops.is_some() || http.requests.is_some(),
            Self::Command(command) => command.stop_after.is_none(),
        }
    }

    /// How long a trial lasts, unless its end alone ends it, in seconds.
    pub fn length_s(&self) -> Option<f64> {
        match self {
            Self::Http(http) => http::length_s(http),
            Self::Command(command) => command.stop_after.map(|length| length.as_secs_f64()),
        }
    }

    /// The time over which its users start; zero where they start at once.
    pub fn ramp_up(&self) -> Duration {
        self.http().map(http::ramp_up).unwrap_or_default()
    }

    /// Puts a search's load in its place. A factor's place is in the file, not here.
    pub fn set_load(&mut self, unit: &LoadUnit, load: f64) {
        match (self, unit) {
            (Self::Http(http), unit) => http::set_load(http, unit, load),
            (Self::Command(command), LoadUnit::Copies) => command.copies = load.round().max(1.0) as u32,
            (Self::Command(_), _) => {}
        }
    }

    /// Gives a trial this length in the place of its own; one that ends by itself keeps its end.
    pub fn last(&mut self, length: Duration) {
        if self.ends_itself() {
            return;
        }
        match self {
            Self::Http(http) => http::last(http, length),
            Self::Command(command) => command.stop_after = Some(length),
        }
    }

    /// Where the receipts of numbered events go.
    pub fn put_receipts(&mut self, folder: Option<&Path>) {
        if let Self::Http(http) = self {
            http.receipts = folder.map(|folder| folder.display().to_string());
        }
    }

    /// What is sent as a secret, by what it is.
    pub fn secrets(&self) -> BTreeSet<(String, String)> {
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

    /// All of it that decides about a trial, secrets left out.
    pub fn fingerprint(&self) -> String {
        match self {
            Self::Http(http) => format!("{:?}", http.masked()),
            Self::Command(command) => secrets::mask(&format!("{command:?}")).into_owned(),
        }
    }

    /// Processors that the load is pinned to.
    pub fn cpus(&self) -> Option<&str> {
        self.http().and_then(|http| http.cpus.as_deref())
    }
}
