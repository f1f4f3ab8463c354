//! Lines to files: append, rotation, group commit, journal, recovery.
//!
//! A [`Store`] writes to the segments of one [`Template`]. Threads that have lines get a [`Port`] each, submit
//! a [`Batch`] of [`Part`]s, and learn what became of each of them: [`Done`], with a [`Receipt`]. To submit
//! never blocks, whatever the disk does.
//!
//! * Nobody writes in between: one thread writes, each part stands together in one file, parts of one port and
//!   [`Key`] keep their order.
//! * A [`Level::Written`] part survives the end of the process, a [`Level::Synced`] one that of the machine.
//! * What a kill or a power cut has torn is cut when the store is opened again; nothing is written twice.
//! * A disk that is full or read-only fails parts, and is tried again with the next: no restart is needed.
//!
//! Why it is built so: docs/decisions/0011 and 0012.

mod compressor;
mod config;
mod error;
mod file;
mod folders;
mod gauge;
mod health;
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
