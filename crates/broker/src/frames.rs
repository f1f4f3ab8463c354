//! The contents of a session's TLS stream: messages, each with a kind, a length and bytes.

/// Maximum number of bytes in a message, so that the message fits into one TLS record.
pub(crate) const MAX_FRAME: usize = (16 << 10) - HEADER_BYTES;
const HEADER_BYTES: usize = 5;

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Bytes of the stream.
    Bytes = 0,
    /// The controller's first message: an [`Order`].
    Order = 1,
    /// The agent's first message: why it does not obey; empty if it does.
    Answer = 2,
    /// Why a side ends.
    LastWords = 3,
}

/// A message as it arrived. `length`: the number of all its bytes, including the header.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    pub(crate) kind: Kind,
    pub(crate) bytes: &'a [u8],
    pub(crate) length: usize,
}

/// Bytes that are not a message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NotAFrame;

/// What a controller wants from an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// A session with its command.
    Load,
    /// No session after the current one.
    Drain,
}

impl Order {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Drain => "drain",
        }
    }

    pub(crate) fn of(word: &str) -> Option<Self> {
        [Self::Load, Self::Drain].into_iter().find(|order| order.word() == word)
    }
}

/// Makes a message. Bytes beyond the maximum are cut off.
pub(crate) fn frame(kind: Kind, bytes: &[u8]) -> Vec<u8> {
    let bytes = &bytes[..bytes.len().min(MAX_FRAME)];
    let mut frame = Vec::with_capacity(HEADER_BYTES + bytes.len());
    frame.push(kind as u8);
    frame.extend((bytes.len() as u32).to_be_bytes());
    frame.extend(bytes);
    frame
}

/// The first message in these bytes; `None` if it is not complete yet.
///
/// # Errors
/// When the bytes do not begin with a message.
pub(crate) fn parse(bytes: &[u8]) -> Result<Option<Frame<'_>>, NotAFrame> {
    let [kind, length @ ..] = bytes else { return Ok(None) };
    let kinds = [Kind::Bytes, Kind::Order, Kind::Answer, Kind::LastWords];
    let kind = *kinds.get(usize::from(*kind)).ok_or(NotAFrame)?;
    let Some((length, rest)) = length.split_first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_be_bytes(*length) as usize;
    if length > MAX_FRAME {
        return Err(NotAFrame);
    }
    Ok(rest.get(..length).map(|bytes| Frame { kind, bytes, length: HEADER_BYTES + length }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn messages_are_read_back_and_foreign_bytes_are_borne(bytes: Vec<u8>, cut: prop::sample::Index) {
            let whole = frame(Kind::LastWords, &bytes);
            prop_assert_eq!(parse(&whole), Ok(Some(Frame { kind: Kind::LastWords, bytes: &bytes, length: whole.len() })));
            prop_assert_eq!(parse(&whole[..cut.index(whole.len())]), Ok(None));
            let _ = parse(&bytes);
            prop_assert_eq!(parse(&[0, 255, 255, 255, 255]), Err(NotAFrame));
        }
    }
}
