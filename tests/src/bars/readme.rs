//! The commands of the guide work exactly as printed.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
};

use anyhow::{Context, Result, ensure};
use testing::PATIENCE;

use super::{Bar, By, Outcome, Scale, seconds};
use crate::{
    lab::{Labs, SshdFolder},
    process::{Finished, Launch, Process, children_of},
    proofload::binary,
    temporary::TemporaryFolder,
};

pub(super) const BAR: Bar = Bar {
    name: "readme",
    what: "every block of the guide as typed, in a lab where 10.0.0.3 is `serve` and sshd (sample: those of at most 10 s)",
    full_seconds: 1_400,
    decided_by: By::Counts,
    run,
};

/// The lab that has the guide's addresses.
const LAB: &str = r#"
title = "readme"
[hosts]
client = {}
server = {}
[[links]]
between = ["client", "server"]
segment = true
network = "10.0.0.0/24"
addresses = { client = "10.0.0.2", server = "10.0.0.3" }
[[processes]]
on = "server"
run = "serve"
port = 80
[[processes]]
on = "server"
run = "sshd"
"#;

/// The configuration of the guide's balancer: its VIP, and the server that the guide calls web3.
const BALANCE: &str = "device = \"eth0\"\n[[vips]]\naddress = \"192.168.16.100\"\nport = 80\ncheck = { kind = \"none\" }\n\
                       [[vips.servers]]\nname = \"web3\"\naddress = \"10.0.0.3\"\n";

/// A prelude for each block. Its function `proofload` does what a reader would do: it waits until a command that runs until Ctrl-C is
/// ready, and ends it when the block ends or starts another one. All other commands must end with a valid exit status.
const READER: &str = r#"
set -e -o pipefail
service=""
end() {
    [[ -n $service ]] || return 0
    # A command of the block may have ended it.
    kill -INT "$service" 2>/dev/null || true
    local status=0
    wait "$service" || status=$?
    # A link is not certified where the processors are busy.
    [[ $status == [03] ]] || { echo "ended with $status:"; cat said; exit 91; }
    service=""
}
proofload() {
    case "$1 $2" in
    serve* | listen* | link* | "lab up" | "balance --config")
        end
        # What an earlier one said must not be taken for this one's.
        : >said
        command proofload "$@" >said 2>&1 &
        service=$!
        for _ in {1..1200}; do
            grep -qE "^listening on|listening on.*storing in|^ready in|^link ready|ready: balancing" said && return
            kill -0 "$service" 2>/dev/null || break
            sleep 0.05
        done
        echo "not ready:"; cat said; exit 90 ;;
    esac
    local status=0
    command proofload "$@" || status=$?
    # A crowded machine may leave nothing to conclude; a comparison, a goal or a check may be answered by no.
    case "$1 $status" in *" 0" | "http 3" | "wrk 3" | "ab 3" | "limit "[13] | "run "[13] | "compare "[13] | "host 1") return 0 ;; esac
    echo "ended with $status: proofload $*"
    exit 92
}
"#;

/// A block of the guide: its heading, and the lines to type.
struct Block {
    heading: String,
    script: String,
}

impl Block {
    /// Whether all its commands take at most 10 s and need no files of a longer block.
    fn is_short(&self) -> bool {
        let is_long = |line: &str| {
            let has = |part: &str| line.contains(part);
            let loads = has("proofload http") && (has("0s") || has("-d ")) && !has("-n ");
            has("results/") || has("proofload limit") || (has("proofload run") && !has("--dry-run")) || loads
        };
        !self.script.replace("\\\n", " ").lines().any(is_long)
    }
}

/// The guide's indented blocks, in order.
fn blocks(guide: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let (mut heading, mut is_open) = ("", false);
    // Skip fenced blocks, which show outputs and files.
    let outside = guide.split("\n```").step_by(2).flat_map(str::lines);
    for line in outside {
        if let Some(text) = line.strip_prefix("## ") {
            heading = text;
        }
        match line.strip_prefix("    ") {
            Some(typed) if is_open => blocks.last_mut().expect("it is open").script += &format!("{typed}\n"),
            Some(typed) => blocks.push(Block { heading: heading.to_owned(), script: format!("{typed}\n") }),
            // An empty line does not end a block.
            None if line.is_empty() => continue,
            None => {}
        }
        is_open = line.starts_with("    ");
    }
    blocks
}

