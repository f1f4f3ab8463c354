//! The tables of the program in the kernel: its settings, its state and its counts.

use std::{
    error,
    io::{self, ErrorKind},
    net::IpAddr,
    os::fd::AsFd,
    panic::resume_unwind,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use aya::{
    Ebpf, Pod,
    maps::{Array, ArrayOfMaps, HashMap, Map, MapData, MapError, PerCpuArray, PerCpuValues},
};

use crate::{
    Error, Flow, FlowKey, Ring, ServerCounts, ServerEntry, ServiceEntry, Settings, VipCounts,
    error::Cause,
    layout::{
        FlowBytes, FlowKeyBytes, REASONS, RecentBytes, RingBytes, SERVERS, ServerBytes, ServerCountsOfCore,
        ServiceBytes, ServiceKeyBytes, SettingsBytes, VIPS, address_bytes, ring_bytes, ring_of,
        service_key_bytes,
    },
};

/// Bytes of stack for the thread that reads a ring.
const READING_STACK: usize = 16 << 20;

/// How many rings are set at the same time. The kernel makes each write wait until no program uses the former ring any more, which takes
/// some hundredths of a second, in which others can be set.
pub(crate) const WRITERS: usize = 64;

type RingMap = Array<MapData, RingBytes>;
type Rings = ArrayOfMaps<MapData, RingMap>;

/// The number of a VIP, its ring, its former ring, and the time of the change.
pub(crate) type RingChange<'a> = (u32, &'a Ring, &'a Ring, u64);

/// The tables of a balancer. The program reads them while they change: each call is one step, and between two calls the program works
/// with the present entries.
pub struct Table {
    settings: Array<MapData, SettingsBytes>,
    services: HashMap<MapData, ServiceKeyBytes, ServiceBytes>,
    servers: Array<MapData, ServerBytes>,
    /// The table of rings, opened once for each thread that writes rings.
    rings: Vec<Rings>,
    server_counts: PerCpuArray<MapData, ServerCountsOfCore>,
    vip_counts: PerCpuArray<MapData, [u64; REASONS]>,
    flows: HashMap<MapData, FlowKeyBytes, FlowBytes>,
    pending: HashMap<MapData, FlowKeyBytes, RecentBytes>,
}

impl Table {
    /// Takes the tables of a loaded object.
    pub(crate) fn of(ebpf: &mut Ebpf) -> Result<Self, Error> {
        Ok(Self {
            settings: take(ebpf, "settings")?,
            services: take(ebpf, "services")?,
            servers: take(ebpf, "servers")?,
            rings: several(ebpf, "rings")?,
            server_counts: take(ebpf, "server_counts")?,
            vip_counts: take(ebpf, "vip_counts")?,
            flows: take(ebpf, "flows")?,
            pending: take(ebpf, "pending")?,
        })
    }

    /// Sets the settings for all VIPs.
    ///
    /// # Errors
    /// When the kernel refuses, as with every function here.
    pub fn set_settings(&mut self, settings: &Settings) -> Result<(), Error> {
        written(self.settings.set(0, settings.bytes(), 0), "set the settings")
    }

    /// Balances a port of an address; port 0 stands for all ports that are not set. For a VIP without port 0, [`Self::set_address`] marks
    /// the address as a VIP's.
    ///
    /// # Errors
    /// Also when the number of the VIP is too large.
    pub fn set_service(&mut self, address: IpAddr, port: u16, entry: &ServiceEntry) -> Result<(), Error> {
        check(entry.vip, "VIPs", VIPS)?;
        let set = self.services.insert(service_key_bytes(address, port), entry.bytes(), 0);
        written(set, &format!("balance port {port} of {address}"))
    }

    /// Marks an address as a VIP's, so that broken frames to it are dropped, and counted for the VIP. Its other ports stay those of the
    /// balancer's own stack.
    ///
    /// # Errors
    /// Also when the number of the VIP is too large.
    pub fn set_address(&mut self, address: IpAddr, vip: u32) -> Result<(), Error> {
        check(vip, "VIPs", VIPS)?;
        let set = self.services.insert(service_key_bytes(address, 0), address_bytes(vip), 0);
        written(set, &format!("take {address} for a VIP"))
    }

    /// Passes a port of an address to the balancer's own network stack again. Established flows continue.
    ///
    /// # Errors
    /// When the kernel refuses; not when the port was not set.
    pub fn remove_service(&mut self, address: IpAddr, port: u16) -> Result<(), Error> {
        match self.services.remove(&service_key_bytes(address, port)) {
            removed if is_not_found(&removed) => Ok(()),
            removed => written(removed, &format!("stop balancing port {port} of {address}")),
        }
    }

    /// Sets a server. While flows or a ring name its number, only its state may change: another address needs another number, or
    /// `None` before it and another generation.
    ///
    /// # Errors
    /// Also when the number is too large.
    pub fn set_server(&mut self, number: u16, server: Option<&ServerEntry>) -> Result<(), Error> {
        check(number.into(), "servers", SERVERS)?;
        let bytes = server.map(ServerEntry::bytes).unwrap_or_default();
        written(self.servers.set(number.into(), bytes, 0), &format!("set server {number}"))
    }

    /// Replaces the ring of a VIP at once. Handshakes whose SYN followed the former ring continue there for a while after `changed_ns`, a
    /// time of the monotonic clock. The first ring is also its own former ring. Of several changes within that time, only the former ring
    /// of the last one is known, so a change should wait until the one before is over; a server's death needs no change.
    ///
    /// # Errors
    /// Also when the number of the VIP is too large.
    pub fn set_ring(&mut self, vip: u32, ring: &Ring, former: &Ring, changed_ns: u64) -> Result<(), Error> {
        self.set_rings(&[(vip, ring, former, changed_ns)])
    }

    /// Replaces the rings of several VIPs.
    pub(crate) fn set_rings(&mut self, rings: &[RingChange<'_>]) -> Result<(), Error> {
        let next = AtomicUsize::new(0);
        let write = |table: &mut Rings| {
            while let Some(change) = rings.get(next.fetch_add(1, Ordering::Relaxed)) {
                set_ring(table, change)?;
            }
            Ok(())
        };
        let Some((own, others)) = self.rings.split_first_mut() else { return Ok(()) };
        thread::scope(|scope| {
            let spawn = |table| thread::Builder::new().spawn_scoped(scope, || write(table)).ok();
            // If a thread cannot be started, the others do its work.
            let helpers: Vec<_> =
                others.iter_mut().take(rings.len().saturating_sub(1)).map_while(spawn).collect();
            let written = write(own);
            let joined =
                helpers.into_iter().map(|helper| helper.join().unwrap_or_else(|panic| resume_unwind(panic)));
            joined.fold(written, Result::and)
        })
    }

    /// The ring of a VIP; none if it has none.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn ring(&self, vip: u32) -> Result<Option<Ring>, Error> {
        let what = format!("read the ring of VIP {vip}");
        let Some(rings) = self.rings.first() else { return Ok(None) };
        let map = match rings.get(&vip, 0) {
            Err(MapError::KeyNotFound) => return Ok(None),
            // The kernel opens a table by its number only with this right.
            Err(MapError::SyscallError(error)) if error.io_error.kind() == ErrorKind::PermissionDenied => {
                return Err(Error::Kernel {
                    what,
                    cause: "going on with the tables of an earlier daemon takes CAP_SYS_ADMIN".to_owned(),
                });
            }
            map => map.map_err(|error| Error::new(&*what, &error))?,
        };
        // The library copies values over the stack several times, and a ring has a quarter of a megabyte.
        let read = || map.get(&0, 0).map(|bytes| ring_of(&bytes)).map_err(|error| Error::new(&*what, &error));
        thread::scope(|scope| {
            let reader = thread::Builder::new().stack_size(READING_STACK).spawn_scoped(scope, read);
            let reader = reader.map_err(|error| Error::new(&*what, &error))?;
            reader.join().unwrap_or_else(|panic| resume_unwind(panic)).map(Some)
        })
    }

    /// The counts of a server's number since [`Self::clear_server_counts`].
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn server_counts(&self, number: u16) -> Result<ServerCounts, Error> {
        let read = self.server_counts.get(&number.into(), 0);
        let cores =
            read.map_err(|error| Error::new(format!("read the counts of server {number}"), &error))?;
        let mut counts = ServerCounts::default();
        cores.iter().for_each(|core| counts.add(core));
        Ok(counts)
    }

    /// Resets the counts of a number to 0, before another server gets the number.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn clear_server_counts(&mut self, number: u16) -> Result<(), Error> {
        clear_counts(&mut self.server_counts, number.into())
            .map_err(|error| Error::new(format!("clear the counts of server {number}"), &*error))
    }

    /// How often each reason came up for a VIP; of VIP 0, for frames that no VIP could be read from.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn vip_counts(&self, vip: u32) -> Result<VipCounts, Error> {
        let read = self.vip_counts.get(&vip, 0);
        let cores = read.map_err(|error| Error::new(format!("read the counts of VIP {vip}"), &error))?;
        let mut counts = VipCounts::default();
        for core in cores.iter() {
            counts.0.iter_mut().zip(core).for_each(|(count, of_core)| *count += of_core);
        }
        Ok(counts)
    }

    /// Resets the counts of a VIP's number to 0, before another VIP gets the number.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn clear_vip_counts(&mut self, vip: u32) -> Result<(), Error> {
        clear_counts(&mut self.vip_counts, vip)
            .map_err(|error| Error::new(format!("clear the counts of VIP {vip}"), &*error))
    }

    /// The entry of an established flow; none if it is not remembered.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn flow(&self, key: &FlowKey) -> Result<Option<Flow>, Error> {
        found(self.flows.get(&key.bytes(), 0)).map(|flow| flow.as_ref().map(Flow::of))
    }

    /// All established flows. A flow that begins or ends meanwhile may be left out or returned twice.
    pub fn flows(&self) -> impl Iterator<Item = (FlowKey, Flow)> {
        // Skips entries that were removed after their keys were read.
        self.flows.iter().flatten().map(|(key, flow)| (FlowKey::of(&key), Flow::of(&flow)))
    }

    /// The server of a flow whose handshake is under way; none if it is not remembered.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn pending(&self, key: &FlowKey) -> Result<Option<u16>, Error> {
        let server = |bytes: RecentBytes| u32::from_ne_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]);
        found(self.pending.get(&key.bytes(), 0)).map(|recent| recent.map(|recent| server(recent) as u16))
    }
}

