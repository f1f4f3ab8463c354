//! What is refused before any login. No lab is needed: what stands in the place of `ssh` only tells that it was called.

use std::path::Path;

use proofload_tests::nginx::pem;

use super::*;

/// Nothing is sent to this address (TEST-NET-1).
const NOWHERE: &str = "http://192.0.2.1/";

/// A folder whose `ssh` makes a file, and refuses.
struct Door {
    labs: Labs,
    path: String,
}

impl Door {
    fn new() -> Result<Self> {
        let labs = Labs::new()?;
        let script = format!(
            "echo called >>{}; echo 'Permission denied (publickey).' >&2; exit 255",
            labs.path("called")
        );
        let path = labs.with_ssh(&script)?;
        Ok(Self { labs, path })
    }

    /// Runs a line, which must be refused. Returns standard error, and whether a login was tried.
    fn refused(&self, line: &str) -> Result<(String, bool)> {
        let called = self.labs.path("called");
        let _ = fs::remove_file(&called);
        let Finished { code, stdout, stderr, .. } =
            self.labs.command(line)?.env("PATH", &self.path).run(PATIENCE)?;
        ensure!(
            code == Some(2) && !stderr.contains("panicked at"),
            "`{line}` ended with {code:?}: {stdout}{stderr}"
        );
        Ok((stderr, Path::new(&called).exists()))
    }

    /// Runs lines that must be refused before any login, each for a reason with all of these words; of `a|b`, one.
    fn never_logs_in(&self, lines: &[(String, &[&str])]) -> Result<()> {
        let mut wrong = Vec::new();
        for (line, words) in lines {
            let (stderr, is_called) = self.refused(line)?;
            let is_said = |word: &&str| word.split('|').any(|one| stderr.contains(one));
            let missing: Vec<_> = words.iter().filter(|word| !is_said(word)).collect();
            if is_called || !missing.is_empty() {
                wrong.push(format!("`{line}`: called {is_called}, not said {missing:?}: {stderr}"));
            }
        }
        ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
        Ok(())
    }
}

#[test]
fn a_login_is_tried_if_nothing_speaks_against_it() -> Result<()> {
    let door = Door::new()?;
    let study = format!("title = \"t\"\n[workload.http]\nurl = \"{NOWHERE}\"\nusers = 1\nrequests = 1\n");
    let plain = door.labs.file("study.toml", &study)?;
    let [log, receipts, out] = ["log", "receipts", "out"].map(|name| door.labs.path(name));
    // Files of this machine are sent to others, and written here.
    let Files { authority, certificate, key, rows } = Files::new(&door.labs)?;
    let (fed, on) = (format!("--feeder {rows} -H X:{{{{name}}}}"), "--on c1=root@c1");
    let secure = format!("https://192.0.2.1/ -n 1 --cacert {authority}");
    let keys = "feeders = [\"rows.csv\"]\nheaders = [\"X: {{name}}\"]\nlog = \"log\"\n";
    let with_files = door.labs.file("files.toml", &(study.clone() + keys))?;
    let keys = "cacert = \"ca.pem\"\ncert = \"cert.pem\"\nkey = \"key.pem\"\n";
    let certified = study.replace("http://", "https://") + keys;
    let certified = door.labs.file("certified.toml", &certified)?;
    for line in [
        format!("http {NOWHERE} -n 1 {on}"),
        format!("http {NOWHERE} -n 1 {fed} {on}"),
        format!("http {NOWHERE} -n 1 --cookies --log {log} --log-sample 1 {on}"),
        format!("http {NOWHERE} -n 1 --events --receipts {receipts} {on}"),
        format!("http {secure} {on}"),
        format!("http {secure} --cert {certificate} --key {key} {fed} --log {log} {on}"),
        format!("limit rate {NOWHERE} --errors 0 --out {out} {on}"),
        format!("limit rate {NOWHERE} --errors 0 {fed} --out {out} {on}"),
        format!("run {plain} --out {out} {on}"),
        format!("run {with_files} --out {out} {on}"),
        format!("run {certified} --out {out} {on}"),
        format!("clean {on}"),
    ] {
        let (stderr, is_called) = door.refused(&line)?;
        let is_told = ["c1", "Permission denied (publickey)", "`ssh root@c1 true`", "without a password"];
        let missing: Vec<_> = is_told.iter().filter(|word| !stderr.contains(**word)).collect();
        ensure!(is_called && missing.is_empty(), "`{line}`: called {is_called}, {missing:?}: {stderr}");
    }
    Ok(())
}

