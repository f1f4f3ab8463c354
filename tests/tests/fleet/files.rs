//! Files of the controller: what a plan reads is sent to the machines, and what it writes comes back from them. The machines have
//! folders of their own, in which the controller's names mean other files, or none.
//!
//! What is expected:
//!
//! 1. Feeders of each order give the same requests on one machine, on three, and without other machines; with `once`, each row is used
//!    at most once over all of them, and the load ends with the last row. Searches and studies have feeders, too; each trial of a study
//!    reads them anew, and fails with the file's name if it is gone. (`rows`)
//! 2. Receipts that three machines wrote prove to the audit what a listener stored; without those of one machine, or with a line less,
//!    one more or a changed one in the listener's file, the audit says so. Also those of an interrupted load; those of a lost machine
//!    are missing, which the audit says. Receipts of another run are not added to. (`written`)
//! 3. A log of all requests has a line of each that the target saw, and is appended to. What one worker cannot keep in 64 MiB is lost,
//!    and said. (`written`)
//! 4. Authorities, certificate and key of a client are those of the controller. (`kept`)
//! 5. Files of the machines that have the same names are neither read nor written, and nothing of what was sent lies in any file of
//!    theirs, during the load and after it. (`kept`)

mod kept;
mod rows;
mod written;

use std::path::Path;

use proofload_tests::faulty_disk::files_below;

use super::*;

/// What belongs to a machine alone.
const FOLDERS: [&str; 4] = ["root", "tmp", "run", "var"];
/// A part of each row. No other program says it.
const MARKER: &str = "sesame-4713-of-a-row";
/// Where a listener takes events.
const EVENTS_URL: &str = "http://10.1.0.5:9880/test";

/// The text of the lab's file: machines with folders of their own.
fn lab_of_own_folders(_: &Labs) -> Result<String> {
    let folders = FOLDERS.map(|folder| format!("\"/{folder}\"")).join(", ");
    let hosts = HOSTS.map(|host| match ALL_MACHINES.contains(&host) {
        true => format!("{host} = {{ private = [{folders}] }}\n"),
        false => format!("{host} = {{}}\n"),
    });
    let quoted =
        |hosts: &[&str]| hosts.iter().map(|host| format!("\"{host}\"")).collect::<Vec<_>>().join(", ");
    Ok(format!(
        "title = \"files\"\n[hosts]\n{}[[links]]\nbetween = [{}]\n\
         [[processes]]\non = [{}]\nrun = \"sshd\"\nconfig = \"debian\"\nready_timeout = \"10m\"\n\
         [[processes]]\non = \"web\"\nrun = \"serve\"\nready_timeout = \"10m\"\n",
        hosts.concat(),
        quoted(&HOSTS),
        quoted(&ALL_MACHINES)
    ))
}

/// What a shell on a host says, with this input.
fn said(fleet: &Fleet, host: &str, line: &str, input: &str) -> Result<String> {
    let launch = fleet.labs.command(&format!("lab shell {host} -- sh -c"))?.arg(line).input(input);
    let finished = launch.run(PATIENCE)?;
    ensure!(finished.code == Some(0), "{host}: {line}: {finished:?}");
    Ok(finished.stdout)
}

/// The value of a row, counted from 0.
fn value(row: usize) -> String {
    format!("{MARKER}-{row}")
}

/// A file with so many rows, whose column is `row`.
fn feeder(fleet: &Fleet, name: &str, rows: usize) -> Result<String> {
    let lines: String = (0..rows).map(|row| value(row) + "\n").collect();
    fleet.labs.file(name, &format!("row\n{lines}"))
}

/// How often the target was asked for each path.
fn asked(fleet: &Fleet) -> BTreeMap<String, u64> {
    let mut asked = BTreeMap::new();
    for request in fleet.target.received() {
        *asked.entry(request.path().to_owned()).or_insert(0) += 1;
    }
    asked
}

/// A program of ours on the host `web`. Dropping it kills it.
struct Server {
    process: Process,
    word: &'static str,
}

impl Server {
    /// Starts it, and waits until it listens.
    fn start(fleet: &Fleet, word: &'static str, words: &str) -> Result<Self> {
        let line = format!("lab shell web -- {} {word} {words}", binary()?.display());
        let process = fleet.labs.command(&line)?.start()?;
        let mut server = Self { process, word };
        server.process.says("listening on", PATIENCE)?;
        Ok(server)
    }

    /// The program, which `lab shell` has started.
    fn pid(&self) -> Option<i32> {
        child_with(self.word, self.process.pid()).map(u32::cast_signed)
    }

