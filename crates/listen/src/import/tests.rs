use std::{net::SocketAddr, time::Duration};

use events::{LineFormat, Mode, TimeFormat};
use proptest::prelude::*;
use segments::Compression;

use super::*;
use crate::Tls;

/// The reference configuration, with which the study also runs Fluentd.
const REFERENCE: &str = include_str!("../../../../studies/http-listener/fluentd.conf");

const SOURCE: &str = "<source>\n@type http\n</source>\n";
const OUTPUT: &str = "<match **>\n@type file\npath logs/all\n</match>\n";

fn imported(text: &str) -> Imported {
    match fluentd("f", text) {
        Ok(imported) => imported,
        Err(mistakes) => panic!("{text}\n{mistakes:#?}"),
    }
}

fn refused(text: &str) -> Vec<String> {
    let mistakes = fluentd("f", text).expect_err(text);
    mistakes.iter().map(ToString::to_string).collect()
}

fn with_output(lines: &str) -> String {
    format!("{SOURCE}<match **>\n@type file\n{lines}\n</match>")
}

fn with_source(lines: &str) -> String {
    format!("<source>\n@type http\n{lines}\n</source>\n{OUTPUT}")
}

fn template(text: &str) -> (String, String) {
    let config = imported(text).config;
    (config.store.template.to_string(), config.store.suffix)
}

#[test]
fn the_reference_tests_configuration_is_read_as_it_stands() {
    let Imported { config, notes, .. } = imported(REFERENCE);
    assert_eq!(config.listen, ["0.0.0.0:9880".parse::<SocketAddr>().unwrap()]);
    assert_eq!(config.store.template.to_string(), "output/${tag}_%Y-%m-%d");
    assert_eq!((config.store.suffix.as_str(), config.store.append), (".log", true));
    assert_eq!(config.format, LineFormat::OutFile { time: true, tag: false });
    assert_eq!((config.rules.mode, config.compat), (Mode::FluentdJson, Compat::fluentd()));
    let tags = config.tags.unwrap();
    assert!(tags.matches("http_listener_test") && !tags.matches("other"));
    let notes: Vec<String> = notes.iter().map(ToString::to_string).collect();
    let named = ["@type has no effect", "flush_mode has no effect", "flush_interval has no effect"];
    assert_eq!(notes.len(), named.len(), "{notes:?}");
    for (note, named) in notes.iter().zip(named) {
        assert!(note.contains(named), "{note}");
    }
}

#[test]
fn defaults_are_those_of_fluentd() {
    let Imported { config, notes, .. } = imported(&format!("{SOURCE}{OUTPUT}"));
    assert_eq!(notes, []);
    assert_eq!(config.listen, ["0.0.0.0:9880".parse::<SocketAddr>().unwrap()]);
    assert_eq!(config.timeouts.idle, Duration::from_secs(10));
    assert_eq!((config.limits.body_bytes, config.limits.inflated_bytes), (32 << 20, 256 << 20));
    assert_eq!(config.store.template.to_string(), "logs/all.%Y%m%d");
    assert_eq!((config.store.suffix.as_str(), config.store.append), (".log", false));
    assert_eq!(config.format, LineFormat::OutFile { time: true, tag: true });
    assert_eq!(config.rules, Rules::fluentd());
    assert!(!config.store.utc && config.store.compress == Compression::None && config.tls.is_none());
}

#[test]
fn only_a_parser_that_is_named_reads_every_body_as_json() {
    let rules = |lines: &str| imported(&with_source(lines)).config.rules;
    let json = Rules { mode: Mode::FluentdJson, time_format: TimeFormat::Seconds, ..Rules::fluentd() };
    for named in ["<parse>\n@type json\n</parse>", "format json"] {
        assert_eq!(rules(named), json, "{named}");
    }
    for other in ["<parse>\n</parse>", "<parse>\n@type in_http\n</parse>"] {
        assert_eq!(rules(other), Rules::fluentd(), "{other}");
    }
}

