//! A layer 2 load balancer with direct server return. It needs no kernel modules.
//!
//! A BPF program (`bpf/l2dsr.bpf.c` describes how it treats each kind of frame) writes a server's MAC address into each
//! frame that clients send to a VIP, and sends the frame out through the device that received it. The servers have the
//! VIP as an address and answer clients directly.
//!
//! * [`Program`] loads the program for cls_bpf or XDP, runs it on a frame, and attaches it to a device or replaces the
//!   attached one.
//! * [`Table`] contains the program's data (VIPs, servers and rings) and its counts.
//! * [`Ring`] spreads flows over servers.
//! * [`Daemon`] keeps the tables up to date with a [`Config`] and the servers' health. [`ask`] sends a request to a running one.

mod addresses;
#[cfg(test)]
#[path = "../tests/alone/mod.rs"]
mod alone;
mod attach;
mod balancer;
mod changes;
mod checker;
mod config;
mod control;
mod daemon;
mod device;
mod error;
mod explain;
mod health;
mod import;
mod instance;
mod layout;
mod loader;
mod maglev;
mod metrics;
mod probe;
mod prober;
mod rights;
mod server_setup;
mod statistics;
mod sweeps;
mod table;
mod wire;

pub use attach::unpin;
pub use config::{Config, Server};
pub(crate) use config::{Persistence, Vip, WhenAllDown, WhenServerDies};
pub use control::{Answer, Change, Request, ServerName, Values, ask};
pub use daemon::{Daemon, Handle, Options, Order};
pub use device::Device;
pub use error::Error;
pub use explain::{Finding, Verdict, explain_balancer, explain_server};
pub use health::Check;
pub(crate) use health::CheckKind;
pub use instance::Instance;
pub use layout::{
    Flow, FlowKey, Mac, Reason, Schedule, ServerCounts, ServerEntry, ServiceEntry, Settings, State, VipCounts,
};
pub use loader::{Hook, Program, Ran, Sizes};
pub use maglev::{Member, Ring};
pub use server_setup::ServerSetup;
pub use statistics::{ServerStatistics, Statistics, VipStatistics};
pub use table::Table;
