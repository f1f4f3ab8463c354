//! Studies whose hosts are machines: `proofload run STUDY --machines INVENTORY`, from outside. The machines are hosts of a lab with
//! folders, journals and keys of their own, which only ssh reaches.
//!
//! What is expected:
//!
//! 1. A host of the study whose name the inventory has is that machine; hosts `web1`, `web2` … are the machines of the group `web`, in
//!    its order. (`placing`)
//! 2. Targets, known programs and processes run there and nowhere else, started by the agent that ssh started. The load comes from
//!    the machines of `from`, and each has its row in the trial. Nothing runs there afterwards. (`placing`)
//! 3. `sysctls` of a host and levels of `[tuning]` are in force while a trial runs. Afterwards the settings, addresses, routes and
//!    queues of every machine are byte for byte what they were, also after an interrupt, and after SIGKILL of the controller or of
//!    an agent once `clean --on` has run. (`settings`)
//! 4. Actions: a command runs on its machine, `kill` ends programs of the machine and of no other. (`actions`)
//! 5. The logs of processes lie in `logs/N` of the result folder, under the names that a lab gives them. (`placing`)
//! 6. Refused with exit status 2 and a sentence that names host or link, before anything starts on any machine: a link with a delay
//!    (or a rate, or a loss), a host that no machine is, two hosts that are one machine without `--share-machines`, a machine that
//!    cannot be reached, a setting outside of the network (`kernel.…`) that a lab file would refuse as well. (`refusals`)
//! 7. With `--share-machines`, two hosts may be one machine. (`refusals`)
//! 8. A machine whose agent is killed in a trial voids it, with its name; the machine is not silently left out. (`settings`)
//! 9. Files that the load reads and writes lie beside the study; files of the machines with their names are not used. (`placing`)
//! 10. Nothing of the study is made on the machine of the controller: no host, no process, no interface. (`placing`)

mod actions;
mod placing;
mod refusals;
mod settings;

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context, Result, ensure};
use proofload_tests::{
    fleet_hosts::{processes_in, signal},
    lab::Labs,
    process::{Finished, Launch, Process, child_with},
    proofload::{accepts_void, binary},
};
use record::{HttpTrial, ResultFolder, TrialEntry};
use rustix::process::Signal;
use testing::{PATIENCE, find};

/// The machines, in the order of their addresses; `control` is none of them.
const MACHINES: [&str; 6] = ["client1", "client2", "balancer", "web1", "web2", "web3"];
const CLIENTS: [&str; 2] = ["client1", "client2"];
const WEBS: [&str; 3] = ["web1", "web2", "web3"];

const INVENTORY: &str = "
all:
  vars:
    ansible_user: root
  hosts:
    balancer:
  children:
    client:
      hosts:
        client1:
        client2:
    web:
      hosts:
        web[1:3]:
";

/// The head of a study with these hosts on one segment.
const HOSTS: &str = "[hosts]\nclient = { count = 2 }\nbalancer = {}\nweb = { count = 3 }\n\
                     [[links]]\nbetween = [\"client\", \"balancer\", \"web\"]\n";

/// A load of a fixed number of requests, so that it ends however slow this machine is.
const LOAD: &str =
    "[workload.http]\nfrom = \"client\"\nusers = 12\nrequests = 600\ntimeout = \"5m\"\ndrain = \"5m\"\n";
const REQUESTS: u64 = 600;

/// The lab whose hosts are the machines.
struct Site {
    labs: Labs,
    path: String,
    inventory: String,
    networks: BTreeMap<&'static str, String>,
    /// What ran on each machine before.
    before: BTreeMap<&'static str, Vec<i32>>,
}

/// A part of a test, in a lab that it shares with others.
type Part = fn(&Site) -> Result<()>;

