//! `proofload copy` beside the programs that copy over ssh, on the path of the bar `copy-ocean` and on loopback.

use anyhow::Result;
use proofload_tests::{
    copying::{Copied, CopyPath, Way},
    machine::program,
};

use crate::figure::Figure;

/// The figures: MB/s of whole commands, login included; and on loopback, processor time of both sides as well.
pub(crate) const NAMES: [&str; 2] = ["copy-ocean", "copy-loopback"];

const PEERS: [&str; 5] = ["scp", "sftp", "rsync", "rclone", "lftp"];

/// Measures one of them. Returns whether every program copied in every round.
///
/// # Errors
/// If a path cannot be made.
pub(crate) fn measure(name: &str, rounds: u32) -> Result<bool> {
    let is_ocean = name == NAMES[0];
    let host = "tcp_rmem = \"64MB\", tcp_wmem = \"64MB\"";
    let (rate_mbit, bytes) = if is_ocean { (Some(1_000), 64_000_000) } else { (None, 1_000_000_000) };
    println!(
        "\n== {name}: {} MB to Debian's sshd, whole commands, every program with its defaults",
        bytes / 1_000_000
    );
    let path = CopyPath::up(rate_mbit, host, "delay = \"114ms\"", 3 * bytes)?;
    path.make("file", bytes)?;
    let mut rate = Figure::more_is_better(name, "MB/s");
    let mut cpu = Figure::new(format!("{name}-cpu"), "s/GB");
    let mut all_copied = true;
    for round in 1..=rounds {
        for tool in ["ours"].into_iter().chain(PEERS) {
            let copied = run(&path, tool);
            match &copied {
                Ok(copied) => println!(
                    "   round {round} {tool:<6} {:.2} s, {:.2} processor seconds",
                    copied.wall_s, copied.cpu_s
                ),
                Err(error) => println!("   round {round} {tool:<6} void: {error:#}"),
            }
            all_copied &= copied.is_ok();
            let copied = copied.ok();
            rate.push(tool, copied.as_ref().map(|copied| bytes as f64 / 1e6 / copied.wall_s));
            cpu.push(tool, copied.map(|copied| copied.cpu_s * 1e9 / bytes as f64));
        }
    }
    print!("{}", rate.lines());
    if !is_ocean {
        print!("{}", cpu.lines());
    }
    path.down()?;
    Ok(all_copied)
}

fn run(path: &CopyPath, tool: &'static str) -> Result<Copied> {
    let [from, to] = path.places(Way::Up, "file", "copy")?;
    let there = to.strip_prefix("server:").unwrap_or(&to);
    anyhow::ensure!(tool == "ours" || program(tool).is_some(), "{tool} is missing: scripts/setup.sh bench");
    match tool {
        "ours" => path.copy("", Way::Up, "file", "copy"),
        "scp" => path.scp("", Way::Up, "file", "copy"),
        "sftp" => {
            path.run(&["sh", "-c", &format!("echo put {from} {there} | sftp -q -F {{config}} -b - server")])
        }
        "rsync" => path.run(&["rsync", "-e", "ssh -F {config}", &from, &to]),
        "rclone" => {
            let [host, port, key] = ["HostName", "Port", "IdentityFile"].map(|name| path.ssh_setting(name));
            let remote = format!(":sftp,user=root,host={},port={},key_file={}:{there}", host?, port?, key?);
            path.run(&["rclone", "--config", "/dev/null", "copyto", &from, &remote])
        }
        _ => {
            let script = format!(
                "set sftp:connect-program 'ssh -a -x -F {{config}}'; set net:max-retries 1; put {from} -o {there}; bye"
            );
            path.run(&["lftp", "-e", &script, "sftp://root:none@server"])
        }
    }
}
