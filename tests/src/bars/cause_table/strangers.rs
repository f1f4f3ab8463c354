//! The cases that users of an earlier version built, with what they found to be true.

use record::Cause::*;

use super::{Kind, Load, Row, Stage, Truth, stage::named, users};
use crate::{nginx::free_address, process::Launch};

/// A busy thread that no request needs: it may be suspected, with the service beside it.
const BUSY_BESIDE: Truth = Truth { first: &[SlowHandler, HotCore], named: &[SlowHandler], ..Truth::SERVICE };
/// The queue was full for a moment at the beginning, which may be said as well.
const SLOW_START: Truth = Truth { uncounted: &[OfferedLoad, HotCore], ..Truth::SERVICE };
const FULL_WORKERS: Truth = Truth { first: &[ConnectionLimit], ..Truth::BOUND };
const CROWDED: Truth =
    Truth { first: &[LacksProcessor], absent: &[OfferedLoad, SlowHandler], ..Truth::BOUND };

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "dbpool",
        // The queues that overflow meanwhile are those of another program.
        truth: Truth { absent: &[OfferedLoad, SynQueue, AcceptQueue, PacketQueue], ..Truth::SERVICE },
        scene: |stage| {
            let (slots, ms) = (stage.draw(2, 5), stage.draw(15, 40));
            overflowing(stage)?;
            Ok(users(stage.target(&format!("pool {slots} {ms}"))?, 16))
        },
    },
    Row {
        name: "single",
        // One user is served without a pause, and all others wait in the accept queue for all of the time.
        truth: FULL_WORKERS,
        scene: |stage| {
            let count = stage.draw(8, 14);
            Ok(users(stage.target("fast --workers 1")?, count))
        },
    },
    Row {
        name: "pool4keep",
        truth: FULL_WORKERS,
        scene: |stage| {
            let workers = stage.draw(3, 5);
            let address = stage.target(&format!("fast --workers {workers}"))?;
            Ok(Load::Http(format!("http://{address}/"), "-u 16 -d 4s --timeout 3s".to_owned()))
        },
    },
    Row {
        name: "bimodal",
        // Most requests are fast because most users are stuck in the slow ones: 10 slow answers/s hold 14 of 16 users.
        truth: Truth::SERVICE,
        scene: |stage| {
            let (percent, ms) = (stage.draw(15, 25), stage.draw(150, 250));
            Ok(users(stage.target(&format!("bimodal {percent} 2 {ms}"))?, 16))
        },
    },
    Row {
        name: "bimodal5",
        // Of the mean of 25 ms, the fast answers have less than 0.1 ms.
        truth: Truth::SERVICE,
        scene: |stage| {
            let ms = stage.draw(400, 600);
            Ok(users(stage.target(&format!("bimodal 5 64 {ms}"))?, 16))
        },
    },
    Row {
        name: "cachemiss",
        // 3,200 slow answers/s at the most need little of a core. The share of the slow ones in a user's time is above 90 %.
        truth: Truth::SERVICE,
        scene: |stage| {
            let ms = stage.draw(40, 80);
            Ok(users(stage.target(&format!("bimodal 10 64 {ms}"))?, 32))
        },
    },
    Row {
        name: "bimodal64",
        truth: Truth::SERVICE,
        scene: |stage| {
            let ms = stage.draw(150, 250);
            Ok(users(stage.target(&format!("bimodal 20 2 {ms}"))?, 64))
        },
    },
    Row {
        name: "stopworld",
        // The program pauses by itself. No signal stops it, and the kernel counts nothing, so nothing may be known.
        truth: Truth { may_be_open: true, ..Truth::SERVICE },
        scene: |stage| {
            let off_ms = stage.draw(800, 900);
            Ok(users(stage.target(&format!("stop {} {off_ms}", 1_000 - off_ms))?, 4))
        },
    },
    Row {
        name: "sigstop",
        truth: Truth { first: &[Stopped], ..Truth::BOUND },
        scene: |stage| {
            let off_ms = stage.draw(700, 800);
            let address = free_address()?;
            let core = stage.cores.server;
            let pid = stage.target_at(address, "fast", |launch| launch.on_core(core))?;
            stopping(stage, pid, 1_000 - off_ms, off_ms)?;
            Ok(users(address, 4))
        },
    },
    Row {
        name: "loss2small",
        // A lost request or answer costs at least 200 ms where the round trip is 2 ms.
        truth: Truth { first: &[PacketLoss], ..Truth::BOUND },
        scene: |stage| {
            let loss = stage.draw(15, 25);
            let link = format!("delay = \"1ms\"\nloss = \"{}.{}%\"", loss / 10, loss % 10);
            Ok(Load::Study(lab(["", ""], &link, "fast", "users = 4")))
        },
    },
    Row {
        name: "slowstart",
        // All connections are there after two seconds of eight.
        truth: SLOW_START,
        scene: |stage| {
            let ms = stage.draw(8, 12);
            let address = stage.target(&format!("lock {ms} --backlog 1 --accept-ms 20"))?;
            Ok(Load::Http(format!("http://{address}/"), "-u 16 -d 8s".to_owned()))
        },
    },
    Row {
        name: "slowstart2",
        truth: SLOW_START,
        scene: |stage| {
            let ms = stage.draw(150, 250);
            let address = stage.target(&format!("sleep {ms} --backlog 1 --accept-ms 20"))?;
            Ok(Load::Http(format!("http://{address}/"), "-u 16 -d 8s".to_owned()))
        },
    },
    Row {
        name: "socatlock",
        truth: SLOW_START,
        scene: |stage| {
            let ms = stage.draw(8, 12);
            let behind = stage.target(&format!("lock {ms}"))?;
            let address = stage.socat(behind)?;
            Ok(Load::Http(format!("http://{address}/"), "-u 16 -d 10s".to_owned()))
        },
    },
    Row { name: "socatcgi", truth: BEHIND_SOCAT, scene: |stage| behind_socat(stage, "4s") },
    Row { name: "socatlong", truth: BEHIND_SOCAT, scene: |stage| behind_socat(stage, "10s") },
    Row {
        name: "think",
        // The target has 0.06 requests at a time. A handler that is 100 times faster changes 9.94/s to 9.99/s.
        truth: Truth { kind: Kind::Healthy, ..Truth::BOUND },
        scene: |stage| {
            let ms = stage.draw(3, 7);
            let address = stage.target(&format!("sleep {ms}"))?;
            Ok(Load::Http(format!("http://{address}/"), "-u 10 -d 4s --think-time 1s".to_owned()))
        },
    },
    Row {
        name: "think_lab",
        truth: Truth { kind: Kind::Healthy, ..Truth::BOUND },
        scene: |stage| {
            let ms = stage.draw(3, 7);
            Ok(Load::Study(lab(PINNED, "", &format!("sleep {ms}"), "users = 10\nthink_time = \"1s\"")))
        },
    },
    Row {
        name: "quotalock",
        truth: BESIDE_QUOTA,
        scene: |stage| {
            let address = free_address()?;
            let pid = stage.target_at(address, QUOTA_LOCK, |launch| launch)?;
            stage.group(None, 10, &[pid])?;
            Ok(users(address, 16))
        },
    },
    Row {
        name: "quotalock_lab",
        truth: BESIDE_QUOTA,
        scene: |_| Ok(Load::Study(lab(["", "cpu_quota = 0.1"], "", QUOTA_LOCK, "users = 16"))),
    },
    Row {
        name: "bgspin",
        truth: BUSY_BESIDE,
        scene: |stage| {
            let ms = stage.draw(8, 15);
            let address = free_address()?;
            stage.target_at(address, &format!("lock {ms} --bgspin"), |launch| launch)?;
            Ok(users(address, 16))
        },
    },
    Row {
        name: "spinwait",
        // The loop runs always, and answers after a time that it does not need.
        truth: BUSY_BESIDE,
        scene: |stage| {
            let ms = stage.draw(8, 15);
            Ok(users(stage.target(&format!("spin {ms}"))?, 16))
        },
    },
    Row {
        name: "hapbusy",
        truth: BUSY_BESIDE,
        scene: |stage| {
            let (ms, behind, core) = (stage.draw(8, 15), free_address()?, stage.cores.generator);
            stage.target_at(behind, &format!("lock {ms}"), |launch| launch.on_core(core))?;
            Ok(users(stage.haproxy(behind, ["busy-polling", "", ""])?, 16))
        },
    },
    Row {
        name: "sameport",
        truth: Truth { stranger: "bystander", absent: &[OfferedLoad, HotCore], ..Truth::SERVICE },
        scene: |stage| {
            let ms = stage.draw(8, 15);
            let address = stage.target(&format!("lock {ms}"))?;
            let other = format!("127.0.0.2:{}", address.port());
            beside_listening(stage, &other)?;
            Ok(users(address, 16))
        },
    },
    Row {
        name: "noise",
        // No request reaches the host `monitor`.
        truth: Truth { place: "web", stranger: "monitor", absent: &[OfferedLoad, HotCore], ..Truth::SERVICE },
        scene: |stage| {
            let ms = stage.draw(8, 15);
            let text = lab(["", ""], "", &format!("lock {ms}"), "users = 16");
            let text = text
                .replace("[[links]]", "monitor = {}\n[[links]]")
                .replace("\"web\"]\n", "\"web\", \"monitor\"]\n");
            Ok(Load::Study(format!("{text}{}", process("monitor", "0.0.0.0:9000 fast --bgspin"))))
        },
    },
    Row {
        name: "obs_other",
        truth: Truth { uncounted: &[HotCore, OfferedLoad], ..Truth::SERVICE },
        scene: |stage| {
            let ms = stage.draw(8, 15);
            let target = process("web", &format!("0.0.0.0:8080 lock {ms}"));
            let other = process("web", "0.0.0.0:9000 fast --bgspin") + "name = \"other\"\n";
            let lab = "[hosts]\nclient = {}\nweb = {}\n[[links]]\nname = \"wire\"\nbetween = [\"client\", \"web\"]\n";
            let sshd = "[[processes]]\non = \"web\"\nrun = \"sshd\"\n";
            Ok(Load::Observed(format!("{lab}{target}{other}{sshd}"), "-u 16 -d 4s".to_owned()))
        },
    },
    Row { name: "neighbour", truth: CROWDED, scene: |stage| crowded(stage, "") },
    // The same with threads that are still there after the trial.
    Row { name: "neighbour_kept", truth: CROWDED, scene: |stage| crowded(stage, " --workers 4") },
    Row {
        name: "gensameclosed",
        // The shared core is full, and the generator takes half of it.
        truth: Truth::INSTRUMENT,
        scene: |stage| {
            let url = stage.page()?;
            let core = stage.cores.server;
            Ok(Load::Anywhere(url, format!("-u 16 -d 4s --threads 1 --cpus {core}")))
        },
    },
    Row {
        name: "nestquota2",
        // The group above is used up by a sibling. The target's own group is not throttled, the processors are idle.
        truth: Truth { first: &[CpuQuota], uncounted: &[HotCore, OfferedLoad], ..Truth::BOUND },
        scene: |stage| {
            let (above, address) = (stage.draw(16, 24), free_address()?);
            let pid = stage.target_at(address, "burn 2000", |launch| launch)?;
            let sibling = stage.beside(Launch::new("sh").args(["-c", "while :; do :; done"]))?;
            let group = stage.group(None, above, &[])?;
            stage.group(Some(group), above - 2, &[pid])?;
            stage.group(Some(group), above, &[sibling])?;
            Ok(users(address, 8))
        },
    },
    Row {
        name: "nagle",
        truth: Truth { first: &[DelayedAck], ..Truth::BOUND },
        scene: |stage| {
            let count = stage.draw(2, 16);
            Ok(users(stage.target("fast --two-writes --big 200")?, count))
        },
    },
    Row {
        name: "genrmem",
        // The place is where the window is too small: at the load.
        truth: Truth { first: &[ReceiveWindow, Generator], place: "client", ..Truth::BOUND },
        scene: |stage| {
            let (kib, delay_ms) = (stage.draw(64, 128), stage.draw(20, 40));
            let (hosts, link) =
                ([&*format!("tcp_rmem = \"{kib}KiB\""), ""], format!("delay = \"{delay_ms}ms\""));
            Ok(Load::Study(lab(hosts, &link, "fast --big 20000000", "users = 2")))
        },
    },
    Row {
        name: "rcvbufup",
        truth: Truth { first: &[ReceiveWindow], place: "web", ..Truth::BOUND },
        scene: |stage| {
            let (bytes, delay_ms) = (stage.draw(8_000, 16_000), stage.draw(8, 15));
            let load = format!("users = 2\nmethod = \"POST\"\nbody = \"{}\"", "x".repeat(300_000));
            let link = format!("delay = \"{delay_ms}ms\"");
            Ok(Load::Study(lab(["", ""], &link, &format!("fast --rcvbuf {bytes}"), &load)))
        },
    },
    Row {
        name: "foreigncookies",
        truth: Truth { absent: &[OfferedLoad, SynQueue, AcceptQueue, PacketQueue], ..Truth::SERVICE },
        scene: |stage| {
            let ms = stage.draw(15, 25);
            let other = process("local", "127.0.0.1:7397 fast --backlog 1 --close --accept-ms 1");
            let ab = "[[processes]]\non = \"local\"\nmay_end = true\ncommand = [\"sh\", \"-c\", \
                      \"sleep 1; exec ab -r -q -t 20 -c 64 http://127.0.0.1:7397/\"]\n";
            Ok(Load::Study(format!(
                "title = \"causes\"\n[targets.web]\nport = 8080\nready = \"tcp:8080\"\n\
                 command = [\"SLOW\", \"127.0.0.1:8080\", \"lock\", \"{ms}\"]\n\
                 [workload.http]\ntarget = \"web\"\nduration = \"4s\"\nusers = 16\n[trial]\nvoid_attempts = 2\n{other}{ab}"
            )))
        },
    },
];

