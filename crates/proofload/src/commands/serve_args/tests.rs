use super::*;
use clap::Parser;

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    serve: ServeArgs,
}

fn args(line: &str) -> ServeArgs {
    Command::try_parse_from(["serve"].into_iter().chain(line.split_whitespace())).unwrap().serve
}

#[test]
fn every_option_takes_its_example_and_has_its_default() {
    let plain = ConfigBuilder::new;
    for setting in OPTIONS {
        let mut builder = plain();
        assert_eq!((setting.apply)(&mut builder, &setting.examples()), Ok(()), "{}", setting.key);
        assert_ne!(format!("{builder:?}"), format!("{:?}", plain()), "{}", setting.key);
        if !setting.default.is_empty() {
            assert_eq!((setting.apply)(&mut builder, &[setting.default]), Ok(()), "{}", setting.key);
            assert_eq!(format!("{builder:?}"), format!("{:?}", plain()), "{}", setting.key);
        }
    }
}

#[test]
fn without_options_it_is_the_default_on_port_8080() {
    let expected = Config { listen: vec!["127.0.0.1:8080".parse().unwrap()], ..Config::default() };
    assert_eq!(args("").config(), Ok((expected, 1)));
    assert_eq!((args("").json, args("").quiet), (None, false));
}

#[test]
fn tls_pages_and_records_are_read() {
    let config = |line: &str| args(line).config().map(|(config, _)| config);
    let read = config("--pages --token-lifetime 5s --record r.jsonl --record-body 9 --tls --tls-ca-out ca.pem --tls-min 1.3").unwrap();
    assert_eq!(read.pages, Some(Pages { token_lifetime_ns: 5_000_000_000 }));
    assert_eq!(read.record, Some(Record { file: "r.jsonl".into(), body_bytes: 9 }));
    let tls = read.tls.unwrap();
    assert_eq!((tls.files, tls.ca_out, tls.min.to_string()), (None, Some("ca.pem".into()), "1.3".to_owned()));
    let files = config("--cert c.pem --key k.pem --client-ca a.pem").unwrap().tls.unwrap().files;
    assert_eq!(files, Some(TlsFiles { certificates: "c.pem".into(), key: "k.pem".into() }));
    for (line, part) in [
        ("--cert c.pem", "give both"),
        ("--client-ca a.pem", "need --tls"),
        ("--token-lifetime 5s", "needs --pages"),
        ("--record-body 5", "needs --record"),
        ("--tls --tls-fault moon", "is not a TLS fault"),
        ("--tls --tls-min 1.3 --tls-max 1.2", "swap them"),
        ("--cert c --key k --tls-fault expired", "leave out your own certificate"),
        ("--cert c --key k --tls-ca-out a", "leave out --tls-ca-out"),
        ("--tls --processes 2", "its own certificate"),
        ("--pages --processes 2", "its own tokens"),
        ("--record r --processes 2", "overwrite the record"),
        ("--tls --client-ca a --tls-fault client-cert", "leave out --client-ca"),
    ] {
        let mistakes = config(line).unwrap_err();
        assert!(mistakes.iter().any(|mistake| mistake.contains(part)), "{line}: {mistakes:?}");
    }
}