/// Brings the lab up and tries all parts of a test in turn. After each, every machine must be as it was.
fn try_all(parts: &[(&str, Part)]) -> Result<()> {
    let _lock = crate::without_other_labs();
    let labs = Labs::new()?;
    let (lab, _) = labs.up(&labs.file("lab.toml", &lab_file())?)?;
    let site = Site::of(labs, &lab.stdout())?;
    let mut wrong = Vec::new();
    for (name, part) in parts {
        let states = site.states();
        let tried = states.and_then(|states| {
            part(&site)?;
            site.is_as_it_was(&states)
        });
        if let Err(why) = tried {
            wrong.push(format!("{name}: {why:#}"));
        }
    }
    let is_down = site.labs.down(lab);
    ensure!(wrong.is_empty(), "{} of {} parts:\n{}", wrong.len(), parts.len(), wrong.join("\n\n"));
    is_down.map(drop)
}

fn lab_file() -> String {
    let hosts = MACHINES
        .map(|host| format!("{host} = {{ private = [\"/root\", \"/tmp\", \"/run\", \"/var\"] }}\n"))
        .concat();
    let names = MACHINES.map(|host| format!("\"{host}\"")).join(", ");
    format!(
        "title = \"machines\"\n[hosts]\ncontrol = {{}}\n{hosts}[[links]]\nbetween = [\"control\", {names}]\n\
         [[processes]]\non = [{names}]\nrun = \"sshd\"\nconfig = \"debian\"\nready_timeout = \"10m\"\n"
    )
}

/// What is said of a machine by programs that run on it, and must not change.
const STATE: &str = "find /proc/sys/net -type f ! -name nf_conntrack_count -exec grep -H ^ {} + 2>/dev/null | sort; \
                     ip -d address; ip route show table all; ip rule; tc qdisc; tc filter";

impl Site {
    fn of(labs: Labs, announced: &str) -> Result<Self> {
        let folder = announced.lines().find_map(|line| line.strip_prefix("files and logs in "));
        let folder = folder.with_context(|| format!("no folder is named: {announced}"))?.trim();
        let path = labs.with_ssh(&format!("exec /usr/bin/ssh -F {folder}/ssh_config \"$@\""))?;
        let inventory = labs.file("inventory.yml", INVENTORY)?;
        let mut site = Self { labs, path, inventory, networks: BTreeMap::new(), before: BTreeMap::new() };
        for host in ["control"].into_iter().chain(MACHINES) {
            let network = site.labs.done(&format!("lab shell {host} -- readlink /proc/self/ns/net"))?;
            site.networks.insert(host, network.trim().to_owned());
        }
        for machine in MACHINES {
            let own = site.processes(machine).into_keys().collect();
            site.before.insert(machine, own);
        }
        Ok(site)
    }

    /// The processes of a host, by their ids, with their words.
    fn processes(&self, host: &str) -> BTreeMap<i32, String> {
        self.networks.get(host).map_or_else(BTreeMap::new, |network| processes_in(network))
    }

    /// What runs on a machine because of a study.
    fn new_on(&self, machine: &str) -> BTreeMap<i32, String> {
        let before = self.before.get(machine).cloned().unwrap_or_default();
        let mut new = self.processes(machine);
        new.retain(|pid, _| !before.contains(pid));
        new
    }

    /// Whether a program with this word runs on a machine because of a study.
    fn runs(&self, machine: &str, word: &str) -> bool {
        self.new_on(machine).values().any(|words| words.split_whitespace().any(|own| own.ends_with(word)))
    }

    /// The agent on a machine.
    fn agent(&self, machine: &str) -> Option<i32> {
        let is_agent = |words: &str| words.contains("/proofload") && words.contains(" agent ");
        self.new_on(machine).into_iter().find_map(|(pid, words)| is_agent(&words).then_some(pid))
    }

    /// What a shell on a host says.
    fn said(&self, host: &str, line: &str) -> Result<String> {
        let finished = self.labs.command(&format!("lab shell {host} -- sh -c"))?.arg(line).run(PATIENCE)?;
        ensure!(finished.code == Some(0), "{host}: {line}: {finished:?}");
        Ok(finished.stdout)
    }

