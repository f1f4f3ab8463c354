//! Runs one trial on several processes of this machine, or on several machines.
//!
//! * `trial`: the controller's part, a state machine without input and output. `drive` runs it over a transport:
//!   [`workers`](run_worker) are processes of this machine, [`Machines`] have an agent each, which has workers of its own.
//! * [`HostMachine`]: a machine that is a host of a study.
//! * `bootstrap` copies this program to a machine over ssh and starts the [agent](run_agent).
//! * [`Pool`]: the machines that wait at a broker.
//! * `clock_offset` compares clocks, `shares` divides the load, [`inventory`] reads which machines there are.

mod agent;
mod bootstrap;
mod clock_offset;
mod connection;
mod drive;
mod error;
mod files_of_plan;
mod hosts;
pub mod inventory;
mod machine;
mod machines;
mod pool;
mod protocol;
mod remote_agent;
mod run;
mod shares;
mod started;
mod trial;
mod workers;

pub use agent::{HostQuestions, Permissions, run_agent};
pub use bootstrap::remove;
pub use error::FleetError;
pub use files_of_plan::only_here;
pub use hosts::HostMachine;
pub use machine::{Machine, Way};
pub use machines::{FleetOptions, Machines};
pub use pool::{NO_KEYS, Pool, PoolOptions};
pub use run::{Workers, run};
pub use workers::run_worker;
