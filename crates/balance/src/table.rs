//! The tables of the program in the kernel: settings, state and counts.

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

/// Stack of the thread that reads a ring, in bytes.
const READING_STACK: usize = 16 << 20;

/// Number of rings that are written at the same time. The kernel delays each write until no program uses the former
/// ring any more, which takes some hundredths of a second; other rings can be written meanwhile.
pub(crate) const WRITERS: usize = 64;

type RingMap = Array<MapData, RingBytes>;
type Rings = ArrayOfMaps<MapData, RingMap>;

/// The number of a VIP, its ring, its former ring and the time of the change.
pub(crate) type RingChange<'a> = (u32, &'a Ring, &'a Ring, u64);

/// The tables of a balancer. The program reads them while they change: each call is one step, and the program uses the
/// current entries between two calls.
pub struct Table {
    settings: Array<MapData, SettingsBytes>,
    services: HashMap<MapData, ServiceKeyBytes, ServiceBytes>,
    servers: Array<MapData, ServerBytes>,
    /// The table of rings, opened once for each thread that writes to it.
    rings: Vec<Rings>,
    server_counts: PerCpuArray<MapData, ServerCountsOfCore>,
    vip_counts: PerCpuArray<MapData, [u64; REASONS]>,
    flows: HashMap<MapData, FlowKeyBytes, FlowBytes>,
    pending: HashMap<MapData, FlowKeyBytes, RecentBytes>,
}

impl Table {
    /// Takes the tables out of a loaded object.
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
    /// If the kernel refuses, as for all functions of this type.
    pub fn set_settings(&mut self, settings: &Settings) -> Result<(), Error> {
        written(self.settings.set(0, settings.bytes(), 0), "write the settings")
    }

    /// Balances a port of an address. Port 0 stands for all ports without an entry. If a VIP has no port 0,
    /// [`Self::set_address`] marks the address as that of a VIP.
    ///
    /// # Errors
    /// Also if the number of the VIP is too large.
    pub fn set_service(&mut self, address: IpAddr, port: u16, entry: &ServiceEntry) -> Result<(), Error> {
        check(entry.vip, "VIPs", VIPS)?;
        let set = self.services.insert(service_key_bytes(address, port), entry.bytes(), 0);
        written(set, &format!("balance port {port} of {address}"))
    }

    /// Marks an address as that of a VIP, so that malformed frames to it are dropped and counted for the VIP. Its other
    /// ports stay with the kernel's own stack.
    ///
    /// # Errors
    /// Also if the number of the VIP is too large.
    pub fn set_address(&mut self, address: IpAddr, vip: u32) -> Result<(), Error> {
        check(vip, "VIPs", VIPS)?;
        let set = self.services.insert(service_key_bytes(address, 0), address_bytes(vip), 0);
        written(set, &format!("add the VIP {address}"))
    }

    /// Passes the frames of a port to the kernel's own network stack again. Established flows continue.
    ///
    /// # Errors
    /// If the kernel refuses. A port without an entry is not an error.
    pub fn remove_service(&mut self, address: IpAddr, port: u16) -> Result<(), Error> {
        match self.services.remove(&service_key_bytes(address, port)) {
            removed if is_not_found(&removed) => Ok(()),
            removed => written(removed, &format!("stop balancing port {port} of {address}")),
        }
    }

    /// Sets a server. While flows or a ring refer to its number, only its state may change: another address needs
    /// another number, or first `None` and then another generation.
    ///
    /// # Errors
    /// Also if the number is too large.
    pub fn set_server(&mut self, number: u16, server: Option<&ServerEntry>) -> Result<(), Error> {
        check(number.into(), "servers", SERVERS)?;
        let bytes = server.map(ServerEntry::bytes).unwrap_or_default();
        written(self.servers.set(number.into(), bytes, 0), &format!("set server {number}"))
    }

