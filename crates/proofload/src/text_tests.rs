//! Tests that all options for text files read them with `record::input`, which reports files that are not UTF-8.

use std::{collections::BTreeSet, fs, path::PathBuf};

use clap::{Arg, CommandFactory, Parser};
use load::MachineLimits;

use super::{Cli, Command, commands, readme_tests::plan};

/// Options that read a text file, as `command --option` or `command <NAME>`, each with a command line that reads it.
/// `limit` has the options of `http`.
const TEXTS: &[(&str, &str)] = &[
    ("http --header", "http http://127.0.0.1:1 -H @FILE"),
    ("http --events", "http http://127.0.0.1:1 --events=@FILE"),
    ("http --feeder", "http http://127.0.0.1:1 --feeder FILE"),
    ("http --think-time", "http http://127.0.0.1:1 --think-time file:FILE"),
    ("http --curl", "http --curl @FILE"),
    ("run <study>", "run FILE"),
    ("serve --delay", "serve --delay file:FILE"),
    ("listen --config", "listen --config FILE"),
    ("listen --import", "listen --import FILE"),
    ("listen --bearer-token-file", "listen --bearer-token-file FILE"),
    ("listen --basic-auth-file", "listen --basic-auth-file FILE"),
    ("balance --config", "balance --check --config FILE"),
    ("balance --import", "balance --import FILE"),
    ("balance explain --config", "balance explain --config FILE"),
    ("lab up <file>", "lab up FILE"),
    ("lab graph <file>", "lab graph FILE"),
    ("link --jitter", "link a b --jitter file:FILE"),
    ("host check <files>", "host check FILE"),
];

/// Options for files that are not such texts: outputs, binary data, certificates, folders, and other programs' files.
const OTHERS: &[&str] = &[
    "--json",
    "--hlog",
    "--html",
    "--junit",
    "--openmetrics",
    "--github",
    "--svg",
    "--output",
    "--report",
    "--log",
    "--record",
    "<result>",
    "<a>",
    "<b>",
    "audit <files>",
    "copy -i",
    "copy -F",
    "wrk --script",
    "wrk2 --script",
    "ab -p",
    "ab -u",
    "ab -E",
    "ab -e",
    "ab -g",
    "--body",
    "--body-file",
    "--save",
    "balance init <file>",
    "lab init <file>",
    "listen init <file>",
    "--cacert",
    "--cert",
    "--key",
    "--client-ca",
    "--tls-ca-out",
    "--tls-cert",
    "--tls-key",
    "--nats-creds",
    "--nats-ca",
    "--fleet-key",
    "--agent-keys",
    "fleet key <file>",
];

/// The options of the program that take a file, according to its help.
fn options() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut cli = Cli::command();
    cli.build();
    let mut commands: Vec<_> =
        cli.get_subcommands().map(|command| (command.get_name().to_owned(), command)).collect();
    while let Some((name, command)) = commands.pop() {
        if command.is_hide_set() || command.get_name() == "help" {
            continue;
        }
        let shared = if name.starts_with("limit") { "http" } else { &name };
        for argument in command.get_arguments().filter(|argument| takes_a_file(argument)) {
            let option = match (argument.get_long(), argument.get_short()) {
                (Some(long), _) => format!("--{long}"),
                (None, Some(short)) => format!("-{short}"),
                (None, None) => format!("<{}>", argument.get_id()),
            };
            let whole = format!("{shared} {option}");
            if ![&option, &whole].iter().any(|name| OTHERS.contains(&name.as_str())) {
                found.insert(whole);
            }
        }
        let inner = command.get_subcommands();
        commands.extend(inner.map(|inner| (format!("{name} {}", inner.get_name()), inner)));
    }
    found
}

fn takes_a_file(argument: &Arg) -> bool {
    let names = argument.get_value_names().unwrap_or_default();
    let is_path = argument.get_value_parser().type_id() == std::any::TypeId::of::<PathBuf>();
    let is_folder = names.iter().any(|name| name.contains("FOLDER"));
    let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
    let says_file = help.contains("@FILE")
        || help.contains("file:PATH")
        || names.iter().any(|name| name.contains("FILE"));
    argument.get_action().takes_values() && !argument.is_hide_set() && !is_folder && (is_path || says_file)
}

/// Parses a command line and reads the files that it names.
fn read(words: &[String]) -> Result<(), String> {
    let cli = Cli::try_parse_from(words).unwrap_or_else(|error| panic!("{words:?}\n{error}"));
    let done = match &cli.command {
        Command::Balance(arguments) => commands::balance::run(arguments),
        Command::Host(arguments) => commands::host::run(arguments),
        Command::Lab(arguments) => commands::lab::run(arguments),
        other => return plan(other, &MachineLimits { cpus: 4, ..MachineLimits::EXAMPLE }),
    };
    done.map(drop).map_err(|refusal| format!("{refusal:?}"))
}

#[test]
fn every_file_of_text_is_read_alike() {
    let known: BTreeSet<String> = TEXTS.iter().map(|(option, _)| (*option).to_owned()).collect();
    assert_eq!(options(), known, "an option that takes a file needs its row: is it a text?");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("text");
    for (option, line) in TEXTS {
        let line = line.replace("FILE", &file.display().to_string());
        let words: Vec<String> = format!("proofload {line}").split(' ').map(str::to_owned).collect();
        for (bytes, why) in [
            (&b"\xff\xfea\0\n\0"[..], "line 1 is not text in UTF-8: it looks like UTF-16"),
            (b"# one\r\n# two\r\n# caf\xe9\r\n", "line 3 is not text in UTF-8: it looks like Latin-1"),
        ] {
            fs::write(&file, bytes).unwrap();
            let refused = read(&words).expect_err(option);
            assert!(refused.contains(why), "{option}: {refused}");
        }
        // A byte order mark and Windows line ends must not change the mistakes that are found in an invalid file.
        let [plain, dressed] = ["# one\n?? x\n", "\u{feff}# one\r\n?? x\r\n"].map(|text| {
            fs::write(&file, text).unwrap();
            read(&words)
        });
        assert_eq!(plain, dressed, "{option}");
    }
}
