//! Reasons to refuse a request: the status, the name in counters, and the message for the client.

use events::{Mistake, MistakeKind};
use rustix::io::Errno;
use segments::{Failure, Level, StorageState};

/// Maximum length of a tag in bytes. Tags appear in every line, in file names and in keys, so a long tag multiplies.
pub(crate) const MAX_TAG_BYTES: usize = 1024;

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Refusal {
    /// Not HTTP, or a version or feature of HTTP that is not supported.
    Http(http1::Error),
    /// HTTP/1.1 without exactly one Host (RFC 9112, 3.2).
    Host,
    /// The value of `Proofload-Ack` is not a level.
    Ack(String),
    /// The value of `?time=` is not a time.
    Time(String),
    /// Two headers of this name, of which only one can count.
    Repeated(&'static str),
    /// This segment of the path cannot be a part of a tag.
    TagEscape(String),
    /// The idempotency key is empty, too long or not ASCII.
    IdempotencyKey,
    /// The body does not match its content type.
    Malformed(Mistake),
    /// The body cannot be decompressed; the encoding.
    Corrupt(&'static str),
    /// No credential, or a wrong one.
    Unauthorized,
    /// The browser's origin may not post.
    Origin,
    /// The path has no valid tag.
    NoTag,
    /// The tag is not among those stored here.
    TagNotStored,
    /// The tag is too long; its length in bytes.
    LongTag(usize),
    /// The tag or a field cannot be part of a file name; the reason.
    InvalidName(String),
    /// The method is not supported.
    Method,
    /// The head did not arrive in time.
    SlowHead,
    /// The body arrives too slowly.
    SlowBody,
    /// The body as sent is larger than this limit in bytes.
    TooLarge(u64),
    /// The decompressed body is larger than this limit in bytes.
    InflatesTooLarge(u64),
    /// The request alone needs more than the whole budget of this many bytes.
    ExceedsBudget(u64),
    /// The events belong to more segments than this maximum.
    ManySegments(usize),
    /// The content type is not supported.
    ContentType(String),
    /// The content encoding is not supported.
    ContentEncoding(String),
    /// The value of `Expect` is not supported.
    Expectation,
    /// The first request with the same idempotency key is still being stored.
    InFlight,
    /// The same idempotency key was used with another body.
    OtherBody,
    /// The budget of bytes in flight is used up.
    Budget,
    /// There are too many connections.
    Connections,
    /// The listener is stopping.
    Stopping,
    /// The storage is full.
    Full,
    /// The storage cannot be written to.
    ReadOnly,
    /// The storage fails with this errno.
    Failing(i32),
    /// A bug in this program: the body could not be read.
    InternalError,
    /// The body arrived in time, but this machine did not read it in time.
    NotReadInTime,
    /// The storage did not answer in time: the events may or may not be stored.
    StoreTimeout,
    /// The storage refused some of the events for this reason; the others are stored.
    PartlyStored(Box<Refusal>),
    /// The storage failed for this reason after it may have written the events: they may or may not be stored.
    MaybeStored(Box<Refusal>),
}

impl Refusal {
    /// The refusal for a storage in this state; None if it works.
    pub(crate) fn of_state(state: StorageState) -> Option<Self> {
        match state {
            StorageState::Ok => None,
            StorageState::Full => Some(Self::Full),
            StorageState::ReadOnly => Some(Self::ReadOnly),
            StorageState::Failing(errno) => Some(Self::Failing(errno)),
        }
    }

    /// The refusal for a failed write.
    fn of_failure(failure: Failure) -> Self {
        match failure {
            Failure::Full => Self::Full,
            Failure::ReadOnly => Self::ReadOnly,
            Failure::Io(errno) | Failure::Partial(errno) => Self::Failing(errno),
            Failure::Closed => Self::Stopping,
        }
    }

    /// The refusal for a request of this level with a failed part; `some_stored` if other parts are stored.
    pub(crate) fn of_request(failure: Failure, level: Level, some_stored: bool) -> Self {
        let refusal = Self::of_failure(failure.cause());
        match level {
            _ if some_stored => Self::PartlyStored(Box::new(refusal)),
            // The storage's thread died at an unknown point.
            _ if failure == Failure::Io(Errno::OWNERDEAD.raw_os_error()) => {
                Self::MaybeStored(Box::new(refusal))
            }
            _ if matches!(failure, Failure::Partial(_)) => Self::MaybeStored(Box::new(refusal)),
            // The lines may have been written before the sync failed.
            Level::Synced if failure != Failure::Closed => Self::MaybeStored(Box::new(refusal)),
            _ => refusal,
        }
    }

    /// The refusal for a request that needs `bytes` of a budget and cannot get them now.
    pub(crate) fn over_budget(bytes: u64, limit: u64) -> Self {
        if bytes > limit { Self::ExceedsBudget(limit) } else { Self::Budget }
    }

    /// Whether some or all events may be stored, so that a repeat may store them twice.
    pub(crate) fn may_be_stored(&self) -> bool {
        matches!(self, Self::StoreTimeout | Self::PartlyStored(_) | Self::MaybeStored(_))
    }

    /// The status of the answer; `overload` is the status when the budget is used up.
    pub(crate) fn status(&self, overload: u16) -> u16 {
        match self {
            Self::Http(error) => http_error_status(error),
            Self::Host
            | Self::Ack(_)
            | Self::Time(_)
            | Self::IdempotencyKey
            | Self::Repeated(_)
            | Self::TagEscape(_)
            | Self::Corrupt(_)
            | Self::InvalidName(_) => 400,
            Self::Malformed(mistake) => match mistake.kind {
                MistakeKind::Malformed | MistakeKind::MissingParameter => 400,
                MistakeKind::TooManyRecords => 413,
                MistakeKind::Unsupported => 415,
            },
            Self::Unauthorized => 401,
            Self::Origin => 403,
            Self::NoTag | Self::TagNotStored => 404,
            Self::Method => 405,
            Self::SlowHead | Self::SlowBody => 408,
            Self::InFlight => 409,
            Self::TooLarge(_)
            | Self::InflatesTooLarge(_)
            | Self::ExceedsBudget(_)
            | Self::ManySegments(_) => 413,
            Self::LongTag(_) => 414,
            Self::ContentType(_) | Self::ContentEncoding(_) => 415,
            Self::Expectation => 417,
            Self::OtherBody => 422,
            Self::Failing(_) | Self::InternalError => 500,
            Self::Budget => overload,
            Self::Connections
            | Self::Stopping
            | Self::ReadOnly
            | Self::NotReadInTime
            | Self::StoreTimeout => 503,
            Self::Full => 507,
            Self::PartlyStored(cause) | Self::MaybeStored(cause) => cause.status(overload),
        }
    }

    /// The name in counters.
    pub(crate) fn name(&self) -> &'static str {
        NAMES[self.number()]
    }

    /// The index in [`NAMES`].
    pub(crate) fn number(&self) -> usize {
        match self {
            Self::Http(_) | Self::Host => 0,
            Self::Ack(_) | Self::Time(_) | Self::IdempotencyKey | Self::Repeated(_) => 1,
            Self::Malformed(_) | Self::Corrupt(_) => 2,
            Self::Unauthorized => 3,
            Self::Origin => 4,
            Self::NoTag
            | Self::TagEscape(_)
            | Self::TagNotStored
            | Self::LongTag(_)
            | Self::InvalidName(_) => 5,
            Self::Method => 6,
            Self::SlowHead => 7,
            Self::SlowBody => 8,
            Self::TooLarge(_)
            | Self::InflatesTooLarge(_)
            | Self::ExceedsBudget(_)
            | Self::ManySegments(_) => 9,
            Self::ContentType(_) | Self::ContentEncoding(_) => 10,
            Self::Expectation => 11,
            Self::InFlight => 12,
            Self::OtherBody => 13,
            Self::Budget => 14,
            Self::Connections => 15,
            Self::Stopping => 16,
            Self::Full => 17,
            Self::ReadOnly => 18,
            Self::Failing(_) => 19,
            Self::StoreTimeout => 20,
            Self::PartlyStored(_) => 21,
            Self::MaybeStored(_) => 22,
            Self::InternalError => 23,
            Self::NotReadInTime => 24,
        }
    }

    /// Whether the client may retry later.
    pub(crate) fn is_temporary(&self) -> bool {
        matches!(
            self,
            Self::InFlight
                | Self::Budget
                | Self::Connections
                | Self::Stopping
                | Self::Full
                | Self::ReadOnly
                | Self::Failing(_)
                | Self::NotReadInTime
                | Self::StoreTimeout
                | Self::PartlyStored(_)
                | Self::MaybeStored(_)
        )
    }

    /// The message for the client: what is wrong, and what to do.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::Http(error) => error.to_string(),
            Self::Host => "an HTTP/1.1 request needs exactly one Host header".into(),
            Self::Ack(value) => {
                format!("Proofload-Ack: {value:?} is not a level; send accepted, written or synced")
            }
            Self::Time(value) => format!(
                "time={value:?} is not a time; send seconds since 1970, such as 1578905529.25, or ISO 8601"
            ),
            Self::Repeated(name) => format!("two {name} headers contradict each other; send one"),
            Self::IdempotencyKey => "Idempotency-Key must be 1 to 255 ASCII characters".into(),
            Self::Malformed(mistake) => mistake.to_string(),
            Self::Corrupt(what) => format!("the body is not valid {what} data"),
            Self::Unauthorized => "a credential is needed; send it in the Authorization header".into(),
            Self::Origin => "this origin may not post here".into(),
            Self::NoTag => "this path contains no tag; post to /TAG".into(),
            Self::TagEscape(segment) => format!(
                "{segment:?} in the path is no text: a % needs two hexadecimal digits behind it, and the bytes must be UTF-8 \
                 without control characters"
            ),
            Self::TagNotStored => "events of this tag are not stored here".into(),
            Self::LongTag(bytes) => format!(
                "the tag is {bytes} bytes long, the maximum is {MAX_TAG_BYTES}; post to a shorter path"
            ),
            Self::InvalidName(why) => why.clone(),
            Self::Method => "this method is not supported; send events by POST or PUT".into(),
            Self::SlowHead => "the head of the request did not arrive in time".into(),
            Self::SlowBody => "the body of the request arrives too slowly".into(),
            Self::TooLarge(limit) => {
                format!("the body is larger than the limit of {limit} bytes; send it in parts")
            }
            Self::InflatesTooLarge(limit) => {
                format!("the body inflates beyond the limit of {limit} bytes; send it in parts")
            }
            Self::ExceedsBudget(limit) => format!(
                "this request needs more than the {limit} bytes that all requests together may use; send \
                 it in parts"
            ),
            Self::ManySegments(most) => {
                format!("the events of this request belong to more than {most} files; send it in parts")
            }
            Self::ContentType(value) => format!(
                "content type {value:?} is not supported; send application/json, application/x-ndjson, \
                 application/x-www-form-urlencoded, multipart/form-data or text/plain"
            ),
            Self::ContentEncoding(value) => {
                format!("content encoding {value:?} is not supported; send gzip, deflate or zstd")
            }
            Self::Expectation => {
                "this expectation is not supported; send Expect: 100-continue or none".into()
            }
            Self::InFlight => "the first request with this Idempotency-Key is still being stored".into(),
            Self::OtherBody => "this Idempotency-Key was used with another body".into(),
            Self::Budget => "too many bytes are in flight; retry later".into(),
            Self::Connections => "too many connections; retry later".into(),
            Self::Stopping => "the listener is stopping; nothing of this request is stored".into(),
            Self::Full => "the storage is full; nothing is acknowledged, retry later".into(),
            Self::ReadOnly => "the storage is read-only; nothing is acknowledged, retry later".into(),
            Self::Failing(errno) if *errno == Errno::LOOP.raw_os_error() => {
                "a folder of this file is a link, and none behind the first placeholder of --path is followed; \
                 nothing is acknowledged"
                    .into()
            }
            Self::Failing(errno) => {
                let why = std::io::Error::from_raw_os_error(*errno);
                format!("the storage fails: {why}; nothing is acknowledged, retry later")
            }
            Self::InternalError => {
                "an internal error prevented reading this body; none of it is stored".into()
            }
            Self::NotReadInTime => {
                "this machine was too busy to read the body in time; none of it is stored, retry later".into()
            }
            Self::StoreTimeout => "the storage does not answer; the events may or may not be stored".into(),
            Self::PartlyStored(cause) => {
                format!("stored in part: some events are stored; the others are not: {}", cause.message())
            }
            Self::MaybeStored(cause) => {
                format!("{}; the events may or may not be stored", cause.message())
            }
        }
    }
}

