//! Options of other load generators that proofload spells differently. Those that ask for its default behaviour are
//! accepted and have no effect; for the others, the error message names the option to use.

use clap::{ArgMatches, Args, Command, Error, FromArgMatches};

use super::peers::table::{
    Given, Row,
    Translation::{Default, Refused},
    long, row,
};

const SCRIPT: &str = "Lua scripts are not supported; describe the request with -X, -H and --body, and the load with --rate, \
                      --stage and --think-time";
const BODY: &str = "write --body '{}', or give the whole curl command with --curl";
const VERSION: &str = "only HTTP/1.1 is supported: leave it out";

/// The options. A refusal names the option to use; `{}` stands for the value.
const FOREIGN_OPTIONS: &[Row] = &[
    // Options of wrk and wrk2.
    row('s', "script", "VALUE", Refused(SCRIPT)),
    row('L', "latency", "", Default),
    row('U', "u_latency", "", Default),
    // Options of ab.
    row('k', "", "", Default),
    row('p', "", "VALUE", Refused("write --body @{}")),
    row('m', "", "VALUE", Refused("write -X {}")),
    row('C', "", "VALUE", Refused("write -H 'Cookie: {}'")),
    row(
        'A',
        "",
        "VALUE",
        Refused(
            "for a login, as ab's -A {}, write http://USER:PASSWORD@… as the URL; for a user agent, as curl's -A, write -H 'User-Agent: {}'",
        ),
    ),
    row('i', "iterations", "VALUE", Refused("k6's iterations: write --requests {}; ab's -i: write -X HEAD")),
    row('l', "", "", Default),
    row('r', "", "", Default),
    // Options of hey, oha, vegeta, h2load and k6.
    row('z', "", "VALUE", Refused("write --duration {}")),
    row('D', "", "VALUE", Refused("write --body @{}")),
    row('a', "", "VALUE", Refused("write the login into the URL: http://USER:PASSWORD@…")),
    long("rps", "VALUE", Refused("write --rate {}, the rate of all connections together")),
    long("qps", "VALUE", Refused("write --rate {}, the rate of all connections together")),
    long("vus", "VALUE", Refused("write --users {}")),
    long("concurrency", "VALUE", Refused("write --connections {}")),
    long("clients", "VALUE", Refused("write --users {}")),
    long("workers", "VALUE", Refused("write --connections {}")),
    long("disable-keepalive", "", Refused("write --no-keepalive")),
    long("latency-correction", "", Default),
    long("no-tui", "", Default),
    long("h2", "", Refused(VERSION)),
    long("http2", "", Refused(VERSION)),
    // Options of curl.
    long("data", "VALUE", Refused(BODY)),
    long("data-raw", "VALUE", Refused(BODY)),
    long("data-binary", "VALUE", Refused(BODY)),
    long("request", "VALUE", Refused("write -X {}")),
    long("max-time", "VALUE", Refused("write --timeout {}")),
    long("resolve", "VALUE", Refused("write --connect-to ADDRESS:PORT; the URL keeps the host's name")),
    long("haproxy-protocol", "", Refused("write --proxy-protocol")),
    long("response-timeout", "VALUE", Refused("write --answer-timeout {}")),
    long("location", "", Refused("write --redirects 10")),
];

/// The given options that belong to other programs.
#[derive(Debug)]
pub(super) struct ForeignOptions(Given);

impl ForeignOptions {
    /// A message for each unsupported option, with the option to use instead.
    pub(super) fn mistakes(&self, no_keepalive: bool, url: &str) -> Vec<String> {
        let mut mistakes = Vec::new();
        for row in FOREIGN_OPTIONS {
            let name = row.name();
            let Some(value) = self.0.last(&name) else { continue };
            if let Refused(instead) = row.translation {
                mistakes.push(format!("{name}: {}", instead.replace("{}", value)));
            } else if name == "-k" && no_keepalive {
                mistakes.push("-k keeps connections, --no-keepalive does not: leave out one".to_owned());
            } else if name == "-k" && url.starts_with("https:") {
                mistakes.push(
                    "-k: as in ab, it keeps connections, which is the default; as in curl, write --insecure"
                        .to_owned(),
                );
            }
        }
        mistakes
    }
}

/// A hint for users of hey and oha, in which `-q` is the rate; here it is --quiet. It is added to clap's error message.
pub(crate) fn rate_hint(words: &[String]) -> Option<String> {
    let is_load = words.get(1).is_some_and(|command| command == "http" || command == "limit");
    let rate = words
        .windows(2)
        .find(|pair| pair[0] == "-q" && pair[1].parse::<f64>().is_ok())
        .filter(|_| is_load)?;
    Some(format!(
        "-q means --quiet; for hey's or oha's -q {0}, write --rate {0}, the rate of all connections",
        rate[1]
    ))
}

impl Args for ForeignOptions {
    fn augment_args(command: Command) -> Command {
        // A word that looks like an option must not be consumed as the value of one of these options.
        let argument = |row: &'static Row| row.argument(false).allow_hyphen_values(false).hide(true);
        command.args(FOREIGN_OPTIONS.iter().map(argument))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ForeignOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        Ok(Self(Given::read(FOREIGN_OPTIONS, matches)))
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
