//! Kernel settings: `host check` judges a published file correctly, and restoring after a tuning works even if the tuning was killed.

use std::{
    collections::BTreeMap,
    fs, thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::Value;
use testing::PATIENCE;

use super::{Bar, By, Outcome, Scale};
use crate::{
    process::{Finished, Launch, Process},
    proofload::binary,
    random::Random,
    temporary::TemporaryFolder,
};

pub(super) const BAR: Bar = Bar {
    name: "host-settings",
    what: "host check names each faulty line of a published file and no sound one; 200 x host tune, SIGKILL, host restore leave every \
           value as it was",
    full_seconds: 60,
    decided_by: By::Counts,
    run,
};

/// The settings of web hosts and balancer in reference test 3.
const PUBLISHED: &str = "# web and balancer
net.core.somaxconn = 500000
net.ipv4.tcp_max_orphans = 30000
net.ipv4.tcp_max_tw_buckets = 1500000
net.ipv4.tcp_fin_timeout = 120
net.ipv4.tcp_syncookies = 1
net.ipv4.tcp_syn_retries = 5
net.ipv4.tcp_max_syn_backlog = 1000000
net.ipv4.tcp_keepalive_time = 30
net.ipv4.tcp_keepalive_intvl = 5
net.ipv4.tcp_keepalive_probes = 10
net.ipv4.tcp_window_scaling = 1
net.core.netdev_max_backlog = 1000000
net.core.netdev_budget = 100000
net.core.netdev_weight = 10000
net.core.netdev_budget_usecs = 5000
net.core.rmem_default = 253952
net.core.wmem_default = 253952
net.core.rmem_max = 16777216
net.core.wmem_max = 16777216
net.ipv4.tcp_rmem = 4096 16384 4194304
net.ipv4.tcp_wmem = 8192 16384 4194304
net.ipv4.tcp_mem = 185688 247584 6291456
fs.file-max = 2000000
net.ipv4.ip_forward = 1
net.ipv4.conf.all.rp_filter = 0
net.ipv4.ip_local_port_range = 1024 65535
vm.swappiness = 100
net.ipv6.conf.all.disable_ipv6 = 1
";

/// The faults of these settings in a network namespace with its own connection table.
const WRONG_INSIDE: &[(&str, &str)] = &[
    ("net.core.netdev_budget", "no_effect"),
    ("net.core.netdev_budget_usecs", "no_effect"),
    ("net.core.netdev_max_backlog", "harmful no_effect"),
    ("net.core.netdev_weight", "obsolete"),
    ("net.core.rmem_default", "no_effect"),
    ("net.core.rmem_max", "no_effect"),
    ("net.core.wmem_default", "no_effect"),
    ("net.core.wmem_max", "no_effect"),
    ("net.ipv4.tcp_fin_timeout", "misunderstood"),
    ("net.ipv4.tcp_max_syn_backlog", "no_effect"),
    ("net.ipv4.tcp_mem", "no_effect wrong_unit"),
    ("vm.swappiness", "harmful no_effect"),
];

/// The faults of these settings on the machine. Whether the machine's own values are larger depends on its size.
const WRONG_OUTSIDE: &[(&str, &str)] = &[
    ("net.core.netdev_max_backlog", "harmful"),
    ("net.core.netdev_weight", "obsolete"),
    ("net.ipv4.tcp_fin_timeout", "misunderstood"),
    ("net.ipv4.tcp_max_syn_backlog", "no_effect"),
    ("net.ipv4.tcp_mem", "wrong_unit"),
    ("vm.swappiness", "harmful"),
];
const LOWERED: &[(&str, u64)] = &[("fs.file-max", 2_000_000), ("net.ipv4.tcp_max_orphans", 30_000)];

/// All settings of a network namespace, sorted, without counters and unreadable files. The allowed congestion controls are left out: all
/// namespaces of the machine share them, and labs beside this one may allow more for a while.
const SNAPSHOT: &str = "find /proc/sys/net /sys/class/net/*/tx_queue_len /sys/class/net/*/queues/*/rps_cpus -type f -perm -u=r \
                        ! -name nf_conntrack_count ! -name tcp_allowed_congestion_control -exec grep -sH . {} + | sort";

const TUNE: &str = "host tune --profile l2dsr-vs-proxy --set net.ipv4.tcp_rmem=4096\u{a0}16384\u{a0}4194304";

fn run(scale: Scale) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let machine = snapshot(&Launch::new("sh"))?;
    let folder = TemporaryFolder::new()?;
    let (here, there) = (Namespace::new(&folder)?, Namespace::new(&folder)?);
    judge(&here, &folder, &mut outcome)?;
    tune_and_restore(&here, &there, &mut outcome)?;
    kill(&here, scale.pick(15, 200), &mut outcome)?;
    outcome.holds(
        "machine_untouched",
        snapshot(&Launch::new("sh"))? == machine,
        "its own settings are as before",
    );
    Ok(outcome)
}

