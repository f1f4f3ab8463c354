//! Tests the target with real sockets on the loopback interface: every option, every misbehaviour, exact counts.

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
