//! HTTP event listener: receives events, stores them in files, and acknowledges them at a chosen level.
//!
//! A body is parsed into records, each of which becomes a line, such as JSON. [`segments`] appends the lines to files.
//! The request is answered when its lines have reached the requested level: `accepted`, `written` or `synced`. A request
//! that cannot be stored is refused before its body is read.
//!
//! Each thread runs an epoll loop with separate connections and counters. The threads share the storage, the budget of
//! bytes in flight, the idempotency keys and the limit of connections.

mod answer;
mod auth;
mod breaker;
mod budget;
mod check;
mod config;
mod connection;
mod counters;
mod engine;
mod error;
mod idempotency;
mod identity;
pub mod import;
mod incoming;
mod key_cache;
mod listeners;
mod members;
mod pages;
mod pending;
mod refusal;
mod request;
mod routes;
mod server;
mod shared;
mod stall;
mod statistics;
mod stream;
mod tag_pattern;
mod timers;
mod worker;

pub use config::{Accept, Compat, Config, Credential, Limits, RequestFields, Route, Timeouts, Tls};
pub use error::Error;
pub use segments::{Level, StorageState};
pub use server::{Handle, Server};
pub use sockets::StartError;
pub use statistics::{Report, SCHEMA, Statistics, render};
