//! Secure copy that fully uses paths with a high bandwidth-delay product, over the system's `ssh` and any SFTP server.
//!
//! One SSH connection carries 2 MiB per round trip, even if the path could carry more. A copy therefore opens several
//! connections with several channels each, and all channels take chunks from one queue. The number of bytes in flight
//! follows the capacity of the path ([`governor`]). A file has a temporary name until all of its chunks are verified.

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
