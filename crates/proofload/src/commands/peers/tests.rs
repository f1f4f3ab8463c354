use clap::CommandFactory;
use load::{HttpWorkload, MachineLimits};
use record::{HttpPlan, LoadModel};
use testing::foreign_lines::{self, ForeignLine, SentRequest};

use super::{
    curl::CurlLine,
    table::{Value, quoted},
    *,
};
use crate::{Cli, Command as OwnCommand};

const LIST: &str = include_str!("../../../../../tests/data/foreign-lines.txt");
const HOST: MachineLimits = MachineLimits::EXAMPLE;

/// The plan for a command line of wrk, wrk2 or ab.
fn plan(line: &str) -> Result<HttpPlan, Vec<String>> {
    let words = shlex::split(line).unwrap();
    let words = ["proofload".to_owned()].into_iter().chain(words);
    let cli = Cli::try_parse_from(words).map_err(|error| vec![error.to_string()])?;
    let http = match &cli.command {
        OwnCommand::Wrk(arguments) => arguments.http(),
        OwnCommand::Wrk2(arguments) => arguments.http(),
        OwnCommand::Ab(arguments) => arguments.http(),
        _ => panic!("{line}"),
    };
    http?.plan(&HOST)
}

fn sent(plan: &HttpPlan) -> SentRequest {
    let request = plan.request.clone();
    let record::Request { method, target, headers, body } = request;
    SentRequest { method, target, headers, body }.normal()
}

fn curl_workload(line: &str) -> Result<(CurlLine, HttpWorkload), Vec<String>> {
    let line = CurlLine::read(line)?;
    let mut workload = HttpWorkload::default();
    line.apply(&mut workload);
    Ok((line, workload))
}

/// The plan for a command line in the list.
fn planned(foreign: &ForeignLine) -> Result<HttpPlan, Vec<String>> {
    if foreign.program() != "curl" {
        return plan(&foreign.line);
    }
    let (_, workload) = curl_workload(&foreign.line)?;
    workload.plan(&HOST).map_err(|mistakes| mistakes.into_iter().map(|mistake| mistake.message).collect())
}

#[test]
fn every_line_of_the_list_becomes_its_request() {
    let folder = tempfile::tempdir().unwrap();
    let lines = foreign_lines::read(LIST, "127.0.0.1:1", folder.path());
    assert_eq!(lines.len(), 40);
    assert!(lines.iter().filter(|line| line.sends.is_some()).count() >= 36);
    for foreign in &lines {
        match &foreign.sends {
            None => {
                let mistakes = planned(foreign).unwrap_err();
                assert!(
                    mistakes.iter().any(|why| why.contains(&foreign.refused)),
                    "{}: {mistakes:?}",
                    foreign.line
                );
            }
            Some(sends) if foreign.tls.is_empty() => {
                let plan = planned(foreign).unwrap_or_else(|why| panic!("{}: {why:?}", foreign.line));
                assert_eq!(&sent(&plan), sends, "{}", foreign.line);
            }
            Some(sends) => {
                let (line, workload) = curl_workload(&foreign.line).unwrap();
                assert_eq!(line.tls_words(), foreign.tls, "{}", foreign.line);
                assert_eq!(workload.method(), sends.method);
                assert!(workload.url.starts_with("https://"), "{}", workload.url);
            }
        }
    }
}

#[test]
fn wrk_has_its_defaults_and_units() {
    let own = plan("wrk http://127.0.0.1/").unwrap();
    assert!(matches!(own.load, LoadModel::Closed { users: 10, .. }));
    assert_eq!((own.threads, own.duration_ns), (2, Some(10_000_000_000)));
    let given = plan("wrk -t 1 --connections 1k -d2m -d 3m --timeout 5 http://127.0.0.1/").unwrap();
    assert!(matches!(given.load, LoadModel::Closed { users: 1_000, .. }));
    assert_eq!((given.timeout_ns, given.duration_ns), (5_000_000_000, Some(180_000_000_000)));
    let rate = plan("wrk2 -R2k -c 7 http://127.0.0.1/").unwrap();
    let LoadModel::Open { stages, connections, .. } = rate.load else { panic!() };
    assert_eq!((stages[0].from_rate_per_s, connections.most), (2_000.0, 7));
}

#[test]
fn ab_has_its_defaults_and_its_order() {
    let own = plan("ab http://127.0.0.1/").unwrap();
    assert!(matches!(own.load, LoadModel::Closed { users: 1, .. }) && !own.keepalive);
    assert_eq!((own.requests, own.duration_ns), (Some(1), None));
    let limit = |line: &str| plan(line).map(|plan| (plan.requests, plan.duration_ns)).unwrap();
    assert_eq!(limit("ab -n 7 -t 30 -c 5 http://127.0.0.1/"), (Some(50_000), Some(30_000_000_000)));
    assert_eq!(limit("ab -t 30 -n 7 -c 5 http://127.0.0.1/"), (Some(7), Some(30_000_000_000)));
    assert!(plan("ab -kn5 http://127.0.0.1/").unwrap().keepalive);
}

