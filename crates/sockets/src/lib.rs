//! What the loops of our servers have in common: listening sockets, the door, and tables whose entries epoll
//! names.

mod connections;
mod door;
mod listening;
mod places;

pub use connections::{Connections, Fate};
pub use door::{Door, error_name, watch};
pub use listening::{bound, listening, local_address};
pub use places::{Places, Token};
