//! Other kernels: boots Debian's kernel in an emulated machine and runs a script there.
//!
//! The machine has one processor, memory, a serial port for the console and one for the script's
//! output. It has no disk and no network. Its whole file system is an archive made for the run: our
//! static binary, busybox, Debian's tools with their libraries, and the kernel's modules.
//!
//! # Time
//! The machine's clock counts instructions, one nanosecond each, and leaps over idle time (QEMU's
//! `-icount`). A busy host makes a run longer, but nothing in it later: delays and rates measured
//! inside do not depend on what else goes on outside.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail};

use crate::{machine, process::Launch, proofload, temporary::TemporaryFolder};

mod archive;
mod kernel;
mod tools;

use archive::Archive;
pub use kernel::Kernel;

/// Memory of the machine unless said otherwise, in MiB.
const MEMORY_MIB: u32 = 512;

/// What the last line of the output starts with; the script's exit status follows.
const STATUS: &str = "vm-exit-status ";

/// The console's last lines that an error shows.
const CONSOLE_LINES: usize = 40;

/// A machine to boot.
#[derive(Debug, Clone)]
pub struct Vm {
    tools: Vec<String>,
    modules: Vec<String>,
    files: Vec<(String, Vec<u8>)>,
    memory_mib: u32,
}

/// A script that ran in a machine to its end.
#[derive(Debug)]
pub struct Ran {
    /// The script's exit status.
    pub code: i32,
    /// All the script wrote, standard output and standard error as they came.
    pub output: String,
    /// What the kernel and its first process said on the console.
    pub console: String,
    /// The kernel's release, as in `6.1.0-56-amd64`.
    pub release: String,
    /// How long it took out here, boot included.
    pub wall: Duration,
}

impl Default for Vm {
    fn default() -> Self {
        Self { tools: Vec::new(), modules: Vec::new(), files: Vec::new(), memory_mib: MEMORY_MIB }
    }
}

impl Vm {
    /// Adds installed programs by their names, with the libraries they are linked with.
    pub fn tools<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        self.tools.extend(names.into_iter().map(str::to_owned));
        self
    }

    /// Adds modules of the kernel by their names. They and what they need are loaded, in this order,
    /// before the script starts: nothing in the machine loads a module on demand.
    pub fn modules<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        self.modules.extend(names.into_iter().map(str::to_owned));
        self
    }

    /// Adds a file at an absolute path, readable and executable for all.
    pub fn file(mut self, path: &str, contents: impl Into<Vec<u8>>) -> Self {
        self.files.push((path.to_owned(), contents.into()));
        self
    }

    /// Adds our binary as `/usr/bin/proofload`.
    ///
    /// # Errors
    /// When there is none.
    pub fn proofload(self) -> Result<Self> {
        let path = proofload::binary()?;
        let contents = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(self.file("/usr/bin/proofload", contents))
    }

    /// Memory in MiB, 512 unless said.
    pub fn memory_mib(mut self, memory_mib: u32) -> Self {
        self.memory_mib = memory_mib;
        self
    }

    /// Boots, runs a script for `sh`, switches off. What the machine needs lies in a temporary folder,
    /// and the machine dies with this process.
    ///
    /// # Errors
    /// When something that it is made of is missing, when it does not switch itself off within
    /// `timeout` (by the clock out here), and when it breaks down before the script has ended; with
    /// what it said.
    pub fn run(&self, script: &str, timeout: Duration) -> Result<Ran> {
        let qemu = installed("qemu-system-x86_64", "qemu-system-x86")?;
        let kernel = Kernel::fetched()?;
        let folder = TemporaryFolder::new()?;
        let initramfs = folder.path().join("initramfs");
        fs::write(&initramfs, self.archive(&kernel, script)?).context("cannot write the machine's files")?;
        let (console, output) = (folder.path().join("console"), folder.path().join("output"));
        let launch = Launch::new(qemu.display().to_string())
            .words("-accel tcg -icount shift=0,sleep=off -machine pc -cpu qemu64,+rdrand -smp 1")
            .words("-nodefaults -no-user-config -no-reboot -display none -nic none")
            .args(["-m", &self.memory_mib.to_string()])
            .args(["-kernel", &kernel.image().display().to_string()])
            .args(["-initrd", &initramfs.display().to_string()])
            .args(["-serial", &format!("file:{}", console.display())])
            .args(["-serial", &format!("file:{}", output.display())])
            .args(["-append", "console=ttyS0 quiet panic=-1 mitigations=off random.trust_cpu=on"]);
        let finished = launch.run(timeout);
        let console = lossy(&console);
        let finished = finished.with_context(|| said(&console, &lossy(&output)))?;
        let all = lossy(&output);
        let Some((output, code)) = parted(&all) else {
            bail!("the machine ended before its script did; {}\n{}", said(&console, &all), finished.stderr);
        };
        Ok(Ran {
            code,
            output: output.to_owned(),
            console,
            release: kernel.release().to_owned(),
            wall: finished.wall,
        })
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
        // busybox's own shell would take its applets for `tc` and `ip`, whatever the search path says.
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

impl Ran {
    /// The output of a script that succeeded.
    ///
    /// # Errors
    /// When its exit status was not 0; with all that was said.
    pub fn succeeded(&self) -> Result<&str> {
        if self.code != 0 {
            bail!("the script's exit status was {}; {}", self.code, said(&self.console, &self.output));
        }
        Ok(&self.output)
    }
}

/// The output without its last line, and the exit status in that line.
fn parted(output: &str) -> Option<(&str, i32)> {
    let (before, status) = output.rsplit_once(STATUS)?;
    Some((before, status.trim_end().parse().ok()?))
}

fn installed(program: &str, package: &str) -> Result<PathBuf> {
    machine::program(program).with_context(|| {
        format!("{program} is not installed: run scripts/setup.sh test, or install {package}")
    })
}

fn lossy(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

fn said(console: &str, output: &str) -> String {
    let lines: Vec<&str> = console.lines().collect();
    let tail = lines[lines.len().saturating_sub(CONSOLE_LINES)..].join("\n");
    format!("the script wrote:\n{output}\nthe end of the console:\n{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_is_the_exit_status() {
        assert_eq!(parted("a\nvm-exit-status 7\n"), Some(("a\n", 7)));
        assert_eq!(parted("no newlinevm-exit-status 0\n"), Some(("no newline", 0)));
        assert_eq!(parted("vm-exit-status 3\nvm-exit-status 4\n"), Some(("vm-exit-status 3\n", 4)));
        assert_eq!(parted("killed in the middle vm-exit-sta"), None);
    }

    #[test]
    fn a_script_runs_in_another_kernel_and_its_output_and_status_come_back() {
        let vm = Vm::default().tools(["tc"]).modules(["sch_netem", "sch_tbf"]).file("/etc/motd", "hello\n");
        let script = "uname -r; cat /etc/motd; tc qdisc add dev lo root netem delay 5ms; echo a >&2; exit 7";
        let ran = vm.run(script, Duration::from_secs(120)).unwrap();
        assert_eq!((ran.output, ran.code), (format!("{}\nhello\na\n", ran.release), 7), "{}", ran.console);
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
