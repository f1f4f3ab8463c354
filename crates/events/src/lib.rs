//! Reads the records in the body of a request to a listener and writes each record as one line. Pure: no sockets, no files.
//!
//! [`Inflater`] decompresses a body, [`Kind`] is its format, [`read`] validates it and returns its records, and a
//! [`LineWriter`] writes each record as a line.
//!
//! JSON is validated, never rebuilt: the stored bytes are those that the client sent, except for line breaks
//! (`docs/decisions/0010-validate-do-not-build.md` has the measurements). Only [`Mode::Fluentd`] rewrites records, as
//! Fluentd's `out_file` does.

mod form;
mod inflate;
mod kind;
mod line;
mod members;
mod mistake;
mod multipart;
mod read;
mod ruby;
mod rules;
mod time;

pub use inflate::{Encoding, InflateError, Inflater};
pub use kind::{Boundary, Kind, Mode};
pub use line::{LineFormat, LineWriter};
pub use members::{field, members};
pub use mistake::{Mistake, MistakeKind};
pub use read::{Record, Scratch, read};
pub use rules::{Rules, TimeFormat, Zone};
pub use time::{EventTime, TimeError};
