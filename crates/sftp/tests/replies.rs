//! Valid replies of all kinds of servers, and invalid ones.

mod common;

use common::{Outcome, Owned, Wire, numbered, read};
use sftp::{
    Attributes, Code, Error, Extension, FileType, Frames, Limits, MAX_HANDLE, MAX_PACKET, Reply, Server,
};

fn all(stream: &[u8]) -> Outcome {
    read(stream, &[], MAX_PACKET)
}

fn error(stream: &[u8]) -> Error {
    all(stream).error.expect("an error")
}

/// The known extensions of a server that lists these in its VERSION.
fn server(extensions: &[(&str, &str)]) -> Server {
    let owned = |text: &str| text.as_bytes().to_vec();
    let pairs = extensions.iter().map(|(name, data)| (owned(name), owned(data))).collect();
    let stream = Owned::Version(pairs).sent(0);
    let mut frames = Frames::new();
    frames.space(stream.len())[..stream.len()].copy_from_slice(&stream);
    frames.filled(stream.len());
    match frames.next_reply() {
        Ok(Some(Reply::Version(version))) => version.server(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_status_may_end_after_its_code_or_its_message() {
    let bare = numbered(101, 5).u32(4);
    let with_message = bare.clone().string(b"no space left");
    assert_eq!(all(&bare.packet()).replies, [Owned::Status(5, Code::Failure, Vec::new(), Vec::new())]);
    assert_eq!(
        all(&with_message.clone().packet()).replies,
        [Owned::Status(5, Code::Failure, b"no space left".to_vec(), Vec::new())]
    );
    let half = with_message.byte(0);
    assert_eq!(error(&half.packet()), Error::ShortPacket { packet: "STATUS", field: "language tag" });
}

#[test]
fn bytes_behind_the_last_field_are_ignored() {
    let attributes = Attributes { size: Some(1), ..Attributes::default() };
    let wire = numbered(105, 1).attributes(&attributes, 2).string(b"more");
    assert_eq!(all(&wire.packet()).replies, [Owned::Attributes(1, attributes)]);
    let data = numbered(103, 1).string(b"data").byte(1);
    assert_eq!(all(&data.packet()).replies, [Owned::Data(1, b"data".to_vec())]);
}

#[test]
fn extensions_have_versions() {
    let has = |pairs: &[(&str, &str)]| Extension::ALL.map(|extension| server(pairs).has(extension));
    let other =
        [("fsync@openssh.com", "1"), ("posix-rename@openssh.com", "2"), ("limits@openssh.com", "one")];
    assert_eq!(has(&other), [false, true, false, false]);
    // If an extension is listed twice, the last entry counts.
    assert_eq!(
        has(&[("fsync@openssh.com", "1"), ("fsync@openssh.com", ""), ("statvfs@openssh.com", "1")]),
        [false; 4]
    );
    assert_eq!(server(&[]), Server::default());
}

#[test]
fn other_versions_are_refused() {
    for version in [0, 2, 4, 6, u32::MAX] {
        assert_eq!(error(&Wire::default().byte(2).u32(version).packet()), Error::OtherVersion { version });
    }
}

#[test]
fn handles_have_a_bound() {
    let handle = |length| Owned::Handle(1, vec![b'h'; length]).sent(0);
    assert_eq!(all(&handle(MAX_HANDLE)).error, None);
    assert_eq!(error(&handle(MAX_HANDLE + 1)), Error::HandleTooLong { length: 257 });
}

#[test]
fn a_claimed_count_is_not_believed() {
    let names = numbered(104, 1).u32(u32::MAX);
    assert_eq!(error(&names.packet()), Error::ShortPacket { packet: "NAME", field: "name" });
    let extended = numbered(105, 1).u32(0x8000_0000).u32(u32::MAX);
    assert_eq!(error(&extended.packet()), Error::ShortPacket { packet: "ATTRS", field: "extended type" });
    let data = numbered(103, 1).u32(u32::MAX).byte(0);
    assert_eq!(error(&data.packet()), Error::ShortPacket { packet: "DATA", field: "data" });
}

#[test]
fn packets_have_a_bound_and_a_type() {
    assert_eq!(error(&[0; 4]), Error::EmptyPacket);
    let longest = Owned::Data(1, vec![7; MAX_PACKET - 9]);
    assert_eq!(all(&longest.sent(0)).replies, [longest]);
    let length = MAX_PACKET as u32 + 1;
    assert_eq!(error(&length.to_be_bytes()), Error::PacketTooLong { length, limit: MAX_PACKET });
    for kind in [0, 1, 3, 100, 106, 200, 255] {
        assert_eq!(error(&numbered(kind, 1).packet()), Error::UnknownPacket { kind });
    }
}

#[test]
fn text_of_a_shell_is_told_from_packets() {
    for text in ["Welcome to example.org\n", "\n\x1b[1mhi", "Grüße", "\t\r\n "] {
        let outcome = all(text.as_bytes());
        let begin = *text.as_bytes().first_chunk().unwrap();
        assert_eq!(outcome.error, Some(Error::TextBeforeSftp { begin }));
        assert_eq!(outcome.unread, text.as_bytes());
    }
    let later = [&Owned::Version(Vec::new()).sent(0)[..], b"Killed"].concat();
    assert_eq!(error(&later), Error::PacketTooLong { length: 0x4b69_6c6c, limit: MAX_PACKET });
    let message = Error::TextBeforeSftp { begin: *b"\x1b[1m" }.to_string();
    assert!(message.contains("(`\\x1b[1m`...)"), "{message}");
}

#[test]
fn a_part_of_a_packet_is_kept_and_is_no_reply() {
    let stream = Owned::Handle(1, b"h".to_vec()).sent(0);
    for got in 0..stream.len() {
        let mut frames = Frames::new();
        frames.space(got)[..got].copy_from_slice(&stream[..got]);
        frames.filled(got);
        assert!(matches!(frames.next_reply(), Ok(None)));
        assert_eq!(frames.unread(), &stream[..got]);
    }
}

#[test]
fn limits_are_four_numbers() {
    let wire = Wire::default().u64(262_144).u64(261_120).u64(1).u64(0);
    let limits = Limits { packet_bytes: 262_144, read_bytes: 261_120, write_bytes: 1, open_handles: 0 };
    assert_eq!(Limits::read(&wire.0), Ok(limits));
    assert_eq!(Limits::read(&[&wire.0[..], b"more"].concat()), Ok(limits));
    let short = Error::ShortPacket { packet: "EXTENDED_REPLY", field: "max-open-handles" };
    assert_eq!(Limits::read(&wire.0[..31]), Err(short));
}

#[test]
fn the_type_of_a_file_is_in_its_permissions() {
    let file_type = |permissions| Attributes { permissions, ..Attributes::default() }.file_type();
    assert_eq!(file_type(None), None);
    assert_eq!(file_type(Some(0o7777)), None);
    assert_eq!(file_type(Some(0o100_644)), Some(FileType::Regular));
    assert_eq!(file_type(Some(0o041_777)), Some(FileType::Directory));
    assert_eq!(file_type(Some(0o120_777)), Some(FileType::Symlink));
    for other in [0o010_000, 0o020_000, 0o060_000, 0o140_000, 0o150_000] {
        assert_eq!(file_type(Some(other)), Some(FileType::Other));
    }
}
