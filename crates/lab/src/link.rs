//! Emulated links between two hosts, without kernel modules.
//!
//! A link runs in a child process ([`Link`]; its side is [`worker`]): one TUN interface in each host, a
//! thread, and between them a model on virtual time ([`pipe::Pipe`]) of a bounded
//! queue, a wire of a certain rate, faults, and a delay line. It can prove that it is what it was asked
//! to be ([`certify`]). Where the kernel has `sch_netem` and `sch_tbf`, they can be had instead
//! ([`netem`]).

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

/// Why a link cannot be had.
#[derive(Debug, Error)]
pub enum LinkError {
    /// The specification is wrong.
    #[error("the link cannot be: {}", .0.join("; "))]
    Spec(Vec<String>),
    /// A host's namespace cannot be entered.
    #[error(
        "cannot enter the network namespace of {namespace}: {cause}; it must exist, and root (or the user who made it) is needed"
    )]
    Namespace {
        /// The host.
        namespace: Namespace,
        /// What the kernel said.
        cause: io::Error,
    },
    /// Both hosts are in one network.
    #[error(
        "{a} and {b} are in the same network namespace, and a link joins two; give each one of its own (`unshare --net`, `ip netns add`)"
    )]
    SameNetwork {
        /// The one host.
        a: Namespace,
        /// The other.
        b: Namespace,
    },
    /// An interface cannot be made.
    #[error(
        "cannot {what} the interface {} in {}: {cause}{}", .end.device, .end.namespace, hint(.cause)
    )]
    Device {
        /// Where.
        end: Box<End>,
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        cause: io::Error,
    },
    /// The kernel's own link emulation is missing or refuses.
    #[error("netem on {device}: {cause}; use driver = \"emulator\", which needs no kernel module")]
    Netem {
        /// The interface.
        device: String,
        /// What `tc` said.
        cause: String,
    },
    /// A thread or process cannot be started.
    #[error("cannot start the link: {0}")]
    Start(io::Error),
    /// Traffic that measures the link cannot be sent or received.
    #[error("cannot {what} to measure the link: {cause}")]
    Traffic {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        cause: io::Error,
    },
    /// The link's process or thread is gone.
    #[error("the link's process has ended or does not answer; what it wrote to standard error may say why")]
    Ended,
    /// The link's process answered what was not asked.
    #[error("the link's process refused: {0}")]
    Refused(String),
    /// The program that runs the link cannot be found.
    #[error("cannot find the program {0} that runs links")]
    Program(PathBuf),
}

fn hint(cause: &io::Error) -> &'static str {
    // Of a file: routing requests and TUNSETIFF are refused with EPERM.
    if cause.raw_os_error() == Some(Errno::ACCESS.raw_os_error()) {
        return "; /dev/net/tun must be open to this user (chmod 666 /dev/net/tun, as udev makes it), or run it as root";
    }
    match cause.kind() {
        io::ErrorKind::NotFound => {
            "; /dev/net/tun is needed: modprobe tun, or pass the device into the container"
        }
        io::ErrorKind::PermissionDenied => "; CAP_NET_ADMIN in that namespace is needed",
        io::ErrorKind::ResourceBusy | io::ErrorKind::AlreadyExists => "; the name or address is taken there",
        _ => "",
    }
}