    /// Ends it as a service manager would.
    fn stop(mut self) -> Result<()> {
        let pid = self.pid().with_context(|| format!("it has ended: {}", self.process.said()))?;
        signal(pid, Signal::TERM)?;
        let status = self.process.wait(PATIENCE)?.context("it goes on")?;
        ensure!(status.success(), "{} ended with {status}: {}", self.word, self.process.said());
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(pid) = self.pid() {
            let _ = signal(pid, Signal::KILL);
        }
    }
}

/// The listener on the host `web`, and the file for events that are sent to [`EVENTS_URL`].
fn listener(fleet: &Fleet, name: &str) -> Result<(Server, String)> {
    let folder = fleet.labs.path(name);
    fs::create_dir(&folder)?;
    let words = format!("--listen {}:9880 --path {folder}/${{tag}}.log", address("web"));
    Ok((Server::start(fleet, "listen", &words)?, format!("{folder}/test.log")))
}

/// Where one of these texts is found on a machine: in its own files but these, in files in memory that it shares, in the words and
/// the environment of its processes.
fn found_on(fleet: &Fleet, machine: &str, texts: &[&str], but: &[Decoy<'_>]) -> Result<Vec<String>> {
    let holds = |path: &Path| {
        // A process may have ended by now, and a socket has no bytes.
        let bytes = fs::read(path).unwrap_or_default();
        let bytes = String::from_utf8_lossy(&bytes);
        texts.iter().any(|text| bytes.contains(text))
    };
    let processes = fleet.processes(&[machine]);
    let sshd = processes.iter().find(|(pid, words)| fleet.before.contains(pid) && words.contains("sshd"));
    let (sshd, _) = sshd.with_context(|| format!("{machine} has no sshd: {processes:#?}"))?;
    let root = PathBuf::from(format!("/proc/{sshd}/root"));
    let mut looked_at: Vec<PathBuf> = processes
        .keys()
        .flat_map(|pid| ["cmdline", "environ"].map(|name| format!("/proc/{pid}/{name}").into()))
        .collect();
    for folder in FOLDERS {
        let own = files_below(&root.join(folder))?.into_iter();
        // A look at them would be taken for one of the load.
        let is_meant =
            |path: &PathBuf| !but.iter().any(|decoy| *path == root.join(decoy.path.trim_start_matches('/')));
        looked_at.extend(own.filter(is_meant));
    }
    // The program itself must be among them, or this looks at the wrong folders.
    ensure!(
        looked_at
            .iter()
            .any(|path| path.ends_with("proofload") && path.starts_with(root.join("root/.cache"))),
        "{machine} has no copy of the program below {}",
        root.display()
    );
    looked_at.extend(files_below(Path::new("/dev/shm")).unwrap_or_default());
    Ok(looked_at.into_iter().filter(|path| holds(path)).map(|path| path.display().to_string()).collect())
}

/// A file of a machine that has the name of one of the controller.
struct Decoy<'a> {
    machine: &'static str,
    path: &'a str,
    text: &'a str,
    stamps: String,
}

impl<'a> Decoy<'a> {
    /// Makes a file with this text on each machine.
    fn on_all(fleet: &Fleet, path: &'a str, text: &'a str) -> Result<Vec<Self>> {
        let make = |machine: &'static str| {
            // Before the time of the last change, the time of access is changed by a read.
            let line = format!(
                "test ! -e {path} && mkdir -p $(dirname {path}) && cat >{path} && touch -a -d 2001-01-01 {path}"
            );
            said(fleet, machine, &line, text)?;
            let stamps = Self::stamps(fleet, machine, path)?;
            Ok(Self { machine, path, text, stamps })
        };
        ALL_MACHINES.into_iter().map(make).collect()
    }

    /// When it was read and written.
    fn stamps(fleet: &Fleet, machine: &str, path: &str) -> Result<String> {
        said(fleet, machine, &format!("stat -c '%x, %y, %s bytes, %i' {path}"), "")
    }

    /// Nobody has read or written it. Removes it.
    fn is_untouched(&self, fleet: &Fleet) -> Result<()> {
        let Self { machine, path, text, stamps } = self;
        let now = Self::stamps(fleet, machine, path)?;
        ensure!(now == *stamps, "{machine}: {path} was used: {stamps} is now {now}");
        ensure!(said(fleet, machine, &format!("cat {path}"), "")? == *text, "{machine}: {path} has changed");
        let after = Self::stamps(fleet, machine, path)?;
        ensure!(after != *stamps, "{machine}: a read of {path} cannot be seen");
        said(fleet, machine, &format!("rm {path}"), "").map(drop)
    }
}
