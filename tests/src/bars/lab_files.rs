//! Broken lab files and broken processes: proofload reports every mistake and leaves nothing behind.

use std::fs;

use anyhow::Result;
use testing::PATIENCE;

use super::{Bar, By, Outcome, Scale};
use crate::lab::Labs;

pub(super) const BAR: Bar = Bar {
    name: "lab-files",
    what: "20 broken lab files: every mistake with its line, nothing started; 6 broken processes: told with the \
           end of their logs, everything taken down",
    full_seconds: 15,
    decided_by: By::Counts,
    run,
};

/// A file, and for every mistake its line, its column and a part of the message.
type Broken = (&'static str, &'static [(usize, usize, &'static str)]);

const BROKEN: [Broken; 20] = [
    ("[hosts]\na = {}\nb = [\n", &[(3, 6, "unclosed array")]),
    ("title = \"x\"\n", &[(1, 1, "'hosts' is missing")]),
    ("[hosts]\n", &[(1, 1, "at least one host")]),
    ("[hosts]\na = {}\n[link]\n", &[(3, 2, "did you mean 'links'?")]),
    ("[hosts]\nweb = { cuont = 2 }\n", &[(2, 9, "did you mean 'count'?")]),
    ("[hosts]\nweb = { count = 0 }\nx = { count = \"2\" }\n", &[(2, 17, "from 1 to"), (3, 15, "found text")]),
    ("[hosts]\nWeb_1 = {}\n", &[(2, 1, "is not a name")]),
    ("[hosts]\nweb = { count = 2 }\nweb1 = {}\n", &[(3, 1, "given twice")]),
    (
        "[hosts]\na = {}\nb = {}\n[[links]]\nbetween = [\"a\", \"bb\"]\n[[links]]\nbetween = [\"a\"]\n",
        &[(5, 17, "there is no host 'bb'; did you mean 'b'?"), (7, 11, "at least two")],
    ),
    (
        "[hosts]\na = {}\nb = {}\n[[links]]\nbetween = [\"a\", \"b\"]\nrate = \"fast\"\ndelay = 5\nloss = \"200%\"\n",
        &[(6, 8, "1gbit"), (7, 9, "expected text"), (8, 8, "0.1%")],
    ),
    (
        "[hosts]\na = { count = 3 }\n[[links]]\nbetween = [\"a\"]\nrate = \"1gbit\"\ndelay = \"1ms\"\n",
        &[(6, 9, "to a link between two hosts")],
    ),
    (
        "[hosts]\na = {}\nb = {}\n[[links]]\nbetween = [\"a\", \"b\"]\nnetwork = \"10.0.0.1/24\"\n\
         [[links]]\nbetween = [\"a\", \"b\"]\nnetwork = \"10.0.0\"\n",
        &[(6, 11, "the network is 10.0.0.0/24"), (9, 11, "is not a network")],
    ),
    (
        "[hosts]\na = {}\nb = {}\n[[links]]\nbetween = [\"a\", \"b\"]\nnetwork = \"10.9.0.0/24\"\n\
         addresses = { a = \"10.8.0.1\", c = \"10.9.0.2\" }\n[[links]]\nbetween = [\"a\", \"b\"]\n\
         network = \"10.9.0.0/16\"\n",
        &[(7, 19, "is not a host address of 10.9.0.0/24"), (7, 31, "no host 'c'"), (10, 11, "overlaps")],
    ),
    (
        "[hosts]\na = { count = 9 }\n[[links]]\nbetween = [\"a\"]\nnetwork = \"10.9.0.0/29\"\n",
        &[(3, 1, "has no room for 9 hosts")],
    ),
    (
        "[hosts]\na = { routes = [{ to = \"default\", via = \"b\" }, { to = \"x\" }] }\nb = {}\n",
        &[(2, 41, "a has no link to 'b'"), (2, 48, "'via' is missing"), (2, 55, "is not a network")],
    ),
    (
        "[hosts]\na = { sysctls = { \"kernel.panic\" = 1, \"net.ipv4.ip_forward\" = [1] } }\n",
        &[(2, 19, "settings of the host's network"), (2, 63, "the setting's value")],
    ),
    (
        "[hosts]\na = { cpus = \"3-1\", cpu_quota = 0 }\nb = { cpu_quota = \"half\" }\n",
        &[(2, 14, "does not name processors"), (2, 33, "above 0"), (3, 19, "found text")],
    ),
    (
        "[hosts]\na = {}\n[[processes]]\non = \"a\"\n[[processes]]\nrun = \"ngnix\"\nport = 0\n",
        &[
            (3, 1, "give either run"),
            (5, 1, "'on' is missing"),
            (6, 7, "did you mean 'nginx'?"),
            (7, 8, "from 1 to"),
        ],
    ),
    (
        "[hosts]\na = {}\n[[processes]]\non = \"a\"\ncommand = [\"true\"]\nready = \"soon\"\n\
         ready_timeout = \"1 week\"\nlog_limit = \"lots\"\n",
        &[(6, 9, "tcp:80"), (7, 17, "a time such as"), (8, 13, "a size such as")],
    ),
    (
        "[hosts]\na = {}\n[[processes]]\non = \"a\"\nrun = \"haproxy\"\nfiles = {}\n[[processes]]\non = \"a\"\n\
         command = []\nflood = \"drown\"\n",
        &[
            (3, 1, "'backends' is missing"),
            (6, 1, "unknown key 'files'"),
            (9, 11, "a command needs"),
            (10, 9, "one of fail"),
        ],
    ),
];

/// A process, and parts of the message about it, which includes the end of its log.
const PROCESSES: [(&str, &[&str]); 6] = [
    (
        "command = [\"sh\", \"-c\", \"echo waiting for nothing; sleep 1000\"]\nready = \"tcp:80\"\nready_timeout = \"300ms\"\n",
        &["h-sh did not get ready within 300ms", "refused", "| waiting for nothing"],
    ),
    (
        "command = [\"sh\", \"-c\", \"echo out of luck >&2; exit 7\"]\nready = \"log:never\"\n",
        &["h-sh ended with status 7", "| out of luck"],
    ),
    (
        "command = [\"no-such-program\"]\n",
        &["h-no-such-program: there is no program no-such-program", "is it installed?"],
    ),
    (
        "command = [\"yes\", \"a flood\"]\nlog_limit = \"1MiB\"\n",
        &["h-yes wrote more than 1048576 bytes", "| a flood"],
    ),
    (
        "command = [\"sh\", \"-c\", \"echo all was well; until [ -e UP ]; do sleep 0.01; done; kill -9 $$\"]\nready = \"log:well\"\n",
        &["h-sh was ended by signal 9", "| all was well", "taken down"],
    ),
    ("run = \"nginx\"\nargs = [\"-g\", \"nonsense;\"]\n", &["h-nginx ended with status 1", "nonsense"]),
];

fn run(_scale: Scale) -> Result<Outcome> {
    let labs = Labs::new()?;
    // This first run makes the folder of the journals.
    labs.run("clean")?;
    let before = labs.inventory()?;
    let mut outcome = Outcome::default();
    let (mut told, mut refused) = (0, 0);
    let expected: usize = BROKEN.iter().map(|(_, mistakes)| mistakes.len()).sum();
    for (number, (text, mistakes)) in BROKEN.iter().enumerate() {
        let file = labs.file(&format!("broken{}.toml", number + 1), text)?;
        let finished = labs.run(&format!("lab up {file}"))?;
        let lines: Vec<&str> = finished.stderr.lines().collect();
        let is = |line: &str, (row, column, part): &(usize, usize, &str)| {
            line.contains(&format!("{file}:{row}:{column}: ")) && line.contains(part)
        };
        let found = mistakes.iter().filter(|mistake| lines.iter().any(|line| is(line, mistake))).count();
        told += found;
        let whole = found == mistakes.len() && lines.len() == mistakes.len();
        refused += u64::from(whole && finished.code == Some(2) && finished.stdout.is_empty());
        if !whole {
            outcome.note(format!(
                "file {}: expected {mistakes:?}, was told:\n{}",
                number + 1,
                finished.stderr
            ));
        }
    }
    outcome.equal("mistakes_told", told as u64, expected as u64, "with their lines and columns");
    outcome.equal("files_refused", refused, BROKEN.len() as u64, "for exactly these mistakes");
    let mut clear = 0;
    for (number, (process, parts)) in PROCESSES.iter().enumerate() {
        let text = format!(
            "[hosts]\nh = {{}}\nother = {{ cpu_quota = 0.2 }}\n[[links]]\nbetween = [\"h\", \"other\"]\n\
             [[processes]]\non = \"other\"\nrun = \"serve\"\n[[processes]]\non = \"h\"\n{process}"
        );
        let up = labs.path(&format!("up{number}"));
        let file = labs.file("process.toml", &text.replace("UP", &up))?;
        let mut running = labs.command(&format!("lab up {file}"))?.start()?;
        running.find("it is up, or has ended", PATIENCE, |lab| {
            (lab.stdout().contains("\nready in ") || lab.stderr().contains("h-")).then_some(())
        })?;
        fs::write(up, "")?;
        let finished = running.finish(PATIENCE)?;
        let said = parts.iter().all(|part| finished.stderr.contains(part));
        clear += u64::from(said && finished.code == Some(2));
        if !said {
            outcome.note(format!(
                "process {}: expected {parts:?}, was told:\n{}",
                number + 1,
                finished.stderr
            ));
        }
    }
    outcome.equal("processes_told", clear, PROCESSES.len() as u64, "with the end of their logs");
    let left = labs.difference(&before)?;
    left.iter().for_each(|thing| outcome.note(thing.as_str()));
    outcome.equal("left", left.len() as u64, 0, "of all that the inventory lists");
    Ok(outcome)
}
