//! Properties: requests match the draft, replies are decoded as they were encoded, and the decoder neither panics on
//! any bytes nor depends on how they were split.

mod common;

use common::{Owned, Wire, numbered, read};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::FileFailurePersistence;
use sftp::{Attributes, Code, MAX_PACKET, OpenFlags, Owner, Request, Times, write_header, write_init};

fn bytes(most: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..=most)
}

fn attributes() -> impl Strategy<Value = Attributes> {
    let owner = (any::<u32>(), any::<u32>()).prop_map(|(uid, gid)| Owner { uid, gid });
    let times =
        (any::<u32>(), any::<u32>()).prop_map(|(accessed_s, modified_s)| Times { accessed_s, modified_s });
    let all = (
        prop::option::of(any::<u64>()),
        prop::option::of(owner),
        prop::option::of(any::<u32>()),
        prop::option::of(times),
    );
    all.prop_map(|(size, owner, permissions, times)| Attributes { size, owner, permissions, times })
}

fn code() -> impl Strategy<Value = Code> {
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
    prop_oneof![select(known.to_vec()), (9..=u32::MAX).prop_map(Code::Other)]
}

fn reply() -> impl Strategy<Value = Owned> {
    let id = any::<u32>;
    let name = (bytes(300), bytes(40), attributes());
    prop_oneof![
        prop::collection::vec((bytes(30), bytes(5)), 0..5).prop_map(Owned::Version),
        (id(), code(), bytes(30), bytes(5))
            .prop_map(|(id, code, message, language)| Owned::Status(id, code, message, language)),
        (id(), bytes(256)).prop_map(|(id, handle)| Owned::Handle(id, handle)),
        (id(), bytes(2000)).prop_map(|(id, data)| Owned::Data(id, data)),
        (id(), prop::collection::vec(name, 0..6)).prop_map(|(id, names)| Owned::Names(id, names)),
        (id(), attributes()).prop_map(|(id, attributes)| Owned::Attributes(id, attributes)),
        (id(), bytes(50)).prop_map(|(id, bytes)| Owned::Extended(id, bytes)),
    ]
}

/// Bytes that look like the beginning of a packet more often than random bytes do.
fn nearly_packets() -> impl Strategy<Value = Vec<u8>> {
    let kind = select(vec![2, 101, 102, 103, 104, 105, 201, 0, 1, 255]);
    let word = prop_oneof![0..20u32, select(vec![0x8000_0000, 0x8000_000f, u32::MAX, 256, 257])];
    let body = (prop::collection::vec(word, 0..8), bytes(20));
    let packet = (kind, body).prop_map(|(kind, (words, end))| {
        let wire = words.into_iter().fold(Wire::default().byte(kind), Wire::u32);
        Wire([wire.0, end].concat()).packet()
    });
    prop::collection::vec(packet, 0..6).prop_map(|packets| packets.concat())
}

