//! A disk that forgets: when its power is cut, it loses some of the data that was written but not flushed.
//!
//! It serves QEMU over the Network Block Device protocol (<https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>: fixed
//! newstyle handshake, simple replies) on a Unix socket. It behaves like a disk with a volatile cache: it answers a write when the data is
//! in the cache, and a flush when everything is on the medium. At a cut, each sector keeps one of the versions that it has had since the
//! last flush, drawn from a seed: sectors reach the medium in any order, and a write of several sectors may reach it in part.

use std::{
    fs,
    io::{self, Read, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard},
    thread::JoinHandle,
    time::Duration,
};

use anyhow::{Context, Result, bail};

mod cells;

pub use cells::Cut;
use cells::{Cells, SECTOR_BYTES};

/// Duration of a flush. It is long, so that many cuts fall into one.
const FLUSH_TIME: Duration = Duration::from_millis(4);
/// Maximum length of a request, the same as QEMU's own limit.
const REQUEST_MOST_BYTES: usize = 32 << 20;

const INIT_MAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC");
const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;

/// Fixed newstyle handshake, and no zero bytes after the export's description.
const HANDSHAKE_FLAGS: u16 = 0b11;
/// The export has flags, supports flushes, and supports writes that are on the medium when they are answered (FUA).
const EXPORT_FLAGS: u16 = 0b1101;
/// The flag of a write that must be on the medium when it is answered.
const FUA: u16 = 1;

const OPTION_ABORT: u32 = 2;
const OPTION_GO: u32 = 7;
const REPLY_ACK: u32 = 1;
const REPLY_INFO: u32 = 3;
const REPLY_UNSUPPORTED: u32 = 0x8000_0001;

const READ: u16 = 0;
const WRITE: u16 = 1;
const DISCONNECT: u16 = 2;
const FLUSH: u16 = 3;

const EINVAL: u32 = 22;

/// A disk with a volatile cache.
#[derive(Debug)]
pub struct ForgetfulDisk(Arc<Mutex<Cells>>);

impl ForgetfulDisk {
    /// A disk with the contents of a file.
    ///
    /// # Errors
    /// If the file cannot be read, or its length is not a multiple of the sector size.
    pub fn of_image(path: &Path) -> Result<Self> {
        let medium = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        if medium.is_empty() || !medium.len().is_multiple_of(SECTOR_BYTES) {
            bail!("{} is no whole number of sectors", path.display());
        }
        Ok(Self(Arc::new(Mutex::new(Cells::new(medium)))))
    }

    /// Turns the disk on, and serves it on a new socket with this path, to one client after another, until the handle is dropped.
    ///
    /// # Errors
    /// If the socket cannot be made.
    pub fn serve(&self, socket: &Path) -> Result<Served> {
        let _ = fs::remove_file(socket);
        let listener = UnixListener::bind(socket)
            .with_context(|| format!("cannot make the socket {}", socket.display()))?;
        locked(&self.0).power_on();
        let (cells, stop) = (Arc::clone(&self.0), Arc::new(Mutex::new(Stop::default())));
        let shared = Arc::clone(&stop);
        let thread = std::thread::spawn(move || serve(&listener, &cells, &shared));
        Ok(Served { socket: socket.to_owned(), stop, thread: Some(thread) })
    }

    /// Cuts the power: the disk answers nothing from now on. The seed decides which data is on the medium.
    pub fn cut(&self, seed: u64) -> Cut {
        locked(&self.0).cut(seed)
    }

    /// Writes the contents of the medium to a file.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write_image(&self, path: &Path) -> Result<()> {
        fs::write(path, locked(&self.0).medium()).with_context(|| format!("cannot write {}", path.display()))
    }
}

/// A disk that is being served. Dropping this ends the service.
#[derive(Debug)]
pub struct Served {
    socket: PathBuf,
    stop: Arc<Mutex<Stop>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Stop {
    wanted: bool,
    client: Option<UnixStream>,
}

impl Served {
    /// The path of the socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let mut stop = locked(&self.stop);
        stop.wanted = true;
        if let Some(client) = stop.client.take() {
            let _ = client.shutdown(std::net::Shutdown::Both);
        }
        drop(stop);
        // Wake the thread if it waits for a client.
        let _ = UnixStream::connect(&self.socket);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = fs::remove_file(&self.socket);
    }
}

