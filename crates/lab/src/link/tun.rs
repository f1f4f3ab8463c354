//! TUN devices. The only module with `unsafe` code: no library wraps two of its ioctl requests.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
};

use rustix::{
    fs::OFlags,
    ioctl::{IntegerSetter, Opcode, Updater, ioctl, opcode},
};

/// Maximum bytes of an interface's name: `IFNAMSIZ` without the terminating zero.
pub(super) const MAX_NAME_BYTES: usize = 15;

const TUNSETIFF: Opcode = opcode::write::<i32>(b'T', 202);
const TUNSETOFFLOAD: Opcode = opcode::write::<u32>(b'T', 208);

const IFF_TUN: u16 = 0x0001;
const IFF_NO_PI: u16 = 0x1000;
const IFF_VNET_HDR: u16 = 0x4000;
const IFF_TUN_EXCL: u16 = 0x8000;

const CHECKSUM: usize = 0x01;
const TSO4: usize = 0x02;
const TSO6: usize = 0x04;
const TSO_ECN: usize = 0x08;
const USO4: usize = 0x20;
const USO6: usize = 0x40;

/// `struct ifreq` with its flags (linux/if.h); the kernel reads and writes all 40 bytes.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; 16],
    flags: u16,
    rest: [u8; 22],
}

/// Creates a TUN device in the network namespace of the calling thread. The device disappears when the file is closed.
/// Reads and writes never block; each moves one packet with a virtio-net header.
///
/// # Errors
/// If the name is in use or invalid, `/dev/net/tun` is missing, or this process may not change the namespace.
pub(super) fn create(name: &str) -> io::Result<File> {
    if name.is_empty() || name.len() > MAX_NAME_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("the name '{name}' of an interface must have 1 to {MAX_NAME_BYTES} bytes"),
        ));
    }
    let flags = (OFlags::NONBLOCK | OFlags::CLOEXEC).bits() as i32;
    let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open("/dev/net/tun")?;
    let mut request = InterfaceRequest {
        name: [0; 16],
        flags: IFF_TUN | IFF_NO_PI | IFF_VNET_HDR | IFF_TUN_EXCL,
        rest: [0; 22],
    };
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    // SAFETY: TUNSETIFF reads and writes a `struct ifreq` of 40 bytes. `InterfaceRequest` is one, and outlives the call. Any byte is valid
    // in its fields.
    unsafe { ioctl(&file, Updater::<TUNSETIFF, InterfaceRequest>::new(&mut request)) }?;

    let without_uso = CHECKSUM | TSO4 | TSO6 | TSO_ECN;
    // USO exists since Linux 6.2. Without it, the kernel splits UDP into segments before they reach the device.
    set_offloads(&file, without_uso | USO4 | USO6).or_else(|_| set_offloads(&file, without_uso))?;
    Ok(file)
}

fn set_offloads(file: &File, offloads: usize) -> io::Result<()> {
    // SAFETY: TUNSETOFFLOAD takes its argument by value and touches no memory of ours.
    unsafe { ioctl(file, IntegerSetter::<TUNSETOFFLOAD>::new_usize(offloads)) }.map_err(Into::into)
}

const _: () = assert!(size_of::<InterfaceRequest>() == 40);
