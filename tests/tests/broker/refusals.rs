//! What is refused before any request: whom agent and controller do not know, and what an agent may not load.

use std::os::unix::fs::PermissionsExt;

use super::*;

/// Nothing is sent to this address (TEST-NET-1).
const NOWHERE: &str = "http://192.0.2.1/";
/// A password. No other program says it.
const PASSWORD: &str = "sesame-4712-of-the-broker";

#[test]
fn inventory_as_root_agents_and_controllers_that_do_not_know_each_other_make_no_load() -> Result<()> {
    try_all(&[
        ("keys", keys_must_be_known_on_both_sides),
        ("names", each_name_means_one_agent_with_its_key),
        ("allow", an_agent_loads_only_what_it_may),
        ("allow on one", one_machine_that_may_not_is_enough),
        ("broker", a_broker_must_be_there_and_accept_the_login),
    ])
}

/// Runs a load that must be refused before anything is sent, with all of these words; of `a|b`, one.
pub(super) fn is_refused(site: &Site, launch: &Launch, words: &[&str]) -> Result<()> {
    let before = site.target.received().len();
    let output = site.beside(launch, "http")?.finish()?;
    let missing = missing(&output.stderr, words);
    ensure!(output.code == Some(2) && output.stdout.is_empty(), "not refused: {}", output.described());
    ensure!(missing.is_empty(), "not said: {missing:?}: {}", output.described());
    let sent = site.target.received().len() - before;
    ensure!(sent == 0, "{sent} requests were sent: {}", output.described());
    Ok(())
}

/// The words that are not in a text.
fn missing<'a>(text: &str, words: &[&'a str]) -> Vec<&'a str> {
    words.iter().copied().filter(|word| !word.split('|').any(|one| text.contains(one))).collect()
}

/// A small load with these options.
fn load(site: &Site, options: &str) -> Result<Launch> {
    site.http(&url(""), &format!("-n 40 -u 4 {options}"))
}

fn keys_must_be_known_on_both_sides(site: &mut Site) -> Result<()> {
    site.agents_on(&BOTH)?;
    let broker = nats(POOL);
    let stranger = site.labs.done(&format!("fleet key {}", site.labs.path("stranger.key")))?;
    let [c1, c2, c3] = ALL_MACHINES.map(|name| site.keys[name].clone());
    for (key, agent_keys, text, words) in [
        // The agents do not know this controller.
        ("stranger.key", "both", format!("c1 {c1}\nc2 {c2}\n"), ["c1", "controller's key|--controller-key"]),
        // The controller does not know an agent, or knows another of its name.
        ("control.key", "without-c2", format!("c1 {c1}\n"), ["c2", "--agent-keys"]),
        ("control.key", "other-c2", format!("c1 {c1}\nc2 {c3}\n"), ["c2", "another key"]),
        ("control.key", "stranger-c2", format!("c1 {c1}\nc2 {stranger}"), ["c2", "another key"]),
        // The first line that means an agent counts.
        ("control.key", "pattern-first", format!("c* {c1}\nc2 {c2}\n"), ["c2", "another key"]),
    ] {
        site.labs.file(agent_keys, &text)?;
        let launch = load(site, &site.on_with(&broker, key, agent_keys))?;
        is_refused(site, &launch, &words).with_context(|| format!("{key} with {agent_keys}"))?;
        site.are_idle(&BOTH)?;
    }
    // Comments, empty lines, unknown agents and patterns are borne.
    site.labs.file("patterns", &format!("# all\n\nc3 {c3} # not there\n*1 {c1}\nc*2 {c2}\n"))?;
    let launch = load(site, &site.on_with(&broker, "control.key", "patterns"))?;
    let output = site.start(&launch, "http", ALL)?.finish()?;
    is_whole(site, &output, &[("c1", 0.5, 20), ("c2", 0.5, 20)])
}

fn each_name_means_one_agent_with_its_key(site: &mut Site) -> Result<()> {
    // One that calls itself c1, beside c1, and alone.
    site.agents_on(&["c1"])?;
    site.agent("c2", POOL, &format!("--name c1 {ALLOWED}"))?;
    site.are(POOL, &[("c1", "idle"), ("c1", "idle")])?;
    is_refused(site, &load(site, &site.on(POOL))?, &["c1", "two agents|twice|--name"])?;
    let own = site.take("c1")?;
    signal(own.pid()?, Signal::TERM)?;
    own.ends()?;
    site.are_idle(&["c1"])?;
    is_refused(site, &load(site, &site.on(POOL))?, &["c1", "another key"])?;
    // Nobody is there.
    is_refused(site, &load(site, &site.on("nobody"))?, &["nobody", "agent"])
}

/// What an agent may load, the URL, more options of the load, and the words of the refusal; none if it is allowed.
type AllowCase<'a> = (&'a str, &'a str, &'a str, &'a [&'a str]);

