//! Hosts with folders of their own.

use std::{fs, path::Path};

use anyhow::{Context, Result, ensure};
use proofload_tests::{lab::Labs, process::Process, proofload::binary};
use rustix::process::Signal;
use testing::PATIENCE;

use super::{is_left, run_folder};

/// The folders of the hosts `own` and `web`; `shared` has the machine's.
const PRIVATE: &str = "private = [\"/root\", \"/tmp\", \"/run\", \"/var\"]";

/// A lab in which both hosts with folders of their own have an sshd, and one of them each kind of process.
fn lab_file() -> String {
    format!(
        "title = \"private\"\n[hosts]\nshared = {{}}\nown = {{ {PRIVATE} }}\nweb = {{ {PRIVATE} }}\n\
         [[links]]\nbetween = [\"shared\", \"own\", \"web\"]\n\
         [[processes]]\non = [\"own\", \"web\"]\nrun = \"sshd\"\nconfig = \"debian\"\nready_timeout = \"10m\"\n\
         [[processes]]\non = \"web\"\nrun = \"nginx\"\nfiles = {{ \"/5k\" = \"5KiB\" }}\nready_timeout = \"10m\"\n\
         [[processes]]\non = \"web\"\nrun = \"serve\"\nport = 81\nready_timeout = \"10m\"\n\
         [[processes]]\non = \"web\"\ncommand = [\"sh\", \"-c\", \"echo web > own && exec sleep infinity\"]\n\
         directory = \"/var/lib/made\"\nready = \"file:/var/lib/made/own\"\nready_timeout = \"10m\"\n"
    )
}

#[test]
fn inventory_as_root_private_folders_are_a_hosts_own_and_end_with_it() -> Result<()> {
    let _lock = crate::without_other_labs();
    let labs = Labs::new()?;
    labs.run("clean")?;
    let before = labs.inventory()?;
    let mounts = || fs::read_to_string("/proc/self/mountinfo");
    let mounts_before = mounts()?;
    let (lab, _) = labs.up(&labs.file("private.toml", &lab_file())?)?;
    let tested = folders_are_separate(&labs, &lab).and_then(|()| ssh_ends_in_the_hosts_folders(&labs, &lab));
    ensure!(mounts()? == mounts_before, "the machine has other mounts: {}", mounts()?);
    ensure!(!Path::new("/var/lib/made").exists(), "the machine has a file of a host");
    labs.down(lab)?;
    tested?;
    is_left(&labs, &before)?;

    let (mut lab, _) = labs.up(&labs.file("private.toml", &lab_file())?)?;
    lab.signal(Signal::KILL);
    lab.wait(PATIENCE)?;
    labs.run("clean")?;
    is_left(&labs, &before)?;
    ensure!(mounts()? == mounts_before, "the machine has other mounts: {}", mounts()?);
    Ok(())
}

/// What a shell in a host says.
fn said(labs: &Labs, host: &str, line: &str) -> Result<String> {
    let launch = labs.command(&format!("lab shell {host} -- sh -c"))?.arg(line);
    let finished = launch.run(PATIENCE)?;
    ensure!(finished.code == Some(0), "{host}: {line}: {finished:?}");
    Ok(finished.stdout.trim().to_owned())
}

fn folders_are_separate(labs: &Labs, lab: &Process) -> Result<()> {
    let folder = run_folder(&lab.stdout())?;
    for private in ["/root", "/tmp", "/run", "/var"] {
        let look = format!("stat -c '%a %u %g' {private}; stat -f -c %T {private}");
        let [machine, own] = [said(labs, "shared", &look)?, said(labs, "own", &look)?];
        let [mode, kind] = [machine.lines().next(), own.lines().last()];
        ensure!(own.lines().next() == mode && kind == Some("tmpfs"), "{private}: {own}, and {machine} here");
        let file = format!("{private}/proofload-test-own");
        for host in ["own", "web"] {
            let wrote = said(labs, host, &format!("test ! -e {file} && echo {host} > {file} && cat {file}"))?;
            ensure!(wrote == host, "{host}: {wrote}");
        }
        ensure!(said(labs, "own", &format!("cat {file}"))? == "own");
        ensure!(!Path::new(&file).exists(), "{file} is on the machine");
    }
    // Nothing else of the machine is in these folders, and what is shared can be used.
    ensure!(
        said(labs, "own", "ls -A /root")? == "proofload-test-own",
        "{}",
        said(labs, "own", "ls -A /root")?
    );
    ensure!(said(labs, "own", &format!("ls {folder}/ssh_config"))?.ends_with("ssh_config"));
    let version = said(labs, "own", &format!("{} --version", binary()?.display()))?;
    ensure!(version.starts_with("proofload "), "{version}");
    ensure!(said(labs, "web", "cat /var/lib/made/own")? == "web");
    for (port, path) in [(80, "5k"), (81, "")] {
        let url = format!("curl -sf -o /dev/null -w %{{http_code}} http://10.1.0.3:{port}/{path}");
        ensure!(said(labs, "own", &url)? == "200", "nothing answers on port {port}");
    }
    // The journals of a lab that runs in a host are there, and not here.
    let state = labs.state().display().to_string();
    let journals = said(labs, "own", &format!("{0} clean && ls -A {state}", binary()?.display()))?;
    ensure!(!journals.contains(".journal"), "{journals}");
    Ok(())
}

