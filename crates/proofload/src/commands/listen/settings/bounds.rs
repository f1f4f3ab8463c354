//! Settings for limits and timeouts.

use super::{Kind, OptionSpec, choice, count, size, time};

const BOUNDS: &str = "Bounds";
const TIMEOUTS: &str = "Timeouts";

const OVERLOAD: &[&str] = &["503", "429"];

pub(super) const SETTINGS: &[OptionSpec] = settings::option_table! {
    /// Largest total of the bodies being read and the lines not yet written; beyond it, requests are refused before
    /// their body is read
    "budget", Kind::Size, "SIZE", BOUNDS, "256MiB", "1GiB",
        |builder, values| builder.config.limits.budget_bytes = size(values[0], 1)?;
    /// Largest body as sent, chunked or not
    "max_body", Kind::Size, "SIZE", BOUNDS, "32MiB", "1MiB",
        |builder, values| builder.config.limits.body_bytes = size(values[0], 1)?;
    /// Largest compressed body after decompression
    "max_inflated", Kind::Size, "SIZE", BOUNDS, "64MiB", "256MiB",
        |builder, values| builder.config.limits.inflated_bytes = size(values[0], 1)?;
    /// Largest head of a request
    "max_head", Kind::Size, "SIZE", BOUNDS, "32KiB", "8KiB",
        |builder, values| {
            let bytes = size(values[0], 256)?;
            builder.config.limits.head_bytes =
                u32::try_from(bytes).map_err(|_| format!("{} is too large; give at most 4GiB", values[0]))?;
        };
    /// Most events in a request
    "max_events", Kind::Count(1), "N", BOUNDS, "1M", "10k",
        |builder, values| builder.config.rules.max_records = count(values[0], 1)?;
    /// Most open connections; further ones get a 503 and are closed
    "max_connections", Kind::Count(1), "N", BOUNDS, "", "18k",
        |builder, values| builder.config.limits.connections = Some(count(values[0], 1)?);
    /// Most requests on a connection
    "max_requests", Kind::Count(1), "N", BOUNDS, "", "1000",
        |builder, values| builder.config.limits.requests_per_connection = Some(count(values[0], 1)?);
    /// Status of requests that are refused because of the budget
    "overload_status", Kind::Choice(OVERLOAD), "503|429", BOUNDS, "503", "429",
        |builder, values| builder.config.limits.overload_status = choice(values[0], OVERLOAD, &[503, 429])?;
    /// When a refused client may try again, in whole seconds
    "retry_after", Kind::Time, "TIME", BOUNDS, "1s", "5s",
        |builder, values| {
            let time = time(values[0])?;
            builder.config.limits.retry_after_s = time.as_secs_f64().ceil() as u32;
        };
    /// Longest time to receive the head of a request
    "head_timeout", Kind::Time, "TIME", TIMEOUTS, "10s", "5s",
        |builder, values| builder.config.timeouts.head = time(values[0])?;
    /// Longest time that a body may be slower than --body-rate
    "body_timeout", Kind::Time, "TIME", TIMEOUTS, "10s", "5s",
        |builder, values| builder.config.timeouts.body = time(values[0])?;
    /// Slowest average rate of a body, in bytes per second
    "body_rate", Kind::Size, "SIZE", TIMEOUTS, "1KiB", "100",
        |builder, values| builder.config.timeouts.body_bytes_per_s = size(values[0], 1)?;
    /// Longest time that a connection may be idle or not read its answer
    "idle_timeout", Kind::Time, "TIME", TIMEOUTS, "75s", "10s",
        |builder, values| builder.config.timeouts.idle = time(values[0])?;
    /// Longest time to store events; then the client gets a 503, and the events may be stored or not
    "store_timeout", Kind::Time, "TIME", TIMEOUTS, "30s", "5s",
        |builder, values| builder.config.timeouts.store = time(values[0])?;
    /// Longest wait for requests in flight at a stop
    "drain_timeout", Kind::Time, "TIME", TIMEOUTS, "10s", "3s",
        |builder, values| builder.config.timeouts.drain = time(values[0])?;
};
