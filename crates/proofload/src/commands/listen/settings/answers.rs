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

pub(super) const SETTINGS: &[Setting] = &[
    Setting {
        key: "ack",
        kind: Kind::Choice(LEVELS),
        value_name: "LEVEL",
        heading: ACKNOWLEDGING,
        help: "When a request is answered: its events are accepted (in memory), written (in the file) or synced (on the disk)",
        default: "written",
        example: "synced",
        apply: |draft, values| {
            draft.config.level = level(values[0])?;
            Ok(())
        },
    },
    Setting {
        key: "route",
        kind: Kind::List,
        value_name: "PATH=LEVEL",
        heading: ACKNOWLEDGING,
        help: "Level of the paths that begin so; repeatable; the longest holds",
        default: "",
        example: "/audit=synced /clicks=accepted",
        apply: |draft, values| {
            draft.config.routes = values.iter().map(|text| route(text)).collect::<Result<_, _>>()?;
            Ok(())
        },
    },
    Setting {
        key: "sync_delay",
        kind: Kind::Time,
        value_name: "TIME",
        heading: ACKNOWLEDGING,
        help: "How long a group commit waits for company; 0 takes all that came during the last one",
        default: "0",
        example: "2ms",
        apply: |draft, values| {
            draft.config.store.sync_delay = parse_time(values[0]).map_err(told)?;
            Ok(())
        },
    },
    Setting {
        key: "idempotency_keys",
        kind: Kind::Count(0),
        value_name: "N",
        heading: ACKNOWLEDGING,
        help: "Idempotency keys remembered at least, so that a request sent again is not stored again; 0 ignores them",
        default: "100k",
        example: "1M",
        apply: |draft, values| {
            draft.config.limits.idempotency_keys = count(values[0], 0)?;
            Ok(())
        },
    },
    Setting {
        key: "idempotency_window",
        kind: Kind::Time,
        value_name: "TIME",
        heading: ACKNOWLEDGING,
        help: "How long they are remembered",
        default: "5m",
        example: "1h",
        apply: |draft, values| {
            draft.config.limits.idempotency_window = time(values[0])?;
            Ok(())
        },
    },
    Setting {
        key: "tag_prefix",
        kind: Kind::Text,
        value_name: "TAG",
        heading: EVENTS,
        help: "Goes before every tag, joined by a dot; the tag itself is the path of the request, /a/b is a.b",
        default: "",
        example: "web",
        apply: |draft, values| {
            draft.config.tag_prefix = Some(values[0].to_owned()).filter(|prefix| !prefix.is_empty());
            Ok(())
        },
    },
    Setting {
        key: "time_key",
        kind: Kind::Text,
        value_name: "NAME",
        heading: EVENTS,
        help: "Member of an event that is its time; otherwise that is ?time= of the request, or the time of arrival",
        default: "",
        example: "at",
        apply: |draft, values| {
            draft.reading.time_key = Some(Some(values[0].to_owned()).filter(|key| !key.is_empty()));
            Ok(())
        },
    },
    Setting {
        key: "time_format",
        kind: Kind::Text,
        value_name: "FORMAT",
        heading: EVENTS,
        help: "How that member is written, as strftime has it; otherwise seconds since 1970 or ISO 8601",
        default: "",
        example: "%Y-%m-%dT%H:%M:%S%z",
        apply: |draft, values| {
            draft.reading.time_format = Some(TimeFormat::Strftime(values[0].to_owned()));
            Ok(())
        },
    },
    Setting {
        key: "drop_time_key",
        kind: Kind::Flag,
        value_name: "",
        heading: EVENTS,
        help: "Take that member out of the event when it is stored",
        default: "",
        example: "true",
        apply: |draft, _| {
            draft.reading.drops_time_key = true;
            Ok(())
        },
    },
    Setting {
        key: "compat",
        kind: Kind::Choice(COMPATS),
        value_name: "fluentd",
        heading: EVENTS,
        help: "Read and answer as another program does",
        default: "none",
        example: "fluentd",
        apply: |draft, values| {
            if choice(values[0], COMPATS, &[false, true])? {
                draft.be_as_fluentd();
            } else {
                draft.be_itself();
            }
            Ok(())
        },
    },
    Setting {
        key: "add_http_headers",
        kind: Kind::Flag,
        value_name: "",
        heading: EVENTS,
        help: "Add the request's headers to its events, as HTTP_NAME; with --compat fluentd",
        default: "",
        example: "true",
        apply: |draft, _| {
            draft.config.added.http_headers = true;
            Ok(())
        },
    },
    Setting {
        key: "add_query_params",
        kind: Kind::Flag,
        value_name: "",
        heading: EVENTS,
        help: "Add the parameters of the query to its events, as QUERY_NAME; with --compat fluentd",
        default: "",
        example: "true",
        apply: |draft, _| {
            draft.config.added.query_params = true;
            Ok(())
        },
    },
    Setting {
        key: "add_remote_addr",
        kind: Kind::Flag,
        value_name: "",
        heading: EVENTS,
        help: "Add the client's address to its events, as REMOTE_ADDR; with --compat fluentd",
        default: "",
        example: "true",
        apply: |draft, _| {
            draft.config.added.remote_addr = true;
            Ok(())
        },
    },
];
