//! Boots Debian's kernel in an emulated machine and runs a script there, to test with another kernel.
//!
//! The machine has one processor, memory, a serial port for the console and one for the script's output. It has a disk or a network only on
//! request. Its file system is an archive made for the run: our static binary, busybox, Debian's tools with their libraries, and the
//! kernel's modules.
//!
//! # Time
//! The machine's clock counts instructions, one nanosecond each, and skips idle time (QEMU's `-icount`). A busy host makes a run longer but
//! delays nothing inside: delays and rates measured in the machine do not depend on other programs outside. A machine with a part outside,
//! a disk, a network or other machines, uses the host's clock instead: its own clock would run ahead while it waits for that part.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail};

use crate::{machine, process::Launch, proofload, temporary::TemporaryFolder};

mod archive;
mod kernel;
mod running;
mod tools;

use archive::Archive;
pub use kernel::Kernel;
pub use running::{Ran, RunningVm};

/// Default memory of the machine, in MiB.
const MEMORY_MIB: u32 = 512;
/// Arguments of the kernel.
const KERNEL_WORDS: &str = "console=ttyS0 quiet panic=-1 mitigations=off random.trust_cpu=on";
/// The same for machines of a segment, which boot beside each other: a busy host makes the kernel's look for broken timers find some.
const OF_SEGMENT: &str = " clocksource=hpet no_timer_check";
/// Number of bytes that are kept of a captured frame: all headers.
const CAPTURED_BYTES: u32 = 128;

/// A virtual machine to boot.
#[derive(Debug, Clone)]
pub struct Vm {
    tools: Vec<String>,
    modules: Vec<String>,
    files: Vec<(String, Vec<u8>)>,
    memory_mib: u32,
    disk: Option<PathBuf>,
    forward: Option<(SocketAddr, u16)>,
    segment: Option<(SocketAddr, u8)>,
    capture: Option<PathBuf>,
}

impl Default for Vm {
    fn default() -> Self {
        Self {
            tools: Vec::new(),
            modules: Vec::new(),
            files: Vec::new(),
            memory_mib: MEMORY_MIB,
            disk: None,
            forward: None,
            segment: None,
            capture: None,
        }
    }
}