/// The table of established flows alone, opened once more, for a thread that reads it while others change the rest.
pub(crate) struct FlowTable {
    flows: HashMap<MapData, FlowKeyBytes, FlowBytes>,
    capacity: u32,
}

impl FlowTable {
    pub(crate) fn open(pins: &Path) -> Result<Self, Error> {
        let path = pins.join("flows");
        let failed =
            |error: &(dyn error::Error + 'static)| Error::new(format!("open {}", path.display()), error);
        let map = MapData::from_pin(&path).map_err(|error| failed(&error))?;
        let capacity = map.info().map_err(|error| failed(&error))?.max_entries();
        let flows = Map::from_map_data(map).and_then(TryFrom::try_from).map_err(|error| failed(&error))?;
        Ok(Self { flows, capacity })
    }

    /// The largest number of flows.
    pub(crate) fn capacity(&self) -> u32 {
        self.capacity
    }

    /// All flows, as [`Table::flows`].
    pub(crate) fn all(&self) -> impl Iterator<Item = (FlowKey, Flow)> {
        self.flows.iter().flatten().map(|(key, flow)| (FlowKey::of(&key), Flow::of(&flow)))
    }

    pub(crate) fn get(&self, key: &FlowKey) -> Result<Option<Flow>, Error> {
        found(self.flows.get(&key.bytes(), 0)).map(|flow| flow.as_ref().map(Flow::of))
    }

    pub(crate) fn forget(&mut self, key: &FlowKey) -> Result<(), Error> {
        match self.flows.remove(&key.bytes()) {
            removed if is_not_found(&removed) => Ok(()),
            removed => written(removed, "forget a flow"),
        }
    }
}

fn set_ring(table: &mut Rings, (vip, ring, former, changed_ns): &RingChange<'_>) -> Result<(), Error> {
    check(*vip, "VIPs", VIPS)?;
    let what = format!("set the ring of VIP {vip}");
    let mut map = RingMap::create(1, 0).map_err(|error| Error::new(&*what, &error))?;
    // The bytes are passed by reference, because they do not fit on a small stack.
    let bytes = ring_bytes(ring, former, *changed_ns);
    written(map.set(0, Box::as_ref(&bytes), 0), &what)?;
    written(table.set(*vip, &map, 0), &what)
}

/// A table of the object, opened once for each writer.
fn several(ebpf: &mut Ebpf, name: &'static str) -> Result<Vec<Rings>, Error> {
    let failed = |error: &(dyn error::Error + 'static)| Error::new(format!("open the table {name}"), error);
    let first = match ebpf.take_map(name) {
        Some(Map::ArrayOfMaps(first)) => first,
        _ => return Err(failed(&io::Error::from(ErrorKind::NotFound))),
    };
    let open = |_| {
        let descriptor = first.fd().as_fd().try_clone_to_owned().map_err(|error| failed(&error))?;
        let again = MapData::from_fd(descriptor).and_then(Map::from_map_data).and_then(TryFrom::try_from);
        again.map_err(|error| failed(&error))
    };
    let mut all: Vec<Rings> = (1..WRITERS).map(open).collect::<Result<_, _>>()?;
    // This one must stay open, because the program, which is not loaded yet, refers to it by its descriptor.
    all.push(Map::ArrayOfMaps(first).try_into().map_err(|error| failed(&error))?);
    Ok(all)
}

fn take<T: TryFrom<Map, Error = MapError>>(ebpf: &mut Ebpf, name: &'static str) -> Result<T, Error> {
    let what = || format!("use the table {name} of the BPF object");
    let map =
        ebpf.take_map(name).ok_or_else(|| Error::Kernel { what: what(), cause: "it has none".into() })?;
    map.try_into().map_err(|error| Error::new(what(), &error))
}

fn check(number: u32, what: &'static str, size: usize) -> Result<(), Error> {
    let valid = number > 0 && (number as usize) < size;
    if valid { Ok(()) } else { Err(Error::TooMany { what, most: size - 1 }) }
}

/// Resets the counts of all processors to 0.
fn clear_counts<const N: usize>(counts: &mut PerCpuArray<MapData, [u64; N]>, number: u32) -> Result<(), Cause>
where
    [u64; N]: Pod,
{
    let processors = counts.get(&number, 0)?.len();
    Ok(counts.set(number, PerCpuValues::try_from(vec![[0; N]; processors])?, 0)?)
}

fn written(result: Result<(), MapError>, what: &str) -> Result<(), Error> {
    result.map_err(|error| Error::new(what, &error))
}

fn is_not_found<T>(result: &Result<T, MapError>) -> bool {
    match result {
        Err(MapError::KeyNotFound) => true,
        Err(MapError::SyscallError(error)) => error.io_error.kind() == ErrorKind::NotFound,
        _ => false,
    }
}

fn found<T: Pod>(result: Result<T, MapError>) -> Result<Option<T>, Error> {
    if is_not_found(&result) {
        return Ok(None);
    }
    result.map(Some).map_err(|error| Error::new("read a flow", &error))
}