/// The names of refusals, by [`Refusal::number`].
pub(crate) const NAMES: [&str; 25] = [
    "http",
    "header",
    "malformed",
    "unauthorized",
    "origin",
    "path",
    "method",
    "slow_head",
    "slow_body",
    "too_large",
    "media_type",
    "expectation",
    "idempotency_in_flight",
    "idempotency_other_body",
    "budget",
    "connections",
    "stopping",
    "storage_full",
    "storage_read_only",
    "storage_failing",
    "storage_timeout",
    "stored_in_part",
    "storage_unsure",
    "fault",
    "not_read_in_time",
];

fn http_error_status(error: &http1::Error) -> u16 {
    match error {
        http1::Error::BadVersion { .. } => 505,
        http1::Error::UnsupportedCoding => 501,
        http1::Error::HeadTooLarge { .. } | http1::Error::TooManyHeaders => 431,
        _ => 400,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_stored_is_said_to_be() {
        let full = |level, some_stored| Refusal::of_request(Failure::Full, level, some_stored);
        assert_eq!(full(Level::Written, false), Refusal::Full);
        assert_eq!(full(Level::Written, true), Refusal::PartlyStored(Box::new(Refusal::Full)));
        assert_eq!(full(Level::Synced, false), Refusal::MaybeStored(Box::new(Refusal::Full)));
        assert_eq!(Refusal::of_request(Failure::Closed, Level::Synced, false), Refusal::Stopping);
        assert!(full(Level::Written, true).may_be_stored() && !full(Level::Written, false).may_be_stored());
        for refusal in [full(Level::Written, true), full(Level::Synced, false)] {
            assert_eq!(refusal.status(503), 507);
            assert!(refusal.is_temporary() && refusal.message().contains("stored"), "{}", refusal.message());
        }
        let left = Refusal::of_request(Failure::Partial(Errno::NOSPC.raw_os_error()), Level::Written, false);
        assert_eq!(left, Refusal::MaybeStored(Box::new(Refusal::Full)));
        assert_eq!(full(Level::Written, true).name(), "stored_in_part");
        assert_eq!(full(Level::Synced, false).name(), "storage_unsure");
    }
}
