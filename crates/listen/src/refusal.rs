//! Reasons to refuse a request, with the status, the name in counters, and the message for the client.

use events::{Mistake, MistakeKind};
use rustix::io::Errno;
use segments::{Failure, Level, StorageState};

/// Maximum length of a tag in bytes. Limited, because a tag occurs in every line, in file names and in keys.
pub(crate) const MAX_TAG_BYTES: usize = 1024;

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Refusal {
    /// Not HTTP, or a version or feature of HTTP that is unsupported.
    Http(http1::Error),
    /// HTTP/1.1 without exactly one Host (RFC 9112, 3.2).
    Host,
    /// The value of `Proofload-Ack` is not a level.
    Ack(String),
    /// The value of `?time=` is not a time.
    Time(String),
    /// A header occurs twice, but only one of its values can apply.
    Repeated(&'static str),
    /// This path segment cannot be part of a tag.
    TagEscape(String),
    /// The idempotency key is empty, too long or not ASCII.
    IdempotencyKey,
    /// The body does not match its content type.
    Malformed(Mistake),
    /// The body cannot be decompressed. Contains its encoding.
    Corrupt(&'static str),
    /// Credentials are missing or wrong.
    Unauthorized,
    /// Browsers may not post from this origin.
    Origin,
    /// The path contains no tag.
    NoTag,
    /// The configuration does not store this tag.
    TagNotStored,
    /// The tag is too long. Contains its length in bytes.
    LongTag(usize),
    /// The tag or a member cannot be part of a file name. Contains the reason.
    InvalidName(String),
    /// The path does not support this method.
    Method,
    /// The head did not arrive in time.
    SlowHead,
    /// The body arrives more slowly than the minimum rate.
    SlowBody,
    /// The body as sent exceeds this limit in bytes.
    TooLarge(u64),
    /// The decompressed body exceeds this limit in bytes.
    InflatesTooLarge(u64),
    /// The request alone exceeds the whole budget of this many bytes.
    ExceedsBudget(u64),
    /// The events belong to more than this maximum number of segments.
    ManySegments(usize),
    /// The content type is not supported.
    ContentType(String),
    /// The content encoding is not supported.
    ContentEncoding(String),
    /// The value of `Expect` is not supported.
    Expectation,
    /// An earlier request with the same idempotency key is still being stored.
    InFlight,
    /// An earlier request with the same idempotency key had another body.
    OtherBody,
    /// The budget of bytes in flight is used up.
    Budget,
    /// The maximum number of connections is open.
    Connections,
    /// The listener is stopping.
    Stopping,
    /// The storage has no free space.
    Full,
    /// The storage cannot be written to.
    ReadOnly,
    /// Writes to the storage fail with this errno.
    Failing(i32),
    /// A bug in this program prevented the body from being read.
    InternalError,
    /// The body arrived in time, but the body reader did not read it in time.
    NotReadInTime,
    /// The storage did not complete in time: the events may or may not be stored.
    StoreTimeout,
    /// The storage refused some events for this reason; the others are stored.
    PartlyStored(Box<Refusal>),
    /// The storage failed for this reason, perhaps after writing: the events may or may not be stored.
    MaybeStored(Box<Refusal>),
}

impl Refusal {
    /// The refusal for a storage in this state; `None` if it works.
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

    /// The refusal for a request of this level after a part failed. `some_stored` tells whether other parts are stored.
    pub(crate) fn of_request(failure: Failure, level: Level, some_stored: bool) -> Self {
        let refusal = Self::of_failure(failure.cause());
        match level {
            _ if some_stored => Self::PartlyStored(Box::new(refusal)),
            // The storage's thread died, so the part may be written.
            _ if failure == Failure::Io(Errno::OWNERDEAD.raw_os_error()) => {
                Self::MaybeStored(Box::new(refusal))
            }
            _ if matches!(failure, Failure::Partial(_)) => Self::MaybeStored(Box::new(refusal)),
            // The lines may have been written before the sync failed.
            Level::Synced if failure != Failure::Closed => Self::MaybeStored(Box::new(refusal)),
            _ => refusal,
        }
    }

    /// The refusal for a request that cannot get `bytes` of the budget now.
    pub(crate) fn over_budget(bytes: u64, limit: u64) -> Self {
        if bytes > limit { Self::ExceedsBudget(limit) } else { Self::Budget }
    }

    /// Whether events may be stored already, so that a repeat could store them twice.
    pub(crate) fn may_be_stored(&self) -> bool {
        matches!(self, Self::StoreTimeout | Self::PartlyStored(_) | Self::MaybeStored(_))
    }

    /// The status of the answer. `overload` is the status for a used-up budget.
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

    /// The refusal's name in counters.
    pub(crate) fn name(&self) -> &'static str {
        NAMES[self.number()]
    }

    /// The refusal's index in [`NAMES`].
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

    /// Whether a later repeat may succeed.
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

    /// The message for the client: the problem, and what to do.
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
                "{segment:?} in the path is not text: a % needs two hexadecimal digits after it, and the bytes must be UTF-8 \
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
                "a folder of this file is a link, and links after the first placeholder of --path are not followed; \
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
