//! What is too much, and what is too long.

use super::{Kind, Setting, choice, count, size, time};

const BOUNDS: &str = "Bounds";
const TIMEOUTS: &str = "Timeouts";

const OVERLOAD: &[&str] = &["503", "429"];

pub(super) const SETTINGS: &[Setting] = settings::table! {
    /// Bytes on their way, of all requests together: bodies being read and lines not yet written; beyond it requests
    /// are refused before their body is read
    "budget", Kind::Size, "SIZE", BOUNDS, "256MiB", "1GiB",
        |draft, values| draft.config.limits.budget_bytes = size(values[0], 1)?;
    /// Largest body as sent, chunked or not
    "max_body", Kind::Size, "SIZE", BOUNDS, "32MiB", "1MiB",
        |draft, values| draft.config.limits.body_bytes = size(values[0], 1)?;
    /// Largest compressed body after inflating
    "max_inflated", Kind::Size, "SIZE", BOUNDS, "64MiB", "256MiB",
        |draft, values| draft.config.limits.inflated_bytes = size(values[0], 1)?;
    /// Largest head of a request
    "max_head", Kind::Size, "SIZE", BOUNDS, "32KiB", "8KiB",
        |draft, values| {
            let bytes = size(values[0], 256)?;
            draft.config.limits.head_bytes =
                u32::try_from(bytes).map_err(|_| format!("{} is too large; at most 4GiB", values[0]))?;
        };
    /// Most events of one request
    "max_events", Kind::Count(1), "N", BOUNDS, "1M", "10k",
        |draft, values| draft.config.rules.max_records = count(values[0], 1)?;
    /// Connections open at once; further ones are told 503 and closed
    "max_connections", Kind::Count(1), "N", BOUNDS, "", "18k",
        |draft, values| draft.config.limits.connections = Some(count(values[0], 1)?);
    /// Requests that a connection may carry
    "max_requests", Kind::Count(1), "N", BOUNDS, "", "1000",
        |draft, values| draft.config.limits.requests_per_connection = Some(count(values[0], 1)?);
    /// Status of requests refused because the budget is used up
    "overload_status", Kind::Choice(OVERLOAD), "503|429", BOUNDS, "503", "429",
        |draft, values| draft.config.limits.overload_status = choice(values[0], OVERLOAD, &[503, 429])?;
    /// When a refused client may try again, in whole seconds
    "retry_after", Kind::Time, "TIME", BOUNDS, "1s", "5s",
        |draft, values| {
            let time = time(values[0])?;
            draft.config.limits.retry_after_s = time.as_secs_f64().ceil() as u32;
        };
    /// How long the head of a request may take
    "head_timeout", Kind::Time, "TIME", TIMEOUTS, "10s", "5s",
        |draft, values| draft.config.timeouts.head = time(values[0])?;
    /// How long a body may be slower than --body-rate
    "body_timeout", Kind::Time, "TIME", TIMEOUTS, "10s", "5s",
        |draft, values| draft.config.timeouts.body = time(values[0])?;
    /// Least bytes of a body in a second, on average
    "body_rate", Kind::Size, "SIZE", TIMEOUTS, "1KiB", "100",
        |draft, values| draft.config.timeouts.body_bytes_per_s = size(values[0], 1)?;
    /// How long a connection may be without a request, or not take its answer
    "idle_timeout", Kind::Time, "TIME", TIMEOUTS, "75s", "10s",
        |draft, values| draft.config.timeouts.idle = time(values[0])?;
    /// How long storing may take before a client is told that nobody knows (503)
    "store_timeout", Kind::Time, "TIME", TIMEOUTS, "30s", "5s",
        |draft, values| draft.config.timeouts.store = time(values[0])?;
    /// How long requests in flight are waited for at a stop
    "drain_timeout", Kind::Time, "TIME", TIMEOUTS, "10s", "3s",
        |draft, values| draft.config.timeouts.drain = time(values[0])?;
};
