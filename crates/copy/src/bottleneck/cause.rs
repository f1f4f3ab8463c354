//! The possible bottlenecks of a copy.

use serde::Serialize;

/// The bottleneck of a copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Bottleneck {
    /// The cause.
    pub cause: Cause,
    /// The measurements that show the cause.
    pub evidence: String,
    /// Advice for the user; none if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

record::named_enum! {
    /// The possible causes of a bottleneck.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Cause {
        /// A limit that the user set: on the rate or on the bytes in flight.
        Asked "the limit that you set",
        /// A processor of one of the machines.
        Processor "a processor",
        /// TCP's socket buffer at one of the ends.
        SocketBuffer "a socket buffer",
        /// The path has no capacity left.
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
        /// The cause could not be determined.
        Unknown "something that could not be determined",
    }
    /// The cause in words, to follow "held back by".
    pub fn words;
}
