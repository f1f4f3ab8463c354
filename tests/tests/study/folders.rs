//! Folders of results, and the files that a command names.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown, lchown, symlink},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use proofload_tests::{Proofload, process::Launch, serve::Serve, temporary::TemporaryFolder};
use record::ResultFolder;
use testing::PATIENCE;

use super::super::beside_others;

const QUICK: &str = "title = \"quick\"\n[workload.command]\nrun = \"true\"\n";
/// Another user than root and nobody.
const OTHER: u32 = 61_234;

#[test]
fn what_programs_write_is_private_until_it_is_masked() -> Result<()> {
    let _shared = beside_others();
    let folder = TemporaryFolder::new()?;
    let (file, out) = (folder.file("study.toml"), folder.file("result"));
    let run = "stat -L -c %a /proc/self/fd/1; readlink /proc/self/fd/1; echo \"it is $DB_PASSWORD\"";
    fs::write(
        &file,
        format!(
            "title = \"t\"\n[workload.command]\nrun = '{run}'\nenv = {{ DB_PASSWORD = \"sesame-4711\" }}\n"
        ),
    )?;
    let output = Proofload::new(&format!("run {file} --out {out} -q"))?.run()?;
    let kept =
        fs::read_to_string(format!("{out}/output/1/command-0.out")).with_context(|| output.described())?;
    let lines: Vec<&str> = kept.lines().collect();
    ensure!(
        lines[0] == "600" && !lines[1].starts_with(&out) && lines[1].ends_with(".output/command-0.out"),
        "{kept}"
    );
    ensure!(lines[2].contains("it is") && !kept.contains("sesame"), "{kept}");
    ensure!(fs::symlink_metadata(lines[1]).is_err(), "what was written is left: {kept}");
    Ok(())
}

#[test]
fn as_root_nothing_is_run_from_a_folder_that_another_user_can_replace() -> Result<()> {
    let _shared = beside_others();
    let folder = TemporaryFolder::new()?;
    let (file, shared) = (folder.file("study.toml"), folder.file("shared"));
    fs::write(&file, QUICK)?;
    fs::create_dir_all(format!("{shared}/results/own"))?;
    let results = format!("{shared}/results");
    fs::create_dir(format!("{results}/ours"))?;
    symlink("results/ours", format!("{shared}/link"))?;
    symlink("results/ours", format!("{shared}/theirs"))?;
    lchown(format!("{shared}/theirs"), Some(OTHER), None)?;
    let mode = |mode| fs::set_permissions(&results, fs::Permissions::from_mode(mode));
    // `owner` of the folder `results`, its mode, the folder of the result, and what is said of it.
    for (owner, bits, out, says) in [
        (0, 0o777, "", "could rename"),
        (OTHER, 0o755, "", "belongs to user 61234"),
        (0, 0o777, "--out results/run", "could rename"),
        (0, 0o755, "--out results/own", "belongs to user 61234"),
        (0, 0o777, "--out results/ours/run", "could rename"),
        (0, 0o777, "--out link/run", "could rename"),
        (0, 0o755, "--out theirs/run", "belongs to user 61234"),
        (0, 0o755, "--out link/run", ""),
        (0, 0o755, "", ""),
        (0, 0o1777, "--out results/sticky", ""),
        (0, 0o775, "--out results/group", ""),
    ] {
        chown(&results, Some(owner), None)?;
        chown(format!("{results}/own"), Some(OTHER), None)?;
        mode(bits)?;
        let before = fs::read_dir(&results)?.count();
        let call = Proofload::new(&format!("run {file} -q {out}"))?;
        let output = call.with(|launch| launch.under(["env", "-C", &shared])).run()?;
        if says.is_empty() {
            ensure!(output.code == Some(0), "{out}: {}", output.described());
        } else {
            ensure!(output.code == Some(2) && output.stderr.contains(says), "{out}: {}", output.described());
            ensure!(fs::read_dir(&results)?.count() == before, "{out}: something was made");
        }
    }
    // An empty folder of the user's own, as umask 002 makes it, is as good as a new one.
    let own = folder.file("empty");
    ensure!(Command::new("sh").args(["-c", &format!("umask 002; mkdir {own}")]).status()?.success());
    let call = format!(
        "umask 002; exec {} run {file} -q --out {own}",
        proofload_tests::proofload::binary()?.display()
    );
    let finished = Launch::new("sh").args(["-c", &call]).run(PATIENCE)?;
    ensure!(finished.code == Some(0), "{}", finished.stderr);
    ensure!(ResultFolder::open(own.as_ref())?.trials()?.len() == 1);
    Ok(())
}

#[test]
fn studies_that_begin_in_one_second_get_folders_of_their_own() -> Result<()> {
    let _shared = beside_others();
    let folder = TemporaryFolder::new()?;
    let (file, place) = (folder.file("study.toml"), folder.file("place"));
    fs::write(&file, QUICK)?;
    fs::create_dir(&place)?;
    let start = || {
        Proofload::new(&format!("run {file} -q"))?.with(|launch| launch.under(["env", "-C", &place])).start()
    };
    let running: Vec<_> = (0..6).map(|_| start()).collect::<Result<_>>()?;
    for run in running {
        let output = run.finish()?;
        ensure!(output.code == Some(0), "{}", output.described());
    }
    let folders = fs::read_dir(format!("{place}/results"))?.count();
    ensure!(folders == 6, "{folders} folders");
    Ok(())
}

