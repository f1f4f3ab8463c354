//! Requests whose answers are pending.

use std::{
    collections::HashMap,
    fmt,
    rc::Rc,
    time::{Duration, Instant},
};

use sftp::{Attributes, Code, FileType};
use tokio::sync::oneshot;

use crate::{
    error::{Error, Result},
    governor::{Governor, Permit},
    reply::{OwnedReply, Take},
};

/// Maximum silence of a server that owes an answer; after it, the channel is given up. Writing much data to a slow disk
/// takes minutes.
pub(crate) const ANSWER_WAIT: Duration = Duration::from_secs(300);

pub(crate) struct PendingReplies {
    pub(crate) asked: HashMap<u32, InFlight>,
    /// Start of the server's current silence while it owes an answer.
    pub(crate) since: Instant,
    /// Maximum silence: [`ANSWER_WAIT`].
    pub(crate) answer_wait: Duration,
    pub(crate) lost: Option<String>,
}

impl PendingReplies {
    pub(crate) fn new() -> Self {
        Self { asked: HashMap::new(), since: Instant::now(), answer_wait: ANSWER_WAIT, lost: None }
    }

    pub(crate) fn is_late(&self) -> bool {
        !self.asked.is_empty() && self.since.elapsed() >= self.answer_wait
    }
}

impl fmt::Debug for PendingReplies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingReplies").field("lost", &self.lost).finish_non_exhaustive()
    }
}

pub(crate) struct InFlight {
    pub(crate) answer: oneshot::Sender<Result<OwnedReply>>,
    /// Receives the data of a READ.
    pub(crate) take: Option<Take>,
    /// The permits for the bytes in flight, if the request carries data.
    pub(crate) on_the_way: Option<OnTheWay>,
}

/// Permits for bytes in flight, held until their request is answered.
#[derive(Debug)]
pub(crate) struct OnTheWay {
    pub(crate) bytes: usize,
    pub(crate) sent: Instant,
    /// The governors of the channel and of the path.
    pub(crate) governors: [Rc<Governor>; 2],
    pub(crate) _permits: (Permit, Permit),
}

impl OnTheWay {
    /// Keeps permits for the bytes that are sent and releases the rest.
    pub(crate) fn for_bytes(self, bytes: usize) -> Self {
        self.governors[1].give_back(self.bytes - bytes);
        Self { bytes, sent: Instant::now(), ..self }
    }
}

/// A pending answer.
#[derive(Debug)]
pub(crate) struct Pending(pub(crate) oneshot::Receiver<Result<OwnedReply>>);

impl Pending {
    /// Waits for an answer that only confirms the request.
    pub(crate) async fn done(self) -> Result {
        match self.answer().await? {
            OwnedReply::Done => Ok(()),
            _ => Err(Error::unexpected("a request")),
        }
    }

    /// Waits for an answer with the attributes of a file.
    pub(crate) async fn attributes(self) -> Result<Attributes> {
        match self.answer().await? {
            OwnedReply::Attributes(attributes) => Ok(attributes),
            _ => Err(Error::unexpected("STAT")),
        }
    }

    /// Waits for the attributes of a path; none if the path does not exist.
    pub(crate) async fn known(self) -> Result<Option<Attributes>> {
        match self.attributes().await {
            Ok(known) => Ok(Some(known)),
            Err(error) if error.is(Code::NoSuchFile) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Waits for the attributes of the file that a link leads to. Fails if the server reports the link itself, because
    /// the copy would become a link.
    pub(crate) async fn behind(self) -> Result<Option<Attributes>> {
        match self.known().await? {
            Some(found) if found.file_type() == Some(FileType::Symlink) => Err(Error::unexpected("STAT")),
            found => Ok(found),
        }
    }

    pub(crate) async fn answer(self) -> Result<OwnedReply> {
        self.0.await.unwrap_or_else(|_| Err(Error::Lost("the connection was closed".to_owned())))
    }
}
