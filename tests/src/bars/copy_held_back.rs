//! `proofload copy` names what limits a copy.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use testing::PATIENCE;

use super::{
    Bar, By, Outcome, Scale, is_wanted,
    verdict_table::{Slow, SlowDisk},
};
use crate::{
    lab::{Labs, SshdFolder},
    process::Launch,
    random::Random,
    temporary::TemporaryFolder,
};

pub(super) const BAR: Bar = Bar {
    name: "copy-held-back",
    what: "socket buffers of 2 MB, 0.1 % packet loss, no link at all, a slow disk of the target, a server with small windows (dropbear), \
           a limit that was asked for, and a link that is full: each drawn 5 times, uploads and downloads in turn, named rightly each time",
    full_seconds: 900,
    decided_by: By::Times,
    run,
};

/// Size of a source file. A case that needs several files uses hard links to one.
const FILE_BYTES: u64 = 100_000_000;
const TUNED: &str = "tcp_rmem = \"64MB\", tcp_wmem = \"64MB\"";

/// A bottleneck that the test builds.
struct Case {
    cause: &'static str,
    /// Settings of both hosts.
    hosts: &'static str,
    /// Settings of the link, except its delay.
    link: &'static str,
    /// Smallest and largest one-way delay, in milliseconds.
    delay_ms: [u64; 2],
    files: usize,
    words: &'static str,
    server: Server,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Server {
    Openssh,
    /// OpenSSH with a disk that writes slowly.
    SlowDisk,
    Dropbear,
}

const CASES: [Case; 7] = [
    Case {
        cause: "ssh_window",
        hosts: TUNED,
        link: "rate = \"1gbit\"\nqueue = \"2bdp\"\n",
        delay_ms: [30, 50],
        files: 2,
        words: "",
        server: Server::Dropbear,
    },
    Case {
        cause: "socket_buffer",
        hosts: "tcp_rmem = \"2MB\", tcp_wmem = \"2MB\"",
        link: "rate = \"1gbit\"\nqueue = \"2bdp\"\n",
        delay_ms: [100, 120],
        files: 6,
        words: "",
        server: Server::Openssh,
    },
    Case {
        cause: "congestion_window",
        hosts: TUNED,
        link: "rate = \"1gbit\"\nqueue = \"2bdp\"\nloss = \"0.1%\"\n",
        delay_ms: [60, 120],
        files: 2,
        words: "",
        server: Server::Openssh,
    },
    Case {
        cause: "processor",
        hosts: TUNED,
        link: "",
        delay_ms: [0, 0],
        files: 25,
        words: "--no-fsync",
        server: Server::Openssh,
    },
    Case {
        cause: "target_disk",
        hosts: TUNED,
        link: "",
        delay_ms: [1, 2],
        files: 3,
        words: "",
        server: Server::SlowDisk,
    },
    Case {
        cause: "asked",
        hosts: TUNED,
        link: "",
        delay_ms: [10, 30],
        files: 1,
        words: "-l 100000",
        server: Server::Openssh,
    },
    Case {
        cause: "path",
        hosts: TUNED,
        link: "rate = \"200mbit\"\nqueue = \"2bdp\"\n",
        delay_ms: [20, 60],
        files: 3,
        words: "",
        server: Server::Openssh,
    },
];

fn run(scale: Scale) -> Result<Outcome> {
    let _sshd = SshdFolder::made()?;
    let place = TemporaryFolder::new()?;
    let source = place.path().join("source");
    Launch::new("sh")
        .args(["-c", &format!("head -c {FILE_BYTES} /dev/urandom > {}", source.display())])
        .run(PATIENCE)?;
    let mut outcome = Outcome::default();
    let (cases, runs) = scale.pick((&CASES[..1], 1), (&CASES[..], 5));
    for case in cases.iter().filter(|case| is_wanted(case.cause)) {
        let mut right = 0;
        for number in 0..runs {
            let mut random = Random::new(number);
            let (cause, evidence) = held_back(case, &source, number, &mut random)?;
            right += u64::from(cause == case.cause);
            outcome.note(format!("{} {number}: {cause}: {evidence}", case.cause));
        }
        outcome.time().equal(case.cause, right, runs, "named rightly");
    }
    Ok(outcome)
}

/// Runs a copy, and returns the cause that it names with the evidence.
fn held_back(case: &Case, source: &Path, number: u64, random: &mut Random) -> Result<(String, String)> {
    let labs = Labs::new()?;
    let [least, most] = case.delay_ms;
    let delay_ms = least + random.below(most - least + 1);
    let Case { hosts, link, .. } = case;
    let server = match case.server {
        Server::Dropbear => dropbear(&labs)?,
        // Keeps root's shell start files out of the test.
        _ => {
            "run = \"sshd\"\nconfig = \"debian\"\nargs = [\"-o\", \"SetEnv=HOME=/nonexistent\"]\n".to_owned()
        }
    };
    let text = format!(
        "[hosts]\nclient = {{ {hosts} }}\nserver = {{ {hosts} }}\n\
         [[links]]\nname = \"wire\"\nbetween = [\"client\", \"server\"]\n{link}delay = \"{delay_ms}ms\"\n\
         [[processes]]\nname = \"ssh\"\non = \"server\"\n{server}"
    );
    let file = labs.file("lab.toml", &text)?;
    let is_slow = case.server == Server::SlowDisk;
    let slow = is_slow.then(|| SlowDisk::made(Slow::Bytes(20_000_000))).transpose()?;
    let (running, _) = labs.up_in_group(&file, slow.as_ref().map(|_| SlowDisk::GROUP))?;
    let said = running.stdout();
    let folder =
        said.lines().find_map(|line| line.strip_prefix("files and logs in ")).context("no folder")?;
    let config = match case.server {
        Server::Dropbear => labs.path("ssh_config"),
        _ => format!("{folder}/ssh_config"),
    };
    let (from, to) = (PathBuf::from(labs.path("from")), labs.path("to"));
    fs::create_dir(&from)?;
    for name in 0..case.files {
        fs::hard_link(source, from.join(name.to_string()))?;
    }
    let (from, json) = (from.display().to_string(), labs.path("report.json"));
    let program = crate::proofload::binary()?.display().to_string();
    // Small windows and a slow disk only matter if the server receives.
    let is_up = number.is_multiple_of(2) || case.server != Server::Openssh;
    let ends = if is_up { [from, format!("server:{to}")] } else { [format!("server:{from}"), to] };
    let words = format!(
        "lab shell client -- {program} copy -F {config} -rq --no-resume --no-verify --json {json} {}",
        case.words
    );
    let finished = labs.command(&words)?.args(ends).run(PATIENCE)?;
    labs.down(running)?;
    ensure!(finished.code == Some(0), "{}{}", finished.stdout, finished.stderr);
    let report: Value = serde_json::from_str(&fs::read_to_string(json)?)?;
    let held = &report["held_back"];
    let way = if is_up { "up" } else { "down" };
    let words = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Ok((words(&held["cause"]), format!("{way}, {delay_ms} ms: {}", words(&held["evidence"]))))
}

/// A server with windows of 64 KiB and a private home for root.
fn dropbear(labs: &Labs) -> Result<String> {
    let [host_key, key, script, config] =
        ["host_key", "key", "serve", "ssh_config"].map(|name| labs.path(name));
    let made = |words: String| -> Result<()> {
        let finished = Launch::new("sh").args(["-c", &words]).run(PATIENCE)?;
        ensure!(finished.code == Some(0), "{words}: {}", finished.stderr);
        Ok(())
    };
    made(format!("dropbearkey -t ed25519 -f {host_key} && ssh-keygen -q -t ed25519 -N '' -f {key}"))?;
    fs::write(
        &script,
        format!(
            "mount -t tmpfs -o mode=700 none /root && mkdir -m 700 /root/.ssh && cp {key}.pub /root/.ssh/authorized_keys && \
             exec dropbear -F -E -s -p 22 -P '' -r {host_key} -W 65536\n"
        ),
    )?;
    fs::write(
        config,
        format!(
            "Host server\nHostName 10.1.0.2\nUser root\nIdentityFile {key}\nIdentitiesOnly yes\n\
             StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nBatchMode yes\n"
        ),
    )?;
    Ok(format!("command = [\"unshare\", \"--mount\", \"sh\", \"{script}\"]\nready = \"tcp:22\"\n"))
}
