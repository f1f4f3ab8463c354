//! Builds a lab's network in existing namespaces: interfaces, addresses, routes and settings.

use std::{
    collections::BTreeMap,
    fs::File,
    io,
    net::{IpAddr, Ipv6Addr},
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use kernel::{
    namespaces::run_in_network,
    netlink::{LOOPBACK, Netlink, VethEnd},
};
use undo::Journal;

use crate::{
    congestion,
    error::Error,
    link::{self, Driver, Link as Emulated, LinkError, LinkSpec},
    namespace::Namespace,
    plan::{End, Host, Link, LinkKind, Plan},
    spawner::Spawner,
    sysctls,
};

/// Index of a host's first interface and of a segment's bridge: higher than the indexes that the kernel assigns itself.
const FIRST_INDEX: u32 = 1_000;
/// Prefix length of link-local addresses, in bits.
const LINK_LOCAL_PREFIX: u8 = 64;
/// Number of threads that configure hosts.
const WORKERS: usize = 4;

/// The inputs for building a lab's network.
pub(crate) struct NetworkBuilder<'a> {
    pub plan: &'a Plan,
    pub hosts: &'a [Namespace],
    pub segments: &'a BTreeMap<String, Namespace>,
    pub spawner: &'a Spawner,
    pub program: &'a Path,
    pub run_folder: &'a Path,
    pub journal: Option<&'a Journal>,
}

