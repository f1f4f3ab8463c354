//! Hosts, links and processes on one machine. Everything that a lab creates ends with the process that created it.
//!
//! A [`Plan`] describes a lab; [`file::parse`] reads one from a lab file. [`Lab::up`] brings the lab up;
//! [`Lab::down`], or dropping it, takes the lab down.
//!
//! A host is an unnamed network namespace. A holder process owns the namespace and is also the first process of a PID
//! namespace. A lab creates nothing in the machine's own network namespace. When this process ends, even by SIGKILL,
//! the kernel kills the holders and thereby all processes of the hosts; the namespaces and their interfaces then
//! disappear. A host with private folders has a mount namespace as well. The kernel does not remove a lab's folder and control
//! groups. The journal of the crate `undo` lists them, and the next command removes them.

mod balancer;
mod congestion;
mod error;
mod exec;
pub mod file;
pub mod graph;
mod host_names;
mod keys;
mod lab;
pub mod link;
mod namespace;
mod network;
mod own_network;
mod own_proc;
pub mod plan;
mod preflight;
mod private;
mod process;
pub mod program;
mod quota;
mod rootless;
mod running;
mod segment_port;
mod spawner;
mod sysctls;

pub use balancer::{Balancer, BalancerKind};
pub use error::{Error, ProcessFailure};
pub use exec::exec;
pub use lab::{HostHandle, Lab, MeasureLink, Options};
pub use namespace::run_holder;
pub use own_proc::ensure_own_proc;
pub use plan::Plan;
pub use process::Process;
pub use rootless::enter_user_namespace;
pub use running::{RunningLab, run_in_host};
pub use segment_port::SegmentPort;