/// A network namespace with an interface and its own `/sys`, held by a process.
struct Namespace {
    holder: Process,
    state: String,
}

impl Namespace {
    fn new(folder: &TemporaryFolder) -> Result<Self> {
        let script = "mount -t sysfs sysfs /sys && ip link add v0 numrxqueues 1 type veth peer name v1 && ip link set v0 up && ip link set v1 up && \
                      echo ready && exec sleep infinity";
        let mut holder = Launch::new("unshare").words("-n -m sh -c").arg(script).start()?;
        holder.says("ready", PATIENCE)?;
        Ok(Self { holder, state: folder.file("state") })
    }

    /// The binary, run in this namespace. The holder has reported that it is in the namespace, so nsenter cannot enter another one.
    fn command(&self, words: &str) -> Result<Launch> {
        // A word that contains a blank has a no-break space there.
        let words = words.split(' ').map(|word| word.replace('\u{a0}', " "));
        Ok(self.inside(Launch::new(binary()?.display().to_string()).args(words)))
    }

    fn inside(&self, launch: Launch) -> Launch {
        let pid = self.holder.pid().to_string();
        launch.env("PROOFLOAD_STATE_DIR", &self.state).under(["nsenter", "-n", "-m", "-t", &pid])
    }

    fn run(&self, words: &str) -> Result<Finished> {
        self.command(words)?.run(PATIENCE)
    }

    fn journals(&self) -> usize {
        fs::read_dir(format!("{}/tunings", self.state)).map_or(0, Iterator::count)
    }

    fn snapshot(&self) -> Result<String> {
        snapshot(&self.inside(Launch::new("sh")))
    }
}

fn snapshot(shell: &Launch) -> Result<String> {
    let taken = shell.clone().args(["-c", SNAPSHOT]).run(PATIENCE)?;
    ensure!(
        taken.stdout.lines().count() > 300,
        "the settings cannot be listed: {}{}",
        taken.stdout,
        taken.stderr
    );
    Ok(taken.stdout)
}

/// Runs `host check` on the published file inside and outside of a namespace.
fn judge(here: &Namespace, folder: &TemporaryFolder, outcome: &mut Outcome) -> Result<()> {
    let file = folder.file("published.conf");
    fs::write(&file, PUBLISHED)?;
    let words = format!("host check --json - {file}");
    let number = |name: &str| -> Result<u64> {
        let text = fs::read_to_string(format!("/proc/sys/{}", name.replace('.', "/")))?;
        Ok(text.trim().parse()?)
    };
    let mut inside: BTreeMap<&str, &str> = WRONG_INSIDE.iter().copied().collect();
    let mut outside: BTreeMap<&str, &str> = WRONG_OUTSIDE.iter().copied().collect();
    for &(name, published) in LOWERED {
        let is_lowered = number(name)? > published;
        inside.insert(name, if is_lowered { "harmful no_effect" } else { "no_effect" });
        if is_lowered {
            outside.insert(name, "harmful");
        }
    }
    let checked = here.run(&words)?;
    outcome.equal("check_exit", checked.code.unwrap_or(-1) as u64, 1, "something is faulty");
    expect(&faults(&checked.stdout)?, inside, outcome, "inside");
    let checked = Launch::new(binary()?.display().to_string()).words(&words).run(PATIENCE)?;
    expect(&faults(&checked.stdout)?, outside, outcome, "outside");
    Ok(())
}

