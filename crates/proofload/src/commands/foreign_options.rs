//! Options of other load generators that are named differently here. Some have no effect because they are the default here;
//! for the others the error message names the option to use.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};

/// An option of another program.
struct ForeignOption {
    letter: Option<char>,
    /// Its long name; empty if it has none.
    long: &'static str,
    has_value: bool,
    /// What to write instead, with {} for its value; empty if it is the default here.
    instead: &'static str,
}

const fn option(letter: char, long: &'static str, has_value: bool, instead: &'static str) -> ForeignOption {
    ForeignOption { letter: Some(letter), long, has_value, instead }
}

const fn long(long: &'static str, has_value: bool, instead: &'static str) -> ForeignOption {
    ForeignOption { letter: None, long, has_value, instead }
}

const SCRIPT: &str = "Lua scripts are not supported; describe the request with -X, -H and --body, and the load with --rate, \
                      --stage and --think-time";
const VERSION: &str = "requests are of HTTP/1.1: leave it out";
const PROXY: &str =
    "a proxy would be measured with the service: leave it out, or measure the proxy by its own URL";

const FOREIGN_OPTIONS: &[ForeignOption] = &[
    // wrk and wrk2.
    option('s', "script", true, SCRIPT),
    option('L', "latency", false, ""),
    option('U', "u_latency", false, ""),
    // ab.
    option('k', "", false, ""),
    option('p', "", true, "write --body @{}"),
    option('m', "", true, "write -X {}"),
    option('C', "", true, "write -H 'Cookie: {}'"),
    option(
        'A',
        "",
        true,
        "ab's login {} is user info of the URL (http://USER:PASSWORD@…), curl's name -H 'User-Agent: {}'",
    ),
    option('i', "iterations", true, "k6's iterations are --requests {}; ab's -i is -X HEAD"),
    option('l', "", false, ""),
    option('r', "", false, ""),
    // hey, oha, vegeta, h2load and k6.
    option('z', "", true, "write --duration {}"),
    option('D', "", true, "write --body @{}"),
    option('a', "", true, "write the login into the URL: http://USER:PASSWORD@…"),
    option('x', "proxy", true, PROXY),
    long("rps", true, "write --rate {}, of all connections together"),
    long("qps", true, "write --rate {}, of all connections together"),
    long("vus", true, "write --users {}"),
    long("concurrency", true, "write --connections {}"),
    long("clients", true, "write --users {}"),
    long("workers", true, "write --connections {}"),
    long("disable-keepalive", false, "write --no-keepalive"),
    long("latency-correction", false, ""),
    long("no-tui", false, ""),
    long("h2", false, VERSION),
    long("http2", false, VERSION),
    // curl.
    long("data", true, "write --body '{}', or give curl's whole line with --curl"),
    long("data-raw", true, "write --body '{}', or give curl's whole line with --curl"),
    long("data-binary", true, "write --body '{}', or give curl's whole line with --curl"),
    long("request", true, "write -X {}"),
    long("max-time", true, "write --timeout {}"),
    long("location", false, "redirects are not followed: give the final URL"),
];

/// The options of other programs that were given, each with its value.
#[derive(Debug)]
pub(super) struct ForeignOptions(Vec<(usize, String)>);

impl ForeignOptions {
    /// Options that proofload does not accept, each with the option to use instead.
    pub(super) fn mistakes(&self, no_keepalive: bool, url: &str) -> Vec<String> {
        let mut mistakes = Vec::new();
        for (index, value) in &self.0 {
            let option = &FOREIGN_OPTIONS[*index];
            let name = option.name();
            if !option.instead.is_empty() {
                mistakes.push(format!("{name}: {}", option.instead.replace("{}", value)));
            } else if name == "-k" && no_keepalive {
                mistakes.push("-k keeps connections, --no-keepalive does not: leave out one".to_owned());
            } else if name == "-k" && url.starts_with("https:") {
                mistakes.push(
                    "-k: of ab it keeps connections, which is the default; of curl it is --insecure"
                        .to_owned(),
                );
            }
        }
        mistakes
    }
}

impl ForeignOption {
    fn name(&self) -> String {
        self.letter.map_or_else(|| format!("--{}", self.long), |letter| format!("-{letter}"))
    }

    fn argument(&self) -> Arg {
        let argument = Arg::new(self.id()).hide(true);
        let argument = self.letter.into_iter().fold(argument, Arg::short);
        let argument = if self.long.is_empty() { argument } else { argument.long(self.long) };
        match self.has_value {
            true => argument.action(ArgAction::Append),
            false => argument.action(ArgAction::SetTrue).overrides_with(self.id()),
        }
    }

    fn id(&self) -> String {
        format!("foreign {}", self.name())
    }
}

/// What users of hey and oha mean by `-q RATE`, which is --quiet here: for a message about words that are not understood.
pub(crate) fn rate_hint(words: &[String]) -> Option<String> {
    let is_load = words.get(1).is_some_and(|command| command == "http" || command == "limit");
    let rate = words
        .windows(2)
        .find(|pair| pair[0] == "-q" && pair[1].parse::<f64>().is_ok())
        .filter(|_| is_load)?;
    Some(format!(
        "-q is --quiet; the rate that hey and oha mean by -q {0} is --rate {0}, of all connections together",
        rate[1]
    ))
}

impl Args for ForeignOptions {
    fn augment_args(command: Command) -> Command {
        command.args(FOREIGN_OPTIONS.iter().map(ForeignOption::argument))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ForeignOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let given = FOREIGN_OPTIONS.iter().enumerate().filter_map(|(index, option)| {
            let id = option.id();
            if option.has_value {
                return matches.get_many::<String>(&id)?.next_back().map(|value| (index, value.clone()));
            }
            matches.get_flag(&id).then(|| (index, String::new()))
        });
        Ok(Self(given.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        foreign: ForeignOptions,
    }

    fn mistakes(line: &str, no_keepalive: bool) -> Vec<String> {
        let words = ["http"].into_iter().chain(line.split_whitespace());
        Line::try_parse_from(words).unwrap().foreign.mistakes(no_keepalive, "http://a/")
    }

    #[test]
    fn mistakes_name_the_option_to_use() {
        let found = mistakes("-s report.lua -p b.json -m PUT", false);
        assert!(found[0].starts_with("-s: Lua scripts are not supported"), "{found:?}");
        assert_eq!(found[1..], ["-p: write --body @b.json", "-m: write -X PUT"]);
        let found = mistakes("--rps 5k -z 10s --vus 7 --iterations 9", false);
        let told = ["--requests 9", "--duration 10s", "--rate 5k", "--users 7"];
        assert!(
            found.len() == 4 && told.iter().all(|told| found.iter().any(|why| why.contains(told))),
            "{found:?}"
        );
    }

    #[test]
    fn defaults_are_accepted() {
        assert!(mistakes("-k --latency -L -r", false).is_empty());
        assert!(mistakes("-k", true)[0].contains("--no-keepalive"));
        let foreign = Line::try_parse_from(["http", "-k"]).unwrap().foreign;
        assert!(foreign.mistakes(false, "https://a/")[0].contains("--insecure"));
    }

    #[test]
    fn a_rate_after_q_is_explained() {
        let hint = |line: &str| rate_hint(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert!(hint("proofload http -n 5 -q 200 http://a/").unwrap().contains("--rate 200"));
        assert_eq!(hint("proofload http -q http://a/"), None);
        assert_eq!(hint("proofload run -q 200"), None);
    }
}
