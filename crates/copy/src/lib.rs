//! Secure copy that fills long fat pipes, over the system's `ssh` and any SFTP server.
//!
//! One SSH connection carries 2 MiB in each round trip, even if the path could carry more. So several connections are opened,
//! each with several channels, and all of them take from one queue of chunks. The bytes in flight follow what the path holds
//! ([`governor`]). A file has a temporary name until all of its chunks are verified.

mod bottleneck;
mod carrier;
mod channel;
mod destination;
mod download;
mod error;
mod file;
mod file_filter;
mod folders;
mod governor;
mod handle;
mod hash;
mod hasher;
mod host_sampler;
mod item;
mod job;
mod journal;
mod lanes;
mod location;
mod options;
mod partial_files;
mod passwordless;
mod pending;
mod place;
mod pool;
mod pool_size;
mod probe;
mod processes;
mod queue;
mod rehearsal;
mod remote;
mod reply;
mod report;
mod run;
mod session;
mod shell;
mod sockets;
mod span;
mod ssh;
#[cfg(test)]
mod tests;
mod tree;
mod upload;
mod verify;

pub use bottleneck::{Bottleneck, Cause};
pub use error::CopyError;
pub use file_filter::FileFilter;
pub use job::Job;
pub use location::Location;
pub use report::{Progress, Report, Verified};
pub use run::{copy, probe};
