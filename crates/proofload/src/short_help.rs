//! `-h`: the help that most users need for a command, in at most 25 lines. `--help` shows all of it.

use clap::{Arg, Command, builder::StyledStr};

/// The name under which [`SHORT_HELPS`] lists the program's own help.
const PROGRAM: &str = "proofload";
/// Maximum width of the help in characters.
const MAX_WIDTH: usize = 100;

/// The commands in groups by purpose.
const GROUPS: [(&str, &[&str]); 4] = [
    ("Measure", &["http", "limit", "run", "report", "compare", "serve"]),
    ("Network", &["lab", "link"]),
    ("Data paths", &["copy", "balance", "listen", "audit"]),
    ("Machines", &["host", "clean", "agent", "fleet"]),
];

/// Commands that accept the command lines of other programs.
const OF_OTHERS: [&str; 3] = ["wrk", "wrk2", "ab"];

/// The parts of a command's short help besides its arguments.
struct ShortHelp {
    /// The command; `proofload` for the program itself.
    command: &'static str,
    /// Long names of options, or letters of options without a long name, separated by spaces.
    options: &'static str,
    examples: Vec<&'static str>,
}

/// One line per command with its options; its examples follow as indented lines.
const SHORT_HELPS: &str = include_str!("short_help.txt");

/// Parses [`SHORT_HELPS`].
fn short_helps() -> impl Iterator<Item = ShortHelp> {
    let is_example = |line: &&str| line.starts_with("  ");
    let heads = SHORT_HELPS.lines().enumerate().filter(move |(_, line)| !is_example(line));
    heads.filter_map(move |(number, head)| {
        let (command, options) = head.split_once(':')?;
        let examples =
            SHORT_HELPS.lines().skip(number + 1).take_while(is_example).map(str::trim_start).collect();
        Some(ShortHelp { command, options, examples })
    })
}

/// The short help, if the command line requests it. `cli` is a closure, because most runs need no help and should not
/// build it.
pub(crate) fn requested_help(cli: impl FnOnce() -> Command, words: &[String]) -> Option<String> {
    let before_others = words.iter().skip(1).take_while(|word| *word != "--");
    if !before_others.clone().any(|word| word == "-h") {
        return None;
    }
    let name = before_others.clone().find(|word| !word.starts_with('-')).map_or(PROGRAM, String::as_str);
    let short = short_helps().find(|short| short.command == name)?;
    let mut cli = cli();
    cli.build();
    let command = if name == PROGRAM { &mut cli } else { cli.find_subcommand_mut(name)? };
    Some(short.text(command))
}

impl ShortHelp {
    fn text(&self, command: &mut Command) -> String {
        let about = command.get_about().map(StyledStr::to_string).unwrap_or_default();
        let usage = command.render_usage().to_string();
        let mut lines = vec![cut(first_clause(&about), MAX_WIDTH).to_owned(), usage, String::new()];
        let mut rows = Vec::new();
        if self.command == PROGRAM {
            for (group, names) in GROUPS {
                let titles = std::iter::once(group).chain(std::iter::repeat(""));
                let shown = names.iter().filter_map(|name| command.find_subcommand(name)).zip(titles);
                rows.extend(shown.map(|(subcommand, title)| {
                    (format!("{title:<14}{}", subcommand.get_name()), help_of(subcommand.get_about()))
                }));
            }
        }
        let positionals = command.get_positionals().filter(|argument| !argument.is_hide_set());
        rows.extend(positionals.map(|argument| (argument.to_string(), help_of(argument.get_help()))));
        for name in self.options.split_whitespace() {
            let option = command.get_arguments().find(|argument| {
                let letter = argument.get_short().filter(|_| argument.get_long().is_none());
                argument.get_long() == Some(name) || letter.is_some_and(|letter| name == letter.to_string())
            });
            rows.extend(option.map(|argument| (left_of(argument), help_of(argument.get_help()))));
        }
        let left_width = rows.iter().map(|(left, _)| left.chars().count()).max().unwrap_or(0);
        let right_width = MAX_WIDTH.saturating_sub(left_width + 4);
        lines.extend(
            rows.iter().map(|(left, right)| format!("  {left:left_width$}  {}", cut(right, right_width))),
        );
        lines.push("\nExamples:".to_owned());
        lines.extend(self.examples.iter().map(|example| format!("  {example}")));
        let (others, command) = match self.command {
            PROGRAM => (format!("Command lines of {} work too. ", OF_OTHERS.join(", ")), "COMMAND"),
            name => (String::new(), name),
        };
        lines.push(format!("\n{others}All options and exit statuses: proofload {command} --help\n"));
        lines.join("\n")
    }
}