/// The faults of each setting, sorted by kind, as `check --json` reports them.
fn faults(json: &str) -> Result<BTreeMap<String, String>> {
    let report: Value = serde_json::from_str(json).context("check printed no JSON")?;
    let lines = report["lines"].as_array().context("no lines")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let of_line = |line: &Value| {
        let faults = line["faults"].as_array().cloned().unwrap_or_default();
        let mut kinds: Vec<String> = faults.iter().map(|fault| text(&fault["kind"])).collect();
        kinds.sort();
        let number =
            PUBLISHED.lines().position(|own| own.starts_with(&text(&line["name"]))).map(|at| at as u64 + 1);
        let has_reasons = faults.iter().all(|fault| text(&fault["reason"]).len() > 20);
        ensure!(has_reasons && line["line"].as_u64() == number, "no reason, or a wrong number: {line}");
        Ok((text(&line["name"]), kinds.join(" ")))
    };
    let all: Vec<(String, String)> = lines.iter().map(of_line).collect::<Result<_>>()?;
    ensure!(all.len() == PUBLISHED.lines().count() - 1, "not all lines were judged: {json}");
    Ok(all.into_iter().filter(|(_, kinds)| !kinds.is_empty()).collect())
}

fn expect(found: &BTreeMap<String, String>, wrong: BTreeMap<&str, &str>, outcome: &mut Outcome, place: &str) {
    let wrong: BTreeMap<String, String> =
        wrong.into_iter().map(|(name, kinds)| (name.to_owned(), kinds.to_owned())).collect();
    for (name, kinds) in found.iter().filter(|(name, kinds)| wrong.get(*name) != Some(*kinds)) {
        outcome.note(format!("{place}: {name} was accused: {kinds}"));
    }
    for name in wrong.keys().filter(|name| !found.contains_key(*name)) {
        outcome.note(format!("{place}: {name} was not accused"));
    }
    outcome.holds(
        &format!("check_{place}"),
        *found == wrong,
        "each faulty line by its kind, and no sound one",
    );
}

/// Tests a tuning that is not killed.
fn tune_and_restore(here: &Namespace, there: &Namespace, outcome: &mut Outcome) -> Result<()> {
    let (before, before_there) = (here.snapshot()?, there.snapshot()?);
    let refused = here.run(&format!("{TUNE} --set net.ipv4.tcp_congestion_control=nosuch"))?;
    let is_back = refused.code == Some(2) && here.snapshot()? == before;
    outcome.holds("refused", is_back, "a value that the kernel refuses leaves all as it was");
    let tuned = here.run(TUNE)?;
    ensure!(tuned.code == Some(0), "tune failed: {}{}", tuned.stdout, tuned.stderr);
    let now = here.snapshot()?;
    let applied = [
        "core/somaxconn:65535",
        "ip_local_port_range:10240\t65535",
        "tcp_rmem:4096\t16384\t4194304",
        "v0/tx_queue_len:10000",
    ];
    // With two processors or more, the tuning spreads a single receive queue over all of them.
    let processors = kernel::noise::allowed_cpus()?.len();
    let mask = now.lines().find_map(|line| line.split_once("v0/queues/rx-0/rps_cpus:")).context("no mask")?.1;
    let is_spread = mask.bytes().any(|digit| digit.is_ascii_hexdigit() && digit != b'0');
    let is_applied = applied.iter().all(|line| now.contains(line)) && is_spread == (processors > 1);
    outcome.holds("applied", is_applied, "the settings are as tune says");
    let is_told = tuned.stdout.contains("vm.swappiness: not applied here")
        && tuned.stdout.contains("tcp_tw_reuse: 2 → 1");
    outcome.holds("told", is_told, "what was changed, and what a namespace does not have");

    // Neither `restore` in another namespace nor `clean`, which cleans up after dead runs, touches the tuning.
    let (elsewhere, clean) = (there.run("host restore")?, here.run("clean")?);
    let is_left = here.snapshot()? == now && there.snapshot()? == before_there;
    let is_said =
        elsewhere.stderr.contains("other network namespaces") && clean.stdout.contains("stay tuned");
    outcome.holds("stays", is_left && is_said, "after restore in another namespace, and clean");

    // A second tuning, and values that somebody else sets in between.
    here.run("host tune --set net.core.somaxconn=70000 --set net.ipv4.tcp_ecn=1")?;
    here.inside(Launch::new("sh"))
        .args(["-c", "echo 7 >/proc/sys/net/ipv4/tcp_syn_retries"])
        .run(PATIENCE)?;
    here.run("host tune --set net.ipv4.tcp_syn_retries=9")?;
    here.inside(Launch::new("sh"))
        .args(["-c", "echo 8 >/proc/sys/net/ipv4/tcp_syn_retries"])
        .run(PATIENCE)?;
    let restored = here.run("host restore")?;
    let others = |text: &str| {
        text.lines().filter(|line| !line.contains("tcp_syn_retries")).collect::<Vec<_>>().join("\n")
    };
    let now = here.snapshot()?;
    let is_named = restored.code == Some(1) && restored.stderr.contains("tcp_syn_retries is '8'");
    let is_exact = others(&now) == others(&before) && now.contains("tcp_syn_retries:8");
    outcome.holds(
        "foreign",
        is_named && is_exact,
        "a value that somebody else set is left and named; all others are exact",
    );
    let again = here.run("host restore")?;
    outcome.holds(
        "idempotent",
        again.code == Some(0) && again.stdout.contains("nothing"),
        "a second restore has nothing to do",
    );
    Ok(())
}

