//! Keys, and agents between loads: how they are listed, drained and ended.

use std::os::unix::fs::PermissionsExt;

use super::{refusals::is_refused, *};

#[test]
fn inventory_as_root_agents_of_a_pool_are_listed_and_drained() -> Result<()> {
    try_all(&[
        ("list", agents_are_listed_with_version_and_key),
        ("drain", idle_agents_end_when_they_are_drained),
        ("drain a busy one", a_busy_agent_is_drained_after_its_trial),
        ("beside", idle_agents_make_a_load_beside_busy_ones),
        ("strangers", a_stranger_drains_nobody),
        ("no broker", an_agent_waits_for_its_broker),
    ])
}

#[test]
fn a_key_is_made_once_and_its_public_half_is_printed() -> Result<()> {
    let labs = Labs::new()?;
    let path = labs.path("own.key");
    let printed = labs.done(&format!("fleet key {path}"))?;
    // 32 bytes in base64.
    let is_key = printed.trim().strip_prefix("ed25519:").is_some_and(|text| text.len() == 44);
    ensure!(is_key && printed.lines().count() == 1, "{printed}");
    let mode = fs::metadata(&path)?.permissions().mode() & 0o7777;
    ensure!(mode == 0o600, "the mode of the key is {mode:o}");
    let kept = fs::read(&path)?;
    ensure!(labs.done(&format!("fleet key {path}"))? == printed, "another key is printed");
    ensure!(fs::read(&path)? == kept, "the key was written again");
    let other = labs.done(&format!("fleet key {}", labs.path("other.key")))?;
    ensure!(other != printed, "two files have one key");

    fs::set_permissions(&path, fs::Permissions::from_mode(0o644))?;
    let none = labs.file("none.key", "hello\n")?;
    fs::set_permissions(&none, fs::Permissions::from_mode(0o600))?;
    for (path, word) in [(&path, "600"), (&none, "none.key"), (&labs.path("no/such/folder/key"), "such")] {
        let refused = labs.run(&format!("fleet key {path}"))?;
        let is_told = refused.stderr.contains(word) && refused.stdout.is_empty();
        ensure!(refused.code == Some(2) && is_told, "{path}: {refused:?}");
    }
    ensure!(
        fs::read(&path)? == kept && fs::read_to_string(&none)? == "hello\n",
        "a refused file was written"
    );
    Ok(())
}

fn agents_are_listed_with_version_and_key(site: &mut Site) -> Result<()> {
    site.agent("c3", "spare", &format!("--name c3 {ALLOWED}"))?;
    site.agents_on(&BOTH)?;
    site.are("spare", &[("c3", "idle")])?;
    let version = site.labs.done("--version")?;
    let version = version.split_whitespace().last().context("no version is printed")?;
    let list = site.control(&format!("fleet list {}", nats(POOL)))?.run(PATIENCE)?;
    for machine in BOTH {
        let line = list.stdout.lines().find(|line| line.split_whitespace().next() == Some(machine));
        let line = line.with_context(|| format!("no line of {machine}: {list:?}"))?;
        for word in ["idle", version, site.keys[machine].as_str()] {
            ensure!(line.contains(word), "'{word}' is not in '{line}'");
        }
    }
    let nobody = site.control(&format!("fleet list {}", nats("nobody")))?.run(PATIENCE)?;
    ensure!(listed(&nobody).is_empty() && !nobody.stderr.contains("panicked at"), "{nobody:?}");
    Ok(())
}

/// A command that drains these agents of the usual pool.
fn drain(site: &Site, names: &str, options: &str) -> Result<Finished> {
    let finished = site.control(&format!("fleet drain {names} {options}"))?.run(PATIENCE)?;
    ensure!(!finished.stderr.contains("panicked at"), "{finished:?}");
    Ok(finished)
}

fn idle_agents_end_when_they_are_drained(site: &mut Site) -> Result<()> {
    site.agents_on(&ALL_MACHINES)?;
    let drained = drain(site, "c1 c3", &site.on(POOL))?;
    ensure!(drained.code == Some(0), "{drained:?}");
    for machine in ["c1", "c3"] {
        site.take(machine)?.ends()?;
    }
    site.are_idle(&["c2"])?;
    let next = site.run("-n 40 -u 4")?;
    is_whole(site, &next, &[("c2", 1.0, 40)])
}

