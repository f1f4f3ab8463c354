//! What must hold for any bytes that others send us, as functions that panic where it does not.

mod answers;
mod events;
mod http1;
mod sftp;
mod study_file;

/// A function that is given any bytes. It panics when a promise is broken, and is false for bytes that say nothing.
pub type Target = fn(&[u8]) -> bool;

/// Every target, by the name that run.sh and the folders of seeds have for it.
pub const TARGETS: [(&str, Target); 5] = [
    ("answers", answers::check),
    ("events", events::check),
    ("http1", http1::check),
    ("sftp", sftp::check),
    ("study_file", study_file::check),
];
