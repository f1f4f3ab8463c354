//! Actions on machines during a trial.

use record::ActionRecord;

use super::*;

#[test]
fn inventory_as_root_actions_are_done_on_their_machines() -> Result<()> {
    try_all(&[
        ("command", a_command_runs_on_its_machine),
        ("kill", a_kill_ends_programs_of_one_machine),
        ("failing command", a_command_that_fails_voids_the_trial),
    ])
}

/// A study whose load lasts for 4 s, with one action after one second.
fn with_action(action: &str) -> String {
    format!(
        "title = \"action\"\n{HOSTS}[targets.web]\non = \"web\"\nrun = \"nginx\"\nready_timeout = \"10m\"\n\
         [workload.http]\nfrom = \"client\"\nrate = 60\nconnections = 12\nduration = \"4s\"\ntimeout = \"5m\"\ndrain = \"5m\"\n\
         [[actions]]\nat = \"1s\"\n{action}\n[trial]\nvoid_attempts = 0\n"
    )
}

/// The only action of the only trial.
fn done(entry: &TrialEntry) -> Result<&ActionRecord> {
    ensure!(entry.actions.len() == 1, "{:?}", entry.actions);
    Ok(&entry.actions[0])
}

fn a_command_runs_on_its_machine(site: &Site) -> Result<()> {
    let action = "on = \"web2\"\ncommand = [\"sh\", \"-c\", \"echo here > /tmp/by-action; ip -o -4 address >> /tmp/by-action\"]";
    let (trials, _) = site.run("action-command", &with_action(action), "")?;
    let action = done(&trials[0])?;
    ensure!(action.host == "web2" && action.error.is_none() && action.began_s.is_some(), "{action:?}");
    let wrote = site.said("web2", "cat /tmp/by-action && rm /tmp/by-action")?;
    let own = site.said("web2", "ip -o -4 address")?;
    ensure!(wrote == format!("here\n{own}"), "{wrote}");
    for other in MACHINES.into_iter().filter(|machine| *machine != "web2") {
        site.said(other, "test ! -e /tmp/by-action")?;
    }
    ensure!(!Path::new("/tmp/by-action").exists(), "the controller's machine has the file");
    Ok(())
}

fn a_kill_ends_programs_of_one_machine(site: &Site) -> Result<()> {
    let (launch, out) = site.study("action-kill", &with_action("on = \"web3\"\nkill = \"nginx\""), "")?;
    let mut running = launch.start()?;
    running.find("nginx runs everywhere", PATIENCE, |_| {
        WEBS.iter().all(|web| site.runs(web, "nginx")).then_some(())
    })?;
    running.find("nginx of web3 is gone", PATIENCE, |_| (!site.runs("web3", "nginx")).then_some(()))?;
    let others = ["web1", "web2"].map(|web| site.runs(web, "nginx"));
    let finished = checked(running.finish(PATIENCE)?)?;
    ensure!(others == [true, true], "others were killed, too: {finished:?}");
    let trials = ResultFolder::open(Path::new(&out))?.trials()?;
    let action = done(trials.first().with_context(|| format!("{finished:?}"))?)?;
    ensure!(action.host == "web3" && action.error.is_none(), "{action:?}");
    Ok(())
}

fn a_command_that_fails_voids_the_trial(site: &Site) -> Result<()> {
    let (launch, out) =
        site.study("action-fails", &with_action("on = \"web1\"\ncommand = [\"false\"]"), "")?;
    let finished = checked(launch.run(PATIENCE)?)?;
    let trials = ResultFolder::open(Path::new(&out))?.trials()?;
    let entry = trials.first().with_context(|| format!("{finished:?}"))?;
    ensure!(done(entry)?.error.is_some() && entry.trial.validity.is_void(), "{:?}", entry.actions);
    Ok(())
}
