//! Loads that the agents of a pool make together: what each sends and counts.

use std::path::Path;

use proofload_tests::{nginx::pem, proofload::accepts_void};
use record::ResultFolder;

use super::{secrets::found, *};

#[test]
fn inventory_as_root_agents_of_a_pool_make_a_load_together() -> Result<()> {
    try_all(&[
        ("two", two_agents_make_a_load_and_those_of_another_pool_do_not),
        ("three", three_agents_have_their_shares_for_longer_than_a_lease),
        ("other commands", studies_and_other_programs_run_on_agents),
        ("files", files_of_the_controller_are_sent_and_written_through_the_broker),
        ("tls", the_way_to_the_broker_is_encrypted_if_it_wants_that),
    ])
}

fn two_agents_make_a_load_and_those_of_another_pool_do_not(site: &mut Site) -> Result<()> {
    site.agent("c3", "spare", &format!("--name c3 {ALLOWED}"))?;
    site.are("spare", &[("c3", "idle")])?;
    site.agents_on(&BOTH)?;
    // The second load uses the same agents.
    for _ in 0..2 {
        let output = site.run("-n 400 -u 8")?;
        is_whole(site, &output, &[("c1", 0.5, 200), ("c2", 0.5, 200)])?;
        site.is_quiet()?;
    }
    // The text has a row of each machine, too.
    let words = patient(&format!("-n 40 -u 4 {}", site.on(POOL)));
    let text = site.start(&site.control("http")?.arg(url("")).words(&words), "http", ALL)?.finish()?;
    ensure!(matches!(text.code, Some(0 | 3)), "{}", text.described());
    for machine in BOTH {
        let has_row = text.stdout.lines().any(|line| line.split_whitespace().next() == Some(machine));
        ensure!(has_row, "{machine} has no row: {}", text.described());
    }
    ensure!(site.counts(ALL_MACHINES) == [20, 20, 0], "{:?}", site.counts(ALL_MACHINES));
    Ok(())
}

fn three_agents_have_their_shares_for_longer_than_a_lease(site: &mut Site) -> Result<()> {
    site.agents_on(&ALL_MACHINES)?;
    let weighted = site.run("-n 3000 -u 12 --share c1=2")?;
    is_whole(site, &weighted, &[("c1", 0.5, 1_500), ("c2", 0.25, 750), ("c3", 0.25, 750)])?;
    site.are_idle(&ALL_MACHINES)?;
    // 8 s: leases are extended through the broker.
    let long = site.run("-R 150 -n 1200 -c 12")?;
    is_whole(site, &long, &ALL_MACHINES.map(|machine| (machine, 1.0 / 3.0, 400)))
}

fn studies_and_other_programs_run_on_agents(site: &mut Site) -> Result<()> {
    site.agents_on(&BOTH)?;
    let ab = site.control(&format!("ab -n 100 -c 4 -s 300 {} {}", site.on(POOL), url("")))?;
    let ab = site.start(&ab, "ab", ALL)?.finish()?;
    for word in ["Concurrency Level:      4", "Complete requests:      100", "Requests per second:"] {
        ensure!(ab.stdout.contains(word), "no '{word}': {}", ab.described());
    }
    ensure!(site.counts(BOTH) == [50, 50], "{:?}: {}", site.counts(BOTH), ab.described());
    site.are_idle(&BOTH)?;

    let study = format!(
        "title = \"dialled out\"\n[workload.http]\nurl = \"{}\"\nusers = 4\nrequests = 200\ntimeout = \"5m\"\n\
         drain = \"5m\"\n[trial]\nrepeats = 2\nsettle = \"100ms\"\n",
        url("")
    );
    let (study, out) = (site.labs.file("study.toml", &study)?, site.labs.path("study"));
    let run = site.control(&format!("run {study} --out {out} -q {}", site.on(POOL)))?;
    let run = site.start(&run, "run", ALL)?.finish()?;
    ensure!(matches!(run.code, Some(0 | 1 | 3)), "{}", run.described());
    let trials = ResultFolder::open(Path::new(&out))?.trials()?;
    ensure!(trials.len() >= 2, "{} trials: {}", trials.len(), run.described());
    for entry in &trials {
        let http = entry.trial.http().context("no requests")?;
        let validity = &entry.trial.validity;
        ensure!(!validity.is_void() || accepts_void(&run.line, validity), "{validity:?}");
        ensure!(names(http) == BOTH && http.counts.completed == 200, "{:?}: {:?}", names(http), http.counts);
        is_their_sum(http).with_context(|| format!("trial {}", entry.index))?;
    }
    // It was looked once or more whether the target answers, besides.
    let [c1, c2] = site.counts(BOTH);
    let least = 100 * trials.len() as u64;
    ensure!(c1 >= least && c2 >= least, "{c1} and {c2} requests in {} trials", trials.len());
    site.are_idle(&BOTH)
}

/// A part of each row of a feeder. No other program says it.
const MARKER: &str = "sesame-4714-of-a-row";

