//! Rows of feeders, which the target receives as paths.

use proofload_tests::proofload::accepts_void;
use record::ResultFolder;

use super::*;

#[test]
fn inventory_as_root_rows_of_feeders_are_those_of_one_machine() -> Result<()> {
    try_all_in(
        lab_of_own_folders,
        &[
            ("orders", each_order_gives_the_same_requests_on_all_machines),
            ("draws", random_rows_follow_the_seed),
            ("rest", a_number_that_cannot_be_divided_gives_the_same_requests),
            ("several feeders", each_feeder_gives_its_own_values),
            ("large", a_feeder_of_60_mib_is_sent),
            ("search", a_search_is_fed),
            ("study", each_trial_of_a_study_begins_with_the_first_row),
            ("changed", a_study_reads_its_feeder_before_each_trial),
        ],
    )
}

/// Number of rows in the small file, and in the large one.
const FEW: usize = 47;
const MANY: usize = 400;

/// Runs a load with these words on these machines, or without others. Returns how often each path was asked for.
fn run_on(fleet: &Fleet, machines: &[&str], path: &str, words: &str) -> Result<BTreeMap<String, u64>> {
    let option = if machines.is_empty() { String::new() } else { on(machines) };
    let output = fleet.start(&fleet.http(path, &format!("{words} -q {option}"))?, ALL)?.finish()?;
    fleet.is_quiet()?;
    let trial = output.counted(0)?;
    ensure!(names(trial) == machines, "{:?}: {}", names(trial), output.described());
    if !machines.is_empty() {
        is_their_sum(trial).with_context(|| output.described())?;
    }
    let senders: BTreeSet<IpAddr> = fleet.target.received().iter().map(|request| request.from).collect();
    let expected = if machines.is_empty() { &["control"][..] } else { machines };
    let expected: BTreeSet<IpAddr> = expected.iter().map(|host| address(host)).collect();
    ensure!(senders == expected, "{senders:?} sent: {}", output.described());
    let asked = asked(fleet);
    let (sent, counts) = (asked.values().sum::<u64>(), &trial.counts);
    ensure!(counts.completed == sent && counts.failed == 0, "{sent} received: {}", output.described());
    Ok(asked)
}

/// Runs a load without others, on one machine, and on three. All must send the same requests, which are returned.
fn run_on_each(fleet: &Fleet, path: &str, words: &str) -> Result<BTreeMap<String, u64>> {
    let alone = run_on(fleet, &[], path, words)?;
    for machines in [&["c2"][..], &ALL_MACHINES] {
        let asked =
            run_on(fleet, machines, path, words).with_context(|| format!("{words} on {machines:?}"))?;
        let differs = |path: &&String| asked.get(*path) != alone.get(*path);
        let differing: BTreeSet<&String> = alone.keys().chain(asked.keys()).filter(differs).collect();
        let shown: Vec<_> =
            differing.iter().take(9).map(|path| (path, asked.get(*path), alone.get(*path))).collect();
        ensure!(
            differing.is_empty(),
            "{words} on {machines:?}: {} paths differ, such as {shown:?}",
            differing.len()
        );
    }
    Ok(alone)
}

/// Each row as often as the numbers say, which are in the order of the rows; further rows are not asked for.
fn times(numbers: impl IntoIterator<Item = u64>) -> BTreeMap<String, u64> {
    let rows = numbers.into_iter().enumerate().filter(|(_, number)| *number > 0);
    rows.map(|(row, number)| (format!("/{}", value(row)), number)).collect()
}