fn run(scale: Scale) -> Result<Outcome> {
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize()?;
    let blocks = blocks(&fs::read_to_string(tree.join("docs/guide.md"))?);
    ensure!(blocks.len() > 12, "only {} blocks were found in the guide", blocks.len());
    let folder = TemporaryFolder::new()?;
    for name in ["studies", "docs"] {
        symlink(tree.join(name), folder.path().join(name))?;
    }
    fs::write(folder.path().join("balance.toml"), BALANCE)?;
    fs::create_dir(folder.path().join("bin"))?;
    symlink(binary()?, folder.path().join("bin/proofload"))?;
    let _sshd = SshdFolder::made()?;
    let labs = Labs::new()?;
    let file = labs.file("readme.toml", LAB)?;
    let (up, _) = labs.up(&file)?;
    let run_folder = up.stdout();
    let run_folder = run_folder.lines().find_map(|line| line.strip_prefix("files and logs in "));
    // Makes `ssh` use the lab's configuration, as a reader's own would.
    let ssh = folder.path().join("bin/ssh");
    let config = format!("{}/ssh_config", run_folder.context("the lab names no folder")?);
    fs::write(&ssh, format!("#!/bin/sh\nexec /usr/bin/ssh -F {config} \"$@\"\n"))?;
    fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755))?;
    let mut shell = labs.command("lab shell client -- sleep 1h")?.start()?;
    let inside = child_of(&mut shell)?;
    let mut outcome = Outcome::default();
    for (number, block) in blocks.iter().enumerate() {
        if scale != Scale::Full && !block.is_short() {
            continue;
        }
        let script = format!("{READER}\n{}\nend\nkill $(jobs -p) 2>/dev/null || true\n", block.script);
        fs::write(folder.path().join("block.sh"), script)?;
        // Run this block outside, because a lab within a lab cannot choose an algorithm that the machine does not allow.
        let inside = (!block.script.contains("ocean-path")).then_some(inside);
        let finished = typed(inside, folder.path())?;
        let works = finished.code == Some(0);
        outcome.holds(&format!("block_{}", number + 1), works, &block.heading);
        if !works {
            outcome.note(format!("{}\n{}\n{}", block.script, finished.stdout, finished.stderr));
        }
    }
    labs.down(up)?;
    Ok(outcome)
}

/// The process id of a process's only child, after waiting until it exists.
fn child_of(process: &mut Process) -> Result<u32> {
    let pid = process.pid();
    process.find("it has a child", PATIENCE, |_| children_of(pid).first().copied())
}

/// Runs the block in the network of the process `inside`, if given. Labs get a new state folder, because the lab's own would refuse labs
/// within it.
fn typed(inside: Option<u32>, folder: &Path) -> Result<Finished> {
    let path = std::env::var("PATH").context("there is no search path")?;
    let folder = folder.display();
    let begin = format!(
        "cd {folder}; export PATH={folder}/bin:{path} PROOFLOAD_STATE_DIR={folder}/state GITHUB_STEP_SUMMARY=summary.md; \
         ulimit -n $(ulimit -Hn); exec bash block.sh"
    );
    let bash = match inside {
        Some(inside) => Launch::new("nsenter").words(&format!("-t {inside} -n bash")),
        None => Launch::new("bash"),
    };
    bash.arg("-c").arg(begin).run(seconds(900))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_read_as_they_are_typed() {
        let guide = "# x\n\n## One\n\n    a \\\n        b\n\n    c\n\n```\n$ x\n    y\n```\n\ntext\n\n    proofload http URL -d 30s\n";
        let blocks = blocks(guide);
        let scripts: Vec<&str> = blocks.iter().map(|block| block.script.as_str()).collect();
        assert_eq!(scripts, ["a \\\n    b\nc\n", "proofload http URL -d 30s\n"]);
        assert_eq!((blocks[0].is_short(), blocks[1].is_short()), (true, false));
        assert_eq!(blocks[1].heading, "One");
    }
}
