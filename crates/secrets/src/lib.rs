//! Secrets of requests: they are sent, and stand nowhere else.
//!
//! * [`names`]: which headers and query parameters hold one.
//! * [`reference`]: `${NAME}` and `@FILE`, which keep one off the command line.
//! * [`mask`]: texts that are written or printed, without what is secret in them.
//! * [`fingerprint`]: tells another secret from the same one.

pub mod fingerprint;
mod forms;
pub mod mask;
pub mod names;
pub mod reference;

pub use mask::{MASK, mask, mask_url};
