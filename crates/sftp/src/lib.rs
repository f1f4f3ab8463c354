//! The client's side of SFTP version 3 on the wire (draft-ietf-secsh-filexfer-02 and OpenSSH's extensions of it).
//!
//! The crate does no input or output: [`Request`] writes packets into a `Vec<u8>` that the caller sends; the caller
//! reads into the space of [`Frames`], which returns a [`Reply`] for each complete packet. The caller matches replies
//! to requests and decides when to send the next request and how many may be in flight.
//!
//! * The payload of a file is not copied when it is sent ([`write_header`]) or received ([`Answer::Data`] borrows from
//!   the buffer that was read into).
//! * Paths and names are bytes. [`is_safe_name`] checks names in a server's listing.
//! * [`MAX_PACKET`] limits the size of a packet. No input makes the decoder panic or allocate more than the packet's
//!   length.
//!
//! ```
//! use sftp::{Answer, Code, Frames, Reply, Request, write_init};
//! let mut out = Vec::new();
//! write_init(&mut out);
//! Request::Close(b"h").write(7, &mut out);
//!
//! let mut frames = Frames::new();
//! let received = b"\0\0\0\x05\x02\0\0\0\x03\0\0\0\x09\x65\0\0\0\x07\0\0\0\0";
//! frames.space(received.len())[..received.len()].copy_from_slice(received);
//! frames.filled(received.len());
//! assert!(matches!(frames.next_reply(), Ok(Some(Reply::Version(_)))));
//! assert!(matches!(frames.next_reply(), Ok(Some(Reply::Answer(7, Answer::Status(status)))) if status.code == Code::Ok));
//! assert!(matches!(frames.next_reply(), Ok(None)));
//! ```

mod attributes;
mod error;
mod fields;
mod frames;
mod name;
mod reply;
mod request;
mod version;

pub use attributes::{Attributes, FileType, Owner, Times};
pub use error::Error;
pub use frames::Frames;
pub use name::is_safe_name;
pub use reply::{Answer, Code, Limits, Name, Names, Reply, Status};
pub use request::{OpenFlags, Request, write_header, write_init};
pub use version::{Extension, Server, Version};

/// Maximum size of a packet without its length field, in bytes: the limit of OpenSSH (256 KiB) plus 1 KiB.
pub const MAX_PACKET: usize = 257 * 1024;

/// Maximum size of a handle, in bytes (draft, section 6.2).
pub const MAX_HANDLE: usize = 256;
