//! Tests with OpenSSH's server over pipes: the server must understand the requests of this crate.

mod common;

use std::{
    collections::BTreeMap,
    fs,
    io::{Read, Write},
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use common::Owned;
use sftp::{
    Attributes, Code, Extension, FileType, Frames, Limits, MAX_PACKET, OpenFlags, Reply, Request, Times,
    is_safe_name, write_header, write_init,
};

const SERVER: &str = "/usr/lib/openssh/sftp-server";

/// A server that works in a folder.
struct Session {
    child: Child,
    requests: ChildStdin,
    replies: ChildStdout,
    frames: Frames,
    out: Vec<u8>,
    last_id: u32,
}

impl Session {
    fn begin(folder: &Path) -> Self {
        assert!(
            Path::new(SERVER).exists(),
            "{SERVER} is missing: `scripts/setup.sh test` installs it, or `apt-get install openssh-sftp-server`"
        );
        // The timeout keeps a missing answer from blocking all tests.
        let mut child = Command::new("timeout")
            .args(["600", SERVER, "-e", "-d"])
            .arg(folder)
            .env("HOME", folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (requests, replies) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Session { child, requests, replies, frames: Frames::new(), out: Vec::new(), last_id: 0 }
    }

    /// Adds a request to the bytes that are sent next. Returns its id.
    fn add(&mut self, request: Request<'_>) -> u32 {
        self.last_id += 1;
        request.write(self.last_id, &mut self.out);
        self.last_id
    }

    fn send(&mut self) {
        self.requests.write_all(&self.out).unwrap();
        self.out.clear();
    }

    /// Reads one reply.
    fn receive<T>(&mut self, see: impl FnOnce(Reply<'_>) -> T) -> T {
        loop {
            if let Some(reply) = self.frames.next_reply().unwrap() {
                return see(reply);
            }
            let count = self.replies.read(self.frames.space(64 * 1024)).unwrap();
            assert!(count > 0, "the server ended: {:?}", self.child.wait());
            self.frames.filled(count);
        }
    }

    fn ask(&mut self, request: Request<'_>) -> Owned {
        let id = self.add(request);
        self.send();
        let reply = self.receive(Owned::of);
        assert_eq!(number(&reply), id, "{request:?}: {reply:?}");
        reply
    }

    fn ok(&mut self, request: Request<'_>) {
        let reply = self.ask(request);
        assert!(matches!(reply, Owned::Status(_, Code::Ok, ..)), "{request:?}: {reply:?}");
    }

    fn refused(&mut self, request: Request<'_>) -> Code {
        match self.ask(request) {
            Owned::Status(_, code, message, _) if code != Code::Ok => {
                assert!(!message.is_empty());
                code
            }
            reply => panic!("{request:?}: {reply:?}"),
        }
    }

    fn handle(&mut self, request: Request<'_>) -> Vec<u8> {
        match self.ask(request) {
            Owned::Handle(_, handle) => handle,
            reply => panic!("{request:?}: {reply:?}"),
        }
    }

    fn attributes(&mut self, request: Request<'_>) -> Attributes {
        match self.ask(request) {
            Owned::Attributes(_, attributes) => attributes,
            reply => panic!("{request:?}: {reply:?}"),
        }
    }

    /// The single name in the answer.
    fn path(&mut self, request: Request<'_>) -> Vec<u8> {
        match self.ask(request) {
            Owned::Names(_, names) if names.len() == 1 => names[0].0.clone(),
            reply => panic!("{request:?}: {reply:?}"),
        }
    }

    fn limits(&mut self) -> Limits {
        match self.ask(Request::Limits) {
            Owned::Extended(_, bytes) => Limits::read(&bytes).unwrap(),
            reply => panic!("{reply:?}"),
        }
    }

    fn create(&mut self, path: &[u8]) -> Vec<u8> {
        let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCLUSIVE;
        let attributes = Attributes { permissions: Some(0o600), ..Attributes::default() };
        self.handle(Request::Open { path, flags, attributes })
    }

    fn entries(&mut self, path: &[u8]) -> BTreeMap<Vec<u8>, Attributes> {
        let handle = self.handle(Request::Opendir(path));
        let mut entries = BTreeMap::new();
        loop {
            match self.ask(Request::Readdir(&handle)) {
                Owned::Names(_, names) => {
                    entries.extend(names.into_iter().map(|(name, _, attributes)| (name, attributes)));
                }
                Owned::Status(_, Code::EndOfFile, ..) => break,
                reply => panic!("{reply:?}"),
            }
        }
        self.ok(Request::Close(&handle));
        entries
    }

    fn end(mut self) {
        drop(self.requests);
        assert_eq!(self.replies.read(self.frames.space(1)).unwrap(), 0);
        assert!(self.frames.unread().is_empty());
        assert!(self.child.wait().unwrap().success());
    }
}

/// The request id of a reply.
fn number(reply: &Owned) -> u32 {
    match reply {
        Owned::Version(_) => panic!("VERSION has no number"),
        Owned::Status(id, ..)
        | Owned::Handle(id, _)
        | Owned::Data(id, _)
        | Owned::Names(id, _)
        | Owned::Attributes(id, _)
        | Owned::Extended(id, _) => *id,
    }
}

/// A session in a new temporary folder, after INIT.
fn begun() -> (tempfile::TempDir, Session) {
    let folder = tempfile::tempdir().unwrap();
    let mut session = Session::begin(folder.path());
    write_init(&mut session.out);
    session.send();
    let server = session.receive(|reply| match reply {
        Reply::Version(version) => version.server(),
        reply => panic!("{reply:?}"),
    });
    for extension in Extension::ALL {
        assert!(server.has(extension), "{extension:?}");
    }
    (folder, session)
}

#[test]
fn a_file_is_written_out_of_order_and_read_back() {
    let (folder, mut session) = begun();
    let limits = session.limits();
    assert!(limits.packet_bytes as usize <= MAX_PACKET, "{limits:?}");
    let piece = limits.write_bytes.min(limits.read_bytes) as usize;
    assert!(piece >= 32 * 1024, "{limits:?}");
    let data: Vec<u8> =
        (0..3 * piece as u32 + 1000).flat_map(|n| (n % 251).to_be_bytes()).skip(3).step_by(4).collect();

    session.ok(Request::Mkdir { path: b"d", attributes: Attributes::default() });
    let handle = session.create(b"d/f");
    // All requests are sent together, the last part first: the ids match answers to requests.
    let mut expected = Vec::new();
    for (place, part) in data.chunks(piece).enumerate().rev() {
        session.last_id += 1;
        expected.push(session.last_id);
        write_header(&mut session.out, session.last_id, &handle, (place * piece) as u64, part.len() as u32);
        session.out.extend(part);
    }
    session.send();
    let mut answered: Vec<u32> = Vec::new();
    for _ in &expected {
        let reply = session.receive(Owned::of);
        assert!(matches!(reply, Owned::Status(_, Code::Ok, ..)), "{reply:?}");
        answered.push(number(&reply));
    }
    assert_eq!(answered, expected);
    session.ok(Request::Fsync { handle: &handle });
    let times = Times { accessed_s: 1_000_000_000, modified_s: 4_000_000_000 };
    let attributes = Attributes { permissions: Some(0o640), times: Some(times), ..Attributes::default() };
    session.ok(Request::Fsetstat { handle: &handle, attributes });
    let told = session.attributes(Request::Fstat(&handle));
    assert_eq!((told.size, told.permissions), (Some(data.len() as u64), Some(0o100_640)));
    assert_eq!((told.times, told.file_type()), (Some(times), Some(FileType::Regular)));
    session.ok(Request::Close(&handle));
    assert!(fs::read(folder.path().join("d/f")).unwrap() == data);
    assert_eq!(fs::metadata(folder.path().join("d/f")).unwrap().mtime(), 4_000_000_000);

    let open = Request::Open { path: b"d/f", flags: OpenFlags::READ, attributes: Attributes::default() };
    let handle = session.handle(open);
    let mut parts = BTreeMap::new();
    for offset in (0..data.len()).step_by(piece).rev() {
        let offset = offset as u64;
        parts.insert(session.add(Request::Read { handle: &handle, offset, length: piece as u32 }), offset);
    }
    session.send();
    let mut read = vec![0; data.len()];
    while !parts.is_empty() {
        match session.receive(Owned::of) {
            Owned::Data(id, part) => {
                let offset = parts.remove(&id).unwrap() as usize;
                read[offset..][..part.len()].copy_from_slice(&part);
            }
            reply => panic!("{reply:?}"),
        }
    }
    assert!(read == data);
    let behind = Request::Read { handle: &handle, offset: data.len() as u64, length: 1 };
    assert_eq!(session.refused(behind), Code::EndOfFile);
    session.ok(Request::Close(&handle));
    session.end();
}

#[test]
fn names_are_any_bytes() {
    let (folder, mut session) = begun();
    let longest = [b'x'; 255];
    let names = [&b" a b "[..], b"new\nline", b"-rf", b"\xff\xfe", b"*", b"\\", b"..a", &longest];
    for (size, name) in names.iter().enumerate() {
        let handle = session.create(name);
        let attributes = Attributes { size: Some(size as u64), ..Attributes::default() };
        session.ok(Request::Fsetstat { handle: &handle, attributes });
        session.ok(Request::Close(&handle));
        assert!(is_safe_name(name));
        let told = session.attributes(Request::Lstat(name));
        assert_eq!((told.size, told.file_type()), (Some(size as u64), Some(FileType::Regular)));
    }
    let mut entries = session.entries(b".");
    let own = [entries.remove(&b"."[..]), entries.remove(&b".."[..])].map(|entry| entry.unwrap().file_type());
    assert_eq!(own, [Some(FileType::Directory); 2]);
    assert_eq!(entries.len(), names.len());
    for (size, name) in names.iter().enumerate() {
        assert_eq!(entries[*name].size, Some(size as u64));
        session.ok(Request::Remove(name));
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    session.end();
}

#[test]
fn links_renames_and_paths() {
    let (folder, mut session) = begun();
    let root = fs::canonicalize(folder.path()).unwrap();
    for name in [&b"a"[..], b"b"] {
        let handle = session.create(name);
        session.ok(Request::Close(&handle));
    }
    fs::write(root.join("a"), "a").unwrap();
    assert_eq!(session.refused(Request::Rename { from: b"a", to: b"b" }), Code::Failure);
    session.ok(Request::PosixRename { from: b"a", to: b"b" });
    assert_eq!(fs::read(root.join("b")).unwrap(), b"a");
    session.ok(Request::Rename { from: b"b", to: b"c" });

    session.ok(Request::Symlink { target: b"c", link: b"link" });
    assert_eq!(fs::read_link(root.join("link")).unwrap(), Path::new("c"));
    assert_eq!(session.path(Request::Readlink(b"link")), b"c");
    let times = Times { accessed_s: 7, modified_s: 8 };
    let attributes = Attributes { times: Some(times), ..Attributes::default() };
    let link = session.attributes(Request::Lstat(b"link"));
    assert_eq!(link.file_type(), Some(FileType::Symlink));
    let file = session.attributes(Request::Stat(b"link"));
    assert_eq!((file.file_type(), file.size), (Some(FileType::Regular), Some(1)));
    assert_ne!(file.times, Some(times));
    session.ok(Request::Setstat { path: b"link", attributes });
    assert_eq!(session.attributes(Request::Stat(b"c")).times, Some(times));

    assert_eq!(session.path(Request::Realpath(b".")), root.as_os_str().as_bytes());
    assert_eq!(session.path(Request::Realpath(b"link")), root.join("c").as_os_str().as_bytes());

    let attributes = Attributes { permissions: Some(0o700), ..Attributes::default() };
    session.ok(Request::Mkdir { path: b"d", attributes });
    assert_eq!(session.refused(Request::Mkdir { path: b"d", attributes }), Code::Failure);
    assert_eq!(session.attributes(Request::Lstat(b"d")).permissions, Some(0o040_700));
    assert_eq!(session.refused(Request::Lstat(b"d/none")), Code::NoSuchFile);
    // OpenSSH reports EBADF with this code.
    assert_eq!(session.refused(Request::Close(b"none")), Code::NoSuchFile);
    session.end();
}
