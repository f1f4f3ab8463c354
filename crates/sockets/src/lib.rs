//! What the loops of our servers have in common: listening sockets, and tables whose entries epoll names.

mod listening;
mod places;

pub use listening::{bound, listening, local_address};
pub use places::{Places, Token};
