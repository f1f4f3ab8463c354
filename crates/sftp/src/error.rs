//! Errors in the bytes of a server.

/// Why a packet could not be read. After an error, the rest of the stream cannot be read.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Error {
    /// The first bytes are text. Output of the remote shell's start-up files arrives before the server's packets.
    #[error(
        "the server sent text (`{}`...) before SFTP: change the start-up files of the remote shell (such as .bashrc), so \
         that they print nothing when there is no terminal",
        .begin.escape_ascii()
    )]
    TextBeforeSftp {
        /// The first four bytes.
        begin: [u8; 4],
    },
    /// A packet of length 0: it lacks even a type.
    #[error("the server sent an SFTP packet of length 0")]
    EmptyPacket,
    /// A packet is longer than the limit, or the bytes read as its length are something else.
    #[error("the server announced an SFTP packet of {length} bytes; the limit is {limit}")]
    PacketTooLong {
        /// The length, in bytes, as sent.
        length: u32,
        /// The limit, in bytes.
        limit: usize,
    },
    /// A packet ends before its fields do.
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
    /// The server speaks another version of the protocol.
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
