//! The ends of a link: the network namespaces of two hosts and the interface in each.

use std::{
    fmt,
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom},
    net::IpAddr,
    path::PathBuf,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use kernel::{
    namespaces::{self, Kind},
    netlink::Netlink,
};
use nix::net::if_::if_nametoindex;
use serde::{Deserialize, Serialize};

use super::{LinkError, tun};

/// Queue of the device, in packets: each waits there until the emulator reads it. The kernel drops packets that do not
/// fit without slowing the sender down, so every burst must fit.
const DEVICE_QUEUE_PACKETS: u32 = 10_000;
/// Time that an `unshare` that was just started may take to enter its namespace.
const UNSHARE_TIMEOUT: Duration = Duration::from_millis(500);

/// A network namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Namespace {
    /// The namespace of a process.
    Pid(u32),
    /// The namespace that a file such as `/run/netns/NAME` or `/proc/PID/ns/net` refers to.
    Path(PathBuf),
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pid(pid) => write!(f, "process {pid}"),
            Self::Path(path) => write!(f, "{}", path.display()),
        }
    }
}

impl Namespace {
    /// Runs `work` on a new thread inside this namespace.
    ///
    /// # Errors
    /// When the namespace cannot be entered, and the errors of `work`.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> Result<T, LinkError> + Send) -> Result<T, LinkError> {
        let refuse = |cause: io::Error| LinkError::Namespace { namespace: self.clone(), cause };
        let handle = File::open(self.path()).map_err(refuse)?;
        namespaces::run_in_network(handle, || Ok(work())).map_err(refuse)?
    }

    /// Waits until two hosts that were just started have separate network namespaces. One of them may be the caller's.
    ///
    /// # Errors
    /// If both stay in the same namespace, or a namespace does not exist.
    pub fn wait_until_separate(a: &Self, b: &Self) -> Result<(), LinkError> {
        let own_network = namespaces::own_identity(Kind::Network).map_err(LinkError::Start)?;
        let of = |namespace: &Self| {
            let refuse = |cause| LinkError::Namespace { namespace: namespace.clone(), cause };
            File::open(namespace.path()).and_then(|file| namespaces::identity(&file)).map_err(refuse)
        };
        let deadline = Instant::now() + UNSHARE_TIMEOUT;
        loop {
            let (of_a, of_b) = (of(a)?, of(b)?);
            let is_apart = of_a != of_b;
            if is_apart && of_a != own_network && of_b != own_network {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return if is_apart {
                    Ok(())
                } else {
                    Err(LinkError::SameNetwork { a: a.clone(), b: b.clone() })
                };
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn path(&self) -> PathBuf {
        match self {
            Self::Pid(pid) => namespaces::path_of(*pid, Kind::Network),
            Self::Path(path) => path.clone(),
        }
    }

    /// Enters the user namespace of the process if it is not ours. This gives the right to change the network
    /// namespaces of the process. Call it before any thread is started.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn enter_user_namespace(&self) -> Result<(), LinkError> {
        let Self::Pid(pid) = self else { return Ok(()) };
        let refuse = |cause: io::Error| LinkError::Namespace { namespace: self.clone(), cause };
        namespaces::enter_user_of(*pid).map_err(refuse)
    }
}

/// One end of a link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Network namespace of the host.
    pub namespace: Namespace,
    /// Name of the interface. The emulator creates the interface; for netem, it must exist.
    pub device: String,
    /// Addresses of the interface. Both ends of the link are in the same subnet.
    pub addresses: Vec<Address>,
    /// Maximum IP packet, in bytes.
    pub mtu: u32,
}

/// An address with its subnet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// The address.
    pub ip: IpAddr,
    /// Length of the subnet's prefix in bits.
    pub prefix: u8,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ip, self.prefix)
    }
}

impl std::str::FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = || format!("'{text}' is not an address with a prefix, such as 10.0.0.1/30");
        let (ip, prefix) = text.split_once('/').ok_or_else(refuse)?;
        let ip: IpAddr = ip.parse().map_err(|_| refuse())?;
        let prefix: u8 = prefix.parse().map_err(|_| refuse())?;
        if prefix > if ip.is_ipv4() { 32 } else { 128 } { Err(refuse()) } else { Ok(Self { ip, prefix }) }
    }
}

/// The emulator's interface in a host.
#[derive(Debug)]
pub(super) struct Interface {
    /// The TUN device. A read or write moves one packet with a virtio-net header.
    pub tun: Arc<File>,
    drops: DropCounter,
}

