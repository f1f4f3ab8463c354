//! Secrets of a load travel to the machines, and lie nowhere there.

use std::{fs, net::SocketAddr, path::PathBuf};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use testing::PATIENCE;

use super::{Machines, NEAR, PORT, WEB, web};
use crate::{
    bars::{
        Bar, By, Outcome, Scale,
        no_secrets::{
            Search, VARIABLE,
            kinds::{KINDS, heard_of},
        },
    },
    faulty_disk::files_below,
    process::child_with,
    proofload::binary,
    recorder::Recorder,
};

pub(super) const BAR: Bar = Bar {
    name: "fleet-secrets",
    what: "the secrets of `no-secrets` reach a target from 3 machines, and stand in no file, no process and no log of sshd there",
    full_seconds: 20,
    decided_by: By::Counts,
    run,
};

/// The header fields and the URL have the first so many kinds.
const SENT_KINDS: usize = 10;
/// What belongs to a machine alone.
const FOLDERS: [&str; 4] = ["root", "tmp", "run", "var"];

fn run(scale: Scale) -> Result<Outcome> {
    let (mut outcome, mut search) = (Outcome::default(), Search::new()?);
    let count = scale.pick(2, 3);
    // At this level, sshd tells each command and each variable.
    let heard = Machines::with(count, &["-o", "LogLevel=DEBUG3"], |machines| {
        let address = SocketAddr::new(web().into(), PORT);
        let recorder = Recorder::start_in(machines.network(WEB)?, address)?;
        for out in ["", "--json -"] {
            load(machines, &mut search, &recorder, out)?;
        }
        // Also after the load.
        look_at(machines, &mut search)?;
        for number in 1..=count {
            let log = fs::read(format!("{}/c{number}-sshd.log", machines.folder))?;
            let text = String::from_utf8_lossy(&log);
            ensure!(
                text.contains("debug3") && text.contains("proofload"),
                "sshd of c{number} told nothing: {text}"
            );
            search.look(&format!("the log of sshd on c{number}"), &log);
        }
        let received: Vec<String> = recorder.take().iter().map(|request| format!("{request:?}")).collect();
        Ok(received)
    })?;
    let received = KINDS[..SENT_KINDS].iter().filter(|kind| {
        // As the request is shown, quotes are escaped.
        let heard_of = heard_of(kind).replace('"', "\\\"");
        heard.iter().any(|request| request.contains(&heard_of))
    });
    outcome.equal("kinds_received", received.count() as u64, SENT_KINDS as u64, "the target's own log");
    outcome.equal("found", search.found.len() as u64, 0, "places that hold a secret");
    search.found.iter().take(20).for_each(|found| outcome.note(found.clone()));
    Ok(outcome)
}

/// Runs a load, searches the machines while it goes on, and interrupts it.
fn load(machines: &Machines, search: &mut Search, recorder: &Recorder, out: &str) -> Result<()> {
    let count = machines.count;
    let words = format!("-R 40 -c {} -d 1h -q {out} {}", 2 * count, machines.on(count));
    let url = search.url(&format!("{}:{PORT}", web()), "http://");
    let headers = search.headers();
    let launch = machines.command(NEAR, "http")?.arg(url).words(&words);
    let launch = launch.args(headers.iter().flat_map(|header| ["-H", header.as_str()]));
    let mut load = launch.env(VARIABLE, KINDS[SENT_KINDS - 1].1).start()?;
    let before = recorder.count();
    load.find("requests are sent", PATIENCE, |_| (recorder.count() >= before + 4 * count).then_some(()))?;
    let agents = look_at(machines, search)?;
    // `lab shell` would not pass the signal on.
    let controller = child_with("http", load.pid()).context("there is no controller")?;
    let controller = Pid::from_raw(controller.cast_signed()).context("no process")?;
    kill_process(controller, Signal::INT)?;
    let done = load.finish(PATIENCE)?;
    ensure!(done.code == Some(130), "{done:?}");
    ensure!(agents == count, "{agents} agents were seen on {count} machines");
    search.look("standard output", done.stdout.as_bytes());
    search.look("standard error", done.stderr.as_bytes());
    Ok(())
}

/// Searches what each machine has: its processes and its own files. Returns the number of agents.
fn look_at(machines: &Machines, search: &mut Search) -> Result<usize> {
    let (mut agents, program) = (0, fs::read(binary()?)?);
    for name in machines.names(machines.count) {
        let mut root = None;
        for pid in machines.processes(&name)? {
            for file in ["cmdline", "environ"] {
                // A process may have ended by now.
                let bytes = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
                search.look(&format!("{file} of a process on {name}"), &bytes);
                agents += usize::from(is_agent(&bytes));
            }
            root.get_or_insert_with(|| PathBuf::from(format!("/proc/{pid}/root")));
        }
        let root = root.with_context(|| format!("nothing runs on {name}"))?;
        for folder in FOLDERS {
            for file in files_below(&root.join(folder))? {
                let bytes = fs::read(&file).unwrap_or_default();
                // It is the program itself, which takes seconds to search.
                if bytes.len() != program.len() || bytes != program {
                    search.look(&file.display().to_string(), &bytes);
                }
            }
        }
    }
    // What the controller starts, such as ssh; its own words are the user's.
    for pid in machines.processes(NEAR)? {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        if !words.windows(6).any(|part| part == b"\0http\0") {
            search.look("the arguments of a process beside the controller", &words);
        }
    }
    Ok(agents)
}

/// Whether these are the words of an agent's process.
fn is_agent(words: &[u8]) -> bool {
    words.ends_with(b"\0--stdio\0") && words.windows(7).any(|part| part == b"\0agent\0")
}