/// Kills tunings at random moments.
fn kill(here: &Namespace, kills: u64, outcome: &mut Outcome) -> Result<()> {
    let before = here.snapshot()?;
    // Measure the time of an undisturbed tuning, to spread the moments over all of it.
    let mut life = Duration::MAX;
    for _ in 0..5 {
        life = life.min(here.run(TUNE)?.wall);
        here.run("host restore")?;
    }
    let mut random = Random::new(0x7ae);
    let (mut left, mut changed, mut done) = (0, 0, 0);
    for _ in 0..kills {
        if random.below(4) == 0 {
            // Sometimes tune twice. The restore must bring back the values from before the first tuning.
            here.run("host tune --set net.core.somaxconn=5000 --set v0.txqueuelen=77")?;
        }
        let (untouched, journals) = (here.snapshot()?, here.journals());
        let mut tune = here.command(TUNE)?.start()?;
        if random.below(4) == 0 {
            thread::sleep(random.between(Duration::ZERO, life));
        } else {
            // Most of the time passes before and after the changes, which begin with a journal. Poll without a pause, because the changes
            // take less than a millisecond.
            let until = Instant::now() + life * 10;
            while here.journals() == journals && Instant::now() < until {}
            thread::sleep(random.between(Duration::ZERO, life / 4));
        }
        tune.signal(Signal::KILL);
        let ended = tune.finish(PATIENCE)?;
        match (ended.code == Some(0), here.snapshot()? != untouched) {
            (true, _) => done += 1,
            (false, true) => changed += 1,
            (false, false) => {}
        }
        let restored = here.run("host restore")?;
        ensure!(restored.code == Some(0), "restore failed: {}{}", restored.stdout, restored.stderr);
        let now = here.snapshot()?;
        left += u64::from(now != before);
        for (is, was) in now.lines().zip(before.lines()).filter(|(is, was)| is != was).take(5) {
            outcome.note(format!("after {}{}: {is}, was {was}", restored.stdout, restored.stderr));
        }
    }
    let bound = format!(">= {}, or little was tried", kills / 20);
    outcome.figure("killed_between_changes", changed, bound, changed >= kills / 20);
    outcome.equal("values_left", left, 0, format!("after {kills} x tune, SIGKILL, restore").as_str());
    outcome.note(format!("{done} of {kills} had ended before they were killed; a tuning takes {life:?}"));
    Ok(())
}