/// Formats an option as `-u, --users <N>`. clap's own format has only the short name if there is one.
fn left_of(option: &Arg) -> String {
    if option.get_long().is_none() {
        return option.to_string();
    }
    let long = option.clone().short(None).to_string();
    option.get_short().map_or_else(|| format!("    {long}"), |short| format!("-{short}, {long}"))
}

fn help_of(help: Option<&StyledStr>) -> String {
    help.map(|help| first_clause(&help.to_string()).to_owned()).unwrap_or_default()
}

/// A help text without the explanations that follow its first clause.
fn first_clause(help: &str) -> &str {
    let ends = ["; ", ": ", ". ", " [", "\n"].into_iter().filter_map(|end| help.find(end));
    help[..ends.min().unwrap_or(help.len())].trim_end_matches('.')
}

/// The text if it fits in `width` characters, otherwise its part before the last comma that fits.
fn cut(text: &str, width: usize) -> &str {
    if text.chars().count() <= width {
        return text;
    }
    let fits = |at: &usize| text[..*at].chars().count() <= width;
    text.match_indices(',').map(|(at, _)| at).rfind(fits).map_or(text, |at| &text[..at])
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, Parser};

    fn help(words: &str) -> Option<String> {
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        requested_help(crate::Cli::command, &words)
    }

    #[test]
    fn every_command_has_a_short_help_that_fits_a_screen() {
        assert_eq!(short_helps().count(), 14);
        for short in short_helps() {
            let words = format!("proofload {} -h", short.command).replace("proofload proofload", "proofload");
            let text = help(&words).unwrap();
            assert!(text.lines().count() <= 25, "{} lines: {text}", text.lines().count());
            let wide: Vec<&str> = text.lines().filter(|line| line.chars().count() > MAX_WIDTH).collect();
            assert!(wide.is_empty(), "{wide:#?}");
            for option in short.options.split_whitespace() {
                let name = if option.len() == 1 { format!("-{option} ") } else { format!("--{option}") };
                assert!(text.contains(&name), "{name} is missing: {text}");
            }
        }
    }

    #[test]
    fn every_command_is_in_a_group() {
        let cli = crate::Cli::command();
        let shown = cli.get_subcommands().filter(|command| !command.is_hide_set()).map(Command::get_name);
        let mut shown: Vec<&str> = shown.collect();
        let mut grouped: Vec<&str> =
            GROUPS.iter().flat_map(|(_, names)| *names).chain(&OF_OTHERS).copied().collect();
        shown.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(shown, grouped);
    }

    #[test]
    fn the_examples_are_command_lines() {
        for example in short_helps().flat_map(|short| short.examples) {
            let words = shlex::split(example.split(" | ").next().unwrap()).unwrap();
            if words[0] == "proofload" {
                let read =
                    crate::Cli::try_parse_from(&words).unwrap_or_else(|error| panic!("{example}: {error}"));
                // Examples of other commands name files and hosts that do not exist here.
                if matches!(read.command, crate::Command::Limit(_)) {
                    crate::readme_tests::plan(&read.command, &load::MachineLimits::EXAMPLE)
                        .unwrap_or_else(|mistakes| panic!("{example}: {mistakes}"));
                }
            }
        }
    }

    #[test]
    fn only_the_own_h_asks_for_it() {
        assert!(help("proofload http -h").unwrap().contains("proofload http --help"));
        for words in ["proofload http --help", "proofload lab shell h1 -- ls -h", "proofload lab -h"] {
            assert_eq!(help(words), None, "{words}");
        }
    }

    #[test]
    fn long_texts_end_where_they_begin_to_explain() {
        assert_eq!(first_clause("Rate: such as 5k [default: 1]"), "Rate");
        assert_eq!(cut("one, two, three", 9), "one, two");
        assert_eq!(cut("one", 9), "one");
    }
}
