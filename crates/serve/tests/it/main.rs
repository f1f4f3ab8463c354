//! The target against real sockets on the loopback: every option, every misbehaviour, exact counts.

mod connections;
mod curl;
mod faults;
mod pages;
mod protocol;
mod queueing;
mod recorded;
mod secure;
mod target;
mod timing;
