//! Which machine a host is, what runs there, and what is collected.

use super::*;

#[test]
fn inventory_as_root_hosts_of_a_study_are_the_machines_of_their_names() -> Result<()> {
    try_all(&[
        ("targets and load", targets_and_load_are_on_their_machines),
        ("a target of ours", a_command_runs_in_the_machines_folders),
        ("files", files_of_the_load_lie_beside_the_study),
        ("processes", other_processes_run_where_the_study_says),
        ("haproxy", |site| a_balancer_runs_on_its_machine(site, "haproxy")),
        ("l2dsr", |site| a_balancer_runs_on_its_machine(site, "l2dsr")),
    ])
}

fn targets_and_load_are_on_their_machines(site: &Site) -> Result<()> {
    let text = format!(
        "title = \"nginx\"\n{HOSTS}[targets.web]\non = \"web\"\nrun = \"nginx\"\nfile = {{ path = \"/5k\", size = \"5KiB\" }}\n\
         ready_timeout = \"10m\"\n{LOAD}path = \"/5k\"\n[trial]\nrepeats = 2\n"
    );
    let on_all = || WEBS.iter().all(|web| site.runs(web, "nginx"));
    let (mut running, out) = site.start_until("nginx", &text, "nginx runs on all web machines", on_all)?;
    // Nowhere else, and not on the controller's host either.
    for other in CLIENTS.into_iter().chain(["balancer"]) {
        ensure!(!site.runs(other, "nginx"), "{other}: {:#?}", site.new_on(other));
    }
    let here = site.processes("control");
    let is_there = here.values().any(|words| words.starts_with("nginx"));
    ensure!(!is_there, "the controller's host runs it: {here:#?}");
    let status = running.wait(PATIENCE)?.context("it goes on")?;
    ensure!(matches!(status.code(), Some(0 | 3)), "{}", running.said());
    let trials = ResultFolder::open(Path::new(&out))?.trials()?;
    ensure!(trials.len() >= 2, "{} trials: {}", trials.len(), running.said());
    for entry in &trials {
        let http = http(entry)?;
        ensure!(names(http) == CLIENTS, "trial {}: {:?}", entry.index, names(http));
        ensure!(http.counts.completed == REQUESTS && http.counts.failed == 0, "{:?}", http.counts);
        for machine in &http.machines {
            ensure!(machine.counts.completed == REQUESTS / 2, "{}: {:?}", machine.name, machine.counts);
        }
    }
    Ok(())
}

/// What a target's command finds: the machine's own folders, and its log in the result.
fn a_command_runs_in_the_machines_folders(site: &Site) -> Result<()> {
    for web in WEBS {
        site.said(web, &format!("echo this is {web} > /root/name"))?;
    }
    let text = format!(
        "title = \"own\"\n{HOSTS}[targets.web]\non = \"web\"\n\
         command = [\"sh\", \"-c\", \"cat /root/name; exec {{proofload}} serve --listen 0.0.0.0:8080\"]\nport = 8080\nready = \"tcp:8080\"\n\
         ready_timeout = \"10m\"\n{LOAD}"
    );
    let (_, out) = site.run("own", &text, "")?;
    for web in WEBS {
        let logs = fs::read_dir(format!("{out}/logs/1"))?.flatten().map(|entry| entry.path());
        let mut own =
            logs.filter(|log| log.file_name().is_some_and(|name| name.to_string_lossy().starts_with(web)));
        let log = own.next().with_context(|| format!("no log of {web}"))?;
        let said = fs::read_to_string(&log)?;
        ensure!(said.contains(&format!("this is {web}\n")), "{}: {said}", log.display());
        site.said(web, "rm /root/name")?;
    }
    Ok(())
}

