//! Emulated links between two hosts, without kernel modules.
//!
//! A link runs in a child process ([`Link`]; the child runs [`worker`]). One thread moves packets between a TUN interface
//! in each host through a model of the link ([`pipe::Pipe`]): a bounded queue, a wire of a certain rate, faults and a
//! delay line. [`certify`] measures that a link has the requested shape. Where the kernel has `sch_netem` and `sch_tbf`,
//! [`netem`] can be used instead.

use std::{io, path::PathBuf};

pub mod certify;
mod counters;
mod emulator;
mod forward;
mod loss;
mod namespace;
pub mod netem;
mod packet;
mod pipe;
mod process;
pub(crate) mod spec;
mod steal;
mod store;
pub mod text;
mod traffic;
mod tun;
pub mod worker;

pub use certify::{Certificate, CertifyOptions};
pub use counters::{Carried, Counters, LinkAway, PipeCounters};
pub use namespace::{Address, End, Namespace};
pub use process::Link;
pub use spec::{Direction, Driver, JitterOrder, Layer, LinkSpec, Loss, Queue, Reorder, Shape};

use rustix::io::Errno;
use thiserror::Error;

/// Reasons why a link cannot be created or used.
#[derive(Debug, Error)]
pub enum LinkError {
    /// The specification is wrong.
    #[error("the link's specification is wrong: {}", .0.join("; "))]
    Spec(Vec<String>),
    /// A host's namespace cannot be entered.
    #[error(
        "cannot enter the network namespace of {namespace}: {cause}; it must exist, and only root and its owner may enter it"
    )]
    Namespace {
        /// The host.
        namespace: Namespace,
        /// The kernel's error.
        cause: io::Error,
    },
    /// Both hosts are in the same network namespace.
    #[error(
        "{a} and {b} are in the same network namespace; give each its own (`unshare --net`, `ip netns add`)"
    )]
    SameNetwork {
        /// The first host.
        a: Namespace,
        /// The second host.
        b: Namespace,
    },
    /// An interface cannot be created or configured.
    #[error(
        "cannot {what} the interface {} in {}: {cause}{}", .end.device, .end.namespace, hint(.cause)
    )]
    Device {
        /// The end of the link.
        end: Box<End>,
        /// The action.
        what: &'static str,
        /// The kernel's error.
        cause: io::Error,
    },
    /// The kernel's own link emulation is missing or refuses.
    #[error("netem on {device}: {cause}; use driver = \"emulator\", which needs no kernel module")]
    Netem {
        /// The interface.
        device: String,
        /// The error of `tc` or of the kernel.
        cause: String,
    },
    /// A thread or process cannot be started.
    #[error("cannot start the link: {0}")]
    Start(io::Error),
    /// Traffic that measures the link cannot be sent or received.
    #[error("cannot {what} to measure the link: {cause}")]
    Traffic {
        /// The action.
        what: &'static str,
        /// The kernel's error.
        cause: io::Error,
    },
    /// The link's process or thread has ended or does not answer.
    #[error("the link's process has ended or does not answer; see its standard error")]
    Ended,
    /// The link's process refused a request or gave an unexpected answer.
    #[error("the link's process refused: {0}")]
    Refused(String),
    /// The program that runs the link cannot be found.
    #[error("cannot find the program {0} that runs links")]
    Program(PathBuf),
}

fn hint(cause: &io::Error) -> &'static str {
    // EACCES can come only from /dev/net/tun: rtnetlink and TUNSETIFF refuse with EPERM.
    if cause.raw_os_error() == Some(Errno::ACCESS.raw_os_error()) {
        return "; /dev/net/tun must be open to this user (chmod 666 /dev/net/tun, as udev makes it), or run it as root";
    }
    match cause.kind() {
        io::ErrorKind::NotFound => {
            "; /dev/net/tun is needed: modprobe tun, or pass the device into the container"
        }
        io::ErrorKind::PermissionDenied => "; CAP_NET_ADMIN in that namespace is needed",
        io::ErrorKind::ResourceBusy | io::ErrorKind::AlreadyExists => {
            "; the name or address is already in use there"
        }
        _ => "",
    }
}