#[test]
fn everything_that_can_be_obeyed_is() {
    let Imported { config, notes, .. } = imported(
        r#"
<system>
  workers 4
  log_level debug
  <log>
    format json
  </log>
</system>
<source>
  @type http
  @id in
  @log_level info
  port 8888
  bind ::1
  backlog 128
  body_size_limit 8m
  decompression_size_limit 16m
  keepalive_timeout 20s
  blocking_timeout 0.1
  dump_error_log false
  add_tag_prefix web
  add_http_headers yes
  add_query_params
  add_remote_addr true
  cors_allow_origins ["https://a.example", "*"]
  cors_allow_credentials false
  respond_with_empty_img true
  use_204_response true
  <transport tls>
    cert_path /c.pem
    private_key_path /k.pem
    min_version TLS1_2
  </transport>
  <parse>
    @type json
    time_key at
    time_type string
    time_format %Y-%m-%dT%H:%M:%S%z
    keep_time_key true
    json_parser oj
  </parse>
</source>
<match fluent.**>
  @type null
</match>
<match web.{a,b} web.c.**>
  @type file
  path "/var/log/${tag[1]}/${user}.*.txt"
  compress zstd
  symlink_path /var/log/now
  <buffer tag, user, time>
    timekey 1h
    timekey_wait 1m
    timekey_use_utc true
    total_limit_size 1g
    overflow_action block
    retry_forever true
  </buffer>
  <format>
    @type csv
    fields user, ["odd"]
  </format>
  <secondary>
    @type file
    path /var/log/secondary
  </secondary>
</match>
"#
        .replace("user, [\"odd\"]", "user,n")
        .as_str(),
    );
    assert_eq!(config.listen, ["[::1]:8888".parse::<SocketAddr>().unwrap()]);
    assert_eq!((config.backlog, config.limits.body_bytes), (128, 8 << 20));
    assert_eq!((config.limits.inflated_bytes, config.timeouts.idle), (16 << 20, Duration::from_secs(20)));
    assert_eq!(config.tag_prefix.as_deref(), Some("web"));
    assert!(
        config.request_fields.http_headers
            && config.request_fields.query_params
            && config.request_fields.remote_addr
    );
    let compat = Compat::Fluentd {
        cors_allow_origins: vec!["https://a.example".to_owned(), "*".to_owned()],
        cors_allow_credentials: false,
        empty_img: true,
        use_204: true,
    };
    assert_eq!(config.compat, compat);
    assert_eq!(config.tls, Some(Tls { certificates: "/c.pem".into(), key: "/k.pem".into() }));
    assert_eq!(config.rules.time_key.as_deref(), Some("at"));
    assert_eq!(config.rules.time_format, TimeFormat::Strftime("%Y-%m-%dT%H:%M:%S%z".to_owned()));
    assert!(config.rules.keep_time_key);
    assert_eq!(config.store.template.to_string(), "/var/log/${tag[1]}/${user}.%Y%m%d%H");
    assert_eq!((config.store.suffix.as_str(), config.store.append), (".txt", false));
    assert_eq!((config.store.compress, config.store.utc), (Compression::Zstd, true));
    assert_eq!(config.store.symlink.unwrap().to_string(), "/var/log/now");
    assert_eq!(config.format, LineFormat::Csv { fields: vec!["user".to_owned(), "n".to_owned()] });
    let tags = config.tags.unwrap();
    assert!(tags.matches("web.b") && tags.matches("web.c.d") && !tags.matches("web.d"));
    assert_eq!(notes.len(), 14, "{notes:#?}");
}

#[test]
fn paths_become_files_as_fluentd_names_them() {
    let appended =
        |path: &str, buffer: &str| template(&with_output(&format!("append\npath {path}\n{buffer}")));
    let day = "<buffer time>\n</buffer>";
    for (path, buffer, wanted, suffix) in [
        ("a/b", "", "a/b.%Y%m%d", ".log"),
        ("a/b.%Y-%m-%d", day, "a/b.%Y-%m-%d", ".log"),
        ("a/b.*", day, "a/b.%Y%m%d", ""),
        ("a/b.*.txt", day, "a/b.%Y%m%d", ".txt"),
        ("a/*/%d.txt", day, "a/%Y%m%d/%d.txt", ""),
        ("a/b", "<buffer time>\ntimekey 1s\n</buffer>", "a/b.%Y%m%d%H%M%S", ".log"),
        ("a/b", "<buffer time>\ntimekey 1m\n</buffer>", "a/b.%Y%m%d%H%M", ".log"),
        ("a/b", "<buffer>\n</buffer>", "a/b", ".log"),
        ("a/${tag}", "<buffer tag>\n</buffer>", "a/${tag}", ".log"),
        ("a/b\npath_suffix .txt", day, "a/b.%Y%m%d", ".txt"),
        ("a/b\nadd_path_suffix false", day, "a/b.%Y%m%d", ""),
    ] {
        assert_eq!(appended(path, buffer), (wanted.to_owned(), suffix.to_owned()), "{path} {buffer}");
    }
}

