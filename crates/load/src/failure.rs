//! Converts errors of the kernel and the parser to error classes.

use http1::{Error, ErrorKind};
use record::ErrorClass;
use rustix::io::Errno;

/// The class of an error while connecting.
pub(crate) fn connect_failure(errno: Errno) -> ErrorClass {
    match errno {
        Errno::CONNREFUSED => ErrorClass::ConnectRefused,
        Errno::TIMEDOUT => ErrorClass::ConnectTimeout,
        Errno::CONNRESET | Errno::CONNABORTED | Errno::PIPE => ErrorClass::ConnectReset,
        Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::HOSTDOWN | Errno::NETDOWN => ErrorClass::Unreachable,
        other => local_failure(other),
    }
}

/// The class of an error on an open connection.
pub(crate) fn stream_failure(errno: Errno) -> ErrorClass {
    match errno {
        Errno::CONNRESET | Errno::PIPE | Errno::CONNABORTED => ErrorClass::Reset,
        Errno::TIMEDOUT => ErrorClass::Timeout,
        Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::HOSTDOWN | Errno::NETDOWN => ErrorClass::Unreachable,
        other => local_failure(other),
    }
}

/// The class of an error in an answer.
pub(crate) fn parse_failure(error: &Error) -> ErrorClass {
    match error.kind() {
        ErrorKind::Malformed => ErrorClass::Malformed,
        ErrorKind::Framing => ErrorClass::Framing,
        ErrorKind::TooLarge => ErrorClass::TooLarge,
        ErrorKind::Truncated => ErrorClass::Truncated,
    }
}

fn local_failure(errno: Errno) -> ErrorClass {
    match errno {
        Errno::MFILE | Errno::NFILE => ErrorClass::Descriptors,
        // connect(2) also returns EAGAIN when no local port is free.
        Errno::ADDRNOTAVAIL | Errno::ADDRINUSE | Errno::AGAIN => ErrorClass::Ports,
        Errno::NOBUFS | Errno::NOMEM => ErrorClass::Buffers,
        _ => ErrorClass::LocalOther,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::Origin;

    #[test]
    fn errors_of_this_machine_are_never_the_targets() {
        for errno in
            [Errno::MFILE, Errno::NFILE, Errno::ADDRNOTAVAIL, Errno::NOBUFS, Errno::NOMEM, Errno::PERM]
        {
            assert_eq!(connect_failure(errno).origin(), Origin::Local, "{errno:?}");
        }
        for errno in [Errno::CONNREFUSED, Errno::CONNRESET, Errno::TIMEDOUT, Errno::NETUNREACH] {
            assert_eq!(connect_failure(errno).origin(), Origin::Network, "{errno:?}");
            if errno != Errno::CONNREFUSED {
                assert_eq!(stream_failure(errno).origin(), Origin::Network, "{errno:?}");
            }
        }
    }
}
