//! Programs that we know how to set up. Each has a file of its own, which says all there is to say of it, and its place in the
//! list below.

mod haproxy;
mod iperf3;
mod listen;
mod nginx;
mod serve;
mod socat;
mod sshd;

use std::{
    fs, io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use settings::{Reader, Table, schema};

use crate::{
    file::keys::{self, HostNames, Key, KeyType},
    plan::{Plan, Process, Ready},
};

/// What a program's file says. Its values are what a lab file says of one such process.
trait KnownProgram: Default + 'static {
    /// Its name in a file.
    const NAME: &'static str;
    /// The port that it listens on unless told otherwise.
    const PORT: u16;
    /// The keys that it has beside those of all processes.
    const KEYS: &'static [Key<Self>] = &[];
    /// Those of them that must be given.
    const REQUIRED_KEYS: &'static [&'static str] = &[];
    /// Files that it writes into the lab's folder. In commands `{NAME}` stands for their paths.
    const WRITTEN_FILES: &'static [&'static str] = &[];

    /// When it counts as ready unless told otherwise.
    fn ready(port: u16) -> Ready {
        Ready::Tcp(None, port)
    }

    /// The command line without the arguments that are given, after all that it needs has been written.
    fn set_up(&self, context: &ProgramContext<'_>) -> io::Result<Vec<String>>;
}

macro_rules! programs {
    ($($file:ident::$own:ident),+ $(,)?) => {
        $(pub use $file::$own;)+

        /// Which program it is, and what a file says of it beside what all processes have.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[allow(missing_docs, reason = "their types say what they are")]
        pub enum KnownKind { $($own($own)),+ }

        impl KnownKind {
            /// All of them, in the order in which they are told.
            fn all() -> Vec<Self> {
                vec![$(Self::$own($own::default())),+]
            }

            /// Its name in a file.
            pub fn name(&self) -> &'static str {
                match self { $(Self::$own(_) => $own::NAME),+ }
            }

            /// The port that it listens on unless told otherwise.
            pub fn default_port(&self) -> u16 {
                match self { $(Self::$own(_) => $own::PORT),+ }
            }

            /// Files that it writes into the lab's folder. In commands `{NAME}` stands for their paths.
            pub fn written_files(&self) -> &'static [&'static str] {
                match self { $(Self::$own(_) => $own::WRITTEN_FILES),+ }
            }

            pub(crate) fn ready(&self, port: u16) -> Ready {
                match self { $(Self::$own(_) => $own::ready(port)),+ }
            }

            /// Reads the keys that only this program has.
            pub(crate) fn read(&mut self, reader: &mut Reader<'_>, table: &mut Table<'_, '_>, names: &HostNames<'_>) {
                match self { $(Self::$own(own) => {
                    for key in $own::KEYS.iter().filter(|key| $own::REQUIRED_KEYS.contains(&key.name)) {
                        table.need(reader, key.name, key.help);
                    }
                    keys::read($own::KEYS, own, reader, table, names);
                })+ }
            }

            /// Of each key: its name, what it is for, its schema.
            fn keys(&self) -> Vec<(&'static str, &'static str, Json)> {
                match self { $(Self::$own(_) => {
                    $own::KEYS.iter().map(|key| (key.name, key.help, key.schema(""))).collect()
                })+ }
            }

            fn set_up(&self, context: &ProgramContext<'_>) -> io::Result<Vec<String>> {
                match self { $(Self::$own(own) => own.set_up(context)),+ }
            }
        }
    };
}

programs! {
    nginx::Nginx,
    haproxy::Haproxy,
    sshd::Sshd,
    iperf3::Iperf3,
    serve::Serve,
    listen::Listen,
    socat::Socat,
}

impl KnownKind {
    /// That of this name, with nothing said of it.
    pub fn of(name: &str) -> Option<Self> {
        Self::all().into_iter().find(|kind| kind.name() == name)
    }

    /// The names of the files that all of them [write](Self::written_files).
    pub fn all_written_files() -> Vec<&'static str> {
        Self::all().iter().flat_map(|kind| kind.written_files().iter().copied()).collect()
    }

    /// The names of all.
    pub fn names() -> Vec<&'static str> {
        Self::all().iter().map(Self::name).collect()
    }
}

