//! What events are taken, and when they are acknowledged.

use events::TimeFormat;
use listen::{Level, Route};
use record::units::parse_time;

use super::{Kind, Setting, choice, count, time, told};

const ACKNOWLEDGING: &str = "Acknowledging";
const EVENTS: &str = "Events";

const LEVELS: &[&str] = &["accepted", "written", "synced"];
const COMPATS: &[&str] = &["none", "fluentd"];

fn level(text: &str) -> Result<Level, String> {
    choice(text, LEVELS, &[Level::Accepted, Level::Written, Level::Synced])
}

fn route(text: &str) -> Result<Route, String> {
    let (path, name) =
        text.rsplit_once('=').ok_or_else(|| format!("'{text}' is not a route such as /audit=synced"))?;
    if !path.starts_with('/') {
        return Err(format!("'{path}' is not the beginning of a path, such as /audit"));
    }
    Ok(Route { path: path.to_owned(), level: level(name)? })
}

pub(super) const SETTINGS: &[Setting] = settings::table! {
    /// When a request is answered: its events are accepted (in memory), written (in the file) or synced (on the disk)
    "ack", Kind::Choice(LEVELS), "LEVEL", ACKNOWLEDGING, "written", "synced",
        |draft, values| draft.config.level = level(values[0])?;
    /// Level of the paths that begin so; repeatable; the longest holds
    "route", Kind::List, "PATH=LEVEL", ACKNOWLEDGING, "", "/audit=synced /clicks=accepted",
        |draft, values| draft.config.routes = values.iter().map(|text| route(text)).collect::<Result<_, _>>()?;
    /// How long a group commit waits for company; 0 takes all that came during the last one
    "sync_delay", Kind::Time, "TIME", ACKNOWLEDGING, "0", "2ms",
        |draft, values| draft.config.store.sync_delay = parse_time(values[0]).map_err(told)?;
    /// Idempotency keys remembered at least, so that a request sent again is not stored again; 0 ignores them
    "idempotency_keys", Kind::Count(0), "N", ACKNOWLEDGING, "100k", "1M",
        |draft, values| draft.config.limits.idempotency_keys = count(values[0], 0)?;
    /// How long they are remembered
    "idempotency_window", Kind::Time, "TIME", ACKNOWLEDGING, "5m", "1h",
        |draft, values| draft.config.limits.idempotency_window = time(values[0])?;
    /// Goes before every tag, joined by a dot; the tag itself is the path of the request, /a/b is a.b
    "tag_prefix", Kind::Text, "TAG", EVENTS, "", "web",
        |draft, values| draft.config.tag_prefix = Some(values[0].to_owned()).filter(|prefix| !prefix.is_empty());
    /// Member of an event that is its time; otherwise that is ?time= of the request, or the time of arrival
    "time_key", Kind::Text, "NAME", EVENTS, "", "at",
        |draft, values| draft.reading.time_key = Some(Some(values[0].to_owned()).filter(|key| !key.is_empty()));
    /// How that member is written, as strftime has it; otherwise seconds since 1970 or ISO 8601
    "time_format", Kind::Text, "FORMAT", EVENTS, "", "%Y-%m-%dT%H:%M:%S%z",
        |draft, values| draft.reading.time_format = Some(TimeFormat::Strftime(values[0].to_owned()));
    /// Take that member out of the event when it is stored
    "drop_time_key", Kind::Flag, "", EVENTS, "", "true",
        |draft, _| draft.reading.drops_time_key = true;
    /// Read and answer as another program does
    "compat", Kind::Choice(COMPATS), "fluentd", EVENTS, "none", "fluentd",
        |draft, values| {
            if choice(values[0], COMPATS, &[false, true])? {
                draft.be_as_fluentd();
            } else {
                draft.be_itself();
            }
        };
    /// Add the request's headers to its events, as HTTP_NAME; with --compat fluentd
    "add_http_headers", Kind::Flag, "", EVENTS, "", "true",
        |draft, _| draft.config.request_fields.http_headers = true;
    /// Add the parameters of the query to its events, as QUERY_NAME; with --compat fluentd
    "add_query_params", Kind::Flag, "", EVENTS, "", "true",
        |draft, _| draft.config.request_fields.query_params = true;
    /// Add the client's address to its events, as REMOTE_ADDR; with --compat fluentd
    "add_remote_addr", Kind::Flag, "", EVENTS, "", "true",
        |draft, _| draft.config.request_fields.remote_addr = true;
};