fn files_of_the_load_lie_beside_the_study(site: &Site) -> Result<()> {
    const ROWS: u64 = 50;
    let lines: String = (0..ROWS).map(|row| format!("row-{row}\n")).collect();
    let rows = site.labs.file("rows.csv", &format!("row\n{lines}"))?;
    let log = site.labs.path("log.ndjson");
    let own = "row\nof-the-machine\n";
    for client in CLIENTS {
        let line = format!("mkdir -p $(dirname {rows}) && printf '{own}' | tee {rows} >{log}");
        site.said(client, &line)?;
    }
    let text = format!(
        "title = \"files\"\n{HOSTS}[targets.web]\non = \"web\"\n\
         command = [\"{{proofload}}\", \"serve\", \"--listen\", \"0.0.0.0:8080\", \"--record\", \"/root/record.jsonl\"]\n\
         port = 8080\nready = \"tcp:8080\"\nready_timeout = \"10m\"\n{LOAD}path = \"/{{{{row}}}}\"\n\
         feeders = [\"rows.csv\"]\nlog = \"log.ndjson\"\nlog_sample = \"100%\"\n[trial]\nvoid_attempts = 0\n"
    );
    let (trials, _) = site.run("files", &text, "")?;
    let counts = &http(&trials[0])?.counts;
    ensure!(trials.len() == 1 && counts.completed == REQUESTS, "{} trials: {counts:?}", trials.len());
    // What the targets wrote down has all that was logged, and perhaps a look whether they answer.
    let mut records = String::new();
    for web in WEBS {
        records += &site.said(web, "cat /root/record.jsonl && rm /root/record.jsonl")?;
    }
    let mut asked: BTreeMap<String, u64> = BTreeMap::new();
    for line in fs::read_to_string(&log)?.lines() {
        let line: serde_json::Value = serde_json::from_str(line)?;
        let (trace, target) = (line["traceparent"].as_str(), line["target"].as_str());
        let (trace, target) = trace.zip(target).with_context(|| line.to_string())?;
        ensure!(records.contains(trace), "no target has received {line}");
        *asked.entry(target.to_owned()).or_default() += 1;
    }
    let expected: BTreeMap<_, _> = (0..ROWS).map(|row| (format!("/row-{row}"), REQUESTS / ROWS)).collect();
    ensure!(asked == expected && !records.contains("of-the-machine"), "{asked:?}");
    for client in CLIENTS {
        let said = site.said(client, &format!("cat {rows} {log} && rm {rows} {log}"))?;
        ensure!(said == own.repeat(2), "{client}: its own files are now {said}");
    }
    Ok(())
}

fn other_processes_run_where_the_study_says(site: &Site) -> Result<()> {
    let text = format!(
        "title = \"processes\"\n{HOSTS}[[processes]]\non = \"balancer\"\ncommand = [\"sleep\", \"7654\"]\n\
         [targets.web]\non = \"web\"\nrun = \"serve\"\nready_timeout = \"10m\"\n{LOAD}"
    );
    let there = || site.runs("balancer", "7654");
    let (mut running, _) = site.start_until("processes", &text, "the process runs on its machine", there)?;
    for other in CLIENTS.into_iter().chain(WEBS) {
        ensure!(!site.runs(other, "7654"), "{other}: {:#?}", site.new_on(other));
    }
    running.wait(PATIENCE)?.context("it goes on")?;
    Ok(())
}

fn a_balancer_runs_on_its_machine(site: &Site, kind: &str) -> Result<()> {
    // The clients' routes, the servers' addresses on loopback and the balancer's tables are changes of machines.
    let text = format!(
        "title = \"balancer\"\n{HOSTS}[targets.web]\non = \"web\"\nrun = \"nginx\"\nfile = {{ path = \"/5k\", size = \"5KiB\" }}\n\
         ready_timeout = \"10m\"\n[balancer]\non = \"balancer\"\nrun = \"{kind}\"\nvip = \"192.168.16.100\"\n\
         {LOAD}path = \"/5k\"\nkeepalive = false\n[[goals]]\nerrors = 0.0\n"
    );
    let (trials, _) = site.run(kind, &text, "")?;
    let counts = &http(&trials[0])?.counts;
    ensure!(counts.completed == REQUESTS && counts.failed == 0, "{kind}: {counts:?}");
    Ok(())
}
