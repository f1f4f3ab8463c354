//! Programs that proofload configures. Each program has its own file and an entry in the list `programs!` below;
//! `plan/known.rs` defines its settings.

mod balance;
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

use serde_json::{Map, Value as Json};
use settings::{Reader, Table, Value, schema};

pub use crate::plan::known::{Balance, Haproxy, Iperf3, Known, KnownKind, Listen, Nginx, Serve, Socat, Sshd};
use crate::{
    host_names::HostNames,
    keys::{self, Key, KeyType, key_table},
    plan::{Plan, Process, Program, Ready},
};

/// The definition of a known program. A value of the type holds the program-specific keys of one process in a lab file.
trait KnownProgram: Default + 'static {
    /// Name of the program in a lab file.
    const NAME: &'static str;
    /// Default port.
    const PORT: u16;
    /// Keys of this program in addition to those of all processes.
    const KEYS: &'static [Key<Self>] = key_table! {};
    /// Names of the required keys.
    const REQUIRED_KEYS: &'static [&'static str] = &[];
    /// Names of the files that the program writes into the lab's folder. The placeholder `{NAME}` stands for a file's path.
    const WRITTEN_FILES: &'static [&'static str] = &[];

    /// Default condition of readiness.
    fn ready(port: u16) -> Ready {
        Ready::Tcp(None, port)
    }

    /// Writes the files that the program needs. Returns the command line without the user's arguments.
    fn set_up(&self, context: &ProgramContext<'_>) -> io::Result<Vec<String>>;
}

macro_rules! programs {
    ($($kind:ident),+ $(,)?) => {
        impl KnownKind {
            /// All known programs with default values.
            fn all() -> Vec<Self> {
                vec![$(Self::$kind($kind::default())),+]
            }

            /// Name of the program in a lab file.
            pub fn name(&self) -> &'static str {
                match self { $(Self::$kind(_) => $kind::NAME),+ }
            }

            /// Default port.
            pub fn default_port(&self) -> u16 {
                match self { $(Self::$kind(_) => $kind::PORT),+ }
            }

            /// Names of the files that the program writes into the lab's folder. The placeholder `{NAME}` stands for a
            /// file's path.
            pub(crate) fn written_files(&self) -> &'static [&'static str] {
                match self { $(Self::$kind(_) => $kind::WRITTEN_FILES),+ }
            }

            pub(crate) fn ready(&self, port: u16) -> Ready {
                match self { $(Self::$kind(_) => $kind::ready(port)),+ }
            }

            /// Reads the program's own keys.
            pub(crate) fn read(&mut self, reader: &mut Reader<'_>, table: &mut Table<'_, '_>, names: &HostNames<'_>) {
                match self { $(Self::$kind(program) => {
                    for key in $kind::KEYS.iter().filter(|key| $kind::REQUIRED_KEYS.contains(&key.name)) {
                        table.require(reader, key.name, key.help);
                    }
                    keys::read($kind::KEYS, program, reader, table, names);
                })+ }
            }

            /// Name, help and schema of each of the program's own keys.
            fn keys(&self) -> Vec<(&'static str, &'static str, Json)> {
                match self { $(Self::$kind(_) => {
                    $kind::KEYS.iter().map(|key| (key.name, key.help, key.schema(""))).collect()
                })+ }
            }

            fn set_up(&self, context: &ProgramContext<'_>) -> io::Result<Vec<String>> {
                match self { $(Self::$kind(program) => program.set_up(context)),+ }
            }
        }
    };
}

programs! { Nginx, Haproxy, Balance, Sshd, Iperf3, Serve, Listen, Socat }

impl KnownKind {
    /// The program with this name, with default values.
    pub fn of(name: &str) -> Option<Self> {
        Self::all().into_iter().find(|kind| kind.name() == name)
    }