impl NetworkBuilder<'_> {
    /// Builds the network. Returns the emulated links, each of which runs in its own process.
    pub(crate) fn build(&self, stop: impl Fn() -> bool) -> Result<BTreeMap<String, Emulated>, Error> {
        let check_not_cancelled = || if stop() { Err(Error::Cancelled) } else { Ok(()) };
        // Settings come before interfaces, because an interface inherits most of them when it is created.
        let set_up = |index, host: &Host| {
            sysctls::set_for_host(host, self.plan.has_ipv6(index))?;
            let mut netlink = Netlink::open()?;
            netlink.set_up(LOOPBACK)?;
            let mut addresses = host.loopback.iter();
            addresses.try_for_each(|&address| {
                netlink.add_address(LOOPBACK, address, settings::Network::max_prefix(address))
            })
        };
        congestion::while_allowed(self.plan, self.journal, || self.in_each_host("set up", set_up))?;
        let mut emulated = BTreeMap::new();
        for (number, link) in self.plan.links.iter().enumerate() {
            check_not_cancelled()?;
            let failed = |cause| Error::failed(format!("make the link {}", link.name), cause);
            match &link.kind {
                LinkKind::Segment { port_rate_bits_per_s } => {
                    self.make_segment(number, link, *port_rate_bits_per_s).map_err(failed)?;
                }
                LinkKind::Pair => self.make_pair(number, link).map_err(failed)?,
                LinkKind::Emulated(spec) if spec.driver == Driver::Netem => {
                    self.make_pair(number, link).map_err(failed)?;
                    self.shape_by_kernel(link, spec)?;
                }
                LinkKind::Emulated(spec) => {
                    emulated.insert(link.name.clone(), self.make_emulated(link, spec)?);
                }
            }
        }
        check_not_cancelled()?;
        self.in_each_host("set up the addresses and routes of", |index, host| self.finish(index, host))?;
        Ok(emulated)
    }

    fn make_segment(&self, number: usize, link: &Link, port_rate_bits_per_s: Option<u64>) -> io::Result<()> {
        let Some(segment) = self.segments.get(&link.name) else { return Err(io::ErrorKind::NotFound.into()) };
        run_in_network(segment.network(), || {
            // The machine's firewall must not filter the lab's bridged packets.
            sysctls::set_for_segment()?;
            let mut netlink = Netlink::open()?;
            netlink.add_bridge("bridge", FIRST_INDEX, link.mtu)?;
            for (position, end) in link.ends.iter().enumerate() {
                // Name and address are set at creation: after a later change, other programs could already have seen
                // the old values.
                let port = VethEnd {
                    namespace: None,
                    name: &self.plan.hosts[end.host].name,
                    index: port_index(position),
                    mac: mac(6, number, position),
                    mtu: link.mtu,
                    bridge: Some(FIRST_INDEX),
                };
                netlink.add_veth(&port, &self.veth_end(number, link, position))?;
                // This limits traffic to the host; the host's own end limits the other direction.
                if let Some(rate) = port_rate_bits_per_s {
                    netlink.limit_rate(port.index, rate, link.mtu)?;
                }
            }
            Ok(())
        })
    }

    fn make_pair(&self, number: usize, link: &Link) -> io::Result<()> {
        let [first, _] = &link.ends[..] else { return Err(io::ErrorKind::InvalidInput.into()) };
        run_in_network(self.hosts[first.host].network(), || {
            let ends = [0, 1].map(|position| self.veth_end(number, link, position));
            Netlink::open()?.add_veth(&ends[0], &ends[1])
        })
    }

    fn veth_end<'a>(&'a self, number: usize, link: &'a Link, position: usize) -> VethEnd<'a> {
        let end = &link.ends[position];
        VethEnd {
            namespace: Some(self.hosts[end.host].network()),
            name: &end.device,
            index: self.index_of(end),
            mac: mac(2, number, position),
            mtu: link.mtu,
            bridge: None,
        }
    }

    fn make_emulated(&self, link: &Link, spec: &LinkSpec) -> Result<Emulated, Error> {
        let [a, b] = self.ends_for_link(link)?;
        let (spec, program) = (spec.clone(), self.program.to_owned());
        let refused = |cause| Error::Link { name: link.name.clone(), cause };
        let log = File::create_new(link_log(self.run_folder, &link.name))
            .map_err(|cause| refused(LinkError::Start(cause)))?;
        // The link's process dies with the thread that starts it, so that thread must live as long as the lab.
        let made = self.spawner.run(move || Emulated::start_with(&program, log.into(), spec, a, b));
        made.map_err(LinkError::Start).and_then(|made| made).map_err(refused)
    }

    fn shape_by_kernel(&self, link: &Link, spec: &LinkSpec) -> Result<(), Error> {
        let [a, b] = self.ends_for_link(link)?;
        link::netem::apply(spec, &a, &b).map_err(|cause| Error::Link { name: link.name.clone(), cause })
    }

    fn ends_for_link(&self, link: &Link) -> Result<[link::End; 2], Error> {
        let [a, b] = &link.ends[..] else {
            return Err(Error::failed(
                "join a number of hosts other than two by a link",
                io::ErrorKind::InvalidInput.into(),
            ));
        };
        Ok([a, b].map(|end| link::End {
            namespace: link::Namespace::Pid(self.hosts[end.host].pid()),
            device: end.device.clone(),
            addresses: vec![link::Address { ip: end.address, prefix: link.prefix }],
            mtu: link.mtu,
        }))
    }

    /// Sets a host's addresses, interface settings and routes.
    fn finish(&self, index: usize, host: &Host) -> io::Result<()> {
        let mut netlink = Netlink::open()?;
        for (link, end) in self.plan.ends_of(index) {
            // The process of an emulated link has already configured its ends.
            if !matches!(&link.kind, LinkKind::Emulated(spec) if spec.driver == Driver::Emulator) {
                let index = self.index_of(end);
                if let LinkKind::Segment { port_rate_bits_per_s: Some(rate) } = link.kind {
                    netlink.limit_rate(index, rate, link.mtu)?;
                }
                netlink.add_address(index, end.address, link.prefix)?;
                if end.address.is_ipv6() {
                    // Without a link-local address, neighbour discovery uses the source address of the packet that
                    // waits, and a balancer does not have that address.
                    netlink.add_address(index, link_local(end), LINK_LOCAL_PREFIX)?;
                }
                netlink.set_up(index)?;
            }
        }
        sysctls::set_for_interfaces(host)?;
        for route in &host.routes {
            netlink
                .add_route(route.to, route.prefix, &route.via)
                .map_err(|error| io::Error::new(error.kind(), format!("route to {route}: {error}")))?;
        }
        Ok(())
    }

    /// The index of a host's interface; `eth0` has [`FIRST_INDEX`].
    fn index_of(&self, end: &End) -> u32 {
        FIRST_INDEX + end.device.trim_start_matches("eth").parse::<u32>().unwrap_or_default()
    }

    /// Runs `work` in every host, on several threads.
    fn in_each_host(
        &self,
        what: &str,
        work: impl Fn(usize, &Host) -> io::Result<()> + Sync,
    ) -> Result<(), Error> {
        let next = AtomicUsize::new(0);
        let work_on_next = || loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let (Some(host), Some(namespace)) = (self.plan.hosts.get(index), self.hosts.get(index)) else {
                return Ok(());
            };
            run_in_network(namespace.network(), || work(index, host))
                .map_err(|cause| Error::failed(format!("{what} host {}", host.name), cause))?;
        };
        thread::scope(|scope| {
            let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(work_on_next)).collect();
            workers
                .into_iter()
                .try_for_each(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })
    }
}

/// The index of the port of a segment's bridge that leads to the link's end at this position.
pub(crate) fn port_index(position: usize) -> u32 {
    FIRST_INDEX + 1 + position as u32
}

/// Path of the file that receives the standard error of a link's process.
pub(crate) fn link_log(run_folder: &Path, link: &str) -> PathBuf {
    // Names of processes contain no dot, so no process has this log.
    run_folder.join(format!("link.{link}.log"))
}

/// A link-local address for neighbour discovery: unique in the lab and the same in every run.
fn link_local(end: &End) -> IpAddr {
    let device = end.device.trim_start_matches("eth").parse().unwrap_or_default();
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, device, end.host as u16 + 1).into()
}

/// A locally administered MAC address that is the same in every run.
fn mac(side: u8, link: usize, position: usize) -> [u8; 6] {
    let [_, _, link_high, link_low] = (link as u32 + 1).to_be_bytes();
    let [_, _, position_high, position_low] = (position as u32 + 1).to_be_bytes();
    [side, 0, link_high, link_low, position_high, position_low]
}
