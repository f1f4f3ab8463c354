//! `-h`: what most people need of a command, in 25 lines at most. `--help` says all.

use clap::{Arg, Command, builder::StyledStr};

/// Width that help is made for, in characters.
const MAX_WIDTH: usize = 100;

/// Commands that take the lines of other programs.
const OF_OTHERS: [&str; 3] = ["wrk", "wrk2", "ab"];

/// What the short help of a command shows beside its arguments.
struct ShortHelp {
    /// The command; empty for the program itself.
    command: &'static str,
    /// Long names of options, or letters of those that have no other name.
    options: &'static [&'static str],
    examples: [&'static str; 4],
}

const SHORT_HELPS: &[ShortHelp] = &[
    ShortHelp {
        command: "",
        options: &[],
        examples: [
            "proofload http -c 50 -d 10s http://127.0.0.1:8080/",
            "proofload limit rate --p99 10ms http://127.0.0.1:8080/",
            "proofload run studies/quickstart.toml",
            "proofload report results/FOLDER --html report.html",
        ],
    },
    ShortHelp {
        command: "http",
        options: &[
            "users",
            "rate",
            "duration",
            "requests",
            "connections",
            "header",
            "body",
            "timeout",
            "curl",
            "json",
            "out",
            "html",
        ],
        examples: [
            "proofload http -u 200 -d 30s http://127.0.0.1:8080/",
            "proofload http -R 5k -c 64 -d 30s http://127.0.0.1:8080/",
            "proofload http -u 50 -d 10s -- curl -X PUT -d @body.json http://127.0.0.1:8080/item",
            "proofload http -d 10s --json - http://127.0.0.1:8080/ | jq .response_time",
        ],
    },
    ShortHelp {
        command: "limit",
        options: &["p99", "errors", "width", "min", "max", "budget", "trial", "out", "json"],
        examples: [
            "proofload limit rate --p99 50ms http://127.0.0.1:8080/",
            "proofload limit users --errors 0 http://127.0.0.1:8080/",
            "proofload limit connections http://127.0.0.1:8080/",
            "proofload limit rate --p99 50ms --width 2% --budget 5m http://127.0.0.1:8080/",
        ],
    },
    ShortHelp {
        command: "run",
        options: &["set", "dry-run", "resume", "out", "json", "quiet"],
        examples: [
            "proofload run studies/quickstart.toml",
            "proofload run study.toml --dry-run",
            "proofload run study.toml --set users=100,200 --set trial.repeats=3",
            "proofload run study.toml --out result --resume",
        ],
    },
    ShortHelp {
        command: "report",
        options: &["html", "json", "junit", "openmetrics", "github"],
        examples: [
            "proofload report result",
            "proofload report result --html report.html",
            "proofload report result --junit junit.xml",
            "proofload report result --json - | jq .outcomes",
        ],
    },
    ShortHelp {
        command: "compare",
        options: &["factor", "fail-if-worse", "confidence", "quantities", "json"],
        examples: [
            "proofload compare before after",
            "proofload compare before after --fail-if-worse 5%",
            "proofload compare result --factor target=nginx,haproxy",
            "proofload compare before after --quantities response_p99_us,lower_bound",
        ],
    },
    ShortHelp {
        command: "serve",
        options: &[
            "listen",
            "duration",
            "body",
            "delay",
            "capacity",
            "service-time",
            "stall",
            "misbehave",
            "threads",
        ],
        examples: [
            "proofload serve",
            "proofload serve --delay 300ms",
            "proofload serve --capacity 8 --service-time 4ms --queue 100",
            "proofload serve --misbehave error=1%,reset=0.1%",
        ],
    },
    ShortHelp {
        command: "listen",
        options: &[
            "config",
            "check",
            "listen",
            "path",
            "format",
            "rotate-size",
            "compress",
            "ack",
            "threads",
        ],
        examples: [
            "proofload listen --path 'events/${tag}.%Y-%m-%d.log'",
            "proofload listen --ack synced --compress zstd",
            "proofload listen --config listen.toml --check",
            "curl -d '{\"a\":1}' http://127.0.0.1:9880/my.tag",
        ],
    },
    ShortHelp {
        command: "audit",
        options: &["receipts", "level", "json"],
        examples: [
            "proofload audit --receipts receipts events",
            "proofload audit --receipts receipts 'events/**/*.log.zst'",
            "proofload audit --receipts receipts --level synced events",
            "proofload audit --receipts a --receipts b --json - events",
        ],
    },
    ShortHelp {
        command: "copy",
        options: &[
            "recursive",
            "preserve",
            "dry-run",
            "exclude",
            "limit",
            "no-verify",
            "no-fsync",
            "json",
            "quiet",
        ],
        examples: [
            "proofload copy data.tar web:/srv/",
            "proofload copy -rp results me@far:runs",
            "proofload copy -J gate far:'*.fits' .",
            "proofload copy -rn --exclude '*.tmp' . far:work",
        ],
    },
    ShortHelp {
        command: "wrk",
        options: &[
            "connections",
            "duration",
            "threads",
            "header",
            "latency",
            "timeout",
            "json",
            "out",
            "html",
        ],
        examples: [
            "proofload wrk -t2 -c100 -d30s http://127.0.0.1:8080/",
            "proofload wrk -c 64 -d 10s --latency http://127.0.0.1:8080/",
            "proofload wrk -c 64 -d 10s -H 'Accept: text/html' http://127.0.0.1:8080/",
            "proofload wrk -c 64 -d 10s --json result.json http://127.0.0.1:8080/",
        ],
    },
    ShortHelp {
        command: "wrk2",
        options: &[
            "rate",
            "connections",
            "duration",
            "threads",
            "latency",
            "u_latency",
            "timeout",
            "json",
            "out",
        ],
        examples: [
            "proofload wrk2 -t2 -c100 -d30s -R2000 http://127.0.0.1:8080/",
            "proofload wrk2 -c 64 -d 10s -R 5k -L http://127.0.0.1:8080/",
            "proofload wrk2 -c 64 -d 10s -R 5k -U http://127.0.0.1:8080/",
            "proofload wrk2 -c 64 -d 10s -R 5k --html page.html http://127.0.0.1:8080/",
        ],
    },
    ShortHelp {
        command: "ab",
        options: &["n", "c", "t", "k", "p", "T", "H", "m", "s", "json", "html"],
        examples: [
            "proofload ab -n 1000 -c 10 http://127.0.0.1:8080/",
            "proofload ab -k -t 30 -c 64 http://127.0.0.1:8080/",
            "proofload ab -n 1000 -p body.json -T application/json http://127.0.0.1:8080/item",
            "proofload ab -n 1000 -c 10 --json result.json http://127.0.0.1:8080/",
        ],
    },
    ShortHelp {
        command: "link",
        options: &["rate", "delay", "jitter", "loss", "queue", "back", "driver", "certify", "duration"],
        examples: [
            "proofload link client server --rate 1gbit --delay 114ms",
            "proofload link client server --rate 100mbit --loss 0.1%",
            "proofload link client server --rate 20mbit --back rate=5mbit",
            "proofload link client server --delay 5ms --certify",
        ],
    },
];

