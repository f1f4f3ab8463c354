//! What the loops of our servers have in common: listening sockets, the door, and tables whose entries epoll
//! names.

mod connections;
mod crowd;
mod door;
mod listening;
mod places;
mod start;

pub use connections::{Connections, Fate};
pub use crowd::{Crowd, Seat};
pub use door::{Door, error_name, watch};
pub use listening::{check_free, listening_each, local_address};
pub use places::{Places, Token};
pub use start::{StartError, check_processors, event_loop, pin};
