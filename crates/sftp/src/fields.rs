//! The fields of packets (draft, section 3, and RFC 4251, section 5): numbers in big-endian byte order, and strings
//! preceded by their length.

use crate::Error;

/// Reads the fields of a packet in order.
#[derive(Clone, Debug)]
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
    /// Name of the packet's type, for errors.
    packet: &'static str,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(packet: &'static str, bytes: &'a [u8]) -> Self {
        Fields { rest: bytes, packet }
    }

    /// The bytes that have not been read yet.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn u32(&mut self, field: &'static str) -> Result<u32, Error> {
        let (number, rest) = self.rest.split_first_chunk().ok_or_else(|| self.short(field))?;
        self.rest = rest;
        Ok(u32::from_be_bytes(*number))
    }

    pub(crate) fn u64(&mut self, field: &'static str) -> Result<u64, Error> {
        let (number, rest) = self.rest.split_first_chunk().ok_or_else(|| self.short(field))?;
        self.rest = rest;
        Ok(u64::from_be_bytes(*number))
    }

    pub(crate) fn string(&mut self, field: &'static str) -> Result<&'a [u8], Error> {
        let length = self.u32(field)?;
        let length = usize::try_from(length).map_err(|_| self.short(field))?;
        let (string, rest) = self.rest.split_at_checked(length).ok_or_else(|| self.short(field))?;
        self.rest = rest;
        Ok(string)
    }

    fn short(&self, field: &'static str) -> Error {
        Error::ShortPacket { packet: self.packet, field }
    }
}

/// Appends a number of 32 bits.
pub(crate) fn put_u32(out: &mut Vec<u8>, number: u32) {
    out.extend_from_slice(&number.to_be_bytes());
}

/// Appends a number of 64 bits.
pub(crate) fn put_u64(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_be_bytes());
}

/// Appends the length of a string and the string. Panics if the string is longer than 4 GiB.
pub(crate) fn put_string(out: &mut Vec<u8>, string: &[u8]) {
    put_u32(out, u32::try_from(string.len()).expect("a string of SFTP is shorter than 4 GiB"));
    out.extend_from_slice(string);
}
