//! A minimal server, written from the draft, and a reader for whole streams.

// Each test binary compiles this file but uses only a part of it.
#![allow(dead_code)]

use sftp::{Answer, Attributes, Code, Error, Frames, Owner, Reply, Times};

/// Bytes in the form of the wire.
#[derive(Clone, Default, Debug)]
pub(crate) struct Wire(pub Vec<u8>);

impl Wire {
    pub(crate) fn byte(mut self, byte: u8) -> Self {
        self.0.push(byte);
        self
    }

    pub(crate) fn u32(mut self, number: u32) -> Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    pub(crate) fn u64(mut self, number: u64) -> Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    pub(crate) fn string(self, string: &[u8]) -> Self {
        let mut wire = self.u32(string.len() as u32);
        wire.0.extend(string);
        wire
    }

    /// Appends attributes. `extended` is the number of pairs of extended attributes that follow.
    pub(crate) fn attributes(self, attributes: &Attributes, extended: u32) -> Self {
        let mut flags = 0;
        let mut fields = Wire::default();
        if let Some(size) = attributes.size {
            flags |= 0x1;
            fields = fields.u64(size);
        }
        if let Some(Owner { uid, gid }) = attributes.owner {
            flags |= 0x2;
            fields = fields.u32(uid).u32(gid);
        }
        if let Some(permissions) = attributes.permissions {
            flags |= 0x4;
            fields = fields.u32(permissions);
        }
        if let Some(Times { accessed_s, modified_s }) = attributes.times {
            flags |= 0x8;
            fields = fields.u32(accessed_s).u32(modified_s);
        }
        if extended > 0 {
            flags |= 0x8000_0000;
            fields = fields.u32(extended);
            for _ in 0..extended {
                fields = fields.string(b"name@example.org").string(b"\0any");
            }
        }
        let mut wire = self.u32(flags);
        wire.0.extend(fields.0);
        wire
    }

    /// A packet with these bytes after its length.
    pub(crate) fn packet(self) -> Vec<u8> {
        Wire::default().string(&self.0).0
    }
}

/// The start of a packet with a request id.
pub(crate) fn numbered(kind: u8, id: u32) -> Wire {
    Wire::default().byte(kind).u32(id)
}

/// A reply that owns its data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Owned {
    Version(Vec<(Vec<u8>, Vec<u8>)>),
    Status(u32, Code, Vec<u8>, Vec<u8>),
    Handle(u32, Vec<u8>),
    Data(u32, Vec<u8>),
    Names(u32, Vec<(Vec<u8>, Vec<u8>, Attributes)>),
    Attributes(u32, Attributes),
    Extended(u32, Vec<u8>),
}

impl Owned {
    pub(crate) fn of(reply: Reply<'_>) -> Self {
        let (id, answer) = match reply {
            Reply::Version(version) => {
                let pairs = version.extensions();
                return Owned::Version(pairs.map(|(name, data)| (name.to_vec(), data.to_vec())).collect());
            }
            Reply::Answer(id, answer) => (id, answer),
        };
        match answer {
            Answer::Status(status) => {
                Owned::Status(id, status.code, status.message.to_vec(), status.language.to_vec())
            }
            Answer::Handle(handle) => Owned::Handle(id, handle.to_vec()),
            Answer::Data(data) => Owned::Data(id, data.to_vec()),
            Answer::Names(names) => {
                let promised = names.len();
                let names: Vec<_> = names
                    .map(|name| (name.name.to_vec(), name.long_name.to_vec(), name.attributes))
                    .collect();
                assert_eq!(names.len(), promised);
                Owned::Names(id, names)
            }
            Answer::Attributes(attributes) => Owned::Attributes(id, attributes),
            Answer::Extended(bytes) => Owned::Extended(id, bytes.to_vec()),
        }
    }

    /// The bytes that a server sends. `extended` is the number of extended attributes after all other attributes.
    pub(crate) fn sent(&self, extended: u32) -> Vec<u8> {
        match self {
            Owned::Version(pairs) => {
                let wire = Wire::default().byte(2).u32(3);
                pairs.iter().fold(wire, |wire, (name, data)| wire.string(name).string(data))
            }
            Owned::Status(id, code, message, language) => {
                numbered(101, *id).u32(number(*code)).string(message).string(language)
            }
            Owned::Handle(id, handle) => numbered(102, *id).string(handle),
            Owned::Data(id, data) => numbered(103, *id).string(data),
            Owned::Names(id, names) => {
                let wire = numbered(104, *id).u32(names.len() as u32);
                names.iter().fold(wire, |wire, (name, long_name, attributes)| {
                    wire.string(name).string(long_name).attributes(attributes, extended)
                })
            }
            Owned::Attributes(id, attributes) => numbered(105, *id).attributes(attributes, extended),
            Owned::Extended(id, bytes) => {
                let mut wire = numbered(201, *id);
                wire.0.extend(bytes);
                wire
            }
        }
        .packet()
    }
}

fn number(code: Code) -> u32 {
    let known = [
        Code::Ok,
        Code::EndOfFile,
        Code::NoSuchFile,
        Code::PermissionDenied,
        Code::Failure,
        Code::BadMessage,
        Code::NoConnection,
        Code::ConnectionLost,
        Code::Unsupported,
    ];
    match code {
        Code::Other(number) => number,
        code => known.iter().position(|known| *known == code).expect("a known code") as u32,
    }
}

/// The result of reading a stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Outcome {
    pub replies: Vec<Owned>,
    pub error: Option<Error>,
    /// Bytes that were not read.
    pub unread: Vec<u8>,
}

/// Reads a stream in pieces, whose sizes cycle through `sizes`. Without sizes, reads it as a whole.
pub(crate) fn read(stream: &[u8], sizes: &[usize], limit: usize) -> Outcome {
    let mut frames = Frames::with_limit(limit);
    let mut outcome = Outcome { replies: Vec::new(), error: None, unread: Vec::new() };
    let mut sizes = sizes.iter().copied().cycle();
    let mut rest = stream;
    while !rest.is_empty() && outcome.error.is_none() {
        let (piece, later) = rest.split_at(sizes.next().unwrap_or(rest.len()).clamp(1, rest.len()));
        rest = later;
        let space = frames.space(piece.len());
        space[..piece.len()].copy_from_slice(piece);
        frames.filled(piece.len());
        outcome.error = loop {
            match frames.next_reply() {
                Ok(Some(reply)) => outcome.replies.push(Owned::of(reply)),
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
        };
    }
    if let Some(error) = outcome.error {
        assert_eq!(frames.next_reply().err(), Some(error));
    }
    outcome.unread = [frames.unread(), rest].concat();
    outcome
}