#[test]
fn what_other_machines_cannot_do_is_refused_before_any_login() -> Result<()> {
    let door = Door::new()?;
    let [socket, out] = ["socket", "out"].map(|name| door.labs.path(name));
    let on = "--on c1=root@c1";
    let study = format!(
        "title = \"t\"\n[workload.http]\nurl = \"{NOWHERE}\"\nusers = 1\nrequests = 1\nunix_socket = \"{socket}\"\n"
    );
    let study = door.labs.file("study.toml", &study)?;
    let hosts = "title = \"t\"\n[hosts]\na = {}\n[targets.t]\non = \"a\"\nrun = \"serve\"\n\
                 [workload.http]\npath = \"/\"\nusers = 1\nrequests = 1\n";
    let hosts = door.labs.file("hosts.toml", hosts)?;
    let program = door.labs.file("program.toml", "title = \"t\"\n[workload.command]\nrun = \"true\"\n")?;
    door.never_logs_in(&[
        (format!("http {NOWHERE} -n 1 --unix-socket {socket} {on}"), &["--unix-socket", "machine"]),
        (
            format!("limit rate {NOWHERE} --errors 0 --unix-socket {socket} --out {out} {on}"),
            &["unix_socket|--unix-socket", "machine"],
        ),
        (format!("run {study} --out {out} {on}"), &["unix_socket", "machine"]),
        (format!("run {hosts} --out {out} {on}"), &["--on", "hosts"]),
        (format!("run {program} --out {out} {on}"), &["--on", "program"]),
    ])
}

#[test]
fn files_that_cannot_be_sent_are_refused_before_any_login() -> Result<()> {
    let door = Door::new()?;
    let Files { authority, certificate, key, rows } = Files::new(&door.labs)?;
    let [none, out] = ["none/file", "out"].map(|name| door.labs.path(name));
    let (on, secure) = ("--on c1=root@c1", "https://192.0.2.1/ -n 1");
    let http = format!("http {NOWHERE} -n 1 -H X:{{{{name}}}}");
    let wrong = door.labs.file("wrong.csv", "name\nann\nbob,x\n")?;
    door.never_logs_in(&[
        (format!("{http} --feeder {none} {on}"), &["none/file"]),
        (format!("{http} --feeder {wrong} {on}"), &["wrong.csv:3"]),
        (format!("http {secure} --cacert {none} {on}"), &["--cacert", "none/file"]),
        (
            format!("http {secure} --cacert {authority} --cert {none} --key {key} {on}"),
            &["--cert", "none/file"],
        ),
        (format!("http {secure} --cert {certificate} --key {none} {on}"), &["--key", "none/file"]),
        (format!("http {secure} --cert {certificate} --key {rows} {on}"), &["--key", "rows.csv"]),
    ])?;

    // 64 MiB of all files may be sent, not 65 of one or two.
    let sized = |name: &str, mib: usize| {
        let row = format!("ann,{}\n", "x".repeat((1 << 20) - 5));
        door.labs.file(name, &format!("name,pad\n{}", row.repeat(mib)))
    };
    let [large, half, fits] = [sized("large.csv", 65)?, sized("half.csv", 33)?, sized("fits.csv", 63)?];
    let other =
        door.labs.file("other.csv", &fs::read_to_string(&half)?.replacen("name,pad", "id,more", 1))?;
    let study = format!(
        "title = \"t\"\n[workload.http]\nurl = \"{NOWHERE}\"\nusers = 1\nrequests = 1\nfeeders = [\"large.csv\"]\n\
         headers = [\"X: {{{{name}}}}\"]\n"
    );
    let study = door.labs.file("large.toml", &study)?;
    door.never_logs_in(&[
        (format!("{http} --feeder {large} {on}"), &["--feeder", "MiB"]),
        (format!("{http} --feeder {large},random {on}"), &["--feeder", "MiB"]),
        (format!("{http} --feeder {half} --feeder {other} {on}"), &["--feeder", "MiB"]),
        (
            format!("limit rate {NOWHERE} --errors 0 -H X:{{{{name}}}} --feeder {large} --out {out} {on}"),
            &["feeder"],
        ),
        (format!("run {study} --out {out} {on}"), &["feeders"]),
    ])?;
    // The same without the options that are wrong.
    let (stderr, is_called) = door.refused(&format!("{http} --feeder {fits} {on}"))?;
    ensure!(is_called && stderr.contains("Permission denied"), "63 MiB: called {is_called}: {stderr}");
    let (stderr, is_called) = door.refused(&format!("{http} --feeder {half} {on}"))?;
    ensure!(is_called && stderr.contains("Permission denied"), "33 MiB: called {is_called}: {stderr}");
    Ok(())
}

