//! Reads any bytes as the stream of a server, whole and cut: the outcome must be the same; what was read, sent again by an
//! encoder as plain as can be, must be read as the same; and names that are let through must stay where they are put.
//! `common`, which reads and sends, is that of the crate's tests.
//!
//! Input: a byte of flags (1: a small limit, of four times the upper seven bits), three bytes with the sizes of the pieces less
//! one, repeated, and the bytes of the stream.

#[path = "../../crates/sftp/tests/common/mod.rs"]
mod common;

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Component, Path},
};

use common::{Owned, read};
use sftp::{Limits, MAX_HANDLE, MAX_PACKET, is_safe_name};

/// Panics when a promise is broken; false for bytes that say nothing.
pub(super) fn check(data: &[u8]) -> bool {
    let Some(([flags, sizes @ ..], stream)) = data.split_first_chunk::<4>() else {
        return false;
    };
    let limit = if flags & 1 != 0 { usize::from(flags >> 1) * 4 } else { MAX_PACKET };
    let sizes = sizes.map(|size| usize::from(size) + 1);

    let whole = read(stream, &[], limit);
    assert_eq!(read(stream, &sizes, limit), whole);
    assert_eq!(read(stream, &[1], limit), whole);
    assert!(stream.ends_with(&whole.unread));
    for reply in whole.replies {
        let again = read(&reply.sent(0), &[], MAX_PACKET);
        assert_eq!((&again.replies[..], again.error), (&[reply.clone()][..], None));
        within_bounds(reply, stream.len());
    }
    true
}

/// What a reply holds is what its packet had room for, and what is called safe is.
fn within_bounds(reply: Owned, most: usize) {
    match reply {
        Owned::Handle(_, handle) => assert!(handle.len() <= MAX_HANDLE),
        Owned::Data(_, data) => assert!(data.len() <= most),
        Owned::Names(_, names) => {
            assert!(names.len() <= most / 12);
            for (name, ..) in names.iter().filter(|(name, ..)| is_safe_name(name)) {
                let path = Path::new("/folder").join(OsStr::from_bytes(name));
                let last = path.components().next_back();
                assert_eq!(last, Some(Component::Normal(OsStr::from_bytes(name))));
                assert_eq!(path.parent(), Some(Path::new("/folder")));
            }
        }
        Owned::Extended(_, bytes) => assert_eq!(Limits::read(&bytes).is_ok(), bytes.len() >= 32),
        Owned::Version(_) | Owned::Status(..) | Owned::Attributes(..) => {}
    }
}