#[test]
fn every_option_is_read() {
    let args = args(
        "--listen 127.0.0.1:0 --listen [::1]:81 --body 64KiB --chunked 1KiB --status 404 --slow-head 20ms \
         --delay exp:20ms --capacity 4 --service-time 10ms --queue 1_000 --queue-full reset \
         --stall 10s,300ms --misbehave error=1%,reset=0.5 --misbehave silent=0.25 --error-status 500 \
         --max-connections 18k --backlog 128 --keepalive-requests 100 --keepalive-timeout 65s -t 2 \
         --processes 1 --cpus 0,2-4 --seed 9 -d 1m --json - -q",
    );
    assert_eq!((args.json.as_deref(), args.quiet), (Some(Path::new("-")), true));
    let expected = Config {
        listen: vec!["127.0.0.1:0".parse().unwrap(), "[::1]:81".parse().unwrap()],
        reuse_port: false,
        body: Body::Size(65_536),
        chunk_bytes: Some(1_024),
        status: 404,
        delay: Distribution::Exponential { mean_ns: 20_000_000 },
        capacity: Some(Capacity {
            servers: 4,
            service_time: Distribution::Fixed { ns: 10_000_000 },
            queue: Some(1_000),
            when_full: WhenFull::Reset,
        }),
        stall: Some(Stall { every_ns: 10_000_000_000, for_ns: 300_000_000 }),
        misbehave: vec![
            (Misbehaviour::Error, 0.01),
            (Misbehaviour::Reset, 0.5),
            (Misbehaviour::Silent, 0.25),
        ],
        error_status: 500,
        slow_head_ns: 20_000_000,
        max_connections: Some(18_000),
        backlog: 128,
        keepalive_requests: Some(100),
        keepalive_timeout_ns: Some(65_000_000_000),
        threads: 2,
        cpus: vec![0, 2, 3, 4],
        seed: 9,
        duration_ns: Some(60_000_000_000),
        tls: None,
        pages: None,
        record: None,
    };
    assert_eq!(args.config(), Ok((expected, 1)));
}

#[test]
fn processes_share_addresses_and_no_queue() {
    let (config, processes) = args("--processes 3 --max-connections 5").config().unwrap();
    assert_eq!((processes, config.reuse_port), (3, true));
    let mistakes = args("--capacity 2 --service-time 1ms --processes 2").config().unwrap_err();
    assert!(mistakes.len() == 1 && mistakes[0].starts_with("--processes: each process"), "{mistakes:?}");
}

#[test]
fn chunks_have_a_size_of_their_own() {
    assert_eq!(args("--chunked --body 1MiB").config().unwrap().0.chunk_bytes, Some(16_384));
}

#[test]
fn a_file_is_the_body() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, [0, 1, 255]).unwrap();
    let config = args(&format!("--body-file {}", file.path().display())).config();
    assert_eq!(config.unwrap().0.body, Body::Bytes(vec![0, 1, 255]));
}

#[test]
fn all_mistakes_are_named_at_once() {
    let mistakes = args(
        "--listen here --body-file /does/not/exist --chunked 0 --status 99 --delay soon --queue 5 \
         --stall 1s --misbehave explode=1%,error=2 --backlog many --threads 0 --processes 0 --cpus 3-1 \
         --service-time 5ms --seed 1.5",
    );
    let mistakes = mistakes.config().unwrap_err();
    for part in [
        "--listen: 'here'",
        "--body-file: cannot read /does/not/exist",
        "chunks of 0 bytes",
        "status 99",
        "--delay: 'soon'",
        "--queue needs --capacity",
        "--stall: '1s'",
        "--misbehave: 'explode'",
        "; '2' is not a share",
        "--backlog: 'many'",
        "0 threads",
        "--processes: 0",
        "--cpus: '3-1'",
        "--service-time needs --capacity",
        "--seed: '1.5'",
    ] {
        assert!(mistakes.iter().any(|m| m.contains(part)), "{part}: {mistakes:#?}");
    }
    assert_eq!(mistakes.len(), 14, "{mistakes:#?}");
    let both = args("--body 1 --body-file /dev/null").config().unwrap_err();
    assert_eq!(both, ["--body and --body-file: leave out one"]);
    let unbounded = args("--capacity 1 --service-time 1ms --queue-full close").config().unwrap_err();
    assert!(unbounded[0].contains("never full"), "{unbounded:?}");
    assert!(args("--capacity 1").config().unwrap_err()[0].contains("needs --service-time"));
}

#[test]
fn a_seed_may_be_any_number_up_to_2_to_53() {
    assert_eq!(args("--seed 9007199254740992").config().unwrap().0.seed, 1 << 53);
}
