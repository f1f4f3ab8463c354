//! Secrets of requests, which are sent to the service but neither shown nor stored.
//!
//! * [`names`]: recognizes headers and query parameters that hold a secret.
//! * [`reference`]: `${NAME}` and `@FILE`, which keep a secret off the command line.
//! * [`mask`]: removes secrets from texts before they are written or printed.
//! * [`fingerprint`]: tells whether two secrets are equal, without storing them.

mod encodings;
pub mod fingerprint;
pub mod mask;
pub mod names;
mod pieces;
pub mod reference;

pub use mask::{MASK, mask, mask_url};