/// The short help, if these words of a command line ask for one. `cli` is made only then: most starts are not for help.
pub(crate) fn asked(cli: impl FnOnce() -> Command, words: &[String]) -> Option<String> {
    let before_others = words.iter().skip(1).take_while(|word| *word != "--");
    if !before_others.clone().any(|word| word == "-h") {
        return None;
    }
    let name = before_others.clone().find(|word| !word.starts_with('-')).map_or("", String::as_str);
    let short = SHORT_HELPS.iter().find(|short| short.command == name)?;
    let mut cli = cli();
    cli.build();
    let command = if name.is_empty() { &mut cli } else { cli.find_subcommand_mut(name)? };
    Some(short.text(command))
}

impl ShortHelp {
    fn text(&self, command: &mut Command) -> String {
        let about = command.get_about().map(StyledStr::to_string).unwrap_or_default();
        let usage = command.render_usage().to_string();
        let mut lines =
            vec![cut(first_clause(&about), MAX_WIDTH).to_owned(), String::new(), usage, String::new()];
        let mut rows = Vec::new();
        if self.command.is_empty() {
            let shown = command.get_subcommands().filter(|own| {
                !own.is_hide_set() && own.get_name() != "help" && !OF_OTHERS.contains(&own.get_name())
            });
            rows.extend(shown.map(|own| (own.get_name().to_owned(), help_of(own.get_about()))));
        }
        let positionals = command.get_positionals().filter(|own| !own.is_hide_set());
        rows.extend(positionals.map(|own| (own.to_string(), help_of(own.get_help()))));
        for name in self.options {
            let option = command.get_arguments().find(|own| {
                let letter = own.get_short().filter(|_| own.get_long().is_none());
                own.get_long() == Some(name) || letter.is_some_and(|letter| **name == letter.to_string())
            });
            rows.extend(option.map(|own| (left_of(own), help_of(own.get_help()))));
        }
        let left_width = rows.iter().map(|(left, _)| left.chars().count()).max().unwrap_or(0);
        let right_width = MAX_WIDTH.saturating_sub(left_width + 4);
        lines.extend(
            rows.iter().map(|(left, right)| format!("  {left:left_width$}  {}", cut(right, right_width))),
        );
        lines.push("\nExamples:".to_owned());
        lines.extend(self.examples.iter().map(|example| format!("  {example}")));
        let (others, command) = match self.command {
            "" => (format!("Lines of {} are taken too. ", OF_OTHERS.join(", ")), "COMMAND"),
            own => (String::new(), own),
        };
        lines.push(format!("\n{others}Everything else, exit statuses too: proofload {command} --help\n"));
        lines.join("\n")
    }
}

/// `-u, --users <N>`: clap writes the short name alone where an option has one.
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

/// A help text up to what explains it further.
fn first_clause(help: &str) -> &str {
    let ends = ["; ", ": ", ". ", " [", "\n"].into_iter().filter_map(|end| help.find(end));
    help[..ends.min().unwrap_or(help.len())].trim_end_matches('.')
}

/// The text up to its last comma that fits.
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
    use clap::CommandFactory;

    fn help(words: &str) -> Option<String> {
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        asked(crate::Cli::command, &words)
    }

    #[test]
    fn every_command_has_a_short_help_that_fits_a_screen() {
        for short in SHORT_HELPS {
            let text = help(format!("proofload {} -h", short.command).replace("  ", " ").as_str()).unwrap();
            assert!(text.lines().count() <= 25, "{} lines: {text}", text.lines().count());
            let wide: Vec<&str> = text.lines().filter(|line| line.chars().count() > MAX_WIDTH).collect();
            assert!(wide.is_empty(), "{wide:#?}");
            for option in short.options {
                let name = if option.len() == 1 { format!("-{option} ") } else { format!("--{option}") };
                assert!(text.contains(&name), "{name} is missing: {text}");
            }
        }
    }

    #[test]
    fn the_examples_are_command_lines() {
        for example in SHORT_HELPS.iter().flat_map(|short| short.examples) {
            let words = shlex::split(example.split(" | ").next().unwrap()).unwrap();
            if words[0] == "proofload" {
                let read = crate::Cli::command().try_get_matches_from(&words);
                assert!(read.is_ok(), "{example}: {}", read.unwrap_err());
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