    /// Replaces the ring of a VIP atomically. For some time after `changed_ns` (monotonic clock), handshakes whose SYN
    /// followed the former ring continue to follow it. The first ring is also its own former ring. If a ring changes
    /// several times within that time, only the former ring of the last change is known, so a change should wait until
    /// that time has passed since the one before. A server's death needs no change.
    ///
    /// # Errors
    /// Also if the number of the VIP is too large.
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
            // If a thread cannot be started, the other threads do its work.
            let helpers: Vec<_> =
                others.iter_mut().take(rings.len().saturating_sub(1)).map_while(spawn).collect();
            let written = write(own);
            let joined =
                helpers.into_iter().map(|helper| helper.join().unwrap_or_else(|panic| resume_unwind(panic)));
            joined.fold(written, Result::and)
        })
    }

    /// The ring of a VIP; none if it has not been set.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn ring(&self, vip: u32) -> Result<Option<Ring>, Error> {
        let what = format!("read the ring of VIP {vip}");
        let Some(rings) = self.rings.first() else { return Ok(None) };
        let map = match rings.get(&vip, 0) {
            Err(MapError::KeyNotFound) => return Ok(None),
            // The kernel opens a table by its number only for processes with this capability.
            Err(MapError::SyscallError(error)) if error.io_error.kind() == ErrorKind::PermissionDenied => {
                return Err(Error::Kernel {
                    what,
                    cause: "continuing with the tables of an earlier daemon needs CAP_SYS_ADMIN".to_owned(),
                });
            }
            map => map.map_err(|error| Error::new(&*what, &error))?,
        };
        // The library copies values on the stack several times, and a ring takes a quarter of a megabyte, so a thread
        // with a large stack reads it.
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

    /// Resets the counts of a server's number to 0 before another server gets the number.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn clear_server_counts(&mut self, number: u16) -> Result<(), Error> {
        clear_counts(&mut self.server_counts, number.into())
            .map_err(|error| Error::new(format!("clear the counts of server {number}"), &*error))
    }

    /// The count of each reason for a VIP. VIP 0 counts the frames from which no VIP could be read.
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

    /// Resets the counts of a VIP's number to 0 before another VIP gets the number.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn clear_vip_counts(&mut self, vip: u32) -> Result<(), Error> {
        clear_counts(&mut self.vip_counts, vip)
            .map_err(|error| Error::new(format!("clear the counts of VIP {vip}"), &*error))
    }

    /// The entry of an established flow; none if the flow is not remembered.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn flow(&self, key: &FlowKey) -> Result<Option<Flow>, Error> {
        found(self.flows.get(&key.bytes(), 0)).map(|flow| flow.as_ref().map(Flow::of))
    }

    /// All established flows. Flows that begin or end during the iteration may be left out. If the flow that was read last is removed,
    /// the kernel begins again with the first one, so any flow may be returned twice.
    pub fn flows(&self) -> impl Iterator<Item = (FlowKey, Flow)> {
        // Entries that were removed after their keys were read are skipped.
        self.flows.iter().flatten().map(|(key, flow)| (FlowKey::of(&key), Flow::of(&flow)))
    }

    /// The server of a flow whose handshake is in progress; none if it is not remembered.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn pending(&self, key: &FlowKey) -> Result<Option<u16>, Error> {
        let server = |bytes: RecentBytes| u32::from_ne_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]);
        found(self.pending.get(&key.bytes(), 0)).map(|recent| recent.map(|recent| server(recent) as u16))
    }
}

/// A second handle of the table of established flows, for a thread that reads it while another one changes the tables.
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

    /// The maximum number of flows.
    pub(crate) fn capacity(&self) -> u32 {
        self.capacity
    }

    /// All established flows, as in [`Table::flows`].
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
    // The bytes are passed by reference, because they would not fit on a small stack.
    let bytes = ring_bytes(ring, former, *changed_ns);
    written(map.set(0, Box::as_ref(&bytes), 0), &what)?;
    written(table.set(*vip, &map, 0), &what)
}

/// Opens a table of the object once for each writer.
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
    // This handle must stay open: the program, which is not loaded yet, refers to the table by its descriptor.
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
