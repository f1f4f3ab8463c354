//! Properties of the hardware that no kernel setting can improve: clock governors, isolated cores, network cards. They
//! are reported and explained but never changed.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use serde::Serialize;

/// A property of the hardware.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The property.
    pub what: String,
    /// Its value on this machine.
    pub found: String,
    /// Advice for the user; none if nothing needs to be done.
    pub advice: Option<String>,
}

/// Inspects the machine whose `/proc` and `/sys` are below `root`. Leaves out properties that the hardware does not
/// have.
pub fn look(root: &Path) -> Vec<Finding> {
    let look = Look { root };
    let cards = look.cards();
    let of_cards = cards.iter().flat_map(|card| look.card(card));
    [look.governor(), look.isolation(!cards.is_empty())].into_iter().flatten().chain(of_cards).collect()
}

struct Look<'a> {
    root: &'a Path,
}

impl Look<'_> {
    fn read(&self, path: &str) -> Option<String> {
        crate::read(self.root.join(path)).ok().map(|text| text.trim().to_owned())
    }

    fn number(&self, path: &str) -> u64 {
        self.read(path).and_then(|text| text.parse().ok()).unwrap_or(0)
    }

    fn names(&self, folder: &str) -> Vec<String> {
        crate::names(self.root.join(folder))
    }

    fn processors(&self) -> usize {
        self.names("sys/devices/system/cpu").iter().filter(|name| is_processor(name)).count()
    }

    /// The governor that chooses the clock rate of the processors.
    fn governor(&self) -> Option<Finding> {
        let folder = "sys/devices/system/cpu";
        let governor = |name: &String| self.read(&format!("{folder}/{name}/cpufreq/scaling_governor"));
        let governors: BTreeSet<String> = self.names(folder).iter().filter_map(governor).collect();
        let is_steady = governors.iter().all(|governor| governor == "performance");
        let advice =
            "times depend on how fast a processor raises its clock: cpupower frequency-set -g performance";
        let advice = (!is_steady).then(|| advice.to_owned());
        let found = governors.into_iter().collect::<Vec<_>>().join(", ");
        let what = "governor of the processors".to_owned();
        (!found.is_empty()).then_some(Finding { what, found, advice })
    }

    /// Processors that the scheduler does not use. Isolation is advised only if there is a card, because a card's
    /// interrupts can be moved elsewhere.
    fn isolation(&self, has_card: bool) -> Option<Finding> {
        let isolated = self.read("sys/devices/system/cpu/isolated").filter(|list| !list.is_empty());
        let processors = self.processors();
        let name_of = |pid: u32| self.read(&format!("proc/{pid}/comm"));
        let pids = self.names("proc").into_iter().filter_map(|name| name.parse::<u32>().ok());
        let has_balancer = pids.filter_map(name_of).any(|name| name == "irqbalance");
        let (found, advice) = match &isolated {
            Some(list) if has_balancer => {
                let advice = format!(
                    "irqbalance may move interrupts to them: set IRQBALANCE_BANNED_CPULIST={list} in its settings, or stop it"
                );
                (format!("{list}; irqbalance runs"), Some(advice))
            }
            Some(list) => (format!("{list}; irqbalance does not run"), None),
            None if !has_card || processors < 4 => return None,
            None => {
                let list = format!("{}-{}", processors / 2, processors - 1);
                let advice = format!(
                    "for steady high percentiles, reserve cores for threads: isolcpus={list} nohz_full={list} \
                     rcu_nocbs={list} on the kernel's boot line, and stop irqbalance or ban it from them"
                );
                ("none".to_owned(), Some(advice))
            }
        };
        Some(Finding { what: "isolated processors".to_owned(), found, advice })
    }

    /// Network interfaces that belong to hardware.
    fn cards(&self) -> Vec<String> {
        let mut names = self.names("sys/class/net");
        names.retain(|name| self.root.join("sys/class/net").join(name).join("device").exists());
        names
    }

    fn card(&self, card: &str) -> Vec<Finding> {
        let folder = format!("sys/class/net/{card}");
        let queues =
            self.names(&format!("{folder}/queues")).iter().filter(|name| name.starts_with("rx-")).count();
        let processors = self.processors();
        let mut findings = Vec::new();
        let mut add = |what: &str, found, advice| {
            findings.push(Finding { what: format!("{card}: {what}"), found, advice });
        };
        let advice = match queues {
            1 if processors > 1 => Some(format!(
                "one processor takes all packets: if `ethtool -l {card}` shows more queues, enable them by `ethtool -L {card} combined N`; \
                 otherwise spread the packets by RPS ({card}.rx-0.rps_cpus)"
            )),
            _ => None,
        };
        add("receive queues", queues.to_string(), advice);
        if queues > 1 {
            let advice = format!(
                "with few addresses and many ports, the hash must include ports: `ethtool -n {card} rx-flow-hash tcp4` shows it, \
                 `ethtool -N {card} rx-flow-hash tcp4 sdfn` sets it"
            );
            add("flow hash", "known to the driver only".to_owned(), Some(advice));
        }
        let interrupts = self.interrupts(card);
        let places: BTreeSet<&str> = interrupts.iter().map(|(_, place)| place.as_str()).collect();
        if !interrupts.is_empty() {
            let shown = interrupts.iter().map(|(irq, place)| format!("{irq} on {place}"));
            let shown = shown.collect::<Vec<_>>().join(", ");
            let is_crowded = interrupts.len() > 1 && places.len() == 1;
            let advice = is_crowded.then(|| {
                "all of them interrupt one processor: write another processor's number to /proc/irq/N/smp_affinity_list of each, \
                 and keep irqbalance from changing it".to_owned()
            });
            add("interrupts of receive queues", shown, advice);
        }
        let missed = ["rx_missed_errors", "rx_fifo_errors", "rx_over_errors"];
        let missed: u64 = missed.iter().map(|name| self.number(&format!("{folder}/statistics/{name}"))).sum();
        let advice = format!(
            "the ring was full: `ethtool -g {card}` shows its size, `ethtool -G {card} rx N` enlarges it, which adds delay"
        );
        add("packets missed at the receive ring", missed.to_string(), (missed > 0).then_some(advice));
        findings
    }

    /// The interrupts of a card's receive queues, each with the processors that handle it.
    fn interrupts(&self, card: &str) -> Vec<(u32, String)> {
        let device: io::Result<PathBuf> =
            fs::canonicalize(self.root.join(format!("sys/class/net/{card}/device")));
        let device = device.ok().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
        let names: Vec<String> = [Some(card.to_owned()), device].into_iter().flatten().collect();
        let table = self.read("proc/interrupts").unwrap_or_default();
        let interrupt = |line: &str| {
            let (number, rest) = line.trim_start().split_once(':')?;
            let action = rest.split_whitespace().next_back()?;
            let is_own = names.iter().any(|name| names_device(action, name));
            let is_receiving = !["config", "output", "-tx"].iter().any(|other| action.contains(other));
            let number: u32 = number.parse().ok().filter(|_| is_own && is_receiving)?;
            let place =
                |name| self.read(&format!("proc/irq/{number}/{name}")).filter(|list| !list.is_empty());
            Some((number, place("effective_affinity_list").or_else(|| place("smp_affinity_list"))?))
        };
        table.lines().filter_map(interrupt).collect()
    }
}

