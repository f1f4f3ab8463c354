//! Settings for acknowledgements and for reading events.

use events::TimeFormat;
use listen::{Level, Route};
use record::units::parse_time;

use super::{Kind, OptionSpec, choice, count, error_text, time};

const ACKNOWLEDGING: &str = "Acknowledging";
const EVENTS: &str = "Events";

const LEVELS: &[&str] = &["accepted", "written", "synced"];
const COMPATS: &[&str] = &["none", "fluentd"];

fn level(text: &str) -> Result<Level, String> {
    choice(text, LEVELS, &[Level::Accepted, Level::Written, Level::Synced])
}

fn route(text: &str) -> Result<Route, String> {
    let (path, name) =
        text.rsplit_once('=').ok_or_else(|| format!("'{text}' is not PATH=LEVEL, such as /audit=synced"))?;
    if !path.starts_with('/') {
        return Err(format!("the path '{path}' does not begin with /; give one such as /audit"));
    }
    Ok(Route { path: path.to_owned(), level: level(name)? })
}

pub(super) const SETTINGS: &[OptionSpec] = settings::option_table! {
    /// When to answer a request: when its events are accepted (in memory), written (to the file) or synced (to the disk)
    "ack", Kind::Choice(LEVELS), "LEVEL", ACKNOWLEDGING, "written", "synced",
        |builder, values| builder.config.level = level(values[0])?;
    /// Level for paths with this prefix; repeatable; the longest prefix wins
    "route", Kind::List, "PATH=LEVEL", ACKNOWLEDGING, "", "/audit=synced /clicks=accepted",
        |builder, values| builder.config.routes = values.iter().map(|text| route(text)).collect::<Result<_, _>>()?;
    /// Maximum delay to batch events before a sync; 0 batches only what arrived during the previous sync
    "sync_delay", Kind::Time, "TIME", ACKNOWLEDGING, "0", "2ms",
        |builder, values| builder.config.store.sync_delay = parse_time(values[0]).map_err(error_text)?;
    /// Minimum number of idempotency keys remembered, so that repeated requests are stored once; 0 ignores keys
    "idempotency_keys", Kind::Count(0), "N", ACKNOWLEDGING, "100k", "1M",
        |builder, values| builder.config.limits.idempotency_keys = count(values[0], 0)?;
    /// How long idempotency keys are remembered
    "idempotency_window", Kind::Time, "TIME", ACKNOWLEDGING, "5m", "1h",
        |builder, values| builder.config.limits.idempotency_window = time(values[0])?;
    /// Prefix of every tag, joined by a dot; the tag is the path of the request: /a/b is a.b
    "tag_prefix", Kind::Text, "TAG", EVENTS, "", "web",
        |builder, values| builder.config.tag_prefix = Some(values[0].to_owned()).filter(|prefix| !prefix.is_empty());
    /// Member with the time of an event; without it, the time is ?time= of the request or the time of arrival
    "time_key", Kind::Text, "NAME", EVENTS, "", "at",
        |builder, values| builder.body_rules.time_key = Some(Some(values[0].to_owned()).filter(|key| !key.is_empty()));
    /// Format of that member, as for strftime; without it, seconds since 1970 or ISO 8601
    "time_format", Kind::Text, "FORMAT", EVENTS, "", "%Y-%m-%dT%H:%M:%S%z",
        |builder, values| builder.body_rules.time_format = Some(TimeFormat::Strftime(values[0].to_owned()));
    /// Remove that member from the event
    "drop_time_key", Kind::Flag, "", EVENTS, "", "true",
        |builder, _| builder.body_rules.drops_time_key = true;
    /// Parse and answer requests as another program does
    "compat", Kind::Choice(COMPATS), "fluentd", EVENTS, "none", "fluentd",
        |builder, values| {
            builder.use_fluentd_compat(choice(values[0], COMPATS, &[false, true])?);
        };
    /// Add the request's headers to its events, as HTTP_NAME; with --compat fluentd
    "add_http_headers", Kind::Flag, "", EVENTS, "", "true",
        |builder, _| builder.config.request_fields.http_headers = true;
    /// Add the query parameters of the request to its events, as QUERY_NAME; with --compat fluentd
    "add_query_params", Kind::Flag, "", EVENTS, "", "true",
        |builder, _| builder.config.request_fields.query_params = true;
    /// Add the client's address to its events, as REMOTE_ADDR; with --compat fluentd
    "add_remote_addr", Kind::Flag, "", EVENTS, "", "true",
        |builder, _| builder.config.request_fields.remote_addr = true;
};
