//! What can hold a copy back.

use serde::Serialize;

/// What held a copy back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HeldBack {
    /// What it was.
    pub cause: Cause,
    /// The figures that show it.
    pub evidence: String,
    /// What would lift it, if a user can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

/// What can hold a copy back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The limit that was asked for: of the rate, or of the bytes on the way.
    Asked,
    /// A processor of one of both machines.
    Processor,
    /// The buffer of TCP at one of both ends.
    SocketBuffer,
    /// The path is full.
    Path,
    /// TCP's congestion window, which packet losses keep small.
    CongestionWindow,
    /// The disk of the source.
    SourceDisk,
    /// The disk of the target.
    TargetDisk,
    /// The windows of SSH's channels.
    SshWindow,
    /// Files so small that their round trips take longer than their bytes.
    SmallFiles,
    /// It could not be determined.
    Unknown,
}

impl Cause {
    /// The cause in words, which can follow "held back by".
    pub fn words(self) -> &'static str {
        match self {
            Self::Asked => "the limit that you gave",
            Self::Processor => "a processor",
            Self::SocketBuffer => "a socket buffer",
            Self::Path => "the path, which is full",
            Self::CongestionWindow => "TCP's congestion window",
            Self::SourceDisk => "the disk of the source",
            Self::TargetDisk => "the disk of the target",
            Self::SshWindow => "SSH's window",
            Self::SmallFiles => "round trips for small files",
            Self::Unknown => "something that could not be determined",
        }
    }
}
