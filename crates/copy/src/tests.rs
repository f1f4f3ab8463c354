//! Tests with servers that violate the protocol or never finish an answer.

use std::{cell::Cell, process::Stdio, rc::Rc, time::Duration};

use sftp::Request;
use testing::PATIENCE;
use tokio::{process::Command, runtime::Builder, task::LocalSet, time::timeout};

use crate::{
    channel::Channel,
    error::{Error, Result},
};

/// Answers OPENDIR with a handle, and every READDIR with the names in its argument. Other requests get no answer.
const SERVER: &str = r#"
import struct, sys
names = eval(sys.argv[1])
def string(text): return struct.pack(">I", len(text)) + text
def send(packet): sys.stdout.buffer.write(string(packet)); sys.stdout.flush()
while head := sys.stdin.buffer.read(4):
    packet = sys.stdin.buffer.read(struct.unpack(">I", head)[0])
    if packet[0] == 1: send(b"\x02" + struct.pack(">I", 3))
    if packet[0] == 11: send(b"\x66" + packet[1:5] + string(b"h"))
    if packet[0] == 12:
        send(b"\x68" + packet[1:5] + struct.pack(">I", len(names))
             + b"".join(string(name) + string(b"") + struct.pack(">I", 0) for name in names))
"#;

/// Sends requests to such a server. They must end nevertheless.
fn ask<T, F: Future<Output = T>>(names: &str, what: impl FnOnce(Rc<Channel>) -> F) -> T {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, async {
        let mut server = Command::new("python3");
        server.args(["-c", SERVER, names]);
        server.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let channel = Channel::open(server).await.unwrap();
        timeout(PATIENCE, what(channel)).await.expect("it ends")
    })
}

fn listed(names: &str) -> Result<usize> {
    ask(names, async |channel| Ok(channel.list(b"/", &Cell::new(1_000)).await?.0.len()))
}

#[test]
fn a_folder_without_an_end_is_given_up() {
    for (names, why) in [
        ("[b'a', b'b']", "lists more than"),
        ("[b'.', b'..']", "invalid file names"),
        ("[b'../up', b'']", "invalid file names"),
        ("[]", "READDIR"),
    ] {
        let error = listed(names).unwrap_err().to_string();
        assert!(error.contains(why), "{names}: {error}");
    }
}

#[test]
fn a_server_that_does_not_answer_is_given_up() {
    let stat = async |channel: Rc<Channel>| {
        channel.waiting.borrow_mut().answer_wait = Duration::from_millis(100);
        // The shorter wait applies only after the next answer.
        channel.ask(&Request::Opendir(b"/")).await.unwrap();
        channel.stat(b"/").await
    };
    let error = ask("[]", stat).unwrap_err();
    assert!(matches!(&error, Error::Lost(why) if why.contains("sent no answer")), "{error}");
}