#[test]
fn mistakes_in_the_names_of_machines_are_refused_before_any_login() -> Result<()> {
    let door = Door::new()?;
    let http = format!("http {NOWHERE} -n 1");
    let saved = door.labs.path("saved.toml");
    let inventories = INVENTORIES.map(|(name, text)| door.labs.file(name, text));
    let [ini, yaml] = inventories;
    let [ini, yaml] = [ini?, yaml?];
    door.never_logs_in(&[
        (format!("{http} --on root@c1,root@c1"), &["c1"]),
        (format!("{http} --on twin=root@c1,twin=root@c2"), &["twin"]),
        (format!("{http} --on {ini}:spare,c3=root@c1"), &["c3"]),
        (format!("{http} --on c1=root@c1 --share other=2"), &["--share", "other"]),
        (format!("{http} --on c1=root@c1 --share c1=0"), &["--share", "c1=0"]),
        (format!("{http} --on c1=root@c1 --share c1"), &["--share", "c1"]),
        (format!("{http} --share c1=2"), &["--on"]),
        (format!("{http} --allow-lost 1"), &["--on"]),
        (format!("{http} --on c1=root@c1 --save {saved}"), &["--save", "--on"]),
        (format!("{http} --on nats://broker:4222/clients"), &["nats://broker:4222/clients"]),
        (format!("{http} --on root@c1:none"), &["root@c1:none"]),
        (format!("{http} --on {ini}:nobody"), &["nobody", "clients", "spare"]),
        (format!("{http} --on {yaml}:nobody"), &["nobody", "clients", "spare"]),
        (format!("clean --on {yaml}:nobody"), &["nobody", "clients", "spare"]),
        // All mistakes are named at once.
        (format!("{http} --on nats://broker:4222/a,{ini}:nobody"), &["nats://broker:4222/a", "clients"]),
    ])?;
    ensure!(!Path::new(&saved).exists(), "a study was written");
    Ok(())
}

/// Files that a plan may read.
struct Files {
    authority: String,
    certificate: String,
    key: String,
    /// A feeder with the column `name`.
    rows: String,
}

impl Files {
    fn new(labs: &Labs) -> Result<Self> {
        let authority = tls::Authority::new("the authority of tests")?;
        let identity = authority.certify(&["localhost"], tls::Validity::default())?;
        Ok(Self {
            authority: labs.file("ca.pem", &authority.pem())?,
            certificate: labs.file("cert.pem", &pem("CERTIFICATE", &identity.chain[0]))?,
            key: labs.file("key.pem", &pem("PRIVATE KEY", identity.key.secret_der()))?,
            rows: labs.file("rows.csv", "name\nann\n")?,
        })
    }
}