impl Vm {
    /// Adds installed programs by name, with their shared libraries.
    pub fn tools<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        self.tools.extend(names.into_iter().map(str::to_owned));
        self
    }

    /// Adds kernel modules by name. They are loaded in this order, with the modules that they need, before the script starts, because
    /// nothing in the machine loads a module on demand.
    pub fn modules<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        self.modules.extend(names.into_iter().map(str::to_owned));
        self
    }

    /// Adds a file with an absolute path that all users can read and execute.
    pub fn file(mut self, path: &str, contents: impl Into<Vec<u8>>) -> Self {
        self.files.push((path.to_owned(), contents.into()));
        self
    }

    /// Adds our binary as `/usr/bin/proofload`.
    ///
    /// # Errors
    /// If there is no binary.
    pub fn proofload(self) -> Result<Self> {
        let path = proofload::binary()?;
        let contents = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(self.file("/usr/bin/proofload", contents))
    }

    /// Sets the memory in MiB; the default is 512.
    pub fn memory_mib(mut self, memory_mib: u32) -> Self {
        self.memory_mib = memory_mib;
        self
    }

    /// Adds a disk, `/dev/vda`, from a server of the Network Block Device protocol on this socket.
    pub fn disk(mut self, socket: &Path) -> Self {
        self.disk = Some(socket.to_owned());
        self.modules(["virtio_pci", "virtio_blk"])
    }

    /// Adds a network device, `eth0`, that only forwards connections from an address of the host to a port of the machine. The script must
    /// give it the address 10.0.2.15/24.
    pub fn forward(mut self, from: SocketAddr, to_port: u16) -> Self {
        self.forward = Some((from, to_port));
        self.modules(["virtio_pci", "virtio_net"])
    }

    /// Adds a network device, after that of [`forward`](Self::forward), that joins the machines with the same multicast group and port.
    /// `number`, from 1, is another one for each of them. Their scripts give them addresses.
    ///
    /// The machine's clock is a timer of QEMU's, which goes exactly as fast as the clock of the host: the processor's counter, which the
    /// kernel would prefer, it has to calibrate first.
    pub fn segment(mut self, group: SocketAddr, number: u8) -> Self {
        self.segment = Some((group, number));
        self.modules(["virtio_pci", "virtio_net"])
    }

    /// Writes the frames of the segment that come to this machine and leave it to a file, in pcap's format, with the times of QEMU's clock.
    pub fn capture(mut self, file: &Path) -> Self {
        self.capture = Some(file.to_owned());
        self
    }

    /// Boots, runs a script for `sh`, and switches off. The machine's files are in a temporary folder, and it dies with this process.
    ///
    /// # Errors
    /// If a part of the machine is missing, if it does not switch off within `timeout` (by the host's clock), or if it crashes before the
    /// script has ended. The error has its output.
    pub fn run(&self, script: &str, timeout: Duration) -> Result<Ran> {
        self.start(script)?.finish(timeout)
    }

    /// The same, without waiting for the end.
    ///
    /// # Errors
    /// If a part of the machine is missing.
    pub fn start(&self, script: &str) -> Result<RunningVm> {
        let qemu = installed("qemu-system-x86_64", "qemu-system-x86")?;
        let kernel = Kernel::fetched()?;
        let folder = TemporaryFolder::new()?;
        let initramfs = folder.file("initramfs");
        fs::write(&initramfs, self.archive(&kernel, script)?).context("cannot write the machine's files")?;
        let kernel_words = KERNEL_WORDS.to_owned() + if self.segment.is_some() { OF_SEGMENT } else { "" };
        let mut launch = Launch::new(qemu.display().to_string())
            .words("-accel tcg -machine pc -cpu qemu64,+rdrand -smp 1")
            .words("-nodefaults -no-user-config -no-reboot -display none")
            .args(["-m", &self.memory_mib.to_string()])
            .args(["-kernel", &kernel.image().display().to_string()])
            .args(["-initrd", &initramfs])
            .args(["-serial", &format!("file:{}", folder.file("console"))])
            .args(["-serial", &format!("file:{}", folder.file("output"))])
            .args(["-append", &kernel_words]);
        if self.disk.is_none() && self.forward.is_none() && self.segment.is_none() {
            launch = launch.words("-icount shift=0,sleep=off");
        }
        if let Some(socket) = &self.disk {
            let drive = format!("file=nbd:unix:{},format=raw,if=virtio,cache=none", socket.display());
            launch = launch.args(["-drive", &drive]);
        }
        launch = match self.forward {
            Some((from, to_port)) => {
                let forward = format!("user,id=n,restrict=on,hostfwd=tcp:{from}-10.0.2.15:{to_port}");
                launch.args(["-netdev", &forward, "-device", "virtio-net-pci,netdev=n,romfile="])
            }
            None => launch.words("-nic none"),
        };
        if let Some((group, number)) = self.segment {
            let joined = format!("socket,id=s,mcast={group},localaddr=127.0.0.1");
            let device = format!("virtio-net-pci,netdev=s,mac=52:54:00:00:01:{number:02x},romfile=");
            launch = launch.args(["-netdev", &joined, "-device", &device]);
            // Hardware goes on whatever else runs beside it. At real-time priority, machines that boot would keep each other from it.
            launch = launch.under(["nice", "-n", "-20"]);
        }
        if let Some(file) = &self.capture {
            let dump = format!("filter-dump,id=d,netdev=s,maxlen={CAPTURED_BYTES},file={}", file.display());
            launch = launch.args(["-object", &dump]);
        }
        let release = kernel.release().to_owned();
        Ok(RunningVm::new(launch.start()?, folder, release))
    }

    fn archive(&self, kernel: &Kernel, script: &str) -> Result<Vec<u8>> {
        let mut archive = Archive::default();
        for folder in ["/dev", "/proc", "/run", "/sys", "/tmp", "/root", "/etc", "/var/tmp", "/busybox"] {
            archive.folder(folder);
        }
        let busybox = installed("busybox", "busybox-static")?;
        if !tools::libraries(&busybox)?.is_empty() {
            bail!("{} is not a static program; install busybox-static", busybox.display());
        }
        archive.host_file("/bin/busybox", &busybox)?;
        // Do not use busybox's shell: it would run its own `tc` and `ip`, whatever the search path says.
        tools::add(&mut archive, "sh")?;
        archive.link("/bin/sh", "../usr/bin/sh");
        for name in &self.tools {
            tools::add(&mut archive, name)?;
        }
        let mut order = String::new();
        for module in kernel.with_needed(&self.modules)? {
            let path = format!("/vm/modules/{}.ko", module.name);
            archive.file(&path, 0o644, module.contents);
            order += &format!("{path}\n");
        }
        for (path, contents) in &self.files {
            archive.file(path, 0o755, contents.clone());
        }
        archive.file("/vm/modules/order", 0o644, order);
        archive.file("/vm/script", 0o644, script);
        archive.file("/init", 0o755, include_str!("vm/init.sh"));
        Ok(archive.finish())
    }
}

