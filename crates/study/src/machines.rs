//! Hosts of a study that are real machines (`run --machines`).
//!
//! The controller asks the agent on each machine (`questions`), which brings up its host with the code of a lab
//! (`host_service`): processes, settings, addresses and routes. A machine keeps its own network. `placement` knows which
//! machine each host is, `hosts` asks all machines of a setting.

mod hosts;
mod placement;
mod questions;

pub(crate) use hosts::PlacedHosts;
pub(crate) use placement::adapt;
pub use placement::{Placement, Wish, hosts_of, refusals};
pub(crate) use questions::{BalancerQuestion, Facts, Failure, Farewell, OWN_PROGRAM, Question};