fn each_order_gives_the_same_requests_on_all_machines(fleet: &Fleet) -> Result<()> {
    let (few, many) = (feeder(fleet, "few.csv", FEW)?, feeder(fleet, "many.csv", MANY)?);
    let again = || times((0..FEW).map(|row| 300 / FEW as u64 + u64::from(row < 300 % FEW)));
    let mut wrong = Vec::new();
    for (words, expected) in [
        (format!("--feeder {few} -n 300 -u 6"), again()),
        (format!("--feeder {few} -R 300 -n 300 -c 6"), again()),
        (format!("--feeder {many} -n 300 -u 6"), times([1; 300])),
        (format!("--feeder {many},once -n 300 -u 6"), times([1; 300])),
        // The rows run out.
        (format!("--feeder {few},once -n 300 -u 6"), times([1; FEW])),
        (format!("--feeder {few},once -d 1h -u 6"), times([1; FEW])),
        (format!("--feeder {few},per-user --loops 40 -u 6"), times([40; 6])),
    ] {
        match run_on_each(fleet, "{{row}}", &words) {
            Ok(asked) if asked == expected => {}
            Ok(asked) => wrong.push(format!("{words}: {asked:?} in place of {expected:?}")),
            Err(why) => wrong.push(format!("{words}: {why:#}")),
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// Three machines have 67, 67 and 66 requests.
fn a_number_that_cannot_be_divided_gives_the_same_requests(fleet: &Fleet) -> Result<()> {
    let few = feeder(fleet, "few.csv", FEW)?;
    for words in [format!("--feeder {few} -n 200 -u 6"), format!("--feeder {few} -R 300 -n 200 -c 6")] {
        let asked = run_on_each(fleet, "{{row}}-{{counter}}", &words)?;
        ensure!(asked.len() == 200, "{words}: {} paths", asked.len());
    }
    Ok(())
}

fn random_rows_follow_the_seed(fleet: &Fleet) -> Result<()> {
    let few = feeder(fleet, "few.csv", FEW)?;
    let [seven, eight] = [7, 8].map(|seed| {
        run_on_each(fleet, "{{row}}", &format!("--feeder {few},random -n 300 -u 6 --seed {seed}"))
    });
    let [seven, eight] = [seven?, eight?];
    for asked in [&seven, &eight] {
        // Of 300 draws, each row is left out with a probability of 0.2 %.
        ensure!(asked.len() >= FEW - 5 && asked.values().sum::<u64>() == 300, "{asked:?}");
    }
    ensure!(seven != eight, "two seeds draw the same rows");
    Ok(())
}

fn each_feeder_gives_its_own_values(fleet: &Fleet) -> Result<()> {
    let few = feeder(fleet, "few.csv", FEW)?;
    let names: String =
        (0..30).map(|name| format!("{{\"name\": \"n{name}\", \"size\": {name}.50}}\n")).collect();
    let names = fleet.labs.file("names.ndjson", &names)?;
    let users = fleet.labs.file("users.csv", "id,note\n\"u,1\",a\nu2,\"b \"\"c\"\"\"\n")?;
    let words = format!("--feeder {few} --feeder {names},random --feeder {users} -n 198 -u 6");
    let asked = run_on_each(fleet, "{{row}}/{{name}}/{{size}}/{{id|url}}", &words)?;
    let values = |place: usize| asked.keys().filter_map(move |path| path.split('/').nth(place));
    let rows: BTreeSet<&str> = values(1).collect();
    ensure!(rows.len() == FEW, "{} rows: {asked:?}", rows.len());
    ensure!(values(3).all(|size| size.ends_with(".50")), "{asked:?}");
    let ids: BTreeSet<&str> = values(4).collect();
    ensure!(ids == ["u%2C1", "u2"].into(), "{ids:?}");
    Ok(())
}

fn a_feeder_of_60_mib_is_sent(fleet: &Fleet) -> Result<()> {
    let padding = "x".repeat(1 << 20);
    let lines: String = (0..60).map(|row| format!("{},{padding}\n", value(row))).collect();
    let large = fleet.labs.file("large.csv", &format!("row,padding\n{lines}"))?;
    let asked = run_on(fleet, &ALL_MACHINES, "{{row}}", &format!("--feeder {large},once -d 1h -u 6"));
    fs::remove_file(&large)?;
    let (asked, expected) = (asked?, times([1; 60]));
    ensure!(asked == expected, "{asked:?}");
    Ok(())
}

fn a_search_is_fed(fleet: &Fleet) -> Result<()> {
    let (few, out) = (feeder(fleet, "few.csv", FEW)?, fleet.labs.path("search"));
    let words = format!(
        "limit rate {} --errors 1% --min 60 --max 240 --trial 300ms --repeats 1 --drain 5m --budget 20s -q \
         --feeder {few} --out {out} {}",
        url("{{row}}"),
        on(&BOTH)
    );
    let output = fleet.start(&fleet.control(&words)?, ALL)?.finish()?;
    fleet.is_quiet()?;
    ensure!(matches!(output.code, Some(0 | 1 | 3)), "{}", output.described());
    if output.code == Some(3) {
        testing::accepted_void(&format!("{}: nothing could be concluded", output.line));
    }
    let trials = ResultFolder::open(Path::new(&out))?.trials()?;
    ensure!(trials.len() >= 2, "{} trials: {}", trials.len(), output.described());
    let mut sent = 0;
    for entry in &trials {
        let http = entry.trial.http().context("no requests")?;
        ensure!(names(http) == BOTH && http.counts.completed > 0, "{:?}: {:?}", names(http), http.counts);
        sent += http.counts.sent;
    }
    let (asked, rows) = (asked(fleet), times([1; FEW]));
    let strangers: Vec<_> = asked.keys().filter(|path| !rows.contains_key(*path)).collect();
    ensure!(strangers.is_empty(), "no rows: {strangers:?}");
    ensure!(asked.values().sum::<u64>() >= sent, "{sent} sent: {asked:?}");
    // Each trial begins with the first row.
    let first = asked.get(&format!("/{}", value(0))).copied().unwrap_or(0);
    ensure!(first >= trials.len() as u64, "{first} times the first row in {} trials", trials.len());
    Ok(())
}

/// The text of a study with these keys of its load, and so many trials.
fn study(path: &str, keys: &str, repeats: u32) -> String {
    format!(
        "title = \"fed\"\n[workload.http]\nurl = \"{}\"\n{keys}timeout = \"5m\"\ndrain = \"5m\"\n\
         [trial]\nrepeats = {repeats}\nvoid_attempts = 0\nsettle = \"100ms\"\n",
        url(path)
    )
}

fn each_trial_of_a_study_begins_with_the_first_row(fleet: &Fleet) -> Result<()> {
    // Names are those of files beside the study.
    let few = feeder(fleet, "few.csv", FEW)?;
    let folder = PathBuf::from(fleet.labs.path("beside"));
    fs::create_dir(&folder)?;
    fs::rename(few, folder.join("few.csv"))?;
    let requests = 3 * FEW as u64;
    let keys = format!(
        "users = 6\nrequests = {requests}\nfeeders = [\"few.csv\"]\nlog = \"log.ndjson\"\nlog_sample = \"100%\"\n"
    );
    let (file, out) = (folder.join("study.toml"), fleet.labs.path("fed"));
    fs::write(&file, study("{{row}}", &keys, 3))?;
    let words = format!("run {} --out {out} -q {}", file.display(), on(&ALL_MACHINES));
    let output = fleet.start(&fleet.control(&words)?, ALL)?.finish()?;
    fleet.is_quiet()?;
    ensure!(matches!(output.code, Some(0 | 1 | 3)), "{}", output.described());
    let trials = ResultFolder::open(Path::new(&out))?.trials()?;
    ensure!(trials.len() == 3, "{} trials: {}", trials.len(), output.described());
    for entry in &trials {
        let (http, validity) = (entry.trial.http().context("no requests")?, &entry.trial.validity);
        ensure!(!validity.is_void() || accepts_void(&output.line, validity), "{validity:?}");
        ensure!(names(http) == ALL_MACHINES && http.counts.completed == requests, "{:?}", http.counts);
        is_their_sum(http).with_context(|| format!("trial {}", entry.index))?;
    }
    // It was looked whether the target answers, besides; those requests are not in the log.
    let log = fs::read_to_string(folder.join("log.ndjson"))?;
    let mut logged: BTreeMap<String, u64> = BTreeMap::new();
    for line in log.lines() {
        let line: serde_json::Value = serde_json::from_str(line)?;
        *logged.entry(line["target"].as_str().context("a target")?.to_owned()).or_default() += 1;
    }
    let expected = times([9; FEW]);
    ensure!(logged == expected, "{logged:?}");
    let asked = asked(fleet);
    let missing: Vec<_> =
        expected.iter().filter(|(path, n)| asked.get(*path).is_none_or(|own| own < n)).collect();
    ensure!(missing.is_empty(), "too few: {missing:?} of {asked:?}");
    Ok(())
}

fn a_study_reads_its_feeder_before_each_trial(fleet: &Fleet) -> Result<()> {
    let file = feeder(fleet, "changing.csv", FEW)?;
    let keys = format!("users = 4\nrequests = 200\nfeeders = [\"{file}\"]\n");
    let study = fleet.labs.file("changing.toml", &study("{{row}}", &keys, 4))?;
    let out = fleet.labs.path("changing");
    let words = format!("run {study} --out {out} -q {}", on(&BOTH));
    // Each machine makes 100 requests of each trial.
    let mut running = fleet.start(&fleet.control(&words)?, 50)?;
    running.until("the first trial waits for answers", || fleet.counts(BOTH) == [52, 52])?;
    let before = asked(fleet);
    let rows = times([1; FEW]);
    ensure!(before.keys().all(|path| rows.contains_key(path)), "{before:?}");
    fs::write(&file, "row\nchanged-1\nchanged-2\nchanged-3\n")?;
    // 48 requests of each machine are left in the first trial.
    fleet.target.begin(110);
    running.until("the second trial waits for answers", || fleet.counts(BOTH) == [112, 112])?;
    let received = fleet.target.received();
    let is_old: Vec<bool> = received.iter().map(|request| rows.contains_key(request.path())).collect();
    let (old, new) = (is_old.iter().rposition(|is_old| *is_old), is_old.iter().position(|is_old| !is_old));
    let paths: BTreeSet<&str> = received.iter().map(|request| request.path()).collect();
    ensure!(old.zip(new).is_some_and(|(old, new)| old < new), "the rows did not change at once: {paths:?}");
    for path in ["/changed-1", "/changed-2", "/changed-3"] {
        ensure!(paths.contains(path), "{path} is not asked for: {paths:?}");
    }
    fs::remove_file(&file)?;
    fleet.target.answer_all();
    let output = running.finish()?;
    fleet.is_quiet()?;
    // The rest of the second trial.
    let sent = fleet.counts(BOTH);
    ensure!(sent.iter().all(|sent| (148..170).contains(sent)), "{sent:?} sent: {}", output.described());
    let trials = ResultFolder::open(Path::new(&out))?.trials()?;
    for entry in trials.iter().take(2) {
        let counts = &entry.trial.http().context("no requests")?.counts;
        ensure!(counts.completed == 200 && counts.failed == 0, "trial {}: {counts:?}", entry.index);
    }
    let reasons = trials.iter().skip(2).flat_map(|entry| entry.trial.validity.reasons());
    let is_told =
        output.stderr.contains(&file) || reasons.into_iter().any(|why| why.evidence.contains(&file));
    ensure!(trials.len() >= 2 && is_told, "{} trials, {file}: {}", trials.len(), output.described());
    let sound = trials.iter().skip(2).filter(|entry| !entry.trial.validity.is_void()).count();
    ensure!(sound == 0 && output.code != Some(0), "{sound} later trials: {}", output.described());
    Ok(())
}