/// A program that we know how to set up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Known {
    /// Which, and what is said of it.
    pub kind: KnownKind,
    /// The port it listens on.
    pub port: u16,
    /// Where a data listener stores what it is sent, made if it is missing; in the process's own folder of the lab,
    /// which goes with the lab, if none.
    pub store: Option<PathBuf>,
    /// Arguments added to its command line.
    pub args: Vec<String>,
}

/// The keys that all known programs have.
const KEYS: &[Key<Known>] = &[
    Key::new(
        "args",
        "arguments added to a known program's command line",
        KeyType::Other(
            |what| schema::texts(what, "--capacity"),
            |known, reader, value, _| {
                let values = reader.array(value, "a list of arguments in quotes");
                known.args =
                    values.iter().filter_map(|value| reader.text(value)).map(str::to_owned).collect();
            },
        ),
    ),
    Key::new(
        "port",
        "the port that it listens on; a known program has one of its own",
        KeyType::Whole(1..65_536, 8080, |known, n| known.port = n as u16),
    ),
];

/// Reads what is said of a program that we know; the names of all keys are known where the program is not.
pub(crate) fn read(
    kind: Option<KnownKind>,
    reader: &mut Reader<'_>,
    table: &mut Table<'_, '_>,
    names: &HostNames<'_>,
) -> Option<Known> {
    let mut all = KnownKind::all();
    if kind.is_none() {
        for (name, ..) in all.iter().flat_map(KnownKind::keys) {
            table.take(name);
        }
    }
    let own = kind.clone().unwrap_or_else(|| all.remove(0));
    let port = own.default_port();
    let mut known = Known { kind: own, port, store: None, args: Vec::new() };
    keys::read(KEYS, &mut known, reader, table, names);
    kind?;
    known.kind.read(reader, table, names);
    Some(known)
}

/// The schema of the keys of known programs. One that only some have says which.
pub(crate) fn schema() -> Map<String, Json> {
    let mut all = keys::schema(KEYS);
    for kind in KnownKind::all() {
        for (key, help, schema) in kind.keys() {
            let key = all.entry(key).or_insert(schema);
            let others = key["description"].as_str().unwrap_or_default();
            key["description"] = format!("{others} {}: {help}.", kind.name()).trim_start().into();
        }
    }
    all
}

/// Where and for what a program is set up.
pub(crate) struct ProgramContext<'a> {
    pub known: &'a Known,
    pub process: &'a Process,
    pub plan: &'a Plan,
    /// The process's own folder.
    pub folder: &'a Path,
    /// The lab's.
    pub run_folder: &'a Path,
    /// This program.
    pub program: &'a Path,
    pub rootless: bool,
}

impl ProgramContext<'_> {
    /// The command line, after all that it needs has been written into its folder, which is made.
    pub(crate) fn command(&self) -> io::Result<Vec<String>> {
        fs::DirBuilder::new().mode(0o755).create(self.folder)?;
        let mut command = self.known.kind.set_up(self)?;
        command.extend(self.known.args.iter().cloned());
        Ok(command)
    }

    /// The folder that a data listener stores in.
    fn store(&self) -> io::Result<PathBuf> {
        let store = self.known.store.clone().unwrap_or_else(|| self.folder.join("stored"));
        fs::create_dir_all(&store)?;
        Ok(store)
    }

    /// Writes a file of the process's own; its path as a word.
    fn write(&self, name: &str, text: &str) -> io::Result<String> {
        let path = self.folder.join(name);
        fs::write(&path, text)?;
        Ok(path.display().to_string())
    }

    /// Whether it has to listen on IPv6 as well.
    fn has_ipv6(&self) -> bool {
        self.plan.has_ipv6(self.process.host)
    }

    /// This program's command `name`, listening on the port.
    fn own_command(&self, name: &str) -> Vec<String> {
        let any = if self.has_ipv6() { "[::]" } else { "0.0.0.0" };
        let listen = format!("{any}:{}", self.known.port);
        words(&[&self.program.display().to_string(), name, "--listen", &listen])
    }
}

fn words(list: &[&str]) -> Vec<String> {
    list.iter().map(|&word| word.to_owned()).collect()
}

#[cfg(test)]
mod tests;
