//! The listener over real sockets and real files.

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
