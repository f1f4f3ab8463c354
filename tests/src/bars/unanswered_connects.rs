//! Connection attempts without an answer: a listener with a full accept queue drops them.

use std::{
    net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream},
    os::fd::OwnedFd,
    time::Duration,
};

use anyhow::{Context, Result};
use record::ErrorClass;
use rustix::net::{AddressFamily, SocketType, bind, getsockname, listen, socket};

use super::Outcome;
use crate::{
    Output, Proofload,
    proofload::{adds_up, failures},
};

const USERS: u64 = 12;

/// Adds the figures for a queue that is full from the start, and for one that overflows during the trial.
pub(super) fn check(outcome: &mut Outcome) -> Result<()> {
    connect_timeout(outcome).context("case connect-timeout")?;
    backlog_overflow(outcome).context("case backlog-overflow")
}

fn connect_timeout(outcome: &mut Outcome) -> Result<()> {
    let listener = Deaf::new(0)?;
    let _fillers = listener.fill();
    let trial = try_all(&listener)?.unanswered()?.clone();
    outcome.equal("connect-timeout", trial.errors.of(ErrorClass::ConnectTimeout), USERS, "every attempt");
    outcome.equal("connect-timeout-total", trial.errors.total(), USERS, "no other error");
    outcome.equal("connect-timeout-unsent", trial.counts.failed_unsent, USERS, "nothing was sent");
    Ok(())
}

fn backlog_overflow(outcome: &mut Outcome) -> Result<()> {
    let listener = Deaf::new(3)?;
    let trial = try_all(&listener)?.counted(1)?.clone();
    let queued = listener.queued()?;
    let (answerless, unconnected) =
        (trial.errors.of(ErrorClass::Timeout), trial.errors.of(ErrorClass::ConnectTimeout));
    outcome.equal("backlog-queued", answerless, queued, "connections in the kernel's queue");
    outcome.equal("backlog-overflow", unconnected, USERS - queued, "the attempts that it dropped");
    let both = failures(&trial, &[ErrorClass::Timeout, ErrorClass::ConnectTimeout]);
    outcome.holds(
        "backlog-nothing-else",
        both == trial.errors.total() && adds_up(&trial) && unconnected > 0,
        "no other error, counts add up",
    );
    Ok(())
}

fn try_all(listener: &Deaf) -> Result<Output> {
    let url = format!("http://{}/", listener.address);
    let words = format!("-u {USERS} --loops 1 --timeout 1s -q");
    Proofload::http(&url, &words)?.run()
}

/// A socket that listens but never accepts a connection.
struct Deaf {
    socket: OwnedFd,
    address: SocketAddr,
}

impl Deaf {
    fn new(backlog: i32) -> Result<Self> {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
        bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
        listen(&socket, backlog)?;
        let address = SocketAddr::try_from(getsockname(&socket)?)?;
        Ok(Self { socket, address })
    }

    /// Opens connections until the kernel accepts no more.
    fn fill(&self) -> Vec<TcpStream> {
        let open = || TcpStream::connect_timeout(&self.address, Duration::from_millis(300)).ok();
        std::iter::from_fn(open).take(64).collect()
    }

    /// Accepts all waiting connections, and returns their number.
    fn queued(&self) -> Result<u64> {
        rustix::io::ioctl_fionbio(&self.socket, true)?;
        let mut count = 0;
        while rustix::net::accept(&self.socket).is_ok() {
            count += 1;
        }
        Ok(count)
    }
}