fn installed(program: &str, package: &str) -> Result<PathBuf> {
    machine::program(program).with_context(|| {
        format!("{program} is not installed: run scripts/setup.sh test, or install {package}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_runs_in_another_kernel_and_its_output_and_status_come_back() {
        let vm = Vm::default().tools(["tc"]).modules(["sch_netem", "sch_tbf"]).file("/etc/motd", "hello\n");
        let script = "uname -r; cat /etc/motd; tc qdisc add dev lo root netem delay 5ms; echo a >&2; exit 7";
        let ran = vm.run(script, Duration::from_secs(900)).unwrap();
        assert_eq!((ran.output, ran.code), (format!("{}\nhello\na\n", ran.release), 7), "{}", ran.console);
    }

    #[test]
    fn a_machine_has_the_disk_and_the_network_that_it_is_given() {
        let folder = TemporaryFolder::new().unwrap();
        let image = folder.path().join("image");
        fs::write(&image, "on the disk".to_owned() + &"\0".repeat(1_048_576 - 11)).unwrap();
        let disk = crate::nbd::ForgetfulDisk::of_image(&image).unwrap();
        let served = disk.serve(&folder.path().join("disk")).unwrap();
        let address = crate::nginx::free_address().unwrap();
        let vm = Vm::default().disk(served.socket()).forward(address, 80);
        let script = "ifconfig eth0 10.0.2.15 netmask 255.255.255.0 up
            printf flushed | dd of=/dev/vda bs=512 seek=1 conv=fsync
            echo now
            while :; do head -c 11 /dev/vda | nc -w 5 -l -p 80; done";
        let running = vm.start(script).unwrap();
        let mut heard = String::new();
        testing::until("the machine says what is on its disk", || {
            if running.output().contains("now\n")
                && let Ok(mut stream) = std::net::TcpStream::connect(address)
            {
                stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
                let _ = std::io::Read::read_to_string(&mut stream, &mut heard);
            }
            !heard.is_empty()
        });
        assert_eq!(heard, "on the disk", "{}", running.said());
        running.kill().unwrap();
        drop(served);
        assert!(disk.cut(1).flushes > 0);
        disk.write_image(&image).unwrap();
        assert_eq!(fs::read(&image).unwrap()[512..519], *b"flushed");
    }

    #[test]
    fn a_machine_that_does_not_end_is_ended() {
        let refused = Vm::default().run("sleep 100000000", Duration::from_secs(10)).unwrap_err();
        let text = format!("{refused:#}");
        assert!(text.contains("did not end within 10s"), "{text}");
    }

    #[test]
    fn a_module_that_the_kernel_lacks_is_named_before_the_boot() {
        let refused = Vm::default().modules(["nonesuch"]).run("", Duration::from_secs(10)).unwrap_err();
        assert!(refused.to_string().contains("no module nonesuch"), "{refused:#}");
    }
}