/// An agent that makes load and nothing else obeys such a plan, since it touches no file.
fn files_of_the_controller_are_sent_and_written_through_the_broker(site: &mut Site) -> Result<()> {
    const OTHER: &str = "row,pad\nof-the-machine,x\n";
    // 8 MiB, more than a message of the broker has.
    let padding = "x".repeat(1 << 18);
    let lines: String = (0..32).map(|row| format!("{MARKER}-{row},{padding}\n")).collect();
    let rows = site.labs.file("rows.csv", &format!("row,pad\n{lines}"))?;
    let log = site.labs.path("requests.ndjson");
    site.agents_on(&BOTH)?;
    for machine in BOTH {
        let line = format!("mkdir -p $(dirname {rows}) && cat >{rows} && echo of the machine >{log}");
        site.said(machine, &line, OTHER)?;
    }
    // Lines of 8 KB, so that the log does not fit into a message either.
    let path = format!("{{{{row}}}}?{}", "y".repeat(8_000));
    let words = format!("-u 8 -n 256 --feeder {rows} --log {log} --log-sample 100% {}", site.on(POOL));
    let mut load = site.start(&site.http(&url(&path), &words)?, "http", 20)?;
    load.until("all users wait", || site.counts(BOTH) == [24, 24])?;
    let during = found(site, MARKER)?;
    site.target.answer_all();
    let output = load.finish()?;
    is_whole(site, &output, &[("c1", 0.5, 128), ("c2", 0.5, 128)])?;
    ensure!(during.is_empty(), "the rows are in {during:?}");
    site.is_quiet()?;
    let (mut asked, mut traces) = (BTreeMap::new(), BTreeSet::new());
    for request in site.target.received() {
        let path = request.path().split('?').next().unwrap_or_default().to_owned();
        *asked.entry(path).or_insert(0) += 1;
        traces.insert(request.field("traceparent").context("no traceparent")?.to_owned());
    }
    let expected: BTreeMap<String, i32> = (0..32).map(|row| (format!("/{MARKER}-{row}"), 8)).collect();
    ensure!(asked == expected && traces.len() == 256, "{} traces: {asked:?}", traces.len());
    let text = fs::read_to_string(&log).with_context(|| output.described())?;
    for line in text.lines() {
        let line: serde_json::Value = serde_json::from_str(line)?;
        let trace = line["traceparent"].as_str().context("no traceparent")?;
        ensure!(traces.remove(trace), "{trace} was not seen, or is there twice");
    }
    ensure!(traces.is_empty(), "{} requests are not in the log", traces.len());
    let afterwards = found(site, MARKER)?;
    ensure!(afterwards.is_empty(), "afterwards, the rows are in {afterwards:?}");
    for machine in BOTH {
        let said = site.said(machine, &format!("cat {rows} {log} && rm {rows} {log}"), "")?;
        ensure!(said == format!("{OTHER}of the machine\n"), "{machine}: its own files are now {said}");
    }
    site.are_idle(&BOTH)
}

fn the_way_to_the_broker_is_encrypted_if_it_wants_that(site: &mut Site) -> Result<()> {
    const SECURE_PORT: u16 = 4443;
    let labs = &site.labs;
    let (authority, other) = (tls::Authority::new("of the broker")?, tls::Authority::new("of others")?);
    let name = address("broker").to_string();
    let identity = authority.certify(&[name.as_str()], tls::Validity::default())?;
    let certificate = labs.file("broker.pem", &pem("CERTIFICATE", &identity.chain[0]))?;
    let key = labs.file("broker.key", &pem("PRIVATE KEY", identity.key.secret_der()))?;
    let ca = labs.file("ca.pem", &authority.pem())?;
    let other = labs.file("other.pem", &other.pem())?;
    let server =
        site.server(&format!("--port {SECURE_PORT} --tls --tlscert {certificate} --tlskey {key}"))?;
    let secure = format!("nats://{}:{SECURE_PORT}/{POOL}", address("broker"));
    for machine in BOTH {
        site.said(machine, "cat >/root/ca.pem", &authority.pem())?;
        let words = format!("--name {machine} {ALLOWED} --nats-ca /root/ca.pem");
        let process = site.agent_of(machine, &secure, &words)?.start()?;
        site.agents.push(Agent { host: machine, process });
    }
    let list = site.control(&format!("fleet list {secure} --nats-ca {ca}"))?;
    let both = BOTH.map(|name| (name.to_owned(), "idle".to_owned()));
    let found = find(PATIENCE, || {
        let finished = list.run(PATIENCE).ok()?;
        (listed(&finished) == both).then_some(())
    });
    ensure!(found.is_some(), "the agents do not come: {:?}", list.run(PATIENCE));
    let options = site.on_with(&secure, "control.key", "agent-keys");
    let load = |ca: &str| -> Result<Output> {
        let launch = site.http(&url(""), &format!("-n 40 -u 4 {options} --nats-ca {ca}"))?;
        site.start(&launch, "http", ALL)?.finish()
    };
    is_whole(site, &load(&ca)?, &[("c1", 0.5, 20), ("c2", 0.5, 20)])?;
    let refused = load(&other)?;
    let is_refused = refused.code == Some(2) && refused.stdout.is_empty();
    ensure!(is_refused && refused.stderr.contains(&name), "{}", refused.described());
    site.is_quiet()?;
    // Without a broker, they end as well.
    kill_server(server)
}