    /// The names of all files that known programs can write.
    pub fn all_written_files() -> Vec<&'static str> {
        Self::all().iter().flat_map(|kind| kind.written_files().iter().copied()).collect()
    }

    /// The names of all known programs.
    pub fn names() -> Vec<&'static str> {
        Self::all().iter().map(Self::name).collect()
    }
}

/// The common keys of all known programs.
const KEYS: &[Key<Known>] = key_table! {
    /// arguments added to a known program's command line
    "args", KeyType::Other(
        |what| schema::texts(what, "--capacity"),
        |known, reader, value, _| {
            let values = reader.array(value, "a list of arguments in quotes");
            known.args = read_words(reader, values);
        },
    );
    /// the port that it listens on; a known program has one of its own
    "port", KeyType::Whole(1..65_536, 8080, |known, n| known.port = n as u16);
};

/// Reads the keys of a known program. If the program is unknown, accepts the keys of all programs, so that they cause
/// no further messages.
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
    let program = kind.clone().unwrap_or_else(|| all.remove(0));
    let port = program.default_port();
    let mut known = Known { kind: program, port, store: None, args: Vec::new() };
    keys::read(KEYS, &mut known, reader, table, names);
    kind?;
    known.kind.read(reader, table, names);
    Some(known)
}

/// Whether a program of the lab [writes](KnownKind::written_files) a file with this name, for use in other commands.
pub(crate) fn writes_file(plan: &Plan, file: &str) -> bool {
    let is_written = |process: &Process| match &process.program {
        Program::Known(known) => known.kind.written_files().contains(&file),
        Program::Command(_) => false,
    };
    plan.processes.iter().any(is_written)
}

/// The schema of the keys of known programs. The description of a key names the programs that have the key.
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

/// The process, its host and its folder: the inputs for configuring a known program.
pub(crate) struct ProgramContext<'a> {
    pub known: &'a Known,
    pub process: &'a Process,
    pub plan: &'a Plan,
    pub folder: &'a Path,
    pub run_folder: &'a Path,
    /// Path of the proofload program.
    pub program: &'a Path,
    pub rootless: bool,
}

impl ProgramContext<'_> {
    /// Creates the process's folder, writes the files that the program needs and returns the command line.
    pub(crate) fn command(&self) -> io::Result<Vec<String>> {
        fs::DirBuilder::new().mode(0o755).create(self.folder)?;
        let mut command = self.known.kind.set_up(self)?;
        command.extend(self.known.args.iter().cloned());
        Ok(command)
    }

    /// Creates and returns the folder in which a data listener stores events.
    fn store(&self) -> io::Result<PathBuf> {
        let store = self.known.store.clone().unwrap_or_else(|| self.folder.join("stored"));
        fs::create_dir_all(&store)?;
        Ok(store)
    }

    /// Writes a file into the process's folder and returns its path.
    fn write(&self, name: &str, text: &str) -> io::Result<String> {
        let path = self.folder.join(name);
        fs::write(&path, text)?;
        Ok(path.display().to_string())
    }

    /// Whether the program must also listen on IPv6.
    fn has_ipv6(&self) -> bool {
        self.plan.has_ipv6(self.process.host)
    }

    /// The command line of the proofload command `name`, which listens on the known program's port.
    fn own_command(&self, name: &str) -> Vec<String> {
        let any = if self.has_ipv6() { "[::]" } else { "0.0.0.0" };
        let listen = format!("{any}:{}", self.known.port);
        words(&[&self.program.display().to_string(), name, "--listen", &listen])
    }
}

/// Reads the words of a command line. Records which words name files, because the started program will read those
/// files.
pub(crate) fn read_words(reader: &mut Reader<'_>, values: &[Value<'_>]) -> Vec<String> {
    let word = |value| {
        let word = reader.text(value)?.to_owned();
        reader.checked(value, files::word_reads(&word))?;
        Some(word)
    };
    values.iter().filter_map(word).collect()
}

fn words(list: &[&str]) -> Vec<String> {
    list.iter().map(|&word| word.to_owned()).collect()
}

#[cfg(test)]
mod tests;