fn a_busy_agent_is_drained_after_its_trial(site: &mut Site) -> Result<()> {
    site.agents_on(&BOTH)?;
    let load = site.held()?;
    site.are(POOL, &[("c1", "busy"), ("c2", "busy")])?;
    let other = site.http(&url(""), &format!("-n 40 -u 4 {}", site.on(POOL)))?;
    is_refused(site, &other, &["c1|load", "idle|busy|uses it"])?;
    let drained = drain(site, "c2", &site.on(POOL))?;
    ensure!(drained.code == Some(0), "{drained:?}");
    site.are(POOL, &[("c1", "busy"), ("c2", "draining")])?;
    is_refused(site, &other, &["c1|c2|load"])?;
    // It has not ended yet, and its users still wait.
    site.agent_on("c2")?.pid()?;
    site.target.answer_all();
    let output = load.finish()?;
    is_whole(site, &output, &[("c1", 0.5, 200), ("c2", 0.5, 200)])?;
    site.take("c2")?.ends()?;
    site.is_quiet()?;
    site.are_idle(&["c1"])?;
    let next = site.run("-n 40 -u 4")?;
    is_whole(site, &next, &[("c1", 1.0, 40)])
}

fn idle_agents_make_a_load_beside_busy_ones(site: &mut Site) -> Result<()> {
    site.agents_on(&["c1"])?;
    let launch = site.http(&url(""), &format!("-u 4 -n 200 {ENDLESS} {}", site.on(POOL)))?;
    let mut busy = site.start(&launch, "http", 50)?;
    busy.until("all users wait", || site.counts(["c1"]) == [54])?;
    site.agent("c2", POOL, &format!("--name c2 {ALLOWED}"))?;
    site.are(POOL, &[("c1", "busy"), ("c2", "idle")])?;
    let other = site.http(&url(""), &format!("-n 40 -u 4 {}", site.on(POOL)))?;
    let other = site.beside(&other, "http")?.finish()?;
    let trial = other.counted(0)?;
    ensure!(names(trial) == ["c2"] && trial.counts.completed == 40, "{}", other.described());
    ensure!(site.counts(BOTH) == [54, 40], "{:?}", site.counts(BOTH));
    site.target.answer_all();
    let busy = busy.finish()?;
    let trial = busy.counted(0)?;
    ensure!(names(trial) == ["c1"] && trial.counts.completed == 200, "{}", busy.described());
    ensure!(site.counts(BOTH) == [200, 40], "{:?}", site.counts(BOTH));
    Ok(())
}

fn a_stranger_drains_nobody(site: &mut Site) -> Result<()> {
    site.agents_on(&BOTH)?;
    site.labs.done(&format!("fleet key {}", site.labs.path("stranger.key")))?;
    site.labs.file("only-c2", &format!("c2 {}\n", site.keys["c2"]))?;
    let broker = nats(POOL);
    for (names, options) in [
        ("c1", site.on_with(&broker, "stranger.key", "agent-keys")),
        ("c1", site.on_with(&broker, "control.key", "only-c2")),
        ("c9", site.on(POOL)),
    ] {
        let refused = drain(site, names, &options)?;
        ensure!(refused.code == Some(2) && refused.stderr.contains(names), "{options}: {refused:?}");
    }
    site.are_idle(&BOTH)
}

fn an_agent_waits_for_its_broker(site: &mut Site) -> Result<()> {
    site.kill_broker()?;
    for machine in BOTH {
        site.agent(machine, POOL, &format!("--name {machine} {ALLOWED}"))?;
        let mut agent = site.take(machine)?;
        // It tells where it looks.
        agent.process.says(&address("broker").to_string(), PATIENCE)?;
        site.agents.push(agent);
    }
    let ended = site.take("c2")?;
    signal(ended.pid()?, Signal::TERM)?;
    ended.ends()?;
    site.start_broker()?;
    site.are_idle(&["c1"])
}
