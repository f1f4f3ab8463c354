//! One sample of a machine.

use std::collections::BTreeMap;

use kernel::{remote::ss, tcp::Connection};

/// Line that precedes the connections in the text of a sample.
pub(super) const SOCKETS: &str = "proofload: sockets";

/// One sample of a machine. Its counters start at the machine's boot.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Look {
    /// Busy time and idle time of the processors, in ticks.
    pub(super) processors: Option<(u64, u64)>,
    /// Time in which at least one program waited for a disk, in microseconds.
    pub(super) disk_us: Option<u64>,
    /// The programs that carry the copy, by process id.
    pub(super) programs: BTreeMap<u32, Working>,
    pub(super) connections: Vec<Connection>,
}

/// A program that carries the copy.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Working {
    pub(super) name: String,
    pub(super) parent: u32,
    pub(super) began_ticks: u64,
    pub(super) running_ticks: u64,
    /// Whether it waits for a device.
    pub(super) is_blocked: bool,
}

impl Look {
    /// Keeps the programs that were started by the same sshd as this one, and not before it: those of the copy, and
    /// later ones of other users.
    pub(super) fn keep_siblings(&mut self, pid: u32, began_ticks: u64) {
        let ancestor = |pid: u32| {
            let mut top = pid;
            while let Some(parent) = self.programs.get(&top).map(|program| program.parent)
                && self.programs.contains_key(&parent)
            {
                top = parent;
            }
            top
        };
        let top = ancestor(pid);
        let kept = self
            .programs
            .iter()
            .filter(|(pid, program)| program.began_ticks >= began_ticks && ancestor(**pid) == top);
        self.programs = kept.map(|(pid, program)| (*pid, program.clone())).collect();
    }
}

/// Parses the texts of `/proc/stat`, `/proc/pressure/io` and `/proc/PID/stat` of some processes, optionally followed by
/// the output of `ss`.
pub(super) fn look_at(text: &str) -> Look {
    let (text, sockets) = text.split_once(SOCKETS).unwrap_or((text, ""));
    let of_processors = || {
        // Fields: user nice system idle iowait irq softirq steal.
        let numbers = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let numbers: Vec<u64> =
            numbers.split_whitespace().take(8).filter_map(|word| word.parse().ok()).collect();
        let idle = numbers.get(3)? + numbers.get(4)?;
        Some((numbers.iter().sum::<u64>() - idle, idle))
    };
    let of_disk = || {
        let some = text.lines().find(|line| line.starts_with("some "))?;
        some.split_once("total=")?.1.parse().ok()
    };
    Look {
        processors: of_processors(),
        disk_us: of_disk(),
        programs: text.lines().filter_map(program).collect(),
        connections: ss::connections(sockets),
    }
}

/// Parses a line of `/proc/PID/stat` (proc_pid_stat(5)). The name in parentheses may contain any character.
pub(super) fn program(line: &str) -> Option<(u32, Working)> {
    let (pid, rest) = line.split_once(" (")?;
    let (name, fields) = rest.rsplit_once(") ")?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    // The first element of `fields` is the third field.
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    let running_ticks = number(14)?.checked_add(number(15)?)?;
    let is_blocked = fields.first() == Some(&"D");
    let parent = u32::try_from(number(4)?).ok()?;
    let program =
        Working { parent, name: name.to_owned(), began_ticks: number(22)?, running_ticks, is_blocked };
    Some((pid.parse().ok()?, program))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_a_shell_prints_is_read() {
        let text = "cpu  10 0 20 70 5 1 4 0 0 0\nsome avg10=0.00 avg60=0.00 avg300=0.00 total=4711\n\
            full avg10=0.00 avg60=0.00 avg300=0.00 total=12\n\
            7 (sftp-server) D 6 7 7 0 -1 4194560 1 2 3 4 50 25 0 0 20 0 1 0 1234 9 9\n";
        let look = look_at(&format!("{text}{SOCKETS}\n0 0 10.0.0.1:22 10.0.0.2:4711\n"));
        assert_eq!((look.processors, look.disk_us, look.connections.len()), (Some((35, 75)), Some(4711), 1));
        let program = &look.programs[&7];
        assert_eq!((program.running_ticks, program.began_ticks, program.is_blocked), (75, 1234, true));
        let line = |pid: u32, parent: u32, began: u32| {
            format!("{pid} (sshd) S {parent} 7 7 0 -1 4194560 1 2 3 4 50 25 0 0 20 0 1 0 {began} 9 9\n")
        };
        let mut look = look_at(
            &[
                line(1, 0, 1),
                line(20, 1, 5),
                line(30, 1, 9),
                line(31, 30, 9),
                line(40, 1, 10),
                line(50, 2, 11),
            ]
            .concat(),
        );
        look.keep_siblings(30, 9);
        assert_eq!(look.programs.into_keys().collect::<Vec<_>>(), [30, 31, 40]);
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_fail(text in "(cpu |some |total=|7 \\(a\\) D |[0-9]{1,22} |[^\n]{0,5}|\n){0,40}") {
            let _ = (look_at(&text), kernel::ssh::ends(&text));
        }
    }
}