fn an_agent_loads_only_what_it_may(site: &mut Site) -> Result<()> {
    let web = url("");
    let (by_name, elsewhere, c1) =
        ("http://localhost:8081/", "http://192.0.2.1:8081/", "http://10.1.0.3:8081/");
    let cases: [AllowCase<'_>; 10] = [
        ("", &web, "", &["c1", "--allow"]),
        ("--allow 192.0.2.0/24", &web, "", &["c1", "--allow", "10.1.0.6"]),
        ("--allow 10.1.0.0/30,10.1.0.7/32", &web, "", &["c1", "--allow", "10.1.0.6"]),
        ("--allow 10.1.0.0/24", by_name, "", &["c1", "--allow"]),
        ("--allow 10.1.0.3/32", c1, "--connect-to 10.1.0.6:8081", &["c1", "--allow", "10.1.0.6"]),
        ("--allow 10.1.0.6/32", &web, "-x http://10.1.0.1:3128", &["c1", "--allow", "10.1.0.1"]),
        // Sound ones. The address of each connection counts, not the one that the URL has.
        ("--allow 10.1.0.6/32", &web, "", &[]),
        ("--allow 192.0.2.0/24,10.1.0.6/32", &web, "", &[]),
        ("--allow 192.0.2.0/24 --allow 10.1.0.4/30", &web, "", &[]),
        ("--allow 10.1.0.6/32", elsewhere, "--connect-to 10.1.0.6:8081", &[]),
    ];
    for (allow, url, options, words) in cases {
        site.agent("c1", POOL, &format!("--name c1 {allow}"))?;
        site.are_idle(&["c1"])?;
        let launch = site.http(url, &format!("-n 40 -u 4 {options} {}", site.on(POOL)))?;
        let context = || format!("{allow:?} and {url} {options}");
        if words.is_empty() {
            let output = site.start(&launch, "http", ALL)?.finish()?;
            is_whole(site, &output, &[("c1", 1.0, 40)]).with_context(context)?;
        } else {
            is_refused(site, &launch, words).with_context(context)?;
            // The refusal is no end of the agent.
            site.are_idle(&["c1"]).with_context(context)?;
        }
        site.is_quiet()?;
        site.end_agents()?;
    }
    Ok(())
}

fn one_machine_that_may_not_is_enough(site: &mut Site) -> Result<()> {
    site.agent("c1", POOL, &format!("--name c1 {ALLOWED}"))?;
    site.agent("c2", POOL, "--name c2 --allow 192.0.2.0/24")?;
    site.are_idle(&BOTH)?;
    // Neither of them sends anything.
    is_refused(site, &load(site, &site.on(POOL))?, &["c2", "--allow", "10.1.0.6"])?;
    site.are_idle(&BOTH)
}

fn a_broker_must_be_there_and_accept_the_login(site: &mut Site) -> Result<()> {
    for server in ["10.1.0.2:4999", "10.1.0.77:4222"] {
        let broker = format!("nats://{server}/{POOL}");
        let launch = load(site, &site.on_with(&broker, "control.key", "agent-keys"))?;
        is_refused(site, &launch, &[server])?;
        let list = site.control(&format!("fleet list {broker}"))?.run(PATIENCE)?;
        ensure!(list.code == Some(2) && list.stderr.contains(server), "{list:?}");
    }
    let server = site.server(&format!("--port 4333 --user ann --pass {PASSWORD}"))?;
    let broker = format!("nats://10.1.0.2:4333/{POOL}");
    let words = ["10.1.0.2:4333", "--nats-creds|credentials"];
    is_refused(site, &load(site, &site.on_with(&broker, "control.key", "agent-keys"))?, &words)?;
    let list = site.control(&format!("fleet list {broker}"))?;
    for launch in [list, site.agent_of("c1", &broker, &format!("--name c1 {ALLOWED}"))?] {
        let refused = launch.run(PATIENCE)?;
        let missing = missing(&refused.stderr, &words);
        ensure!(refused.code == Some(2) && missing.is_empty(), "not said: {missing:?}: {refused:?}");
    }
    kill_server(server)
}

/// Files that commands need.
struct Files {
    labs: Labs,
    key: String,
    public: String,
    /// The options of a controller.
    keys: String,
    study: String,
}

impl Files {
    fn new() -> Result<Self> {
        let labs = Labs::new()?;
        let key = labs.path("own.key");
        let public = labs.done(&format!("fleet key {key}"))?.trim().to_owned();
        let agent_keys = labs.file("agent-keys", &format!("c1 {public}\n"))?;
        let study = format!("title = \"t\"\n[workload.http]\nurl = \"{NOWHERE}\"\nusers = 1\nrequests = 1\n");
        let study = labs.file("study.toml", &study)?;
        Ok(Self { keys: format!("--fleet-key {key} --agent-keys {agent_keys}"), labs, key, public, study })
    }

