//! `<source>` of type `http`: addresses, limits, answers, and the rules for reading bodies.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use events::{Mode, Rules, TimeFormat, Zone};

use super::{mistakes::Mistakes, section::Section, syntax::Directive, values};
use crate::{Compat, Config, Tls};

/// Applies a source to the configuration. Applies its rules for reading bodies to `own_rules` too.
pub(super) fn read(
    directive: &Directive,
    config: &mut Config,
    own_rules: &mut Rules,
    mistakes: &mut Mistakes<'_>,
) {
    let mut section = Section::of(directive, mistakes);
    match section.text("@type") {
        Some("http") => {}
        Some(other) => {
            return section.add(format!("a <source> of type '{other}' is not supported (supported: http)"));
        }
        None => return section.add("@type is missing: @type http"),
    }
    section.common();
    address(&mut section, config);
    limits(&mut section, config);
    answers(&mut section, config);
    if let Some(transport) = section.child("transport") {
        config.tls = tls(transport, section.mistakes);
    }
    // Fluentd 0.12 used `format` instead of `<parse>`.
    let old = section.read("format", |format| match format {
        "json" => Ok(()),
        _ => Err(format!("'{format}' is not supported (supported: json)")),
    });
    if old.is_some() {
        one_json(&mut config.rules);
    }
    if let Some(parse) = section.child("parse") {
        rules(parse, [&mut config.rules, own_rules], section.mistakes);
    }
    section.finish();
}

fn address(section: &mut Section<'_, '_, '_>, config: &mut Config) {
    let port = section.integer("port", 0..=65_535).unwrap_or(9_880) as u16;
    let bind = section.read("bind", |text| {
        text.parse::<IpAddr>().map_err(|_| format!("'{text}' is not an address such as 0.0.0.0 or ::"))
    });
    config.listen = vec![SocketAddr::new(bind.unwrap_or(IpAddr::from([0, 0, 0, 0])), port)];
    if let Some(backlog) = section.integer("backlog", 1..=1 << 20) {
        config.backlog = backlog as u32;
    }
}

fn limits(section: &mut Section<'_, '_, '_>, config: &mut Config) {
    config.limits.body_bytes = section.size("body_size_limit").unwrap_or(32 << 20);
    config.limits.inflated_bytes = section.size("decompression_size_limit").unwrap_or(256 << 20);
    config.timeouts.idle = section.time("keepalive_timeout").unwrap_or(Duration::from_secs(10));
    section.without_effect(&["blocking_timeout"], "no thread waits for another");
    section.without_effect(&["dump_error_log"], "/metrics counts the refusals");
}

fn answers(section: &mut Section<'_, '_, '_>, config: &mut Config) {
    config.tag_prefix = section.text("add_tag_prefix").map(str::to_owned);
    config.request_fields.http_headers = section.flag("add_http_headers").unwrap_or(false);
    config.request_fields.query_params = section.flag("add_query_params").unwrap_or(false);
    config.request_fields.remote_addr = section.flag("add_remote_addr").unwrap_or(false);
    config.compat = Compat::Fluentd {
        cors_allow_origins: section.read("cors_allow_origins", values::list).unwrap_or_default(),
        cors_allow_credentials: section.flag("cors_allow_credentials").unwrap_or(false),
        empty_img: section.flag("respond_with_empty_img").unwrap_or(false),
        use_204: section.flag("use_204_response").unwrap_or(false),
    };
}

fn tls(directive: &Directive, mistakes: &mut Mistakes<'_>) -> Option<Tls> {
    let mut section = Section::of(directive, mistakes);
    let tls = match section.argument() {
        "tls" => {
            section.without_effect(
                &["version", "min_version", "max_version", "ciphers", "insecure"],
                "TLS 1.2 and 1.3 are offered with rustls' ciphers",
            );
            section.refuse(
                &["client_cert_auth", "ca_path", "ca_cert_path", "ca_private_key_path"],
                "client certificates and generated certificates are not supported; use --bearer-token-file, and give \
                 cert_path and private_key_path",
            );
            section.refuse(
                &["private_key_passphrase"],
                "encrypted keys are not supported; store the key as plain PEM, readable by this user only",
            );
            let (certificates, key) = (section.text("cert_path"), section.text("private_key_path"));
            if certificates.is_none() || key.is_none() {
                section.add("cert_path and private_key_path are both needed");
            }
            Some(Tls { certificates: certificates?.into(), key: key?.into() })
        }
        "" | "tcp" => None,
        other => {
            section.add(format!("transport '{other}' is not supported (supported: tcp, tls)"));
            return None;
        }
    };
    section.finish();
    tls
}

/// With a JSON parser, Fluentd reads each body as a single JSON text, and accepts numbers in strings as times.
fn one_json(rules: &mut Rules) {
    (rules.mode, rules.time_format) = (Mode::FluentdJson, TimeFormat::Seconds);
}

/// Applies `<parse>` to both sets of rules: Fluentd's and proofload's.
fn rules(directive: &Directive, rules: [&mut Rules; 2], mistakes: &mut Mistakes<'_>) {
    let mut section = Section::of(directive, mistakes);
    match section.text("@type") {
        None | Some("in_http") => {}
        Some("json") => one_json(rules[0]),
        Some(other) => {
            return section
                .add(format!("a parser of type '{other}' is not supported (supported: json, in_http)"));
        }
    }
    section.common();
    section.without_effect(&["json_parser"], "there is one parser");
    section
        .without_effect(&["estimate_current_event"], "events without a time get the time of their arrival");
    section.without_effect(&["stream_buffer_size"], "bodies are read whole");
    section.refuse(&["types", "null_value_pattern", "null_empty_string"], "values are stored as they come");
    section.refuse(&["timezone"], "times of records are in local time, or in UTC with utc true");
    let in_utc = section.flag("utc") == Some(true) || section.flag("localtime") == Some(false);
    let key = section.text("time_key").map(str::to_owned);
    let keep = section.flag("keep_time_key");
    let format = time_format(&mut section);
    section.finish();
    for rules in rules {
        if in_utc {
            rules.zone = Zone::Utc;
        }
        if key.is_some() {
            rules.time_key.clone_from(&key);
        }
        rules.keep_time_key = keep.unwrap_or(rules.keep_time_key);
        if let Some(format) = &format {
            rules.time_format.clone_from(format);
        }
    }
}

/// Reads the format of times inside records.
fn time_format(section: &mut Section<'_, '_, '_>) -> Option<TimeFormat> {
    let format = section.text("time_format").map(|format| TimeFormat::Strftime(format.to_owned()));
    let by_type = section.read("time_type", |kind| match kind {
        "string" if format.is_none() => Err("'string' needs time_format here, such as time_format \
                                             %Y-%m-%dT%H:%M:%S%z: without time_format only numbers are times"
            .to_owned()),
        "string" => Ok(None),
        "float" | "unixtime" => Ok(Some(TimeFormat::Seconds)),
        _ => Err(format!("'{kind}' is not supported (supported: string, unixtime, float)")),
    });
    by_type.flatten().or(format)
}