    /// Settings, addresses, routes and queues of every machine.
    fn states(&self) -> Result<BTreeMap<&'static str, String>> {
        MACHINES.into_iter().map(|machine| Ok((machine, self.said(machine, STATE)?))).collect()
    }

    /// Waits until nothing of a study runs on any machine.
    fn is_quiet(&self) -> Result<()> {
        let left = || MACHINES.map(|machine| self.new_on(machine));
        let found = find(PATIENCE, || left().iter().all(BTreeMap::is_empty).then_some(()));
        ensure!(found.is_some(), "still running: {:#?}", left());
        Ok(())
    }

    fn is_as_it_was(&self, before: &BTreeMap<&'static str, String>) -> Result<()> {
        self.is_quiet()?;
        for (machine, state) in self.states()? {
            let was: Vec<&str> = before[machine].lines().collect();
            let is: Vec<&str> = state.lines().collect();
            let gone: Vec<_> = was.iter().filter(|line| !is.contains(line)).collect();
            let new: Vec<_> = is.iter().filter(|line| !was.contains(line)).collect();
            ensure!(gone.is_empty() && new.is_empty(), "{machine}: gone {gone:#?}, new {new:#?}");
        }
        Ok(())
    }

    /// `proofload` with these words on the host `control`.
    fn control(&self, words: &str) -> Result<Launch> {
        let words = format!("lab shell control -- {} {words}", binary()?.display());
        Ok(self.labs.command(&words)?.env("PATH", &self.path))
    }

    /// A command that runs a study with this text and name on the machines. Its result folder has the name, too.
    fn study(&self, name: &str, text: &str, options: &str) -> Result<(Launch, String)> {
        let (file, out) = (self.labs.file(&format!("{name}.toml"), text)?, self.labs.path(name));
        let launch =
            self.control(&format!("run {file} --machines {} --out {out} {options}", self.inventory))?;
        Ok((launch, out))
    }

    /// Runs a study to its end. Returns its trials, none of which is void but for want of processor time.
    fn run(&self, name: &str, text: &str, options: &str) -> Result<(Vec<TrialEntry>, String)> {
        let (launch, out) = self.study(name, text, options)?;
        let finished = checked(launch.run(PATIENCE)?)?;
        let trials =
            ResultFolder::open(Path::new(&out)).with_context(|| format!("{finished:?}"))?.trials()?;
        ensure!(!trials.is_empty() && matches!(finished.code, Some(0 | 3)), "{finished:?}");
        for entry in &trials {
            let validity = &entry.trial.validity;
            let is_sound = !validity.is_void() || accepts_void(&launch.shown(), validity);
            ensure!(is_sound, "trial {}: {validity:?}: {finished:?}", entry.index);
        }
        Ok((trials, out))
    }

    /// Starts a study, and waits until something holds.
    fn start_until(
        &self,
        name: &str,
        text: &str,
        what: &str,
        holds: impl Fn() -> bool,
    ) -> Result<(Process, String)> {
        let (launch, out) = self.study(name, text, "")?;
        let mut running = launch.start()?;
        running.find(what, PATIENCE, |_| holds().then_some(()))?;
        Ok((running, out))
    }

    /// Runs `clean` for all machines.
    fn clean(&self) -> Result<()> {
        let on = MACHINES.map(|machine| format!("root@{machine}")).join(",");
        let finished = checked(self.control(&format!("clean --on {on}"))?.run(PATIENCE)?)?;
        ensure!(finished.code == Some(0), "{finished:?}");
        Ok(())
    }
}

fn checked(finished: Finished) -> Result<Finished> {
    ensure!(!finished.stderr.contains("panicked at"), "{finished:?}");
    Ok(finished)
}

/// Sends a signal to the controller, which `lab shell` would not pass on.
fn signal_controller(running: &Process, which: Signal) -> Result<()> {
    let controller = child_with("run", running.pid()).context("there is no controller")?;
    signal(controller.cast_signed(), which)
}

fn http(entry: &TrialEntry) -> Result<&HttpTrial> {
    entry.trial.http().context("a trial without requests")
}

/// The names of a trial's machines.
fn names(http: &HttpTrial) -> Vec<&str> {
    http.machines.iter().map(|machine| machine.name.as_str()).collect()
}