    /// Runs lines that must be refused, each for a reason with all of these words. All of them are tried.
    fn are_refused(&self, lines: &[(String, &[&str])]) -> Result<()> {
        let mut wrong = Vec::new();
        for (line, words) in lines {
            let Finished { code, stdout, stderr, .. } = self.labs.run(line)?;
            let missing = missing(&stderr, words);
            let is_shown = stdout.contains(PASSWORD) || stderr.contains(PASSWORD);
            if code != Some(2) || !stdout.is_empty() || is_shown || !missing.is_empty() {
                wrong.push(format!("`{line}`: {code:?}, not said {missing:?}: {stdout}{stderr}"));
            }
        }
        ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
        Ok(())
    }
}

#[test]
fn a_login_in_the_address_of_a_broker_is_refused_and_not_shown() -> Result<()> {
    let files = Files::new()?;
    let Files { labs, key, public, keys, study } = &files;
    let out = labs.path("out");
    let mut lines: Vec<(String, &[&str])> = Vec::new();
    for login in [
        format!("nats://ann:{PASSWORD}@192.0.2.1:4222/load"),
        format!("nats://{PASSWORD}@192.0.2.1"),
        format!("tls://ann:{PASSWORD}@192.0.2.1/load"),
    ] {
        for line in [
            format!("http {NOWHERE} -n 1 --on {login} {keys}"),
            format!("limit rate {NOWHERE} --errors 0 --out {out} --on {login} {keys}"),
            format!("run {study} --out {out} --on {login} {keys}"),
            format!("wrk -t1 -c1 -d1s --on {login} {keys} {NOWHERE}"),
            format!("fleet list {login}"),
            format!("fleet drain c1 --on {login} {keys}"),
            format!("agent --nats {login} --key {key} --controller-key {public} --allow 10.0.0.0/8"),
        ] {
            lines.push((line, &["--nats-creds|credentials"]));
        }
    }
    files.are_refused(&lines)
}

#[test]
fn mistakes_in_the_options_for_a_broker_are_refused() -> Result<()> {
    let files = Files::new()?;
    let Files { labs, key, public, keys, .. } = &files;
    let (http, nats) = (format!("http {NOWHERE} -n 1"), "nats://192.0.2.1:4222/load");
    let agent = format!("agent --nats {nats}");
    let known = format!("--key {key} --controller-key {public}");
    let agent_keys = labs.path("agent-keys");
    let large =
        labs.file("large.csv", &format!("name\n{}", ("x".repeat((1 << 20) - 1) + "\n").repeat(65)))?;
    // What others can read or change, and what is no list.
    let [loose, open] = [labs.path("loose.key"), labs.file("open-keys", &format!("c1 {public}\n"))?];
    fs::copy(key, &loose)?;
    fs::set_permissions(&loose, fs::Permissions::from_mode(0o644))?;
    fs::set_permissions(&open, fs::Permissions::from_mode(0o666))?;
    let wrong = labs.file("wrong-keys", &format!("c1 {public}\nc2 rsa:AAAA\n"))?;
    files.are_refused(&[
        (format!("{http} --on {nats}"), &["--fleet-key"]),
        (format!("{http} --on {nats} --fleet-key {key}"), &["--agent-keys"]),
        (format!("{http} --on {nats} --agent-keys {agent_keys}"), &["--fleet-key"]),
        (format!("{http} {keys}"), &["--on"]),
        (format!("{http} --on nats://192.0.2.1:4222/a.b {keys}"), &["nats://192.0.2.1:4222/a.b"]),
        (format!("{http} --on {nats} --fleet-key {loose} --agent-keys {agent_keys}"), &["loose.key", "600"]),
        (format!("{http} --on {nats} --fleet-key {key} --agent-keys {open}"), &["open-keys"]),
        (format!("{http} --on {nats} --fleet-key {key} --agent-keys {wrong}"), &["wrong-keys:2", "rsa:AAAA"]),
        (format!("{http} --on {nats} {keys} --nats-creds {out}", out = labs.path("none")), &["none"]),
        // As over ssh: what only this machine has, and files that cannot be sent.
        (
            format!("{http} --on {nats} {keys} --unix-socket {}", labs.path("socket")),
            &["--unix-socket", "machine"],
        ),
        (format!("{http} --on {nats} {keys} --feeder {large} -H X:{{{{name}}}}"), &["--feeder", "MiB"]),
        (format!("fleet drain c1 --on {nats}"), &["--fleet-key"]),
        ("fleet list http://192.0.2.1".to_owned(), &["nats://"]),
        (format!("{agent} --controller-key {public}"), &["--key"]),
        (format!("{agent} --key {key}"), &["--controller-key"]),
        (format!("{agent} --key {key} --controller-key rsa:AAAA"), &["rsa:AAAA"]),
        (format!("{agent} --key {loose} --controller-key {public}"), &["loose.key", "600"]),
        (format!("{agent} --key {} --controller-key {public}", labs.path("none")), &["none"]),
        (format!("{agent} {known} --allow 10.0.0.0/33"), &["10.0.0.0/33"]),
        (format!("{agent} {known} --allow web"), &["web"]),
        (format!("{agent} {known} --name a/b --allow 10.0.0.0/8"), &["a/b"]),
        (format!("agent --nats http://192.0.2.1 {known} --allow 10.0.0.0/8"), &["nats://"]),
    ])
}
