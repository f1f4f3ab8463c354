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

    /// Runs lines that must be refused before any login, each for a reason with all of these words.
    fn never_logs_in(&self, lines: &[(String, &[&str])]) -> Result<()> {
        let mut wrong = Vec::new();
        for (line, words) in lines {
            let (stderr, is_called) = self.refused(line)?;
            let missing: Vec<_> = words.iter().filter(|word| !stderr.contains(**word)).collect();
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
    let study = door.labs.file("study.toml", &study)?;
    let out = door.labs.path("out");
    for line in [
        format!("http {NOWHERE} -n 1 --on c1=root@c1"),
        format!("limit rate {NOWHERE} --errors 0 --out {out} --on c1=root@c1"),
        format!("run {study} --out {out} --on c1=root@c1"),
        "clean --on c1=root@c1".to_owned(),
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
    let authority = tls_authority(&door.labs)?;
    let [certificate, key] = ["cert.pem", "key.pem"].map(|name| door.labs.path(name));
    let rows = door.labs.file("rows.csv", "name\nann\n")?;
    let [log, receipts, out] = ["log", "receipts", "out"].map(|name| door.labs.path(name));
    let fed = format!("--feeder {rows} -H X:{{{{name}}}}");
    let (on, secure) = ("--on c1=root@c1", "https://192.0.2.1/");
    let http = format!("url = \"{NOWHERE}\"\nusers = 1\nrequests = 1\n");
    let study = format!(
        "title = \"t\"\n[workload.http]\n{http}feeders = [\"{rows}\"]\nheaders = [\"X: {{{{name}}}}\"]\n"
    );
    let study = door.labs.file("study.toml", &study)?;
    let hosts = "title = \"t\"\n[hosts]\na = {}\n[targets.t]\non = \"a\"\nrun = \"serve\"\n\
                 [workload.http]\npath = \"/\"\nusers = 1\nrequests = 1\n";
    let hosts = door.labs.file("hosts.toml", hosts)?;
    let program = door.labs.file("program.toml", "title = \"t\"\n[workload.command]\nrun = \"true\"\n")?;
    door.never_logs_in(&[
        (format!("http {NOWHERE} -n 1 {fed} {on}"), &["--feeder", "machine"]),
        (format!("http {NOWHERE} -n 1 --cookies --log {log} --log-sample 1 {on}"), &["--log", "machine"]),
        (format!("http {NOWHERE} -n 1 --events --receipts {receipts} {on}"), &["--receipts", "machine"]),
        (format!("http {secure} -n 1 --cacert {authority} {on}"), &["--cacert", "machine"]),
        (format!("http {secure} -n 1 --cert {certificate} --key {key} {on}"), &["--cert", "machine"]),
        // All of them are named at once.
        (format!("http {secure} -n 1 {fed} --cacert {authority} {on}"), &["--feeder", "--cacert"]),
        (format!("limit rate {NOWHERE} --errors 0 {fed} --out {out} {on}"), &["feeder", "machine"]),
        (format!("run {study} --out {out} {on}"), &["feeders", "machine"]),
        (format!("run {hosts} --out {out} {on}"), &["--on", "hosts"]),
        (format!("run {program} --out {out} {on}"), &["--on", "program"]),
    ])
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

/// Writes the certificate of an authority, whose path it returns, and one that it issued with its key.
fn tls_authority(labs: &Labs) -> Result<String> {
    let authority = tls::Authority::new("the authority of tests")?;
    let identity = authority.certify(&["localhost"], tls::Validity::default())?;
    labs.file("cert.pem", &pem("CERTIFICATE", &identity.chain[0]))?;
    labs.file("key.pem", &pem("PRIVATE KEY", identity.key.secret_der()))?;
    labs.file("ca.pem", &authority.pem())
}