/// All processes together work at the core without a pause, and nearly all of it is the burning behind.
const BEHIND_SOCAT: Truth = Truth { first: &[HotCore], ..Truth::BOUND };

fn behind_socat(stage: &mut Stage, duration: &str) -> anyhow::Result<Load> {
    let us = stage.draw(800, 1_500);
    let behind = stage.target(&format!("burn {us}"))?;
    let address = stage.socat(behind)?;
    Ok(Load::Http(format!("http://{address}/"), format!("-u 16 -d {duration}")))
}

/// A lock of 20 ms, and a background thread that uses up the quota for less than a tenth of the time.
const QUOTA_LOCK: &str = "lock 20 --bgburn-ms 900 14";
/// The quota costs 8 %, and may be named after the lock.
const BESIDE_QUOTA: Truth = Truth { uncounted: &[OfferedLoad, HotCore], ..Truth::SERVICE };

/// Four threads that compute share a core with twelve other programs: they get about a quarter of it.
fn crowded(stage: &mut Stage, workers: &str) -> anyhow::Result<Load> {
    let us = stage.draw(400, 800);
    let address = stage.target(&format!("burn {us}{workers}"))?;
    for _ in 0..12 {
        stage.spinner(stage.cores.server)?;
    }
    Ok(users(address, 4))
}

