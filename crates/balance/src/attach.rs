//! Attaches the program to a device, or replaces the program attached there without a gap.

use std::{error, fs, io, mem, os::unix::net::UnixDatagram, path::Path};

use aya::{
    programs::{
        LinkOrder, SchedClassifier, TcAttachType, XdpMode,
        links::{FdLink, PinnedLink},
        tc::{NlOptions, SchedClassifierLink, TcAttachOptions, TcError, TcHandle, qdisc_add_clsact},
    },
    util::KernelVersion,
};

use rustix::net::netdevice::name_to_index;
use undo::{CLS_LINK, FILTER, Pins, QDISC, XDP_LINK, detach_pins};

use crate::{Device, Error, Hook, Program, error::Cause};

/// Priority of our filter in the qdisc. It runs before filters whose priority was chosen by the kernel.
const PRIORITY: u16 = 1;
const HANDLE: TcHandle = TcHandle::new(0, 1);

/// First version of Linux that attaches cls_bpf programs by links, without a qdisc.
pub(crate) const LINKS_SINCE: KernelVersion = KernelVersion::new(6, 6, 0);

impl Program {
    /// Attaches the program to the ingress of a device; XDP runs in the driver. With a folder of pins, the program
    /// stays attached after the end of the process. It replaces the program attached from the same folder without a
    /// gap: one of the two processes every frame.
    ///
    /// # Errors
    /// If the rights of this user, this kernel or this device do not allow it.
    pub fn attach(&mut self, device: &str, pins: Option<&Path>) -> Result<(), Error> {
        self.attach_in(XdpMode::Driver, device, pins)
    }

    /// Like [`Self::attach`], for devices whose driver does not support XDP: the kernel runs the program after it has
    /// built a packet.
    pub(crate) fn attach_after_driver(&mut self, device: &str, pins: Option<&Path>) -> Result<(), Error> {
        self.attach_in(XdpMode::Skb, device, pins)
    }

    /// Whether the program is attached as a qdisc filter, because this kernel cannot attach it by a link.
    pub(crate) fn is_by_filter(&self) -> bool {
        self.hook == Hook::Cls && KernelVersion::current().is_ok_and(|version| version < LINKS_SINCE)
    }

    /// Whether the kernel reports this program as attached to a device. With filters, any filter of this balancer
    /// counts.
    pub(crate) fn is_attached(&self, device: &Device, pins: &Path) -> io::Result<bool> {
        match self.hook {
            Hook::Cls if self.is_by_filter() => undo::is_filtered(device.index),
            Hook::Xdp => Ok(device.link.xdp == Some(self.number)),
            Hook::Cls => Ok(match SchedClassifier::query_tcx(&device.name, TcAttachType::Ingress) {
                Ok((_, programs)) => programs.iter().any(|program| program.id() == self.number),
                // The query needs CAP_SYS_ADMIN. Without that right, an existing pin counts as attached.
                Err(_) => pins.join(format!("{CLS_LINK}{}", device.index)).exists(),
            }),
        }
    }

    fn attach_in(&mut self, mode: XdpMode, device: &str, pins: Option<&Path>) -> Result<(), Error> {
        let failed = |error: &(dyn error::Error + 'static)| {
            Error::new(format!("attach the balancer to {device}"), error)
        };
        let by_filter = self.is_by_filter();
        let kind = match self.hook {
            Hook::Cls if by_filter => FILTER,
            Hook::Cls => CLS_LINK,
            Hook::Xdp => XDP_LINK,
        };
        // The names of pins contain the index, because a device may be renamed.
        let socket = UnixDatagram::unbound().map_err(|error| failed(&error))?;
        let index = name_to_index(socket, device).map_err(|error| failed(&io::Error::from(error)))?;
        let (pin_name, qdisc) = (format!("{kind}{index}"), format!("{QDISC}{index}"));
        let pin = pins.map(|pins| pins.join(&pin_name));
        let attached = if by_filter {
            let qdisc = pins.map(|pins| pins.join(&qdisc));
            self.attach_filter(device, pin.as_deref(), qdisc.as_deref())
        } else {
            self.attach_link(mode, device, pin.as_deref())
        };
        // Attachments to another device or of another kind are removed once the new one exists.
        let is_other = |name: &str| name != pin_name && !(by_filter && name == qdisc);
        attached
            .and_then(|()| pins.map_or(Ok(()), |pins| detach_pins(pins, is_other)))
            .map_err(|error| failed(&*error))
    }

    fn attach_link(&mut self, mode: XdpMode, device: &str, pin: Option<&Path>) -> Result<(), Cause> {
        let there = pin.filter(|pin| pin.exists());
        if let Some(pin) = there {
            // A link to a removed device accepts no program, so it cannot be updated.
            if self.linked(mode, device, Some(PinnedLink::from_pin(pin)?.into())).is_ok() {
                return Ok(());
            }
            fs::remove_file(pin)?;
        }
        let link = self.linked(mode, device, None)?;
        match pin {
            Some(pin) => drop(link.pin(pin)?),
            None => self.link = Some(link),
        }
        Ok(())
    }

    /// Attaches the program to a device by a new link, or replaces the program of an existing link.
    fn linked(&mut self, mode: XdpMode, device: &str, there: Option<FdLink>) -> Result<FdLink, Cause> {
        match self.hook {
            Hook::Cls => {
                let program = self.cls()?;
                let order = TcAttachOptions::TcxOrder(LinkOrder::default());
                let id = match there {
                    Some(link) => program.attach_to_link(link.try_into()?)?,
                    None => program.attach_with_options(device, TcAttachType::Ingress, order)?,
                };
                Ok(program.take_link(id)?.try_into()?)
            }
            Hook::Xdp => {
                let program = self.xdp()?;
                let id = match there {
                    Some(link) => program.attach_to_link(link.try_into()?)?,
                    None => program.attach(device, mode)?,
                };
                Ok(program.take_link(id)?.try_into()?)
            }
        }
    }

