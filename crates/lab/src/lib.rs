//! Hosts, links and processes on one machine. Everything made here dies with its maker.
//!
//! A [`Plan`] says what there is to be: written by hand or read from a lab file by [`file::parse`].
//! [`Lab::up`] makes it and [`Lab::down`], or dropping it, takes it down.
//!
//! A host is a network namespace without a name, held by a process that is also the first one of a
//! namespace of process own_proc. Nothing lies in the machine's own namespace. When this process ends, even
//! by SIGKILL, the kernel kills the holders, with them every process of the hosts, and so ends the
//! namespaces and the interfaces in them. What the kernel does not take back (a folder, control groups) is
//! in the journal of the room `undo`, for the next command.

mod congestion;
pub mod file;
pub mod graph;
mod lab;
pub mod link;
mod namespace;
mod netlink;
mod network;
mod own_proc;
pub mod plan;
mod preflight;
mod process;
pub mod program;
mod quota;
mod rootless;
mod running;
mod spawner;
mod sysctls;

pub use lab::{Error, HostHandle, Lab, MeasureLink, Options, ProcessFailure};
pub use namespace::run_holder;
pub use own_proc::ensure_own_proc;
pub use plan::Plan;
pub use process::{Process, exec::exec};
pub use rootless::enter_user_namespace;
pub use running::{RunningLab, run_in_host};
