//! A programmable HTTP/1.1 target: body sizes, delay distributions, a bounded server queue, stalls and faults. When it
//! ends, it reports what it did.
//!
//! Options add TLS, correct or with a chosen fault ([`Tls`]), pages for tests of API clients ([`Pages`]), and a record
//! of every request ([`Record`]).
//!
//! The report serves to check a load generator's figures: it counts every complete request exactly once
//! ([`Report::unaccounted`] is always 0).
//!
//! ```
//! use std::sync::{Arc, atomic::{AtomicBool, Ordering}};
//!
//! let server = serve::Server::bind(serve::Config { status: 204, ..Default::default() }).unwrap();
//! let address = server.local_addrs()[0];
//! let stop = Arc::new(AtomicBool::new(false));
//! let running = std::thread::spawn({ let stop = stop.clone(); move || server.run(stop) });
//! std::net::TcpStream::connect(address).unwrap();
//! stop.store(true, Ordering::Relaxed);
//! assert_eq!(running.join().unwrap().requests, 0);
//! ```
//!
//! Each thread runs an epoll loop with its own listener, connections, random numbers and counters. The threads share
//! only the virtual queue of [`Capacity`] and the number of open connections.

mod answer;
mod asked;
mod config;
mod connection;
mod engine;
mod error;
mod misbehave;
mod pages;
mod queue;
mod recording;
mod report;
mod security;
mod server;
mod stall;
mod timers;
mod tokens;
mod validate;
mod wire;
mod worker;

pub use config::{Body, Capacity, Config, Pages, Record, Stall, WhenFull};
pub use error::Error;
pub use misbehave::Misbehaviour;
pub use queue::{Admission, Queue};
pub use report::{Report, SCHEMA, TlsReport, render};
pub use security::{Tls, TlsFault, TlsFiles};
pub use server::Server;
pub use sockets::StartError;
