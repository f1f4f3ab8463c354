//! Reads the records in a request body and writes each record as one line. Uses neither sockets nor files.
//!
//! [`Inflater`] decompresses a body, [`Kind`] is its format, [`read`] validates it and returns its records, and
//! [`LineWriter`] writes each record as a line.
//!
//! JSON is validated but not rebuilt, so except for line breaks the stored bytes are those that the client sent
//! (`docs/decisions/0010-validate-do-not-build.md` has the measurements). Only Fluentd's modes rewrite records, like
//! Fluentd's `out_file`.

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
