//! What a machine cannot be or do is refused before anything starts.

use super::*;

#[test]
fn inventory_as_root_what_machines_cannot_do_is_refused_before_anything_starts() -> Result<()> {
    try_all(&[
        ("links", links_with_a_shape_are_refused),
        ("missing", a_host_that_no_machine_is_is_refused),
        ("unreachable", a_machine_that_cannot_be_reached_is_refused),
        ("shared", two_hosts_on_one_machine_need_an_option),
    ])
}

const TARGET: &str = "[targets.web]\non = \"web\"\nrun = \"serve\"\nready_timeout = \"10m\"\n";

/// Runs a study that must be refused with these words. Until its end, no target may have been started.
fn is_refused(site: &Site, launch: &Launch, words: &[&str]) -> Result<()> {
    let mut running = launch.start()?;
    let mut started = false;
    while running.is_running() {
        started |= WEBS.iter().any(|web| site.runs(web, "serve"));
    }
    let finished = checked(running.finish(PATIENCE)?)?;
    ensure!(finished.code == Some(2) && finished.stdout.is_empty(), "{finished:?}");
    ensure!(!started, "a target was started: {finished:?}");
    for word in words {
        ensure!(finished.stderr.contains(word), "'{word}' is not said: {}", finished.stderr);
    }
    site.is_quiet()
}

fn links_with_a_shape_are_refused(site: &Site) -> Result<()> {
    let text = format!("title = \"links\"\n{HOSTS}{TARGET}{LOAD}");
    // A segment alone is what machines have.
    site.run("plain", &text, "")?;
    let pair = "[[links]]\nname = \"wan\"\nbetween = [\"client1\", \"web1\"]\n";
    for shape in ["delay = \"5ms\"", "rate = \"10mbit\"", "loss = \"1%\""] {
        let (name, _) = shape.split_once(' ').context("no name")?;
        let text = text.replace("[targets.web]", &format!("{pair}{shape}\n[targets.web]"));
        let (launch, _) = site.study(&format!("link-{name}"), &text, "")?;
        is_refused(site, &launch, &["wan", name])?;
    }
    Ok(())
}

fn a_host_that_no_machine_is_is_refused(site: &Site) -> Result<()> {
    let hosts = HOSTS.replace("balancer", "proxy");
    let text = format!("title = \"missing\"\n{hosts}{TARGET}{LOAD}");
    let (launch, _) = site.study("missing", &text, "")?;
    is_refused(site, &launch, &["proxy"])?;
    // A group with fewer machines than the study has hosts.
    let hosts = HOSTS.replace("web = { count = 3 }", "web = { count = 4 }");
    let text = format!("title = \"few\"\n{hosts}{TARGET}{LOAD}");
    let (launch, _) = site.study("few", &text, "")?;
    is_refused(site, &launch, &["web4"])
}

fn a_machine_that_cannot_be_reached_is_refused(site: &Site) -> Result<()> {
    // Nobody listens at this address of the segment.
    let text = INVENTORY.replace("    balancer:\n", "    balancer: { ansible_host: 10.1.0.200 }\n");
    let inventory = site.labs.file("deaf.yml", &text)?;
    let study = site.labs.file("deaf.toml", &format!("title = \"deaf\"\n{HOSTS}{TARGET}{LOAD}"))?;
    let out = site.labs.path("deaf");
    let launch = site.control(&format!("run {study} --machines {inventory} --out {out}"))?;
    is_refused(site, &launch, &["balancer", "ssh"])
}

fn two_hosts_on_one_machine_need_an_option(site: &Site) -> Result<()> {
    let text = INVENTORY.replace("    balancer:\n", "    balancer: { ansible_host: web1 }\n");
    let inventory = site.labs.file("shared.yml", &text)?;
    let study = site.labs.file("shared.toml", &format!("title = \"shared\"\n{HOSTS}{TARGET}{LOAD}"))?;
    let launch = |name: &str, option: &str| {
        let out = site.labs.path(name);
        site.control(&format!("run {study} --machines {inventory} --out {out} {option}"))
    };
    is_refused(site, &launch("shared-refused", "")?, &["balancer", "web1", "--share-machines"])?;
    let finished = checked(launch("shared", "--share-machines")?.run(PATIENCE)?)?;
    ensure!(matches!(finished.code, Some(0 | 3)), "{finished:?}");
    let trials = ResultFolder::open(Path::new(&site.labs.path("shared")))?.trials()?;
    let counts = &http(trials.first().with_context(|| format!("{finished:?}"))?)?.counts;
    ensure!(counts.completed == REQUESTS, "{counts:?}");
    Ok(())
}
