//! What is too much, and what is too long.

use super::{Kind, Setting, choice, count, size, time};

const BOUNDS: &str = "Bounds";
const TIMEOUTS: &str = "Timeouts";

const OVERLOAD: &[&str] = &["503", "429"];

pub(super) const SETTINGS: &[Setting] = &[
    Setting {
        key: "budget",
        kind: Kind::Size,
        value_name: "SIZE",
        heading: BOUNDS,
        help: "Bytes on their way, of all requests together: bodies being read and lines not yet written; beyond it requests are refused before their body is read",
        default: "256MiB",
        example: "1GiB",
        apply: |draft, values| {
            draft.config.limits.budget_bytes = size(values[0], 1)?;
            Ok(())
        },
    },
    Setting {
        key: "max_body",
        kind: Kind::Size,
        value_name: "SIZE",
        heading: BOUNDS,
        help: "Largest body as sent, chunked or not",
        default: "32MiB",
        example: "1MiB",
        apply: |draft, values| {
            draft.config.limits.body_bytes = size(values[0], 1)?;
            Ok(())
        },
    },
    Setting {
        key: "max_inflated",
        kind: Kind::Size,
        value_name: "SIZE",
        heading: BOUNDS,
        help: "Largest compressed body after inflating",
        default: "64MiB",
        example: "256MiB",
        apply: |draft, values| {
            draft.config.limits.inflated_bytes = size(values[0], 1)?;
            Ok(())
        },
    },
    Setting {
        key: "max_head",
        kind: Kind::Size,
        value_name: "SIZE",
        heading: BOUNDS,
        help: "Largest head of a request",
        default: "32KiB",
        example: "8KiB",
        apply: |draft, values| {
            let bytes = size(values[0], 256)?;
            draft.config.limits.head_bytes =
                u32::try_from(bytes).map_err(|_| format!("{} is too large; at most 4GiB", values[0]))?;
            Ok(())
        },
    },
    Setting {
        key: "max_events",
        kind: Kind::Count(1),
        value_name: "N",
        heading: BOUNDS,
        help: "Most events of one request",
        default: "1M",
        example: "10k",
        apply: |draft, values| {
            draft.config.rules.most_records = count(values[0], 1)?;
            Ok(())
        },
    },
    Setting {
        key: "max_connections",
        kind: Kind::Count(1),
        value_name: "N",
        heading: BOUNDS,
        help: "Connections open at once; further ones are told 503 and closed",
        default: "",
        example: "18k",
        apply: |draft, values| {
            draft.config.limits.connections = Some(count(values[0], 1)?);
            Ok(())
        },
    },
    Setting {
        key: "max_requests",
        kind: Kind::Count(1),
        value_name: "N",
        heading: BOUNDS,
        help: "Requests that a connection may carry",
        default: "",
        example: "1000",
        apply: |draft, values| {
            draft.config.limits.requests_per_connection = Some(count(values[0], 1)?);
            Ok(())
        },
    },
    Setting {
        key: "overload_status",
        kind: Kind::Choice(OVERLOAD),
        value_name: "503|429",
        heading: BOUNDS,
        help: "Status of requests refused because the budget is used up",
        default: "503",
        example: "429",
        apply: |draft, values| {
            draft.config.limits.overload_status = choice(values[0], OVERLOAD, &[503, 429])?;
            Ok(())
        },
    },
    Setting {
        key: "retry_after",
        kind: Kind::Time,
        value_name: "TIME",
        heading: BOUNDS,
        help: "When a refused client may try again, in whole seconds",
        default: "1s",
        example: "5s",
        apply: |draft, values| {
            let time = time(values[0])?;
            draft.config.limits.retry_after_s = time.as_secs_f64().ceil() as u32;
            Ok(())
        },
    },
    Setting {
        key: "head_timeout",
        kind: Kind::Time,
        value_name: "TIME",
        heading: TIMEOUTS,
        help: "How long the head of a request may take",
        default: "10s",
        example: "5s",
        apply: |draft, values| {
            draft.config.timeouts.head = time(values[0])?;
            Ok(())
        },
    },
    Setting {
        key: "body_timeout",
        kind: Kind::Time,
        value_name: "TIME",
        heading: TIMEOUTS,
        help: "How long a body may be slower than --body-rate",
        default: "10s",
        example: "5s",
        apply: |draft, values| {
            draft.config.timeouts.body = time(values[0])?;
            Ok(())
        },
    },
    Setting {
        key: "body_rate",
        kind: Kind::Size,
        value_name: "SIZE",
        heading: TIMEOUTS,
        help: "Least bytes of a body in a second, on average",
        default: "1KiB",
        example: "100",
        apply: |draft, values| {
            draft.config.timeouts.body_bytes_per_s = size(values[0], 1)?;
            Ok(())
        },
    },
    Setting {
        key: "idle_timeout",
        kind: Kind::Time,
        value_name: "TIME",
        heading: TIMEOUTS,
        help: "How long a connection may be without a request, or not take its answer",
        default: "75s",
        example: "10s",
        apply: |draft, values| {
            draft.config.timeouts.idle = time(values[0])?;
            Ok(())
        },
    },
    Setting {
        key: "store_timeout",
        kind: Kind::Time,
        value_name: "TIME",
        heading: TIMEOUTS,
        help: "How long storing may take before a client is told that nobody knows (503)",
        default: "30s",
        example: "5s",
        apply: |draft, values| {
            draft.config.timeouts.store = time(values[0])?;
            Ok(())
        },
    },
    Setting {
        key: "drain_timeout",
        kind: Kind::Time,
        value_name: "TIME",
        heading: TIMEOUTS,
        help: "How long requests in flight are waited for at a stop",
        default: "10s",
        example: "3s",
        apply: |draft, values| {
            draft.config.timeouts.drain = time(values[0])?;
            Ok(())
        },
    },
];