fn serve(listener: &UnixListener, cells: &Mutex<Cells>, stop: &Mutex<Stop>) {
    while let Ok((client, _)) = listener.accept() {
        {
            let mut stop = locked(stop);
            if stop.wanted {
                return;
            }
            stop.client = client.try_clone().ok();
        }
        // If a client disappears within a request, its machine was killed.
        let _ = converse(client, cells);
        locked(stop).client = None;
    }
}

fn converse(client: UnixStream, cells: &Mutex<Cells>) -> Result<()> {
    let mut client = Wire(client);
    client.put(&INIT_MAGIC.to_be_bytes())?;
    client.put(&OPTION_MAGIC.to_be_bytes())?;
    client.put(&HANDSHAKE_FLAGS.to_be_bytes())?;
    client.u32()?;
    if !agree(&mut client, cells)? {
        return Ok(());
    }
    loop {
        if client.u32()? != REQUEST_MAGIC {
            bail!("a request without its magic number");
        }
        let (flags, kind) = (client.u16()?, client.u16()?);
        let (handle, offset, length) = (client.u64()?, client.u64()?, client.u32()? as usize);
        if length > REQUEST_MOST_BYTES {
            bail!("a request of {length} bytes");
        }
        let mut data = Vec::new();
        let error = match kind {
            READ => powered(cells)?.read(offset, length, &mut data).map_or(EINVAL, |()| 0),
            WRITE => {
                let written = client.bytes(length)?;
                let mut cells = powered(cells)?;
                let result = cells.write(offset, &written);
                if flags & FUA != 0 {
                    cells.harden(offset, length);
                }
                result.map_or(EINVAL, |()| 0)
            }
            FLUSH => {
                // If the power is cut during this time, nothing of the flush is on the medium yet.
                std::thread::sleep(FLUSH_TIME);
                powered(cells)?.flush();
                0
            }
            DISCONNECT => return Ok(()),
            _ => EINVAL,
        };
        let mut reply = Vec::with_capacity(16 + data.len());
        reply.extend_from_slice(&REPLY_MAGIC.to_be_bytes());
        reply.extend_from_slice(&error.to_be_bytes());
        reply.extend_from_slice(&handle.to_be_bytes());
        reply.append(&mut data);
        client.put(&reply)?;
    }
}

/// Negotiates options until the client wants the disk. Returns false if it does not want it.
fn agree(client: &mut Wire, cells: &Mutex<Cells>) -> Result<bool> {
    loop {
        if client.u64()? != OPTION_MAGIC {
            bail!("an option without its magic number");
        }
        let (option, length) = (client.u32()?, client.u32()? as usize);
        client.bytes(length.min(REQUEST_MOST_BYTES))?;
        match option {
            OPTION_GO => {
                let size_bytes = locked(cells).medium().len() as u64;
                // Begins with the number of NBD_INFO_EXPORT, which is 0.
                let mut info = vec![0, 0];
                info.extend_from_slice(&size_bytes.to_be_bytes());
                info.extend_from_slice(&EXPORT_FLAGS.to_be_bytes());
                client.reply(option, REPLY_INFO, &info)?;
                client.reply(option, REPLY_ACK, &[])?;
                return Ok(true);
            }
            OPTION_ABORT => {
                client.reply(option, REPLY_ACK, &[])?;
                return Ok(false);
            }
            _ => client.reply(option, REPLY_UNSUPPORTED, &[])?,
        }
    }
}

/// A connection that reads and writes the protocol's big-endian numbers.
struct Wire(UnixStream);

impl Wire {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    fn reply(&mut self, option: u32, kind: u32, data: &[u8]) -> io::Result<()> {
        let mut reply = OPTION_REPLY_MAGIC.to_be_bytes().to_vec();
        for number in [option, kind, data.len() as u32] {
            reply.extend_from_slice(&number.to_be_bytes());
        }
        reply.extend_from_slice(data);
        self.put(&reply)
    }

    fn bytes(&mut self, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.0.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.0.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn u16(&mut self) -> io::Result<u16> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> io::Result<u32> {
        self.array().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> io::Result<u64> {
        self.array().map(u64::from_be_bytes)
    }
}

/// The disk; an error if it has no power.
fn powered(cells: &Mutex<Cells>) -> Result<MutexGuard<'_, Cells>> {
    let cells = locked(cells);
    if !cells.is_powered() {
        bail!("the power is off");
    }
    Ok(cells)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no thread panics while it holds this")
}
