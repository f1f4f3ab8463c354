//! The files that a command line names. What is written must be neither read nor written by another option.

use std::{
    ffi::OsStr,
    fs::{self, Metadata},
    io::{IsTerminal, stdout},
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
};

use clap::{Arg, ArgMatches, Command, builder::ValueParser};
use record::folder::RECORDS;
use report::Format;

use crate::exit::{Refusal, Result};

/// As many links as the kernel follows.
pub(super) const MAX_LINKS: u32 = 40;

/// What a command does with the path of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Reads it.
    Input,
    /// Writes it.
    Output,
    /// Reads a result folder.
    ReadResult,
    /// Makes a result folder.
    NewResult,
}

/// What a command does with the path of this option, or positional argument.
fn role(command: &str, name: &str) -> Option<Role> {
    Some(match (command, name) {
        ("report", "result") | ("compare", "a" | "b") => Role::ReadResult,
        (_, "out") => Role::NewResult,
        ("audit", "receipts") | ("ab", "E" | "p" | "u") => Role::Input,
        (_, "config" | "fluentd-config" | "import" | "study" | "file" | "files" | "feeder" | "body-file") => {
            Role::Input
        }
        (_, "cacert" | "cert" | "key" | "client-ca" | "tls-cert" | "tls-key" | "identity") => Role::Input,
        (_, "basic-auth-file" | "bearer-token-file" | "unix-socket" | "script") => Role::Input,
        (_, "json" | "html" | "hlog" | "junit" | "openmetrics" | "github" | "svg") => Role::Output,
        (_, "report" | "output" | "record" | "log" | "receipts" | "keep-logs" | "tls-ca-out") => Role::Output,
        ("ab", "e" | "g") | ("listen", "path" | "state" | "symlink") | ("generate", "folder") => Role::Output,
        _ => return None,
    })
}

/// A file that a command reads or writes.
struct Named {
    option: String,
    path: PathBuf,
    is_written: bool,
    place: Place,
}

/// Where a path leads: a file that is there, or a folder that is there and the names that are missing in it.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    Stdout,
    File { device: u64, inode: u64, missing: PathBuf },
}

/// Refuses a command line whose outputs would replace an input or each other, before anything starts.
///
/// # Errors
/// All of them.
pub(crate) fn check(command: &Command, matches: &ArgMatches) -> Result {
    let (mut command, mut matches) = (command, matches);
    while let Some((name, inner)) = matches.subcommand() {
        let Some(inner_command) = command.find_subcommand(name) else { break };
        (command, matches) = (inner_command, inner);
    }
    let mut named: Vec<Named> = Vec::new();
    for argument in command.get_arguments() {
        let option = option_name(argument);
        let values = matches.get_raw(argument.get_id().as_str()).into_iter().flatten();
        for value in values {
            let role = is_path(argument).then(|| role(command.get_name(), name(argument))).flatten();
            named.extend(files(role, value).filter_map(|(path, is_written)| {
                Some(Named { option: option.clone(), place: place_of(&path)?, path, is_written })
            }));
        }
    }
    let mut mistakes = Vec::new();
    for (index, second) in named.iter().enumerate() {
        let earlier = named[..index].iter().filter(|first| first.place == second.place);
        mistakes.extend(earlier.filter_map(|first| conflict(first, second)));
    }
    mistakes.dedup();
    if mistakes.is_empty() { Ok(()) } else { Err(Refusal::new(mistakes)) }
}

fn conflict(first: &Named, second: &Named) -> Option<String> {
    let (output, other) = if second.is_written { (second, first) } else { (first, second) };
    if !output.is_written || output.option == other.option && !other.is_written {
        return None;
    }
    let path = output.path.display();
    Some(match (&output.place, other.is_written) {
        (Place::Stdout, _) => format!(
            "{} and {}: both would be written to standard output: give one of them a file",
            other.option, output.option
        ),
        (_, true) => format!(
            "{} and {}: both would be written to {path}: give each a file of its own",
            other.option, output.option
        ),
        (_, false) => {
            format!("{}: {path} is read by {}: give another file to write to", output.option, other.option)
        }
    })
}

/// The files behind a value, and whether they are written.
fn files(role: Option<Role>, value: &OsStr) -> impl Iterator<Item = (PathBuf, bool)> {
    let text = value.to_string_lossy();
    let path = PathBuf::from(value);
    let within = |names: &mut dyn Iterator<Item = &'static str>| names.map(|name| path.join(name)).collect();
    let (paths, is_written): (Vec<PathBuf>, bool) = match role {
        Some(Role::Output) => (vec![path], true),
        Some(Role::ReadResult) => (within(&mut RECORDS.into_iter()), false),
        Some(Role::NewResult) => {
            let reports = [Format::Html, Format::Junit, Format::OpenMetrics];
            let reports = reports.into_iter().filter_map(Format::file_name);
            (within(&mut RECORDS.into_iter().chain(reports)), true)
        }
        // FILE, or FILE and the order of its rows.
        Some(Role::Input) if text != "-" => {
            let order = text.rsplit_once(',').map(|(file, _)| PathBuf::from(file));
            ([Some(path), order].into_iter().flatten().collect(), false)
        }
        Some(Role::Input) => (Vec::new(), false),
        // @FILE stands wherever a text may.
        None => (
            text.strip_prefix('@').filter(|file| *file != "-").map(PathBuf::from).into_iter().collect(),
            false,
        ),
    };
    paths.into_iter().map(move |path| (path, is_written))
}

