//! Attaches the program to a device, or puts it in the place of the one there without a gap.

use std::{error, fs, io, mem, path::Path};

use aya::{
    programs::{
        LinkOrder, TcAttachType, XdpMode,
        links::{FdLink, PinnedLink},
        tc::{NlOptions, SchedClassifierLink, TcAttachOptions, TcError, TcHandle, qdisc_add_clsact},
    },
    util::KernelVersion,
};

use undo::{CLS_LINK, FILTER, XDP_LINK, detach_pins, remove_pins};

use crate::{Error, Hook, Program};

/// Where our filter stands among those of the qdisc: before those that others let the kernel place.
const PRIORITY: u16 = 1;
const HANDLE: TcHandle = TcHandle::new(0, 1);

/// Linux that attaches programs of cls_bpf by links, without a qdisc.
pub(crate) const LINKS_SINCE: KernelVersion = KernelVersion::new(6, 6, 0);

pub(crate) type Cause = Box<dyn error::Error + Send + Sync>;

impl Program {
    /// Attaches the program to what a device receives. With a folder of pins, it stays attached after the process, and takes the
    /// place of what was attached from the same folder: no frame is seen by neither.
    ///
    /// # Errors
    /// When this user, this kernel or this device cannot.
    pub fn attach(&mut self, device: &str, pins: Option<&Path>) -> Result<(), Error> {
        let by_filter =
            self.hook == Hook::Cls && KernelVersion::current().is_ok_and(|version| version < LINKS_SINCE);
        let kind = match self.hook {
            Hook::Cls if by_filter => FILTER,
            Hook::Cls => CLS_LINK,
            Hook::Xdp => XDP_LINK,
        };
        // Pins have no dots in their names, devices no colons.
        let pin_name = format!("{kind}{}", device.replace('.', ":"));
        let pin = pins.map(|pins| pins.join(&pin_name));
        let attached = if by_filter {
            self.attach_filter(device, pin.as_deref())
        } else {
            self.attach_link(device, pin.as_deref())
        };
        // What was attached to another device, or in another way, goes when this one is there.
        let attached =
            attached.and_then(|()| pins.map_or(Ok(()), |pins| detach_pins(pins, |name| name != pin_name)));
        attached.map_err(|error| Error::new(format!("attach the balancer to {device}"), &*error))
    }

    fn attach_link(&mut self, device: &str, pin: Option<&Path>) -> Result<(), Cause> {
        let there = pin.filter(|pin| pin.exists());
        if let Some(pin) = there {
            // A link whose device is gone takes no program.
            if self.linked(device, Some(PinnedLink::from_pin(pin)?.into())).is_ok() {
                return Ok(());
            }
            fs::remove_file(pin)?;
        }
        let link = self.linked(device, None)?;
        match pin {
            Some(pin) => drop(link.pin(pin)?),
            None => self.link = Some(link),
        }
        Ok(())
    }

    /// A link of the program to a device, or one that another program has had.
    fn linked(&mut self, device: &str, there: Option<FdLink>) -> Result<FdLink, Cause> {
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
                    None => program.attach(device, XdpMode::default())?,
                };
                Ok(program.take_link(id)?.try_into()?)
            }
        }
    }

    /// As a filter of the qdisc clsact.
    fn attach_filter(&mut self, device: &str, pin: Option<&Path>) -> Result<(), Cause> {
        match qdisc_add_clsact(device) {
            Err(TcError::NetlinkError(error)) if is_there_already(error.raw_os_error()) => {}
            added => added?,
        }
        let program = self.cls()?;
        let there = pin.filter(|pin| pin.exists());
        let id = if there.is_some() {
            let link = SchedClassifierLink::attached(device, TcAttachType::Ingress, PRIORITY, HANDLE, None)?;
            program.attach_to_link(link)?
        } else {
            let place = NlOptions { priority: PRIORITY, handle: HANDLE, ..NlOptions::default() };
            program.attach_with_options(device, TcAttachType::Ingress, TcAttachOptions::Netlink(place))?
        };
        if let Some(pin) = pin {
            // The filter holds its program itself, until it is detached by name.
            mem::forget(program.take_link(id)?);
            there.map_or(Ok(()), fs::remove_file)?;
            program.pin(pin)?;
        }
        Ok(())
    }
}

/// Removes the pins of tables and attachments. What nothing else holds is gone a moment later, attached programs included.
///
/// # Errors
/// When a pin cannot be removed; not when there is none.
pub fn unpin(pins: &Path) -> Result<(), Error> {
    remove_pins(pins).map_err(|error| Error::new(format!("remove the pins in {}", pins.display()), &*error))
}

pub(crate) fn is_there_already(code: Option<i32>) -> bool {
    code.is_some_and(|code| io::Error::from_raw_os_error(code).kind() == io::ErrorKind::AlreadyExists)
}

#[cfg(test)]
mod tests {
    use std::{path::PathBuf, process::Command};

    use super::*;
    use crate::Sizes;

    /// Set in the process that the test starts in namespaces of its own.
    const INSIDE: &str = "PROOFLOAD_TEST_IS_INSIDE";

    /// Kernels before 6.6 attach by filters; newer ones can.
    #[test]
    fn a_filter_stays_is_replaced_and_goes() {
        if std::env::var_os(INSIDE).is_some() {
            return in_namespaces_of_its_own();
        }
        if std::os::unix::fs::MetadataExt::uid(&fs::metadata("/proc/self").unwrap()) != 0 {
            println!("not run: only root may attach BPF programs");
            return;
        }
        let own = std::env::current_exe().unwrap();
        let inside = "mount -t bpf bpf /sys/fs/bpf && exec \"$0\" --exact attach::tests::a_filter_stays_is_replaced_and_goes";
        let mut done = Command::new("unshare");
        done.args(["--net", "--mount", "sh", "-c", inside]).arg(own).env(INSIDE, "1");
        let done = done.output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&[done.stdout, done.stderr].concat()));
    }

    fn in_namespaces_of_its_own() {
        let made =
            Command::new("ip").args(["link", "add", "near", "type", "veth", "peer", "name", "far"]).status();
        assert!(made.unwrap().success());
        let pins = PathBuf::from(format!("/sys/fs/bpf/proofload-test-{}-filter", std::process::id()));
        let pin = pins.join("filter-far");
        let mut numbers = Vec::new();
        for _ in 0..2 {
            let (mut program, table) = Program::load(Hook::Cls, &Sizes::default(), Some(&pins)).unwrap();
            program.attach_filter("far", Some(&pin)).unwrap();
            drop((program, table));
            let shown = filters();
            assert_eq!(shown.matches(" l2dsr direct-action").count(), 1, "{shown}");
            numbers.push(shown.split(" id ").nth(1).unwrap().split(' ').next().unwrap().to_owned());
        }
        assert_ne!(numbers[0], numbers[1], "another program is in the place of the first");
        unpin(&pins).unwrap();
        assert_eq!(filters(), "");
    }

    fn filters() -> String {
        let shown = Command::new("tc").args(["filter", "show", "dev", "far", "ingress"]).output().unwrap();
        String::from_utf8(shown.stdout).unwrap()
    }
}
