//! Tests the listener with real sockets and files.

mod fluentd;
mod idempotency;
mod large;
mod levels;
mod limits;
mod overload;
mod protocol;
mod stop;
mod testbed;
mod tls;
