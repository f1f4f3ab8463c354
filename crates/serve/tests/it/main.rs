//! The target against real sockets on the loopback: every option, every misbehaviour, exact counts.

mod connections;
mod faults;
mod protocol;
mod queueing;
mod target;
mod timing;