#[test]
fn what_cannot_be_done_is_refused_with_what_to_do() {
    for (line, words) in [
        ("wrk -s report.lua http://127.0.0.1/", "Lua"),
        ("wrk2 -c 10 http://127.0.0.1/", "-R 2000"),
        ("ab -n 5 -g out.tsv http://127.0.0.1/", "--hlog"),
        ("ab -n 5 -e out.csv -w http://127.0.0.1/", "--json"),
        ("ab -X proxy:80 http://127.0.0.1/", "--proxy"),
        ("ab -f SSL3 http://127.0.0.1/", "TLS1.2"),
        ("wrk --conections 5 http://127.0.0.1/", "--connections"),
        ("wrk 127.0.0.1/", "URL: wrk requires a scheme"),
        ("wrk http://127.0.0.1#q", "write / before the #"),
        ("wrk -H 'host: a' http://127.0.0.1/", "write Host with a capital"),
        ("wrk 'http://127.0.0.1/a b'", "is not allowed in a request line"),
        ("ab http://127.0.0.1/\u{e9}", "is not allowed in a request line"),
        ("ab http://127.0.0.1", "URL: ab requires a path"),
        ("ab http://a:b@127.0.0.1/", "-A USER:PASSWORD"),
        ("ab http://%6cocalhost/", "ab takes no % in a host"),
        ("wrk http://%6cocalhost/", "wrk takes no % in a host"),
        ("wrk http://a@b@127.0.0.1/", "wrk takes no @ in a host"),
        ("wrk http://under_score/", "wrk takes no _ in a host"),
        ("wrk -H 'X : y' http://127.0.0.1/", "not a name, a colon and a value"),
        ("ab -m PATCH -p Cargo.toml http://127.0.0.1/", "-p: ab accepts only one of -i, -p, -u and -m"),
        ("ab -p Cargo.toml -i http://127.0.0.1/", "-i: ab accepts only one of -i, -p, -u and -m"),
        ("ab -n 5 -c 10 http://127.0.0.1/", "-c 10: ab requires at least as many requests (-n 5)"),
        ("ab -n 1k http://127.0.0.1/", "-n 1k: ab accepts only whole numbers"),
    ] {
        let mistakes = plan(line).unwrap_err();
        assert!(mistakes.iter().any(|why| why.contains(words)), "{line}: {mistakes:?}");
    }
    let all = plan("ab -n 5 -g a -X b -f c http://127.0.0.1/").unwrap_err();
    assert_eq!(all.len(), 3, "{all:?}");
}

#[test]
fn targets_and_fields_are_those_of_the_program() {
    let sent = |line: &str| sent(&plan(line).unwrap_or_else(|why| panic!("{line}: {why:?}")));
    for program in ["wrk", "ab"] {
        let target = "/a/../%2e%2e/b\\c?q='x'<\"{{uuid}}${HOME}#z";
        assert_eq!(
            sent(&format!("{program} {}", quoted(&format!("http://127.0.0.1:1{target}")))).target,
            target
        );
    }
    assert_eq!(sent("ab -p Cargo.toml -m PATCH http://127.0.0.1:1/").method, "PATCH");
    for host in ["127.1:1", "0x7f.1:1", "2130706433:1", "[0:0::1]:1", "[::FFFF:127.0.0.1]:1"] {
        for program in ["wrk", "ab"] {
            let sent = sent(&format!("{program} 'http://{host}/'"));
            assert!(sent.headers.contains(&("host".to_owned(), host.to_owned())), "{program}: {sent:?}");
        }
    }
    let fields = |line: &str| sent(&format!("wrk {line}")).headers;
    let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let host = |value: &str| field("host", value);
    assert_eq!(fields("-H 'Host: a' -H 'Host: b' http://127.0.0.1/"), [host("b")]);
    assert_eq!(
        fields("-H X-A:1 -H X-B -H 'Content-Length: 3' http://u:p@127.0.0.1:80/"),
        [host("127.0.0.1:80")]
    );
    assert_eq!(sent("wrk http://127.0.0.1:1?q").target, "/");
    assert_eq!(
        fields("-H 'X: a' -H 'X: {{b}}' http://127.0.0.1:1/"),
        [host("127.0.0.1:1"), field("x", "{{b}}")]
    );
}

#[test]
fn the_same_line_has_no_secret() {
    let words = ["--header", "Authorization: Bearer abc", "-H", "X: 1 2", "http://u:p@h/?token=t1#x"]
        .map(str::to_owned);
    assert_eq!(
        same_line(&words),
        "proofload --header 'Authorization: ${SECRET_1}' -H 'X: 1 2' 'http://${SECRET_2}:${PASSWORD_2}@h/?token=${SECRET_3}#x'\n  \
         first export each variable in ${…} with its secret: proofload does not print secrets"
    );
    let words = ["http".to_owned(), "http://h/".to_owned()];
    assert_eq!(same_line(&words), "proofload http http://h/");
}

#[test]
fn options_of_tls_are_kept_for_https_only() {
    let words = |line: &str| {
        let given = |url: &str| {
            PeerArgs::<Ab>::from_arg_matches(
                &PeerArgs::<Ab>::augment_args(Command::new("ab"))
                    .try_get_matches_from(format!("{line} {url}").split(' '))
                    .unwrap(),
            )
        };
        let own = given("https://a/").unwrap();
        let (_, translated, _) = Ab::translate("https://a/", &own.given);
        (translated.options.clone(), translated.words("http://a/"))
    };
    let (options, plain) = words("ab -f TLS1.2 -Z AES -E me.pem");
    for (name, value) in [("tls-min", "1.2"), ("tls-max", "1.2"), ("ciphers", "AES"), ("cert", "me.pem")] {
        assert!(options.contains(&(name, Value::Literal(value.to_owned()))), "{options:?}");
        assert!(!plain.contains(&format!("--{name}")), "{plain:?}");
    }
    assert!(options.contains(&("insecure", Value::Flag)));
}

#[test]
fn the_tables_are_sound() {
    for name in ["wrk", "wrk2", "ab"] {
        let mut cli = Cli::command();
        let help = cli.find_subcommand_mut(name).unwrap().render_long_help().to_string();
        assert!(help.contains("--json <FILE>") && help.contains("Exit status"), "{help}");
    }
}