    /// Attaches the program as a filter of the qdisc clsact. The folder `qdisc` records that this balancer created the
    /// qdisc.
    fn attach_filter(&mut self, device: &str, pin: Option<&Path>, qdisc: Option<&Path>) -> Result<(), Cause> {
        let qdisc = qdisc.filter(|qdisc| !qdisc.exists());
        qdisc.map_or(Ok(()), fs::create_dir)?;
        match qdisc_add_clsact(device) {
            Err(TcError::NetlinkError(error)) if is_there_already(error.raw_os_error()) => {
                qdisc.map_or(Ok(()), fs::remove_dir)?;
            }
            added => added?,
        }
        let program = self.cls()?;
        let there = pin.filter(|pin| pin.exists());
        // Another program may have removed the filter or the whole qdisc.
        let replaced = there.and_then(|_| {
            let link = SchedClassifierLink::attached(device, TcAttachType::Ingress, PRIORITY, HANDLE, None);
            program.attach_to_link(link.ok()?).ok()
        });
        let id = match replaced {
            Some(id) => id,
            None => {
                let place = NlOptions { priority: PRIORITY, handle: HANDLE, ..NlOptions::default() };
                program.attach_with_options(device, TcAttachType::Ingress, TcAttachOptions::Netlink(place))?
            }
        };
        if let Some(pin) = pin {
            // Dropping the link would detach the filter. Without it, the filter keeps its program loaded until it is
            // detached by name.
            mem::forget(program.take_link(id)?);
            there.map_or(Ok(()), fs::remove_file)?;
            program.pin(pin)?;
        }
        Ok(())
    }
}

/// Removes the pins of tables and attachments. The kernel soon frees objects without other references, including
/// attached programs.
///
/// # Errors
/// If a pin cannot be removed, or a running balancer uses the pins. Missing pins are not an error.
pub fn unpin(pins: &Path) -> Result<(), Error> {
    let removed = Pins::there(pins).map_err(Cause::from).and_then(|pins| pins.map_or(Ok(()), Pins::remove));
    removed.map_err(|error| Error::new(format!("remove the pins in {}", pins.display()), &*error))
}

pub(crate) fn is_there_already(code: Option<i32>) -> bool {
    code.is_some_and(|code| io::Error::from_raw_os_error(code).kind() == io::ErrorKind::AlreadyExists)
}

#[cfg(test)]
mod tests {
    use std::{path::PathBuf, process::Command};

    use super::*;
    use crate::{Sizes, alone};

    /// Kernels before 6.6 need filters, and newer ones still accept them, so this test runs on all kernels.
    #[test]
    fn as_root_a_filter_stays_is_replaced_and_goes() {
        alone::run("attach::tests::as_root_a_filter_stays_is_replaced_and_goes", in_namespaces_of_its_own);
    }

    fn in_namespaces_of_its_own() {
        let made =
            Command::new("ip").args(["link", "add", "near", "type", "veth", "peer", "name", "far"]).status();
        assert!(made.unwrap().success());
        let pins = PathBuf::from(format!("/sys/fs/bpf/proofload-test-{}-filter", std::process::id()));
        let index = name_to_index(UnixDatagram::unbound().unwrap(), "far").unwrap();
        let (pin, qdisc) = (pins.join(format!("filter-{index}")), pins.join(format!("qdisc-{index}")));
        let attach = || {
            let (mut program, table) = Program::load(Hook::Cls, &Sizes::default(), Some(&pins)).unwrap();
            program.attach_filter("far", Some(&pin), Some(&qdisc)).unwrap();
            drop((program, table));
            let shown = shown("filter");
            assert_eq!(shown.matches(" l2dsr direct-action").count(), 1, "{shown}");
            shown.split(" id ").nth(1).unwrap().split(' ').next().unwrap().to_owned()
        };
        let numbers = [attach(), attach()];
        assert_ne!(numbers[0], numbers[1], "another program is in the place of the first");
        // Removing the qdisc removes the filter. The next start creates both again.
        run("tc qdisc del dev far clsact");
        attach();
        assert!(shown("qdisc").contains("clsact"));
        // A renamed device keeps its filter. `unpin` must find and remove it under the new name.
        run("ip link set far name moved.1");
        unpin(&pins).unwrap();
        run("ip link set moved.1 name far");
        assert_eq!((shown("filter"), shown("qdisc").contains("clsact")), (String::new(), false));

        // A qdisc of another program stays. A qdisc of this balancer also stays if it contains filters of other
        // programs.
        for script in ["tc qdisc add dev far clsact", ":"] {
            run(script);
            attach();
            run(&format!("tc filter add dev far egress prio 9 bpf da pinned {}", pin.display()));
            unpin(&pins).unwrap();
            assert!(shown("qdisc").contains("clsact"), "{script}");
            run("tc qdisc del dev far clsact");
        }
    }

    fn run(script: &str) {
        assert!(Command::new("sh").args(["-c", script]).status().unwrap().success(), "{script}");
    }

    fn shown(what: &str) -> String {
        let place = if what == "filter" { &["ingress"][..] } else { &[] };
        let shown = Command::new("tc").args([what, "show", "dev", "far"]).args(place).output().unwrap();
        String::from_utf8(shown.stdout).unwrap()
    }
}