#[test]
fn every_mistake_is_told_with_its_line_and_what_is_known() {
    let told = refused(
        "@include other.conf\nlog_level info\n<source>\n  @type http\n  prot 1\n  port x\n  @label @a\n</source>\n\
         <filter **>\n</filter>\n<label @a>\n</label>\n<sauce>\n</sauce>\n\
         <match /a/>\n  @type file\n  path a/${tag}/${chunk_id}\n  compress lz4\n  <buffer time>\n    timekye 1d\n  </buffer>\n\
         <format>\n    @type ltsv\n  </format>\n  <inject>\n  </inject>\n</match>\n<match b>\n@type file\n</match>",
    );
    let wanted = [
        ("f:1:1: ", "@include is not followed here"),
        ("f:2:1: ", "unknown parameter 'log_level' outside all directives"),
        ("f:5:3: ", "unknown parameter 'prot' in <source>; did you mean 'port'? (known here: @type, @id"),
        ("f:6:3: ", "port: 'x' is not a whole number from 0 to 65535"),
        ("f:7:3: ", "@label: labels are not supported"),
        ("f:9:1: ", "<filter> is not supported"),
        ("f:11:1: ", "move the <match> out of it"),
        ("f:13:1: ", "unknown directive <sauce>; did you mean 'source'? (known here: source, match, system)"),
        ("f:15:1: ", "regular expressions are not known here"),
        ("f:17:3: ", "${tag} needs tag among the keys of <buffer>"),
        ("f:18:3: ", "'lz4' is not supported (supported: text, gzip, zstd)"),
        ("f:20:5: ", "unknown parameter 'timekye' in <buffer>; did you mean 'timekey'?"),
        ("f:22:1: ", "a format of type 'ltsv' is not supported (supported: out_file, json, csv)"),
        ("f:25:3: ", "<inject>"),
        ("f:28:1: ", "a second <match>"),
    ];
    for ((place, what), told) in wanted.iter().zip(&told) {
        assert!(told.starts_with(place) && told.contains(what), "{place}{what}\n{told}");
    }
    assert_eq!(told.len(), wanted.len(), "{told:#?}");
}

#[test]
fn a_directive_that_is_not_closed_hides_no_other_mistake() {
    for text in [
        "<source>\n@type http\nport x\n</source>\n<filter a>\n</filter>\n<match **>\n@type s3\n",
        "<match **>\n@type s3\n<source>\n@type http\nport x\n</source>\n<filter a>\n</filter>\n",
    ] {
        let told: Vec<String> = fluentd("f", text).unwrap_err().iter().map(ToString::to_string).collect();
        let parts = ["<match> is never closed", "port: 'x' is not", "<filter> is not supported", "'s3'"];
        for part in parts {
            assert!(told.iter().any(|mistake| mistake.contains(part)), "{part}: {told:#?}");
        }
        assert_eq!(told.len(), parts.len(), "{told:#?}");
    }
}

