//! Loads the program and runs it on frames.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use aya::{
    Ebpf, EbpfLoader, include_bytes_aligned,
    maps::MapInfo,
    programs::{ProgramError, SchedClassifier, TestRun, TestRunOptions, Xdp, links::FdLink},
};

use files::{Folder, Trust};
use undo::BALANCER_PROGRAM as NAME;

use crate::{Device, Error, Table, layout::TABLES};

/// `bpf/build.sh` compiles these objects from `bpf/l2dsr.bpf.c`.
const CLS: &[u8] = include_bytes_aligned!("../bpf/l2dsr_cls.bpf.o");
const XDP: &[u8] = include_bytes_aligned!("../bpf/l2dsr_xdp.bpf.o");

/// Where the program processes a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    /// After the kernel has built a packet from the frame. This works on every device and is the best choice on veth
    /// and bridges.
    Cls,
    /// In the driver, before the kernel builds a packet. This is the best choice on hardware.
    Xdp,
}

impl Hook {
    /// Its name in files.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Cls => "cls",
            Self::Xdp => "xdp",
        }
    }

    /// The best hook for a device: XDP on hardware, otherwise cls.
    pub(crate) fn for_device(device: &Device) -> Self {
        if device.link.kind.is_none() { Self::Xdp } else { Self::Cls }
    }
}

/// Number of entries of the tables. Pinned tables keep the sizes with which they were created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sizes {
    /// Number of established flows.
    pub flows: u32,
    /// Number of handshakes in progress: as many as begin during one handshake.
    pub pending: u32,
    /// Number of source addresses with persistence.
    pub sources: u32,
    /// Number of packets in fragments.
    pub fragments: u32,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { flows: 262_144, pending: 65_536, sources: 65_536, fragments: 16_384 }
    }
}

/// The program in the kernel.
#[derive(Debug)]
pub struct Program {
    ebpf: Ebpf,
    pub(crate) hook: Hook,
    /// The identifier of the program in the kernel.
    pub(crate) number: u32,
    /// Keeps the program attached to a device if the attachment is not pinned.
    pub(crate) link: Option<FdLink>,
}

/// The result of running the program on a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    /// The action that the program returned to tc or XDP.
    pub action: u32,
    /// The frame after the run.
    pub frame: Vec<u8>,
    /// Duration of one run.
    pub duration: Duration,
}

impl Program {
    /// Loads the program with its tables. With a folder of the BPF file system, the tables are pinned in it. Tables
    /// that are already pinned there are used again, so that this program continues with their contents.
    ///
    /// # Errors
    /// If this user's rights or this kernel do not allow it, or another version made the pinned tables.
    pub fn load(hook: Hook, sizes: &Sizes, pins: Option<&Path>) -> Result<(Self, Table), Error> {
        let object = match hook {
            Hook::Cls => CLS,
            Hook::Xdp => XDP,
        };
        let paths: Vec<(&str, PathBuf)> =
            pins.into_iter().flat_map(|pins| TABLES.map(|(name, ..)| (name, pins.join(name)))).collect();
        if let Some(pins) = pins {
            let made = Folder::make(pins, Trust::OwnersOnly);
            made.map_err(|error| Error::new(format!("use the folder {}", pins.display()), &error))?;
            check_pinned(pins)?;
        }
        let mut loader = EbpfLoader::new();
        loader.map_max_entries("flows", sizes.flows).map_max_entries("pending", sizes.pending);
        loader.map_max_entries("sources", sizes.sources).map_max_entries("fragments", sizes.fragments);
        for (name, path) in &paths {
            loader.map_pin_path(name, path.as_path());
        }
        let loaded =
            loader.load(object).map_err(|error| Error::new("load the tables of the balancer", &error));
        let mut program = Self { ebpf: loaded?, hook, number: 0, link: None };
        let table = Table::of(&mut program.ebpf)?;
        let loaded = match hook {
            Hook::Cls => program.cls().map(|cls| cls.load().and_then(|()| cls.info()))?,
            Hook::Xdp => program.xdp().map(|xdp| xdp.load().and_then(|()| xdp.info()))?,
        };
        program.number = loaded.map_err(|error| Error::new("load the program of the balancer", &error))?.id();
        Ok((program, table))
    }

    /// Runs the program on a frame `repeat` times, each time on the result of the previous run.
    ///
    /// # Errors
    /// If the kernel refuses, for example a frame that is shorter than an Ethernet header.
    pub fn run(&self, frame: &[u8], repeat: u32) -> Result<Ran, Error> {
        let mut out = vec![0; frame.len() + 64];
        let options = TestRunOptions {
            data_in: Some(frame),
            data_out: Some(&mut out),
            repeat,
            ..TestRunOptions::default()
        };
        let program = self.ebpf.program(NAME).ok_or_else(no_program)?;
        let ran = match self.hook {
            Hook::Cls => <&SchedClassifier>::try_from(program).and_then(|program| program.test_run(options)),
            Hook::Xdp => <&Xdp>::try_from(program).and_then(|program| program.test_run(options)),
        };
        let ran = ran.map_err(|error| Error::new("run the program on a frame", &error))?;
        out.truncate(ran.data_size_out as usize);
        Ok(Ran { action: ran.return_value, frame: out, duration: ran.duration })
    }

    pub(crate) fn cls(&mut self) -> Result<&mut SchedClassifier, Error> {
        self.ebpf.program_mut(NAME).ok_or_else(no_program)?.try_into().map_err(of_other_kind)
    }

    pub(crate) fn xdp(&mut self) -> Result<&mut Xdp, Error> {
        self.ebpf.program_mut(NAME).ok_or_else(no_program)?.try_into().map_err(of_other_kind)
    }
}

/// Checks that the entries of the pinned tables have the sizes of this version.
fn check_pinned(pins: &Path) -> Result<(), Error> {
    for (name, key, value) in TABLES {
        let path = pins.join(name);
        if !path.exists() {
            continue;
        }
        let info = MapInfo::from_pin(&path);
        let info = info.map_err(|error| Error::new(format!("open {}", path.display()), &error))?;
        if (info.key_size() as usize, info.value_size() as usize) != (key, value) {
            return Err(Error::OtherVersion { path: pins.to_owned(), name });
        }
    }
    Ok(())
}

/// Describes the tables of a folder that were created with other sizes.
pub(crate) fn other_sizes(pins: &Path, sizes: &Sizes) -> Vec<String> {
    let wanted = [
        ("flows", sizes.flows),
        ("pending", sizes.pending),
        ("sources", sizes.sources),
        ("fragments", sizes.fragments),
    ];
    let other = |(name, wanted): (&str, u32)| {
        let there = MapInfo::from_pin(pins.join(name)).ok()?.max_entries();
        (there != wanted).then(|| format!("{name} has {there} entries, not {wanted}"))
    };
    wanted.into_iter().filter_map(other).collect()
}

fn no_program() -> Error {
    Error::Kernel { what: format!("use the BPF object {NAME}"), cause: "it has no such program".to_owned() }
}

fn of_other_kind(error: ProgramError) -> Error {
    Error::new(format!("use the program {NAME} of the BPF object"), &error)
}
