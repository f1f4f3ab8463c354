//! What machines keep to themselves: their own files, and nothing of what they were sent.

use proofload_tests::{nginx::pem, proofload::accepts_void};
use record::{ErrorClass, ResultFolder};

use super::*;

#[test]
fn inventory_as_root_files_of_a_plan_are_those_of_the_controller() -> Result<()> {
    try_all_in(
        lab_of_own_folders,
        &[
            ("names", files_of_machines_are_neither_read_nor_written),
            ("receipts", folders_of_machines_get_no_receipts),
            ("certificates", certificates_and_keys_are_sent),
        ],
    )
}

/// None of these texts is on any machine, whose own files are left alone.
fn is_nowhere(fleet: &Fleet, texts: &[&str], but: &[Decoy<'_>]) -> Result<()> {
    for machine in ALL_MACHINES {
        let found = found_on(fleet, machine, texts, but)?;
        ensure!(found.is_empty(), "{machine} has what it was sent in {found:?}");
    }
    Ok(())
}

fn files_of_machines_are_neither_read_nor_written(fleet: &Fleet) -> Result<()> {
    const OTHER: &str = "row\nof-the-machine\n";
    let (rows, log) = (feeder(fleet, "rows.csv", 40)?, fleet.labs.path("requests.ndjson"));
    let mut decoys = Decoy::on_all(fleet, &rows, OTHER)?;
    decoys.extend(Decoy::on_all(fleet, &log, "of the machine\n")?);
    let words = format!(
        "-u 6 -n 240 --feeder {rows} --log {log} --log-sample 100% -H X-Row:{{{{row}}}} {}",
        on(&ALL_MACHINES)
    );
    let mut load = fleet.start(&fleet.http("{{row}}", &words)?, 20)?;
    // Both users of each machine wait for answers that are held back.
    load.until("all users wait", || fleet.counts(ALL_MACHINES) == [22; 3])?;
    for machine in ALL_MACHINES {
        ensure!(!fleet.workers(machine).is_empty(), "{machine} has no worker");
    }
    is_nowhere(fleet, &[MARKER], &decoys)?;
    fleet.target.answer_all();
    let output = load.finish()?;
    fleet.is_quiet()?;
    ensure!(output.counted(0)?.counts.completed == 240, "{}", output.described());
    let asked = asked(fleet);
    let expected: BTreeMap<String, u64> = (0..40).map(|row| (format!("/{}", value(row)), 6)).collect();
    ensure!(asked == expected, "{asked:?}");
    is_nowhere(fleet, &[MARKER], &decoys)?;
    let lines = fs::read_to_string(&log)?.lines().count();
    ensure!(lines == 240, "{lines} lines in the log");
    decoys.iter().try_for_each(|decoy| decoy.is_untouched(fleet))?;
    fs::remove_file(&log)?;

    // With no such files there, nothing is left either.
    let output = fleet.start(&fleet.http("{{row}}", &words)?, ALL)?.finish()?;
    fleet.is_quiet()?;
    ensure!(output.counted(0)?.counts.completed == 240, "{}", output.described());
    is_nowhere(fleet, &[MARKER], &[])?;
    for machine in ALL_MACHINES {
        let line = format!("ls -d {rows} {log} 2>/dev/null || true");
        let found = said(fleet, machine, &line, "")?;
        ensure!(found.is_empty(), "{machine} has {found}");
        // It would be found.
        said(fleet, machine, "mkdir /var/planted && cat >/var/planted/file", MARKER)?;
        let found = found_on(fleet, machine, &[MARKER], &[])?;
        said(fleet, machine, "rm -r /var/planted", "")?;
        ensure!(found.len() == 1 && found[0].ends_with("/var/planted/file"), "{machine}: {found:?}");
    }
    Ok(())
}

fn folders_of_machines_get_no_receipts(fleet: &Fleet) -> Result<()> {
    let (listener, _) = listener(fleet, "kept")?;
    let receipts = fleet.labs.path("receipts-kept");
    let file = format!("{receipts}/receipts-0.jsonl");
    // Here, such a file would be refused.
    let decoys = Decoy::on_all(fleet, &file, "of the machine\n")?;
    let words = format!(
        "{EVENTS_URL} -u 6 -n 240 --events={{\"{MARKER}\":1}} --receipts {receipts} -q --json - {}",
        on(&ALL_MACHINES)
    );
    let output = fleet.start(&fleet.control(&format!("http {}", patient(&words)))?, ALL)?.finish()?;
    listener.stop()?;
    fleet.is_quiet()?;
    let trial = output.counted(0)?;
    ensure!(trial.counts.completed == 240, "{}", output.described());
    let written = files_below(Path::new(&receipts))?;
    let workers: u32 = trial.machines.iter().map(|machine| machine.processes).sum();
    ensure!(written.len() == workers as usize, "{written:?} of {workers} workers");
    for path in written {
        ensure!(fs::read_to_string(&path)?.contains(MARKER), "{} has no template", path.display());
    }
    is_nowhere(fleet, &[MARKER], &decoys)?;
    for machine in ALL_MACHINES {
        let found = said(fleet, machine, &format!("ls -A {receipts}"), "")?;
        ensure!(found == "receipts-0.jsonl\n", "{machine} has {found}");
    }
    decoys.iter().try_for_each(|decoy| decoy.is_untouched(fleet))
}

/// A target that wants a certificate of its clients, and the files of who has one.
struct Certified {
    url: String,
    /// Requests that it received, a line each.
    record: String,
    authority: String,
    other: String,
    certificate: String,
    key: String,
    /// The certificate with its key.
    both: String,
    /// A part of the key's file.
    secret: String,
}

impl Certified {
    fn start(fleet: &Fleet) -> Result<(Self, Server)> {
        let labs = &fleet.labs;
        let web = address("web").to_string();
        let (own, other) = (tls::Authority::new("of the target")?, tls::Authority::new("of others")?);
        let server = own.certify(&[web.as_str()], tls::Validity::default())?;
        let client = own.certify(&["client"], tls::Validity::default())?;
        let authority = labs.file("trusted.pem", &own.pem())?;
        let certificate = pem("CERTIFICATE", &client.chain[0]);
        let key = pem("PRIVATE KEY", client.key.secret_der());
        let record = labs.path("record.jsonl");
        let words = format!(
            "--listen {web}:8443 --tls --cert {} --key {} --client-ca {authority} --record {record}",
            labs.file("server.pem", &pem("CERTIFICATE", &server.chain[0]))?,
            labs.file("server.key", &pem("PRIVATE KEY", server.key.secret_der()))?,
        );
        let secret = key.lines().nth(1).context("a key has lines")?;
        let files = Self {
            url: format!("https://{web}:8443/"),
            record,
            authority,
            other: labs.file("other.pem", &other.pem())?,
            secret: secret[40..80].to_owned(),
            both: labs.file("both.pem", &format!("{certificate}{key}"))?,
            certificate: labs.file("client.pem", &certificate)?,
            key: labs.file("client.key", &key)?,
        };
        Ok((files, Server::start(fleet, "serve", &words)?))
    }

    /// Starts a load with this URL.
    fn load(&self, fleet: &Fleet, words: &str) -> Result<Command> {
        let words = format!("{} -q --json - {}", patient(words), on(&ALL_MACHINES));
        fleet.start(&fleet.control("http")?.arg(&self.url).words(&words), ALL)
    }

    /// Number of requests that it has received.
    fn received(&self) -> usize {
        fs::read_to_string(&self.record).map_or(0, |text| text.lines().count())
    }
}

fn certificates_and_keys_are_sent(fleet: &Fleet) -> Result<()> {
    let (target, server) = Certified::start(fleet)?;
    let Certified { authority, other, certificate, key, both, .. } = &target;
    let secret = target.secret.as_str();
    let other_authority = fs::read_to_string(other)?;
    let mut decoys = Decoy::on_all(fleet, authority, &other_authority)?;
    decoys.extend(Decoy::on_all(fleet, certificate, "no certificate\n")?);
    decoys.extend(Decoy::on_all(fleet, key, "no key\n")?);
    let files = format!("--cacert {authority} --cert {certificate} --key {key}");

    // 9 s, so that the machines' files can be looked at meanwhile.
    let mut load =
        target.load(fleet, &format!("-R 100 -n 900 -c 6 --no-keepalive --no-resumption {files}"))?;
    load.until("requests come", || target.received() >= 60)?;
    let meanwhile = is_nowhere(fleet, &[secret], &decoys);
    let output = load.finish()?;
    meanwhile?;
    let trial = output.counted(0)?;
    ensure!(trial.counts.completed == 900 && trial.counts.failed == 0, "{}", output.described());
    is_their_sum(trial).with_context(|| output.described())?;
    for machine in &trial.machines {
        let counts = [machine.counts.completed, machine.counts.handshakes];
        ensure!(counts == [300; 2], "{}: {:?}", machine.name, machine.counts);
    }
    is_nowhere(fleet, &[secret], &decoys)?;
    ensure!(!(output.stdout.clone() + &output.stderr).contains(secret), "the key is printed");
    // All of its certificate and key in one file.
    let output = target.load(fleet, &format!("-u 6 -n 60 --cacert {authority} --cert {both}"))?.finish()?;
    ensure!(output.counted(0)?.counts.completed == 60, "{}", output.described());
    let until_now = find(PATIENCE, || (target.received() == 960).then_some(()));
    ensure!(until_now.is_some(), "{} requests were received", target.received());

    // The target refuses those who have none, and they another target.
    for (words, class) in [
        (format!("--cacert {authority}"), ErrorClass::TlsClientRequired),
        (format!("--cacert {other} --cert {certificate} --key {key}"), ErrorClass::TlsUnknownIssuer),
    ] {
        let output = target.load(fleet, &format!("-u 6 -n 60 --no-keepalive {words}"))?.finish()?;
        let trial = output.trial()?;
        let failed = trial.errors.of(class);
        ensure!(trial.counts.completed == 0 && failed == 60, "{words}: {}", output.described());
    }

    // In a study, names are those of files beside it.
    let study = format!(
        "title = \"certified\"\n[workload.http]\nurl = \"{}\"\nusers = 6\nrequests = 120\ntimeout = \"5m\"\ndrain = \"5m\"\n\
         cacert = \"trusted.pem\"\ncert = \"client.pem\"\nkey = \"client.key\"\n\
         [trial]\nrepeats = 2\nvoid_attempts = 0\nsettle = \"100ms\"\n",
        target.url
    );
    let (study, out) = (fleet.labs.file("certified.toml", &study)?, fleet.labs.path("certified"));
    let words = format!("run {study} --out {out} -q {}", on(&ALL_MACHINES));
    let output = fleet.start(&fleet.control(&words)?, ALL)?.finish()?;
    ensure!(matches!(output.code, Some(0 | 1 | 3)), "{}", output.described());
    let trials = ResultFolder::open(Path::new(&out))?.trials()?;
    ensure!(trials.len() == 2, "{} trials: {}", trials.len(), output.described());
    for entry in &trials {
        let (http, validity) = (entry.trial.http().context("no requests")?, &entry.trial.validity);
        ensure!(!validity.is_void() || accepts_void(&output.line, validity), "{validity:?}");
        ensure!(names(http) == ALL_MACHINES && http.counts.completed == 120, "{:?}", http.counts);
    }
    server.stop()?;
    fleet.is_quiet()?;
    is_nowhere(fleet, &[secret], &decoys)?;
    decoys.iter().try_for_each(|decoy| decoy.is_untouched(fleet))
}
