//! Packets that a server sends (draft, section 7).

use std::fmt;

use crate::fields::Fields;
use crate::{Attributes, Error, MAX_HANDLE, Version};

/// A packet from the server. It borrows from the received bytes.
#[derive(Clone, Debug)]
pub enum Reply<'a> {
    /// VERSION, the answer to INIT and the first packet. It has no request id.
    Version(Version<'a>),
    /// The answer to the request with this id.
    Answer(u32, Answer<'a>),
}

/// The answer to a request. The answer to any request may be a status.
#[derive(Clone, Debug)]
pub enum Answer<'a> {
    /// STATUS: success or failure; for READ the end of the file, for READDIR the end of the directory.
    Status(Status<'a>),
    /// HANDLE of an open file or directory, at most [`crate::MAX_HANDLE`] bytes.
    Handle(&'a [u8]),
    /// DATA, for READ. It may be shorter than requested, even before the end of the file.
    Data(&'a [u8]),
    /// NAME, for READDIR, REALPATH, READLINK and expand-path.
    Names(Names<'a>),
    /// ATTRS, for STAT, LSTAT and FSTAT.
    Attributes(Attributes),
    /// EXTENDED_REPLY; its contents depend on the request. See [`Limits::read`].
    Extended(&'a [u8]),
}

impl<'a> Reply<'a> {
    /// Decodes a packet without its length. Bytes after the last field are ignored, as the draft demands.
    ///
    /// # Errors
    /// If the packet is empty, has an unknown type, or ends within a field, or if its version or its handle is not
    /// allowed.
    pub(crate) fn read(packet: &'a [u8]) -> Result<Self, Error> {
        let (&kind, body) = packet.split_first().ok_or(Error::EmptyPacket)?;
        let packet = match kind {
            2 => return Version::read(body).map(Reply::Version),
            101 => "STATUS",
            102 => "HANDLE",
            103 => "DATA",
            104 => "NAME",
            105 => "ATTRS",
            201 => "EXTENDED_REPLY",
            _ => return Err(Error::UnknownPacket { kind }),
        };
        let mut fields = Fields::new(packet, body);
        let id = fields.u32("id")?;
        let answer = match kind {
            101 => Answer::Status(Status::read(&mut fields)?),
            102 => Answer::Handle(handle(&mut fields)?),
            103 => Answer::Data(fields.string("data")?),
            104 => Answer::Names(Names::read(fields)?),
            105 => Answer::Attributes(Attributes::read(&mut fields)?),
            _ => Answer::Extended(fields.rest()),
        };
        Ok(Reply::Answer(id, answer))
    }
}

fn handle<'a>(fields: &mut Fields<'a>) -> Result<&'a [u8], Error> {
    let handle = fields.string("handle")?;
    if handle.len() > MAX_HANDLE {
        return Err(Error::HandleTooLong { length: handle.len() });
    }
    Ok(handle)
}

/// The outcome of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status<'a> {
    /// Success, or the kind of failure.
    pub code: Code,
    /// The server's message, in any bytes: mask them before they are shown. Empty if the server sent none.
    pub message: &'a [u8],
    /// The language of the message (RFC 1766). Empty if the server sent none.
    pub language: &'a [u8],
}

impl<'a> Status<'a> {
    fn read(fields: &mut Fields<'a>) -> Result<Self, Error> {
        let code = Code::from_number(fields.u32("code")?);
        // Some servers follow earlier drafts and leave out the remaining fields.
        let mut text = |field| if fields.rest().is_empty() { Ok(&[][..]) } else { fields.string(field) };
        Ok(Status { code, message: text("message")?, language: text("language tag")? })
    }
}

/// The code of a status.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Code {
    /// 0: the request succeeded.
    Ok,
    /// 1: the end of the file or of the directory.
    EndOfFile,
    /// 2: there is no such file or directory.
    NoSuchFile,
    /// 3: the user lacks the permission.
    PermissionDenied,
    /// 4: any other failure, such as a full disk.
    Failure,
    /// 5: the request was malformed.
    BadMessage,
    /// 6: there is no connection. Servers do not send this code.
    NoConnection,
    /// 7: the connection was lost. Servers do not send this code.
    ConnectionLost,
    /// 8: the server does not support the request.
    Unsupported,
    /// A code of later protocol versions, or a private one of the server.
    Other(u32),
}

impl Code {
    fn from_number(number: u32) -> Self {
        match number {
            0 => Code::Ok,
            1 => Code::EndOfFile,
            2 => Code::NoSuchFile,
            3 => Code::PermissionDenied,
            4 => Code::Failure,
            5 => Code::BadMessage,
            6 => Code::NoConnection,
            7 => Code::ConnectionLost,
            8 => Code::Unsupported,
            number => Code::Other(number),
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Code::Ok => "success",
            Code::EndOfFile => "end of file",
            Code::NoSuchFile => "no such file",
            Code::PermissionDenied => "permission denied",
            Code::Failure => "failure",
            Code::BadMessage => "malformed request",
            Code::NoConnection => "no connection",
            Code::ConnectionLost => "connection lost",
            Code::Unsupported => "request not supported",
            Code::Other(number) => return write!(f, "unknown status {number}"),
        })
    }
}

