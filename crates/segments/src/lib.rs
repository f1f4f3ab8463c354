//! Stores lines in files: append, rotation, group commit, journal, recovery.
//!
//! A [`Store`] writes to the segments of one [`Template`]. Each thread with lines has a [`Port`], submits [`Batch`]es of
//! [`Part`]s and gets a [`Done`] with a [`Receipt`] for each part. Submitting never blocks, even if the disk hangs.
//!
//! * A single thread writes. The lines of a part are contiguous in one file. Parts of one port and [`Key`] keep their order.
//! * A [`Level::Written`] part survives the end of the process, a [`Level::Synced`] part that of the machine.
//! * Opening a store truncates lines torn by a kill or a power cut. Nothing is written twice.
//! * A full or read-only disk fails parts. Every further part tries the disk again, so no restart is needed.
//!
//! The reasons for this design: docs/decisions/0011 and 0012.

mod answers;
mod compressor;
mod config;
mod error;
mod file;
mod folders;
mod gauge;
mod health;
mod inode;
mod journal;
mod key;
mod links;
mod listing;
mod locator;
mod lock;
mod mailbox;
mod name;

mod port;
mod probe;
mod recovery;
mod requests;
mod round;
mod segment;
mod shared;
mod slice;
mod slots;
mod statistics;
mod store;
mod syncer;
mod table;
mod template;
mod writer;

pub use config::{Compression, Config};
pub use error::Error;
pub use health::StorageState;
pub use key::{Key, KeyError};
pub use port::{Batch, Done, Failure, Level, Part, Port, Receipt};
pub use recovery::{Recovery, Truncation};
pub use segment::MAX_WRITE_BYTES;
pub use statistics::{Quantiles, Statistics};
pub use store::Store;
pub use template::{Template, TemplateError};