/// Every request with its packet according to the draft and OpenSSH's PROTOCOL.
fn requests<'a>(
    id: u32,
    [a, b]: [&'a [u8]; 2],
    [x, y]: [u64; 2],
    attributes: Attributes,
) -> Vec<(Request<'a>, Wire)> {
    let one = |kind| numbered(kind, id).string(a);
    let with_attributes = |kind| numbered(kind, id).string(a).attributes(&attributes, 0);
    let extended = |name: &str| numbered(200, id).string(name.as_bytes());
    let length = x as u32;
    vec![
        (
            Request::Open { path: a, flags: OpenFlags::READ, attributes },
            one(3).u32(1).attributes(&attributes, 0),
        ),
        (Request::Close(a), one(4)),
        (Request::Read { handle: a, offset: y, length }, one(5).u64(y).u32(length)),
        (Request::Lstat(a), one(7)),
        (Request::Fstat(a), one(8)),
        (Request::Setstat { path: a, attributes }, with_attributes(9)),
        (Request::Fsetstat { handle: a, attributes }, with_attributes(10)),
        (Request::Opendir(a), one(11)),
        (Request::Readdir(a), one(12)),
        (Request::Remove(a), one(13)),
        (Request::Mkdir { path: a, attributes }, with_attributes(14)),
        (Request::Realpath(a), one(16)),
        (Request::Stat(a), one(17)),
        (Request::Rename { from: a, to: b }, one(18).string(b)),
        (Request::Readlink(a), one(19)),
        (Request::Symlink { target: a, link: b }, one(20).string(b)),
        (Request::Limits, extended("limits@openssh.com")),
        (Request::Fsync { handle: a }, extended("fsync@openssh.com").string(a)),
        (Request::PosixRename { from: a, to: b }, extended("posix-rename@openssh.com").string(a).string(b)),
        (
            Request::Lsetstat { path: a, attributes },
            extended("lsetstat@openssh.com").string(a).attributes(&attributes, 0),
        ),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::Off)),
        ..ProptestConfig::default()
    })]

    #[test]
    fn requests_are_what_the_draft_says(
        id in any::<u32>(),
        a in bytes(300),
        b in bytes(300),
        numbers in any::<[u64; 2]>(),
        attributes in attributes(),
    ) {
        let (mut out, mut expected) = (Vec::new(), Vec::new());
        for (request, wire) in requests(id, [&a, &b], numbers, attributes) {
            request.write(id, &mut out);
            expected.extend(wire.packet());
            prop_assert_eq!(&out, &expected, "{:?}", request);
        }
    }

    #[test]
    fn a_write_is_its_header_and_the_data(
        id in any::<u32>(),
        handle in bytes(256),
        offset in any::<u64>(),
        data in bytes(3000),
    ) {
        let mut out = b"before".to_vec();
        write_header(&mut out, id, &handle, offset, data.len() as u32);
        out.extend(&data);
        let packet = numbered(6, id).string(&handle).u64(offset).string(&data).packet();
        prop_assert_eq!(out, [&b"before"[..], &packet].concat());
    }

    #[test]
    fn replies_are_read_as_they_were_sent_however_split(
        replies in prop::collection::vec((reply(), 0..3u32), 0..12),
        sizes in prop::collection::vec(1..1500usize, 0..5),
    ) {
        let stream: Vec<u8> = replies.iter().flat_map(|(reply, extended)| reply.sent(*extended)).collect();
        let replies: Vec<Owned> = replies.into_iter().map(|(reply, _)| reply).collect();
        for sizes in [&[][..], &sizes, &[1]] {
            let outcome = read(&stream, sizes, MAX_PACKET);
            prop_assert_eq!((outcome.error, outcome.unread), (None, Vec::new()));
            prop_assert_eq!(&outcome.replies, &replies);
        }
    }

    #[test]
    fn a_packet_that_is_cut_is_refused_or_a_tolerated_status(reply in reply(), cut in 0..4000usize, extended in 0..3u32) {
        let packet = reply.sent(extended);
        let body = &packet[4..4 + cut % (packet.len() - 4)];
        let outcome = read(&Wire(body.to_vec()).packet(), &[], MAX_PACKET);
        match (&outcome.replies[..], &reply) {
            ([], _) => prop_assert!(outcome.error.is_some()),
            // All fields after the code may be missing, or only the last string.
            ([Owned::Status(_, code, ..)], Owned::Status(_, sent, ..)) => prop_assert_eq!(code, sent),
            // A list that ends between two pairs is a valid shorter list.
            ([Owned::Version(some)], Owned::Version(all)) => prop_assert!(all.starts_with(some)),
            ([Owned::Extended(_, some)], Owned::Extended(_, all)) => prop_assert!(all.starts_with(some)),
            (read, _) => prop_assert!(false, "{:?}", read),
        }
    }

    #[test]
    fn any_bytes_are_read_alike_however_split(
        stream in prop_oneof![bytes(200), nearly_packets()],
        sizes in prop::collection::vec(1..30usize, 1..5),
        limit in select(vec![8, 20, MAX_PACKET]),
    ) {
        let whole = read(&stream, &[], limit);
        prop_assert_eq!(&read(&stream, &sizes, limit), &whole);
        prop_assert_eq!(&read(&stream, &[1], limit), &whole);
    }
}

#[test]
fn init_asks_for_version_3() {
    let mut out = Vec::new();
    write_init(&mut out);
    assert_eq!(out, Wire::default().byte(1).u32(3).packet());
}

#[test]
fn flags_of_open_are_those_of_the_draft() {
    let flags = [
        (OpenFlags::READ, 1),
        (OpenFlags::WRITE, 2),
        (OpenFlags::CREATE, 8),
        (OpenFlags::EXCLUSIVE, 32),
        (OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCLUSIVE, 42),
    ];
    for (flags, number) in flags {
        let mut out = Vec::new();
        Request::Open { path: b"p", flags, attributes: Attributes::default() }.write(1, &mut out);
        assert_eq!(out, numbered(3, 1).string(b"p").u32(number).u32(0).packet());
    }
}
