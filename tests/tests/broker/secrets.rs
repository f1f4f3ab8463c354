//! What a plan has of secrets, and one who hears and repeats all that the broker carries.

use std::path::Path;

use proofload_tests::faulty_disk::files_below;

use super::{spy::Spy, *};

/// The value of a header field. No other program says it.
const SECRET: &str = "sesame-4711-through-the-broker";
/// A part of a plan that is no secret; what is sealed hides it, too.
const PATH: &str = "sealed-4711";
/// What belongs to a machine alone.
const FOLDERS: [&str; 4] = ["root", "tmp", "run", "var"];

#[test]
fn inventory_as_root_a_broker_learns_no_secret_and_repeats_in_vain() -> Result<()> {
    try_all(&[
        ("secrets", a_secret_is_heard_and_written_nowhere),
        ("repeated", what_is_carried_again_makes_no_load),
    ])
}

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|part| part == text.as_bytes())
}

/// Where a text is found: in a process of a machine or the broker, in a machine's own files, in a log.
pub(super) fn found(site: &Site, text: &str) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for host in ["broker", "c1", "c2"] {
        let mut root = None;
        for pid in site.processes(&[host]).into_keys() {
            // A process may have ended by now.
            let of_process = ["cmdline", "environ"].map(|name| format!("/proc/{pid}/{name}"));
            let has_secret = |path: &String| holds(&fs::read(path).unwrap_or_default(), text);
            found.extend(of_process.into_iter().filter(has_secret).map(|path| format!("{host}: {path}")));
            root.get_or_insert_with(|| format!("/proc/{pid}/root"));
        }
        let root = root.with_context(|| format!("nothing runs on {host}"))?;
        // The host of the broker has the machine's folders.
        for folder in FOLDERS.iter().filter(|_| host != "broker") {
            let files = files_below(&Path::new(&root).join(folder))?;
            let with_secret = files.iter().filter(|path| holds(&fs::read(path).unwrap_or_default(), text));
            found.extend(with_secret.map(|path| format!("{host}: {}", path.display())));
        }
    }
    let logs = site.agents.iter().map(|agent| (agent.host, &agent.process));
    for (host, process) in logs.chain(site.broker.iter().map(|process| ("broker", process))) {
        if process.said().contains(text) {
            found.push(format!("the log on {host}"));
        }
    }
    Ok(found)
}

fn a_secret_is_heard_and_written_nowhere(site: &mut Site) -> Result<()> {
    let mut spy = Spy::start(site)?;
    site.agents_on(&BOTH)?;
    for value in ["${FLEET_TOKEN}", SECRET] {
        let words = format!("-u 4 -n 200 {}", site.on(POOL));
        let launch = site.http(&url(PATH), &words)?.arg("-H").arg(format!("Authorization: Bearer {value}"));
        let mut load = site.start(&launch.env("FLEET_TOKEN", SECRET), "http", 20)?;
        // Both users of each machine wait for answers that are held back.
        load.until("all users wait", || site.counts(BOTH) == [22, 22])?;
        for machine in BOTH {
            ensure!(!site.workers(machine).is_empty(), "{machine} has no worker");
        }
        let during = found(site, SECRET)?;
        ensure!(during.is_empty(), "{value}: {during:?}");
        site.target.answer_all();
        let output = load.finish()?;
        ensure!(output.counted(0)?.counts.completed == 200, "{}", output.described());
        ensure!(!(output.stdout.clone() + &output.stderr).contains(SECRET), "it is printed");
        let wanted = format!("Bearer {SECRET}");
        let received = site.target.received();
        let is_meant = received.iter().filter(|request| {
            request.field("authorization") == Some(&*wanted) && request.path() == format!("/{PATH}")
        });
        let count = is_meant.count();
        ensure!(count == 200, "{count} of {} requests have the secret", received.len());
        site.is_quiet()?;
        let afterwards = found(site, SECRET)?;
        ensure!(afterwards.is_empty(), "{value}: afterwards, {afterwards:?}");

        let heard = spy.heard()?;
        for way in [".agent.", ".controller."] {
            let is_heard = heard.iter().any(|message| message.subject.contains(way));
            ensure!(is_heard, "nothing was heard with {way}, of {} messages", heard.len());
        }
        for message in &heard {
            for text in [SECRET, PATH] {
                let is_told = holds(&message.payload, text) || message.subject.contains(text);
                ensure!(!is_told, "{value}: the broker carried '{text}' to {}", message.subject);
            }
        }
        site.are_idle(&BOTH)?;
    }
    Ok(())
}

fn what_is_carried_again_makes_no_load(site: &mut Site) -> Result<()> {
    site.agents_on(&BOTH)?;
    let mut spy = Spy::start(site)?;
    let output = site.run("-n 40 -u 4")?;
    is_whole(site, &output, &[("c1", 0.5, 20), ("c2", 0.5, 20)])?;
    site.is_quiet()?;
    let heard = spy.heard()?;
    let orders: Vec<_> = heard.iter().filter(|message| message.subject.contains(".agent.")).collect();
    ensure!(!orders.is_empty(), "{} messages, none to an agent", heard.len());
    // To the session that it was for, and to a new one of the same controller.
    for message in &orders {
        let (receiver, _) = message.subject.rsplit_once('.').context("a subject of one word")?;
        spy.publish(&message.subject, &message.payload)?;
        spy.publish(&format!("{receiver}.{}", "0".repeat(32)), &message.payload)?;
    }
    let again = spy.heard()?.len();
    ensure!(again >= 2 * orders.len(), "{again} of {} messages were carried again", 2 * orders.len());
    // The agents answer after what was carried before the question.
    site.are_idle(&BOTH)?;
    site.is_quiet()?;
    let received = site.target.received().len();
    ensure!(received == 40, "{received} requests, 40 of them were ordered");
    let next = site.run("-n 40 -u 4")?;
    is_whole(site, &next, &[("c1", 0.5, 20), ("c2", 0.5, 20)])
}