impl Interface {
    /// Creates the interface, assigns its addresses and switches it on.
    ///
    /// # Errors
    /// When the kernel refuses an action.
    pub(super) fn create(end: &End) -> Result<Self, LinkError> {
        end.namespace.run(|| {
            let refuse = |what, cause| LinkError::Device { end: Box::new(end.clone()), what, cause };
            let tun = tun::create(&end.device).map_err(|cause| refuse("create", cause))?;
            if end.addresses.iter().all(|address| address.ip.is_ipv4()) {
                // Router solicitations would count as traffic. Kernels without IPv6 lack this setting.
                let device = end.device.replace('.', "/");
                let _ = fs::write(kernel::sysctl_path(&format!("net.ipv6.conf.{device}.disable_ipv6")), "1");
            }
            let mut netlink = Netlink::open().map_err(|cause| refuse("configure", cause))?;
            let index = if_nametoindex(end.device.as_str()).map_err(|error| refuse("find", error.into()))?;
            netlink
                .set_limits(index, end.mtu, DEVICE_QUEUE_PACKETS)
                .map_err(|cause| refuse("set the MTU of", cause))?;
            for address in &end.addresses {
                netlink
                    .add_address(index, address.ip, address.prefix)
                    .map_err(|cause| refuse("give an address to", cause))?;
            }
            netlink.set_up(index).map_err(|cause| refuse("bring up", cause))?;
            // The open file continues to show the counters of this namespace after the thread has ended.
            let drops =
                DropCounter::open(&end.device).map_err(|cause| refuse("read the counters of", cause))?;
            Ok(Self { tun: Arc::new(tun), drops })
        })
    }

    /// Packets that the kernel dropped because the emulator read too slowly.
    pub(super) fn overruns(&mut self) -> u64 {
        self.drops.read()
    }
}

#[derive(Debug)]
struct DropCounter {
    file: File,
    device: String,
    last: u64,
}

impl DropCounter {
    fn open(device: &str) -> io::Result<Self> {
        Ok(Self { file: File::open("/proc/thread-self/net/dev")?, device: device.to_owned(), last: 0 })
    }

    /// Reads the count. If the host is gone and cannot be read, returns the previous count.
    fn read(&mut self) -> u64 {
        let mut text = String::new();
        let read = self.file.seek(SeekFrom::Start(0)).and_then(|_| self.file.read_to_string(&mut text));
        let count = read.ok().and_then(|_| sent_drops(&text, &self.device));
        self.last = count.unwrap_or(self.last);
        self.last
    }
}

/// The drops of a device in `/proc/net/dev`: the fourth counter of sent packets, which follow eight counters of
/// received ones.
fn sent_drops(text: &str, device: &str) -> Option<u64> {
    let counters = text.lines().find_map(|line| line.trim_start().strip_prefix(device)?.strip_prefix(':'))?;
    counters.split_whitespace().nth(11)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_found() {
        let text = "Inter-| Receive | Transmit\n face |bytes ...\n    lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n  \
                    link0: 0 0 0 0 0 0 0 0 100 7 0 42 0 0 0 0\n";
        assert_eq!((sent_drops(text, "link0"), sent_drops(text, "link")), (Some(42), None));
    }

    #[test]
    fn a_count_never_goes_back() {
        let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        fs::write(&path, "link0: 0 0 0 0 0 0 0 0 100 7 0 42 0 0 0 0\n").unwrap();
        let file = File::open(&path).unwrap();
        let mut counter = DropCounter { file, device: "link0".to_owned(), last: 0 };
        assert_eq!(counter.read(), 42);
        fs::write(&path, "  lo: 0\n").unwrap();
        assert_eq!(counter.read(), 42);
    }

    #[test]
    fn ends_in_the_same_network_are_refused() {
        let own_network = Namespace::Pid(std::process::id());
        let refused =
            Namespace::wait_until_separate(&own_network, &Namespace::Path("/proc/self/ns/net".into()));
        assert!(matches!(refused, Err(LinkError::SameNetwork { .. })), "{refused:?}");
        let nobody =
            Namespace::wait_until_separate(&own_network, &Namespace::Path("/run/netns/nobody".into()));
        assert!(matches!(nobody, Err(LinkError::Namespace { .. })), "{nobody:?}");
    }

    #[test]
    fn addresses_are_read() {
        assert_eq!("10.0.0.1/30".parse::<Address>().unwrap().to_string(), "10.0.0.1/30");
        assert!("fd00::1/64".parse::<Address>().is_ok());
        for bad in ["", "10.0.0.1", "10.0.0.1/33", "10.0.0/8", "a/1"] {
            assert!(bad.parse::<Address>().is_err(), "{bad}");
        }
    }
}
