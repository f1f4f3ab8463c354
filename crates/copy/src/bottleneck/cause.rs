//! The causes that can hold a copy back.

use serde::Serialize;

/// What held a copy back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Bottleneck {
    /// The cause.
    pub cause: Cause,
    /// The measurements that show the cause.
    pub evidence: String,
    /// What a user can do about it, if anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

record::named_enum! {
    /// What can hold a copy back.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Cause {
        /// The limit that was asked for: of the rate, or of the bytes on the way.
        Asked "the limit that you gave",
        /// A processor of one of both machines.
        Processor "a processor",
        /// The buffer of TCP at one of both ends.
        SocketBuffer "a socket buffer",
        /// The path is full.
        Path "the path, which is full",
        /// TCP's congestion window, which packet losses keep small.
        CongestionWindow "TCP's congestion window",
        /// The disk of the source.
        SourceDisk "the disk of the source",
        /// The disk of the target.
        TargetDisk "the disk of the target",
        /// The windows of SSH's channels.
        SshWindow "SSH's window",
        /// Files so small that their round trips take longer than their bytes.
        SmallFiles "round trips for small files",
        /// It could not be determined.
        Unknown "something that could not be determined",
    }
    /// The cause in words, which can follow "held back by".
    pub fn words;
}