fn ssh_ends_in_the_hosts_folders(labs: &Labs, lab: &Process) -> Result<()> {
    let folder = run_folder(&lab.stdout())?;
    for host in ["own", "web"] {
        let ssh = format!(
            "ssh -F {folder}/ssh_config {host} 'pwd; cat /tmp/proofload-test-own; echo {host} > ~/by-ssh'"
        );
        let from_machine = said(labs, "shared", &ssh)?;
        ensure!(from_machine == format!("/root\n{host}"), "{host}: {from_machine}");
        ensure!(said(labs, host, "cat /root/by-ssh")? == host);
    }
    // From one such host to the other, with the lab's keys.
    let scp = format!("scp -q -F {folder}/ssh_config /root/by-ssh web:copied");
    said(labs, "own", &scp)?;
    ensure!(said(labs, "web", "cat /root/copied")? == "own");
    Ok(())
}

#[test]
fn inventory_private_folders_without_root_are_the_users() -> Result<()> {
    let _lock = crate::without_other_labs();
    let labs = Labs::of_nobody()?;
    labs.run("clean")?;
    let before = labs.inventory()?;
    let text = format!(
        "title = \"nobody\"\n[hosts]\na = {{ {PRIVATE} }}\nb = {{}}\n[[links]]\nbetween = [\"a\", \"b\"]\n\
         [[processes]]\non = \"a\"\nrun = \"nginx\"\nready_timeout = \"10m\"\n\
         [[processes]]\non = \"a\"\nrun = \"serve\"\nready_timeout = \"10m\"\n"
    );
    let (lab, _) = labs.up(&labs.file("nobody.toml", &text)?)?;
    let look = "for folder in /root /tmp /run /var; do echo own > $folder/own && ls -A $folder; done";
    let tested = said(&labs, "a", look).and_then(|listed| {
        let owns = listed.lines().filter(|line| *line == "own").count();
        ensure!(owns == 4, "{listed}");
        let url = "curl -sf -o /dev/null -w %{http_code} http://10.1.0.1:8080/";
        ensure!(said(&labs, "b", url)? == "200");
        Ok(())
    });
    labs.down(lab)?;
    tested?;
    is_left(&labs, &before)
}

#[test]
fn folders_that_cannot_be_private_are_refused_with_their_places() -> Result<()> {
    let _shared = crate::beside_others();
    let labs = Labs::new()?;
    let hosts =
        "[hosts]\na = { private = [\"tmp\", \"/\", \"/sys/fs\", \"/no/such\", \"/run\", \"/run\"] }\n";
    let study = format!(
        "title = \"t\"\n{hosts}[targets.web]\non = \"a\"\nrun = \"serve\"\n[workload.http]\nfrom = \"a\"\nurl = \"http://{{a}}/\"\n\
         users = 1\nloops = 1\n"
    );
    for (file, text, command, line) in
        [("lab.toml", hosts, "lab up", 2), ("study.toml", study.as_str(), "run --dry-run", 3)]
    {
        let path = labs.file(file, text)?;
        let refused = labs.run(&format!("{command} {path}"))?;
        ensure!(refused.code == Some(2) && refused.stdout.is_empty(), "{refused:?}");
        for part in ["absolute path", "no programs", "find the kernel in /sys", "No such file", "named twice"]
        {
            let mistake = refused.stderr.lines().find(|said| said.contains(part));
            let mistake = mistake.with_context(|| format!("'{part}' is not said: {refused:?}"))?;
            ensure!(mistake.contains(&format!("{file}:{line}:")), "{mistake}");
        }
    }
    Ok(())
}

#[test]
fn inventory_as_root_a_study_keeps_what_its_targets_store_in_private_hosts() -> Result<()> {
    let _lock = crate::without_other_labs();
    let labs = Labs::new()?;
    labs.run("clean")?;
    let before = labs.inventory()?;
    // The folder of the result lies in one that is private on both hosts.
    let text = format!(
        "title = \"private study\"\n[hosts]\nweb = {{ {PRIVATE} }}\nclient = {{ {PRIVATE} }}\n\
         [[links]]\nbetween = [\"web\", \"client\"]\n\
         [targets.web]\non = \"web\"\ndirectory = \"{{target_folder}}\"\nport = 80\nready = \"tcp:80\"\nready_timeout = \"10m\"\n\
         command = [\"sh\", \"-c\", \"echo stored > {{target_folder}}/kept && exec $PROOFLOAD serve --listen 0.0.0.0:80\"]\n\
         [workload.command]\nfrom = \"client\"\n\
         run = \"cat {{scratch}}/../*/kept && curl -sf http://{{web}}/ && echo done > {{scratch}}/by-client\"\n"
    );
    let out = labs.path("result");
    let ran = labs.run(&format!("run {} --out {out}", labs.file("study.toml", &text)?))?;
    ensure!(ran.code == Some(0), "{ran:?}");
    labs.run("clean")?;
    is_left(&labs, &before)
}
