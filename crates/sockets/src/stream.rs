//! The bytes of a connected socket.

use std::{
    io::{self, Read, Write},
    os::fd::AsFd,
};

use rustix::net::{RecvFlags, SendFlags, recv, send};

/// Implements `Read` and `Write` on a connected socket. Writes never raise SIGPIPE.
#[derive(Debug)]
pub struct Stream<S>(pub S);

impl<S: AsFd> Read for Stream<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(recv(&self.0, buffer, RecvFlags::empty())?.1)
    }
}

impl<S: AsFd> Write for Stream<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(send(&self.0, bytes, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
