//! What becomes of every kind of frame, byte for byte, and what is counted: the program runs on frames without a network, once as
//! cls_bpf and once as XDP.

mod flows;
mod fragments;
mod frames;
mod table;
mod world;

/// Loading programs and running them on frames takes rights that not every user has.
fn may_load() -> bool {
    let may = std::fs::metadata("/sys/kernel/btf/vmlinux").is_ok() && is_root();
    if !may {
        println!("not run: only root may load BPF programs");
    }
    may
}

fn is_root() -> bool {
    std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").unwrap()) == 0
}