/// Keys of the hosts that give each its own processor.
pub(super) const PINNED: [&str; 2] = ["cpus = \"CLIENT\"", "cpus = \"SERVER\""];

/// A study of a `slow_target` with these words on the host `web`, with keys of the hosts `client` and `web`.
pub(super) fn lab([client, web]: [&str; 2], link: &str, target: &str, load: &str) -> String {
    let words: String = target.split_whitespace().map(|word| format!(", \"{word}\"")).collect();
    format!(
        "title = \"causes\"\n[hosts]\nclient = {{ {client} }}\nweb = {{ {web} }}\n\
         [[links]]\nname = \"wire\"\nbetween = [\"client\", \"web\"]\n{link}\n\
         [targets.web]\non = \"web\"\nport = 8080\nready = \"tcp:8080\"\n\
         command = [\"SLOW\", \"0.0.0.0:8080\"{words}]\n\
         [workload.http]\nfrom = \"client\"\ntarget = \"web\"\nduration = \"4s\"\n{load}\n[trial]\nvoid_attempts = 2\n"
    )
}

/// A `slow_target` with these words on a host, beside the target.
pub(super) fn process(on: &str, words: &str) -> String {
    let words: String = words.split_whitespace().map(|word| format!(", \"{word}\"")).collect();
    format!("[[processes]]\non = \"{on}\"\ncommand = [\"SLOW\"{words}]\n")
}

