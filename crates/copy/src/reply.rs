//! Answers of a server and messages of `ssh`, copied so that they outlive the receive buffer.

use std::{os::unix::process::ExitStatusExt, time::Duration};

use sftp::{Answer, Attributes, Code};
use tokio::{
    io::AsyncReadExt,
    process::{Child, ChildStderr},
    task::spawn_local,
};

use crate::error::{Error, Refusal, Result};

/// Maximum number of bytes that are kept of the last messages of `ssh`.
const WORDS_BYTES: usize = 4_096;
/// Maximum wait for the last messages of `ssh`.
const LAST_WORDS_WAIT: Duration = Duration::from_secs(1);

/// An answer that owns its data.
#[derive(Debug)]
pub(crate) enum OwnedReply {
    Done,
    EndOfFile,
    Handle(Vec<u8>),
    /// The number of data bytes that the caller has received.
    Taken(usize),
    Names(Vec<(Vec<u8>, Attributes)>),
    Attributes(Attributes),
    Extended(Vec<u8>),
}

/// Receives data directly from the receive buffer: another copy of each byte would cost a tenth of a download's time on
/// this machine.
pub(crate) type Take = Box<dyn FnOnce(&[u8]) -> Result>;

pub(crate) fn owned(answer: Answer<'_>, take: Option<Take>) -> Result<OwnedReply> {
    Ok(match answer {
        Answer::Status(status) => match status.code {
            Code::Ok => OwnedReply::Done,
            Code::EndOfFile => OwnedReply::EndOfFile,
            code => return Err(Error::Refused(Refusal::new(code, status.message))),
        },
        Answer::Handle(handle) => OwnedReply::Handle(handle.to_vec()),
        Answer::Data(data) => {
            take.ok_or_else(|| Error::unexpected("a request"))?(data)?;
            OwnedReply::Taken(data.len())
        }
        Answer::Names(names) => {
            OwnedReply::Names(names.map(|name| (name.name.to_vec(), name.attributes)).collect())
        }
        Answer::Attributes(attributes) => OwnedReply::Attributes(attributes),
        Answer::Extended(bytes) => OwnedReply::Extended(bytes.to_vec()),
    })
}

/// The message for output of a server that is not SFTP.
pub(crate) fn not_sftp(error: &sftp::Error, sent: &[u8]) -> String {
    let sftp::Error::TextBeforeSftp { .. } = error else {
        return format!("the server sent something that is not SFTP: {error}");
    };
    let text = String::from_utf8_lossy(sent);
    let line: String = text.lines().next().unwrap_or_default().chars().take(100).collect();
    format!(
        "the server sent the text '{}' before SFTP: the user needs a login shell there that runs commands (nologin does not), and \
         start-up files (such as .bashrc) that print nothing without a terminal",
        line.escape_debug()
    )
}

/// The last messages of `ssh` before it ends.
#[derive(Debug)]
pub(crate) struct LastWords(tokio::task::JoinHandle<Vec<u8>>);

impl LastWords {
    pub(crate) fn of(mut stderr: ChildStderr) -> Self {
        Self(spawn_local(async move {
            let (mut words, mut piece) = (Vec::new(), [0; 1_024]);
            while let Ok(read @ 1..) = stderr.read(&mut piece).await {
                words.extend_from_slice(&piece[..read]);
                let surplus = words.len().saturating_sub(WORDS_BYTES);
                words.drain(..surplus);
            }
            words
        }))
    }

    /// Waits for the end of the program and returns its messages in one line.
    pub(crate) async fn end(self, child: &mut Child) -> String {
        let status = tokio::time::timeout(LAST_WORDS_WAIT, child.wait()).await;
        let _ = child.start_kill();
        let words = tokio::time::timeout(LAST_WORDS_WAIT, self.0).await;
        let words = words.ok().and_then(Result::ok).unwrap_or_default();
        let words = String::from_utf8_lossy(&words);
        let mut lines = words.lines().map(str::trim).filter(|line| !line.is_empty()).peekable();
        if let (None, Ok(Ok(status))) = (lines.peek(), status)
            && let Some(signal) = status.signal()
        {
            return format!("ssh was killed by signal {signal}");
        }
        lines.collect::<Vec<_>>().join("; ").chars().filter(|letter| !letter.is_control()).collect()
    }
}