/// Whether an argument's value is a path, as its type or its name in the help says.
fn is_path(argument: &Arg) -> bool {
    let is_typed = argument.get_value_parser().type_id() == ValueParser::path_buf().type_id();
    let names = argument.get_value_names().unwrap_or_default().iter();
    is_typed || names.flat_map(|name| name.split('|')).any(|name| ["FILE", "FOLDER", "PATH"].contains(&name))
}

fn name(argument: &Arg) -> &str {
    argument.get_long().unwrap_or(argument.get_id().as_str())
}

fn option_name(argument: &Arg) -> String {
    match (argument.get_long(), argument.get_short()) {
        (Some(long), _) => format!("--{long}"),
        (None, Some(short)) => format!("-{short}"),
        (None, None) => argument.get_id().as_str().to_uppercase(),
    }
}

/// Where a path leads; none if nothing that is written there can be lost, as on `/dev/null`.
fn place_of(path: &Path) -> Option<Place> {
    if path == Path::new("-") {
        return Some(Place::Stdout);
    }
    let mut path = std::path::absolute(path).ok()?;
    // What a link to nothing names is made.
    for _ in 0..MAX_LINKS {
        match fs::read_link(&path) {
            Ok(to) if !path.exists() => path = path.parent()?.join(to),
            _ => break,
        }
    }
    let mut missing = Vec::new();
    loop {
        let Ok(about) = fs::metadata(&path) else {
            missing.push(path.file_name()?.to_owned());
            path.pop();
            continue;
        };
        let kept = missing.is_empty() && about.file_type().is_char_device();
        return match is_stdout(&about) {
            true if missing.is_empty() && (!kept || stdout().is_terminal()) => Some(Place::Stdout),
            _ if kept => None,
            _ => Some(Place::File {
                device: about.dev(),
                inode: about.ino(),
                missing: missing.iter().rev().collect(),
            }),
        };
    }
}

/// Whether this is the file that standard output goes to.
pub(super) fn is_stdout(about: &Metadata) -> bool {
    rustix::fs::fstat(stdout()).is_ok_and(|own| (own.st_dev, own.st_ino) == (about.dev(), about.ino()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use clap::CommandFactory;

    use super::*;
    use crate::Cli;

    fn each(command: &Command, take: &mut impl FnMut(&Command, &Arg)) {
        command.get_arguments().for_each(|argument| take(command, argument));
        command.get_subcommands().for_each(|command| each(command, take));
    }

    #[test]
    fn every_option_with_a_path_says_whether_it_is_read_or_written() {
        let (mut unknown, mut seen) = (Vec::new(), 0);
        each(&Cli::command(), &mut |command, argument| {
            if is_path(argument) {
                seen += 1;
                let is_known = role(command.get_name(), name(argument)).is_some();
                unknown.extend((!is_known).then(|| format!("{} {}", command.get_name(), name(argument))));
            }
        });
        assert!(unknown.is_empty() && seen > 40, "{seen}: add to `role`: {unknown:?}");
    }

    #[test]
    fn no_output_replaces_an_input_or_another_output() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        for name in ["f.csv", "s", "plain"] {
            fs::write(at(name), "x").unwrap();
        }
        fs::create_dir(at("ra")).unwrap();
        for name in ["plan.json", "notes"] {
            fs::write(at(&format!("ra/{name}")), "x").unwrap();
        }
        fs::hard_link(at("f.csv"), at("second")).unwrap();
        symlink(at("s"), at("link")).unwrap();
        symlink("nothing", at("dangling")).unwrap();
        symlink(folder.path(), at("here")).unwrap();
        let said = |line: &str| {
            let words = line.split(' ').map(|word| word.replace("F/", &at("")));
            let command = Cli::command();
            let matches =
                command.clone().try_get_matches_from(["proofload".to_owned()].into_iter().chain(words));
            let refused = check(&command, &matches.unwrap()).err();
            refused.map_or(String::new(), |refusal| refusal.mistakes().join("\n"))
        };
        for (line, words) in [
            ("report F/ra --html F/ra/plan.json", "is read by RESULT"),
            ("report F/ra --html F/here/ra/plan.json", "is read by RESULT"),
            (
                "report F/ra --json - --junit -",
                "--json and --junit: both would be written to standard output",
            ),
            ("http u --feeder F/f.csv --json F/f.csv", "--json: "),
            ("http u --feeder F/f.csv,once --json F/second", "is read by --feeder"),
            ("http u --body @F/s --json F/link", "is read by --body"),
            ("http u --json F/new --html F/new", "both would be written to "),
            ("http u --json F/here/new --html F/ra/../new", "both would be written to "),
            ("http u --json F/dangling --html F/nothing", "both would be written to "),
            ("http u --json F/plain --hlog F/plain", "--json and --hlog"),
            ("http u --json - --html -", "standard output"),
            ("http u --out F/no --json F/no/result.json", "both would be written to "),
            ("limit rate u --cacert F/s --json F/s", "is read by --cacert"),
            ("run F/s --json F/s", "is read by STUDY"),
            ("compare F/ra F/rb --json F/ra/plan.json", "is read by A"),
            ("wrk u --json F/s --html F/s", "both would be written to "),
        ] {
            let said = said(line);
            assert!(said.contains(words), "{line}: {said}");
        }
        for line in [
            "report F/ra --html F/ra/report.html --json - --junit F/j",
            "http u --feeder F/f.csv --body @F/f.csv --json F/j --html F/h --hlog F/l --out F/no",
            "http u --json /dev/null --html /dev/null --hlog /dev/null",
            "http u --out F/no --json F/no/trial.json --html F/no/page.html",
            "run F/s --out F/no --json -",
        ] {
            assert_eq!(said(line), "", "{line}");
        }
    }
}