#[test]
fn no_output_replaces_an_input_or_another_output() -> Result<()> {
    let _shared = beside_others();
    let serve = Serve::start("")?;
    let folder = TemporaryFolder::new()?;
    let (url, ra, rows) = (serve.url(), folder.file("ra"), folder.file("f.csv"));
    fs::write(&rows, "id\n1\n2\n3\n")?;
    let output = Proofload::new(&format!("http {url} -n 3 -q --out {ra}"))?.run()?;
    output.counted(0)?;
    // What is named within a study, a line of curl or another option.
    let (study, key, body) = (folder.file("s.toml"), folder.file("key.pem"), folder.file("body"));
    fs::write(&key, &rows)?;
    fs::write(&body, "mine")?;
    fs::write(
        &study,
        format!(
            "title = \"t\"\n[targets.a]\nurl = \"{url}\"\n[workload.http]\nusers = 1\nrequests = 2\n\
             body = \"@{body}\"\nfeeders = [\"{rows}\"]\n[[goals]]\nerrors = 0.0\n"
        ),
    )?;
    let times = folder.file("times");
    fs::write(&times, "1ms\n")?;
    let links = folder.file("second");
    fs::hard_link(&body, &links)?;
    let (own, receipts) = (folder.file("own"), folder.file("receipts"));
    for line in [
        format!("run {study} -q --out {own} --json {body}"),
        format!("run {study} -q --out {own} --json {links}"),
        format!("run {study} -q --out {own} --json {rows}"),
        format!("run {study} -q --out {own} --set workload.http.log={body}"),
        format!("run {study} -q --out {own} --set workload.http.log={own}/report.html"),
        format!("http {url} -n 3 -q --think-time file:{times} --hlog {times}"),
        format!("serve --listen 127.0.0.1:0 -d 100ms -q --delay file:{times} --record {times}"),
        format!("http -n 3 -q --json {body} -- curl -T {body} {url}"),
        format!("http -n 3 -q --json {key} -- curl -k --cert {key} --key {key} https://127.0.0.1:1/"),
        format!("http {url} -n 3 -q --events --receipts {receipts} --json {receipts}/receipts-0.jsonl"),
        format!("report {ra} --html {ra}/plan.json"),
        format!("report {ra} --json - --junit -"),
        format!("http {url}/{{{{id}}}} -n 3 -q --feeder {rows} --json {rows}"),
        format!("http {url} -n 3 -q --json {ra}/s --html {ra}/s"),
        format!("http {url} -n 3 -q --json {ra}/s --hlog {ra}/s"),
        format!("http {url} -n 3 -q --json - --html -"),
    ] {
        let output = Proofload::new(&line)?.run()?;
        ensure!(output.code == Some(2) && output.stdout.is_empty(), "{}", output.described());
    }
    ensure!(fs::read_to_string(&rows)? == "id\n1\n2\n3\n");
    ensure!(fs::read_to_string(&times)? == "1ms\n" && fs::read_to_string(&key)? == rows);
    ensure!(fs::read_to_string(&body)? == "mine" && fs::read_to_string(&links)? == "mine");
    let output = Proofload::new(&format!("report {ra} --html {ra}/report.html --junit -"))?.run()?;
    ensure!(output.code == Some(0) && output.stdout.contains("<testsuite"), "{}", output.described());
    ensure!(serve.stop()?.requests == 3, "a refused command sent requests");
    Ok(())
}

#[test]
fn of_trials_that_begin_with_one_folder_one_is_kept() -> Result<()> {
    let _shared = beside_others();
    let (serve, folder) = (Serve::start("")?, TemporaryFolder::new()?);
    let out = folder.file("out");
    let words = format!("http {} -n 50 -c 1 -q --out {out}", serve.url());
    let running: Vec<_> = (0..4).map(|_| Proofload::new(&words)?.start()).collect::<Result<_>>()?;
    let outputs: Vec<_> = running.into_iter().map(|run| run.finish()).collect::<Result<_>>()?;
    let refused = outputs.iter().filter(|output| output.code == Some(2)).count();
    ensure!(refused == 3, "{refused}: {:?}", outputs.iter().map(|output| &output.stderr).collect::<Vec<_>>());
    ensure!(ResultFolder::open(out.as_ref())?.read()?.trials.len() == 1);
    Ok(())
}

/// Answers so many requests, on as many connections as there are, and ends.
const MORTAL: &str = r#"
import socket, sys, threading
left, lock = int(sys.argv[1]), threading.Lock()
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
def answer(peer):
    global left
    while peer.recv(65536):
        with lock:
            left -= 1
            if left < 0:
                import os
                os._exit(0)
        peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
while True:
    threading.Thread(target=answer, args=(server.accept()[0],), daemon=True).start()
"#;

#[test]
fn a_target_that_dies_in_the_deciding_trial_gives_no_answer() -> Result<()> {
    let _shared = beside_others();
    for repeats in [1, 3] {
        let mut target = Launch::new("python3").args(["-c", MORTAL, "10"]).start()?;
        let port = target.find("its port", PATIENCE, |target| target.stdout().trim().parse::<u16>().ok())?;
        let folder = TemporaryFolder::new()?;
        let line = format!(
            "limit rate http://127.0.0.1:{port}/ --errors 0 --min 20 --max 300 --trial 1s --repeats {repeats} -q --out {}",
            folder.file("result")
        );
        let output = Proofload::new(&line)?.run()?;
        ensure!(output.code == Some(2), "{}", output.described());
        let sentence = output.stdout.lines().next().unwrap_or_default();
        ensure!(
            sentence.contains("stopped answering") && !sentence.contains("Does not carry"),
            "{}",
            output.described()
        );
    }
    Ok(())
}