/// Stops a process in turn with letting it run, until the row ends. It runs when this ends.
pub(super) fn stopping(stage: &mut Stage, pid: u32, on_ms: u64, off_ms: u64) -> anyhow::Result<()> {
    let [on_s, off_s] = [on_ms, off_ms].map(|ms| ms as f64 / 1e3);
    let script = format!(
        "trap 'kill -CONT {pid}; exit' TERM; while :; do kill -STOP {pid}; sleep {off_s}; kill -CONT {pid}; sleep {on_s}; done"
    );
    stage.beside(Launch::new("sh").args(["-c", &script]))?;
    Ok(())
}

/// Another program that listens there, and computes all the time.
pub(super) fn beside_listening(stage: &mut Stage, address: &str) -> anyhow::Result<()> {
    let (program, core) = (stage.bystander()?, stage.cores.server);
    let launch = Launch::new(program).arg(address).words("fast --bgspin");
    stage.start(launch.on_core(core), |process| process.stdout().contains("listening"))?;
    Ok(())
}

/// Another program whose accept queue of one overflows, with clients of its own.
pub(super) fn overflowing(stage: &mut Stage) -> anyhow::Result<()> {
    let (program, address) = (stage.bystander()?, free_address()?);
    let launch = Launch::new(program).arg(address.to_string());
    let launch = launch.words("fast --backlog 1 --close --accept-ms 2");
    stage.start(launch, |process| process.stdout().contains("listening"))?;
    let clients = format!("-r -q -t 20 -c 32 http://{address}/");
    stage.beside(Launch::new(named("ab")?).words(&clients))?;
    Ok(())
}
