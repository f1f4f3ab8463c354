//! What the program knows and counts: its tables in the kernel.

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
    attach::Cause,
    layout::{
        FlowBytes, FlowKeyBytes, REASONS, RecentBytes, RingBytes, SERVERS, ServerBytes, ServerCountsOfCore,
        ServiceBytes, ServiceKeyBytes, SettingsBytes, VIPS, address_bytes, ring_bytes, ring_of,
        service_key_bytes,
    },
};

/// Bytes of stack to read a ring with.
const READING_STACK: usize = 16 << 20;

/// How many rings are set at the same time. The kernel lets each wait until all programs have done with the former one, some
/// hundredths of a second, in which others can be set.
pub(crate) const WRITERS: usize = 64;

type RingMap = Array<MapData, RingBytes>;
type Rings = ArrayOfMaps<MapData, RingMap>;

/// A VIP by its number, its ring, its former one, and when that changed.
pub(crate) type RingChange<'a> = (u32, &'a Ring, &'a Ring, u64);

/// The tables of a balancer. The program reads them while they change: each call is one step, and between two of them the program
/// works with what is there.
pub struct Table {
    settings: Array<MapData, SettingsBytes>,
    services: HashMap<MapData, ServiceKeyBytes, ServiceBytes>,
    servers: Array<MapData, ServerBytes>,
    /// The same table, once for each writer.
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

    /// Sets what holds for all VIPs.
    ///
    /// # Errors
    /// When the kernel refuses, as with every function here.
    pub fn set_settings(&mut self, settings: &Settings) -> Result<(), Error> {
        written(self.settings.set(0, settings.bytes(), 0), "set the settings")
    }

    /// Balances a port of an address; port 0 is all ports that are not set. A VIP without port 0 is told to the program by
    /// [`Self::set_address`].
    ///
    /// # Errors
    /// When the number of the VIP is too large, too.
    pub fn set_service(&mut self, address: IpAddr, port: u16, entry: &ServiceEntry) -> Result<(), Error> {
        check(entry.vip, "VIPs", VIPS)?;
        let set = self.services.insert(service_key_bytes(address, port), entry.bytes(), 0);
        written(set, &format!("balance port {port} of {address}"))
    }

    /// Says that an address is a VIP's, so that what is broken is dropped and counted there. Its other ports stay those of the
    /// balancer's own stack.
    ///
    /// # Errors
    /// When the number of the VIP is too large, too.
    pub fn set_address(&mut self, address: IpAddr, vip: u32) -> Result<(), Error> {
        check(vip, "VIPs", VIPS)?;
        let set = self.services.insert(service_key_bytes(address, 0), address_bytes(vip), 0);
        written(set, &format!("take {address} for a VIP"))
    }

    /// Passes a port of an address to the balancer's own stack again. Established flows go on.
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
    /// When the number is too large, too.
    pub fn set_server(&mut self, number: u16, server: Option<&ServerEntry>) -> Result<(), Error> {
        check(number.into(), "servers", SERVERS)?;
        let bytes = server.map(ServerEntry::bytes).unwrap_or_default();
        written(self.servers.set(number.into(), bytes, 0), &format!("set server {number}"))
    }

    /// Gives a VIP another ring, all of it at once. Handshakes whose SYN went by the former one go on there for a while after
    /// `changed_ns`, a time of the monotonic clock. The first ring is its own former one. Of several changes within that time, only the
    /// last one's former ring is known, so changes should wait for each other; a server's death needs none.
    ///
    /// # Errors
    /// When the number of the VIP is too large, too.
    pub fn set_ring(&mut self, vip: u32, ring: &Ring, former: &Ring, changed_ns: u64) -> Result<(), Error> {
        self.set_rings(&[(vip, ring, former, changed_ns)])
    }

    /// Gives several VIPs other rings.
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
            // Where no thread can be had, the others do its work.
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
        // The library gives values by way of the stack, several times, and this one has a quarter of a megabyte.
        let read = || map.get(&0, 0).map(|bytes| ring_of(&bytes)).map_err(|error| Error::new(&*what, &error));
        thread::scope(|scope| {
            let reader = thread::Builder::new().stack_size(READING_STACK).spawn_scoped(scope, read);
            let reader = reader.map_err(|error| Error::new(&*what, &error))?;
            reader.join().unwrap_or_else(|panic| resume_unwind(panic)).map(Some)
        })
    }

    /// What a server's number has counted since [`Self::clear_server_counts`].
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

    /// Sets the counts of a number back, before another server gets it.
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

    /// Sets the counts of a VIP's number back, before another VIP gets it.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn clear_vip_counts(&mut self, vip: u32) -> Result<(), Error> {
        clear_counts(&mut self.vip_counts, vip)
            .map_err(|error| Error::new(format!("clear the counts of VIP {vip}"), &*error))
    }

    /// What is remembered of an established flow; nothing if it is not.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn flow(&self, key: &FlowKey) -> Result<Option<Flow>, Error> {
        found(self.flows.get(&key.bytes(), 0)).map(|flow| flow.as_ref().map(Flow::of))
    }

    /// All established flows. A flow that comes or goes meanwhile may be left out or told twice.
    pub fn flows(&self) -> impl Iterator<Item = (FlowKey, Flow)> {
        // An entry that has gone since its key was read is no entry.
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
    // By reference: the bytes are more than a small stack has.
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
    // The program, which is not loaded yet, names this one by its descriptor.
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

/// Sets the counts of all processors back.
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
