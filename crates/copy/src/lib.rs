//! Secure copy that fills long fat pipes, over the system's `ssh` and any SFTP server.
//!
//! One SSH connection carries 2 MiB for each round trip, whatever the path could. So several connections are opened, each with several
//! channels, and all of them take from one queue of chunks. How much is on the way at once follows what the path
//! holds ([`governor`]). A file has a temporary name until every chunk of it was verified.

mod carrier;
mod channel;
mod choice;
mod destination;
mod download;
mod file;
mod folders;
mod governor;
mod handle;
mod hash;
mod hasher;
mod held;
mod job;
mod journal;
mod location;
mod parts;
mod place;
mod pool;
mod probe;
mod queue;
mod quiet;
mod rehearsal;
mod remote;
mod report;
mod said;
mod session;
mod shape;
mod sockets;
mod span;
mod ssh;
#[cfg(test)]
mod tests;
mod tree;
mod trouble;
mod upload;
mod verify;
mod waiting;
mod witness;

pub use choice::Choice;
pub use held::{Cause, HeldBack};
pub use job::{CopyError, Job, copy, probe};
pub use location::Location;
pub use report::{Progress, Report, Verified};
pub use witness::Shown;
