//! Errors in the byte stream from a server.

/// Reason why a packet could not be read. After an error, the rest of the stream is unreadable.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Error {
    /// The first bytes are text. The start-up files of the remote shell print it before the server's first packet.
    #[error(
        "the server sent text (`{}`...) before SFTP: change the start-up files of the remote shell (such as .bashrc), so \
         that they print nothing when there is no terminal",
        .begin.escape_ascii()
    )]
    TextBeforeSftp {
        /// The first four bytes.
        begin: [u8; 4],
    },
    /// A packet of length 0, which lacks even its type.
    #[error("the server sent an SFTP packet of length 0")]
    EmptyPacket,
    /// A packet is longer than the limit, or the bytes in the place of its length are something else.
    #[error("the server announced an SFTP packet of {length} bytes; the limit is {limit}")]
    PacketTooLong {
        /// The length, in bytes, as sent.
        length: u32,
        /// The limit, in bytes.
        limit: usize,
    },
    /// A packet ends before all of its fields.
    #[error("the SFTP packet {packet} of the server ends within its field `{field}`")]
    ShortPacket {
        /// Name of the packet's type.
        packet: &'static str,
        /// The field that is missing or incomplete.
        field: &'static str,
    },
    /// A packet of a type that servers do not send.
    #[error("the server sent an SFTP packet of unknown type {kind}")]
    UnknownPacket {
        /// The type, as sent.
        kind: u8,
    },
    /// The server uses another version of the protocol.
    #[error("the server speaks SFTP version {version}; version 3 is needed")]
    OtherVersion {
        /// The version, as sent.
        version: u32,
    },
    /// A handle is longer than [`crate::MAX_HANDLE`].
    #[error("the server sent a handle of {length} bytes; SFTP allows 256")]
    HandleTooLong {
        /// Its length, in bytes.
        length: usize,
    },
}