/// Whether the name of an interrupt's handler contains the name of a device, for example `eth0-TxRx-1`,
/// `virtio2-input.0`, `mlx5_comp0@pci:0000:01:00.0`.
fn names_device(action: &str, device: &str) -> bool {
    let ends = |at: usize| !action[at + device.len()..].starts_with(|c: char| c.is_ascii_digit());
    action.match_indices(device).any(|(at, _)| ends(at))
}

fn is_processor(name: &str) -> bool {
    name.strip_prefix("cpu")
        .is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The files of a machine with a card `eth0`, which is the device `virtio2`.
    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let mut all =
            vec![("sys/devices/virtio2/driver", ""), ("sys/class/net/eth0/queues/rx-0/rps_cpus", "0")];
        all.extend(files);
        for number in 0..8 {
            fs::create_dir_all(folder.path().join(format!("sys/devices/system/cpu/cpu{number}"))).unwrap();
        }
        for (path, text) in all {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let device = folder.path().join("sys/devices/virtio2");
        std::os::unix::fs::symlink(device, folder.path().join("sys/class/net/eth0/device")).unwrap();
        folder
    }

    fn advice<'a>(findings: &'a [Finding], what: &str) -> Option<&'a str> {
        findings.iter().find(|finding| finding.what.contains(what)).unwrap().advice.as_deref()
    }

    #[test]
    fn what_could_be_better_is_explained() {
        let folder = machine(&[
            ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n"),
            ("sys/devices/system/cpu/isolated", "4-7\n"),
            ("proc/12/comm", "irqbalance\n"),
            ("sys/class/net/eth0/queues/rx-1/rps_cpus", "0"),
            ("sys/class/net/eth0/statistics/rx_missed_errors", "523565\n"),
            (
                "proc/interrupts",
                " CPU0\n 38: 1 PCI virtio2-input.0\n 39: 1 PCI virtio2-input.1\n 40: 1 PCI virtio20-input.0\n",
            ),
            ("proc/irq/38/effective_affinity_list", "0\n"),
            ("proc/irq/39/smp_affinity_list", "0\n"),
            ("proc/irq/40/smp_affinity_list", "1\n"),
        ]);
        let findings = look(folder.path());
        for (what, part) in [
            ("governor", "performance"),
            ("isolated", "IRQBALANCE_BANNED_CPULIST=4-7"),
            ("flow hash", "sdfn"),
            ("interrupts", "one processor"),
            ("ring", "-G eth0 rx N"),
        ] {
            assert!(advice(&findings, what).unwrap().contains(part), "{what}: {findings:#?}");
        }
        let interrupts = findings.iter().find(|finding| finding.what.contains("interrupts")).unwrap();
        assert_eq!(interrupts.found, "38 on 0, 39 on 0");
    }

    #[test]
    fn what_is_well_or_not_there_gets_no_advice() {
        let folder = machine(&[("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n")]);
        let findings = look(folder.path());
        assert_eq!((advice(&findings, "governor"), advice(&findings, "ring")), (None, None));
        assert!(advice(&findings, "isolated").unwrap().contains("isolcpus=4-7"), "{findings:#?}");
        assert!(
            !findings
                .iter()
                .any(|finding| finding.what.contains("interrupts") || finding.what.contains("hash"))
        );
        assert_eq!(look(Path::new("/does/not/exist")), []);
    }
}
