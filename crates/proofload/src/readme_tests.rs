//! Tests that proofload can parse and plan every command in the README, the guide and the page for users of other
//! tools.

use std::path::Path;

use clap::Parser;
use load::MachineLimits;

use super::{Cli, Command, commands};

const README: &str = include_str!("../../../README.md");
const GUIDE: &str = include_str!("../../../docs/guide.md");
const COMING_FROM: &str = include_str!("../../../docs/coming-from.md");

/// The words of every proofload command in code blocks, terminal sessions and the README's table of tasks, split as
/// in a shell.
fn calls() -> Vec<Vec<String>> {
    let joined = [README, GUIDE, COMING_FROM].concat().replace("\\\n", " ");
    let typed = joined.lines().filter_map(|line| line.strip_prefix("    ").or(line.strip_prefix("$ ")));
    let in_table = README.lines().filter(|line| line.starts_with('|')).flat_map(|line| line.split('`'));
    let typed = typed.chain(in_table.filter(|quoted| quoted.starts_with("proofload ")));
    let call_of_line = |line: &str| {
        let words = shlex::split(line).unwrap_or_else(|| panic!("no shell takes this: {line}"));
        let is_shell_syntax = |word: &String| ["|", "<", ">", "&"].iter().any(|mark| word.starts_with(mark));
        let call =
            words.split(is_shell_syntax).find(|part| part.first().is_some_and(|word| word == "proofload"))?;
        Some(call.iter().map(|word| in_this_tree(word)).collect())
    };
    typed.filter_map(call_of_line).collect()
}

/// Replaces a repository file by its path from this crate, and a file of the user by an existing one.
fn in_this_tree(word: &str) -> String {
    let from_here = format!("../../{word}");
    match word {
        "@event.json" => "@Cargo.toml".to_owned(),
        "@-" => "{}".to_owned(),
        "tokens" => tokens(),
        "items.csv" => "tests/items.csv".to_owned(),
        "$a" | "$b" => std::process::id().to_string(),
        _ if word.contains('/') && Path::new(&from_here).exists() => from_here,
        _ => word.to_owned(),
    }
}

/// Writes a file with a token and returns its path.
fn tokens() -> String {
    let path = std::env::temp_dir().join(format!("readme-tokens-{}", std::process::id()));
    std::fs::write(&path, "a-token-for-the-readme\n").unwrap();
    path.display().to_string()
}

/// Plans a command without running it.
pub(crate) fn plan(command: &Command, host: &MachineLimits) -> Result<(), String> {
    let all = |mistakes: Vec<String>| mistakes.join("; ");
    match command {
        Command::Http(arguments) => arguments.plan(host).map(drop).map_err(all),
        Command::Wrk(arguments) => arguments.http().and_then(|http| http.plan(host)).map(drop).map_err(all),
        Command::Ab(arguments) => arguments.http().and_then(|http| http.plan(host)).map(drop).map_err(all),
        Command::Limit(arguments) => arguments.study(host).map(drop).map_err(all),
        Command::Run(arguments) => arguments.read(host).map(drop).map_err(|refusal| format!("{refusal:?}")),
        Command::Serve(arguments) => arguments.config().map(drop).map_err(all),
        Command::Listen(arguments) => {
            commands::listen::plan(arguments).map(drop).map_err(|r| format!("{r:?}"))
        }
        Command::Link(arguments) => arguments.job().map(drop).map_err(all),
        _ => Ok(()),
    }
}

#[test]
fn every_command_of_the_readme_and_the_guide_is_planned() {
    let host = MachineLimits { cpus: 4, ..MachineLimits::EXAMPLE };
    let calls = calls();
    assert!(calls.len() > 30, "{calls:?}");
    for words in &calls {
        let line = words.join(" ");
        let cli = Cli::try_parse_from(words).unwrap_or_else(|error| panic!("{line}\n{error}"));
        plan(&cli.command, &host).unwrap_or_else(|mistakes| panic!("{line}\n{mistakes}"));
    }
    std::fs::remove_file(tokens()).unwrap();
    let made = |word: &str| calls.iter().any(|words| words.windows(2).any(|pair| pair == ["--out", word]));
    for folder in calls.iter().flatten().filter(|word| word.starts_with("results/")) {
        assert!(made(folder), "{folder} is used and never made");
    }
}
