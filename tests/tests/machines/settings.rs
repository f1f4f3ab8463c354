//! Settings of machines, and how they become what they were. `try_all` compares all of them before and after each part.

use record::VoidRule;

use super::*;

#[test]
fn inventory_as_root_settings_of_machines_become_what_they_were() -> Result<()> {
    try_all(&[
        ("sysctls", settings_are_in_force_during_trials),
        ("tuning", levels_of_a_tuning_are_in_force_during_their_trials),
        ("interrupt", |site| an_end_restores_everything(site, Signal::INT)),
        ("killed controller", |site| an_end_restores_everything(site, Signal::KILL)),
        ("killed agent", a_killed_agent_voids_its_trial_and_is_cleaned_up_after),
    ])
}

/// A target that writes this setting into its log when it starts.
fn target(setting: &str) -> String {
    let path = setting.replace('.', "/");
    format!(
        "[targets.web]\non = \"web\"\n\
         command = [\"sh\", \"-c\", \"echo now $(cat /proc/sys/{path}); exec {{proofload}} serve --listen 0.0.0.0:8080\"]\n\
         port = 8080\nready = \"tcp:8080\"\nready_timeout = \"10m\"\n"
    )
}

/// What the targets of a trial wrote, by the name of the machine's log.
fn written(out: &str, trial: u64) -> Result<Vec<String>> {
    let logs = fs::read_dir(format!("{out}/logs/{trial}"))?.flatten();
    let webs = logs.filter(|entry| entry.file_name().to_string_lossy().starts_with("web"));
    webs.map(|entry| Ok(fs::read_to_string(entry.path())?)).collect()
}

fn settings_are_in_force_during_trials(site: &Site) -> Result<()> {
    let hosts = HOSTS.replace(
        "web = { count = 3 }",
        "web = { count = 3, sysctls = { \"net.ipv4.tcp_fin_timeout\" = 23, \"net.core.somaxconn\" = 777 } }",
    );
    let text = format!("title = \"sysctls\"\n{hosts}{}{LOAD}", target("net.ipv4.tcp_fin_timeout"));
    let (_, out) = site.run("sysctls", &text, "")?;
    let written = written(&out, 1)?;
    ensure!(written.len() == 3 && written.iter().all(|log| log.contains("now 23\n")), "{written:?}");
    Ok(())
}

fn levels_of_a_tuning_are_in_force_during_their_trials(site: &Site) -> Result<()> {
    let text = format!(
        "title = \"tuning\"\n{HOSTS}{}{LOAD}[factors]\ntuning = [\"none\", \"long\"]\n[tuning.long]\n\
         web = {{ \"net.ipv4.tcp_fin_timeout\" = 24 }}\n",
        target("net.ipv4.tcp_fin_timeout")
    );
    let own = site.said("web1", "cat /proc/sys/net/ipv4/tcp_fin_timeout")?;
    let (trials, out) = site.run("tuning", &text, "")?;
    ensure!(trials.len() == 2, "{} trials", trials.len());
    for entry in &trials {
        let value = if entry.setting == 0 { own.trim() } else { "24" };
        let written = written(&out, entry.index)?;
        let is_so = written.len() == 3 && written.iter().all(|log| log.contains(&format!("now {value}\n")));
        ensure!(is_so, "trial {} of setting {}: {written:?}", entry.index, entry.setting);
    }
    Ok(())
}

/// A study with settings, addresses on loopback and routes, whose load goes on for an hour.
fn endless(balancer: &str) -> String {
    let hosts = HOSTS.replace(
        "web = { count = 3 }",
        "web = { count = 3, sysctls = { \"net.ipv4.tcp_fin_timeout\" = 25 } }",
    );
    format!(
        "title = \"endless\"\n{hosts}[targets.web]\non = \"web\"\nrun = \"nginx\"\nready_timeout = \"10m\"\n\
         [balancer]\non = \"balancer\"\nrun = \"{balancer}\"\nvip = \"192.168.16.100\"\n\
         [workload.http]\nfrom = \"client\"\nusers = 8\nthink_time = \"5ms\"\nduration = \"1h\"\n"
    )
}

/// Whether the load of the endless study runs: both clients have workers, and the settings are changed.
fn is_loading(site: &Site) -> bool {
    let is_changed = |web: &&str| {
        site.said(web, "cat /proc/sys/net/ipv4/tcp_fin_timeout").is_ok_and(|value| value.trim() == "25")
    };
    CLIENTS.iter().all(|client| site.runs(client, "worker")) && WEBS.iter().all(is_changed)
}

fn an_end_restores_everything(site: &Site, how: Signal) -> Result<()> {
    let name = if how == Signal::KILL { "killed" } else { "interrupted" };
    let (mut running, out) =
        site.start_until(name, &endless("l2dsr"), "the load runs", || is_loading(site))?;
    signal_controller(&running, how)?;
    let status = running.wait(PATIENCE)?.context("it goes on")?;
    // Agents notice by themselves that their controller is gone.
    site.is_quiet()?;
    if how == Signal::KILL {
        return site.clean();
    }
    ensure!(status.code() == Some(130), "{status:?}: {}", running.said());
    let kept = Path::new(&out).join("interrupted-trial.json");
    ensure!(kept.exists(), "what was measured is lost: {}", running.said());
    Ok(())
}

fn a_killed_agent_voids_its_trial_and_is_cleaned_up_after(site: &Site) -> Result<()> {
    for (number, victim) in ["web2", "client1", "balancer"].into_iter().enumerate() {
        let name = format!("agent-{number}");
        // That a balancer of ours is dead cannot be proven within a lab, whose hosts see no other PID namespaces.
        let text = endless("haproxy");
        let (mut running, out) = site.start_until(&name, &text, "the load runs", || is_loading(site))?;
        signal(site.agent(victim).with_context(|| format!("no agent on {victim}"))?, Signal::KILL)?;
        // The load would last for an hour: the loss ends it, or an interrupt after the loss is told.
        running.says(victim, PATIENCE)?;
        signal_controller(&running, Signal::INT)
            .or_else(|error| if running.is_running() { Err(error) } else { Ok(()) })?;
        running.wait(PATIENCE)?.context("it goes on")?;
        let trials = ResultFolder::open(Path::new(&out))?.trials()?;
        for entry in trials.iter().filter(|entry| !entry.trial.interrupted) {
            let reasons = entry.trial.validity.reasons();
            let is_named = reasons.iter().any(|reason| reason.evidence.contains(victim));
            ensure!(is_named, "{victim}: trial {}: {reasons:?}", entry.index);
            let is_lost = reasons.iter().any(|reason| reason.rule == VoidRule::WorkerLost);
            ensure!(is_lost || !CLIENTS.contains(&victim), "{victim}: {reasons:?}");
        }
        site.is_quiet()?;
        site.clean()?;
    }
    Ok(())
}
