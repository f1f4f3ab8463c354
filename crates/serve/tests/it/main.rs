//! The target against real sockets on the loopback: every option, every misbehaviour, exact counts.

mod client;
mod connections;
mod faults;
mod protocol;
mod queueing;
mod timing;
