//! Checks from inside a host whether a process is ready.

use std::{
    fs::File,
    io::{self, Read, Write},
    net::{IpAddr, SocketAddr, TcpStream},
    sync::Arc,
    time::Duration,
};

use kernel::namespaces::{run_in_mounts, run_in_network};

use crate::plan::{self, Ready};

/// Timeout of one check of readiness.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(1);

/// The text that the output must contain for the process to be ready; none if another condition applies.
pub(crate) fn awaited_text(process: &plan::Process) -> Option<&str> {
    match &process.ready {
        Some(Ready::Log(awaited_text)) => Some(awaited_text),
        _ => None,
    }
}

/// Checks once, from inside the host's network, whether a process is ready. `mounts` is the mount namespace of a host
/// with private folders, and `host_address` the host's address.
/// Conditions on the output and on the end of the process are not checked here.
///
/// # Errors
/// The reason why the process is not ready yet.
pub(crate) fn check(
    ready: &Ready,
    network: &Arc<File>,
    mounts: Option<&File>,
    host_address: IpAddr,
) -> io::Result<()> {
    let at = |address: &Option<IpAddr>, port| SocketAddr::new(address.unwrap_or(host_address), port);
    match ready {
        Ready::Tcp(address, port) => {
            let to = at(address, *port);
            run_in_network(network.as_ref(), || connect(to).map(drop))
        }
        Ready::Http { address, port, path } => {
            let to = at(address, *port);
            run_in_network(network.as_ref(), || request(to, path))
        }
        Ready::File(path) => {
            let look = || path.metadata().map(drop);
            mounts
                .map_or_else(look, |mounts| run_in_mounts(mounts, look))
                .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
        }
        Ready::Log(_) | Ready::Exit => Ok(()),
    }
}

fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    TcpStream::connect_timeout(&to, ATTEMPT_TIMEOUT)
        .map_err(|error| io::Error::new(error.kind(), format!("{to}: {error}")))
}

fn request(to: SocketAddr, path: &str) -> io::Result<()> {
    let mut stream = connect(to)?;
    stream.set_read_timeout(Some(ATTEMPT_TIMEOUT))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n\r\n")?;
    let mut head = Vec::new();
    // Only the status in the first line, such as `HTTP/1.1 200 …`, matters.
    let mut bytes = [0; 256];
    while head.len() < 12 {
        match stream.read(&mut bytes)? {
            0 => break,
            length => head.extend(&bytes[..length]),
        }
    }
    let status = head.get(9..12).map(String::from_utf8_lossy).unwrap_or_default();
    if head.starts_with(b"HTTP/1.") && status.starts_with('2') {
        return Ok(());
    }
    Err(io::Error::other(format!("http://{to}{path} answers '{}'", status.trim())))
}