#[test]
fn mistakes_of_a_source_are_told() {
    for (lines, what) in [
        ("port x", "f:3:1: port: 'x' is not a whole number from 0 to 65535"),
        ("prot 1", "unknown parameter 'prot' in <source>; did you mean 'port'?"),
        ("bind localhost", "'localhost' is not an address such as 0.0.0.0"),
        ("@label @x", "f:3:1: @label: labels are not supported"),
        ("body_size_limit 1.5m", "'1.5m' is not a size such as 8m"),
        ("add_http_headers maybe", "'maybe' is neither true nor false"),
        ("format msgpack", "format: 'msgpack' is not supported (supported: json)"),
        (
            "<parse>\n@type regexp\n</parse>",
            "a parser of type 'regexp' is not supported (supported: json, in_http)",
        ),
        ("<parse>\ntypes a:integer\n</parse>", "values are stored as they come"),
        ("<parse>\n</parse>\n<parse>\n</parse>", "f:5:1: a second <parse>"),
        ("<parse>\ntime_type string\n</parse>", "f:4:1: time_type: 'string' needs time_format here"),
        ("<transport tls>\ncert_path /c\n</transport>", "cert_path and private_key_path are both needed"),
        ("<transport tls>\nclient_cert_auth true\n</transport>", "client certificates"),
        ("<transport udp>\n</transport>", "transport 'udp' is not supported"),
    ] {
        let told = refused(&with_source(lines));
        assert!(told.iter().any(|told| told.contains(what)), "{lines}: {told:?}");
    }
    for (text, what) in [
        (OUTPUT.to_owned(), "<source> is missing"),
        (SOURCE.to_owned(), "<match> is missing"),
        (format!("{SOURCE}{SOURCE}{OUTPUT}"), "f:4:1: a second <source>"),
        (
            format!("<source>\n@type forward\n</source>{OUTPUT}"),
            "nothing but a comment may follow an end tag",
        ),
        (
            format!("<source>\n@type forward\n</source>\n{OUTPUT}"),
            "type 'forward' is not supported (supported: http)",
        ),
        (format!("<source>\n</source>\n{OUTPUT}"), "@type is missing: @type http"),
    ] {
        let told = refused(&text);
        assert!(told.iter().any(|told| told.contains(what)), "{text}: {told:?}");
    }
}

#[test]
fn mistakes_of_an_output_are_told() {
    for (lines, what) in [
        ("", "f:4:1: path is missing"),
        ("path a/%Y.b\n<buffer time>\n</buffer>", "slices of this timekey need %m %d too"),
        ("path a/*\n<buffer>\n</buffer>", "'*' stands for the time"),
        ("append\npath a/*/*\n<buffer time>\n</buffer>", "'*' may only be followed"),
        ("path a/*/b\n<buffer time>\n</buffer>", "'*' may only be followed"),
        ("path a/${tag\n", "'${' is not closed"),
        ("path a/${chunk_id}", "there are no chunks here"),
        ("path a\n<buffer time>\ntimekey 0\n</buffer>", "a slice of time lasts at least 1s"),
        ("path a\n<buffer time>\ntimekey_zone +0900\n</buffer>", "set TZ=+0900 for this process"),
        ("path a\nflush_interval 1s", "it is from Fluentd 0.12"),
        ("path a\n<format>\ndelimiter COMMA\n</format>", "(supported: TAB)"),
        ("path a\n<format>\n@type csv\n</format>", "fields is missing"),
        ("path a\n<format>\ntime_format %s\n</format>", "ISO 8601"),
    ] {
        let told = refused(&with_output(lines));
        assert!(told[0].contains(what), "{lines}: {told:?}");
    }
    let copy = refused(&format!("{SOURCE}<match **>\n@type copy\n</match>"));
    assert!(copy[0].contains("out of its <store>"), "{copy:?}");
}

/// Pieces of configurations, valid and invalid.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("<source>\n"),
        Just("</source>\n"),
        Just("<match **>\n"),
        Just("</match>\n"),
        Just("<buffer tag,time>\n"),
        Just("</buffer>\n"),
        Just("<parse>\n"),
        Just("</parse>\n"),
        Just("@type http\n"),
        Just("@type file\n"),
        Just("path a/${tag}.*\n"),
        Just("path "),
        Just("${"),
        Just("port 1\n"),
        Just("\""),
        Just("'"),
        Just("\\"),
        Just("#"),
        Just("{"),
        Just("["),
        Just("]"),
        Just("}"),
        Just("<"),
        Just(">"),
        Just("\n"),
        Just("é"),
        Just("*"),
        Just("timekey 1h\n"),
        Just("append\n"),
        Just("#{"),
        Just(" "),
    ];
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in ".{0,300}") {
        if let Err(mistakes) = fluentd("f", &text) {
            prop_assert!(!mistakes.is_empty());
        }
    }

    #[test]
    fn any_pieces_are_read_or_refused_with_places_in_the_text(text in pieces()) {
        if let Err(mistakes) = fluentd("f", &text) {
            prop_assert!(!mistakes.is_empty());
            let lines = text.split('\n').count();
            prop_assert!(mistakes.iter().all(|mistake| (1..=lines).contains(&mistake.line)), "{mistakes:?}");
        }
    }
}
