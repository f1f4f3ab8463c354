//! Parts that the event loops of proofload's servers share: listening sockets, accepting, and a table of connections
//! whose keys are the user data of epoll events.

mod acceptor;
mod connection_limit;
mod connections;
mod listening;
mod slab;
mod start;
mod stream;

pub use acceptor::{Acceptor, error_name, watch};
pub use connection_limit::{ConnectionLimit, ConnectionPermit};
pub use connections::{Connections, NextStep};
pub use listening::{check_free, listening_each, local_address};
pub use slab::{Slab, Token};
pub use start::{StartError, check_processors, event_loop, pin};
pub use stream::Stream;
