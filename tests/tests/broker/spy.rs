//! One who may read everything that the broker carries, and write to anybody. It shares no code with the code under test.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, TcpStream},
    sync::mpsc::{Receiver, Sender, channel},
    thread,
};

use anyhow::{Context, Result, ensure};
use kernel::namespaces;
use testing::PATIENCE;

use super::{Site, broker_socket, network_of};

/// Marks the end of what was carried before.
const MARK: &str = "spy.mark";

/// A message as the broker carried it.
#[derive(Debug, Clone)]
pub(super) struct Message {
    pub(super) subject: String,
    pub(super) payload: Vec<u8>,
}

/// A connection to the broker that listens to all subjects.
#[derive(Debug)]
pub(super) struct Spy {
    stream: TcpStream,
    heard: Receiver<Message>,
}

impl Spy {
    /// Listens from the host of the controller, from when this returns.
    pub(super) fn start(site: &Site) -> Result<Self> {
        let network = network_of(&site.networks["control"])?;
        let stream = namespaces::run_in_network(&network, || TcpStream::connect(broker_socket()))?;
        let (sender, heard) = channel();
        let (reader, writer) = (BufReader::new(stream.try_clone()?), stream.try_clone()?);
        // It ends with the connection.
        thread::spawn(move || drop(listen(reader, writer, &sender)));
        let mut spy = Self { stream, heard };
        spy.stream.write_all(b"CONNECT {\"verbose\":false,\"pedantic\":false}\r\nSUB > 1\r\n")?;
        spy.heard()?;
        Ok(spy)
    }

    /// What was carried since the last call.
    pub(super) fn heard(&mut self) -> Result<Vec<Message>> {
        self.publish(MARK, b"")?;
        let mut heard = Vec::new();
        loop {
            let message = self.heard.recv_timeout(PATIENCE).context("the broker does not answer the spy")?;
            if message.subject == MARK {
                return Ok(heard);
            }
            ensure!(!message.subject.is_empty(), "the broker says: {message:?}");
            heard.push(message);
        }
    }

    pub(super) fn publish(&mut self, subject: &str, payload: &[u8]) -> Result<()> {
        let head = format!("PUB {subject} {}\r\n", payload.len());
        Ok(self.stream.write_all(&[head.as_bytes(), payload, b"\r\n"].concat())?)
    }
}

impl Drop for Spy {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// Hands on what is heard. A complaint of the broker becomes a message without a subject.
fn listen(mut reader: BufReader<TcpStream>, mut writer: TcpStream, heard: &Sender<Message>) -> Result<()> {
    let mut line = String::new();
    while reader.read_line(&mut line)? > 0 {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["MSG", subject, _, ref rest @ ..] => {
                let length: usize = rest.last().context("a message without a length")?.parse()?;
                let mut payload = vec![0; length + 2];
                reader.read_exact(&mut payload)?;
                payload.truncate(length);
                heard.send(Message { subject: subject.to_owned(), payload })?;
            }
            ["PING"] => writer.write_all(b"PONG\r\n")?,
            ["-ERR", ..] => {
                heard.send(Message { subject: String::new(), payload: line.clone().into_bytes() })?;
            }
            _ => {}
        }
        line.clear();
    }
    Ok(())
}