/// The entries of a NAME packet, in the server's order.
#[derive(Clone, Debug)]
pub struct Names<'a> {
    left: usize,
    /// The entries, already checked by [`Names::read`].
    fields: Fields<'a>,
}

/// An entry of a NAME packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Name<'a> {
    /// The name; a path for REALPATH, READLINK and expand-path. It may contain any bytes: see [`crate::is_safe_name`].
    pub name: &'a [u8],
    /// A line like that of `ls -l`, for display.
    pub long_name: &'a [u8],
    /// The attributes of the entry itself, even if it is a link. Empty for REALPATH, READLINK and expand-path.
    pub attributes: Attributes,
}

impl<'a> Names<'a> {
    fn read(mut fields: Fields<'a>) -> Result<Self, Error> {
        let count = fields.u32("count")?;
        let entries = fields.clone();
        for _ in 0..count {
            Name::read(&mut fields)?;
        }
        // Every entry takes at least twelve bytes and has been read, so the count is smaller than the size of the
        // packet.
        Ok(Names { left: count as usize, fields: entries })
    }
}

impl<'a> Iterator for Names<'a> {
    type Item = Name<'a>;

    fn next(&mut self) -> Option<Name<'a>> {
        self.left = self.left.checked_sub(1)?;
        Name::read(&mut self.fields).ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Names<'_> {}

impl<'a> Name<'a> {
    fn read(fields: &mut Fields<'a>) -> Result<Self, Error> {
        Ok(Name {
            name: fields.string("name")?,
            long_name: fields.string("long name")?,
            attributes: Attributes::read(fields)?,
        })
    }
}

/// The answer to `limits@openssh.com`. A limit of 0 means that the server states none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Maximum size of a packet, in bytes.
    pub packet_bytes: u64,
    /// Maximum number of bytes that a READ may request.
    pub read_bytes: u64,
    /// Maximum number of data bytes in a WRITE.
    pub write_bytes: u64,
    /// Maximum number of handles that may be open at the same time.
    pub open_handles: u64,
}

impl Limits {
    /// Decodes the bytes of [`Answer::Extended`].
    ///
    /// # Errors
    /// If there are fewer than 32 bytes.
    pub fn read(extended: &[u8]) -> Result<Self, Error> {
        let mut fields = Fields::new("EXTENDED_REPLY", extended);
        Ok(Limits {
            packet_bytes: fields.u64("max-packet-length")?,
            read_bytes: fields.u64("max-read-length")?,
            write_bytes: fields.u64("max-write-length")?,
            open_handles: fields.u64("max-open-handles")?,
        })
    }
}
