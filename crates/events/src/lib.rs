//! What the body of a request to a listener holds: records, each rendered as one line. Pure: no sockets, no files.
//!
//! The way of a body: [`Inflater`] undoes its coding, [`Kind`] says how it is written, [`read`] checks it and hands
//! out its records, and a [`LineWriter`] writes each as a line.
//!
//! JSON is validated, never rebuilt: the bytes a client sent are the bytes that are stored, unless they would break
//! the line (`docs/decisions/0010-validate-do-not-build.md` has the measurements). [`Mode::Fluentd`] is the exception:
//! records are written anew as Fluentd's `out_file` does.

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

pub use inflate::{Encoding, InflateError, Inflater, UnsupportedEncoding};
pub use kind::{Boundary, Kind, Mode};
pub use line::{LineFormat, LineWriter};
pub use members::{field, members};
pub use mistake::{Mistake, MistakeKind};
pub use read::{Record, Scratch, read};
pub use rules::{Rules, TimeFormat, Zone};
pub use time::{EventTime, TimeError};
