//! The setups of a study's settings.

use std::time::Duration;

use lab::plan::{Program, Ready};
use load::HttpWorkload;
use record::{GoalQuantity, Level, LoadUnit};
use study::{Fresh, Setup, Source, Study};

use crate::{HOST, mistakes, read};

const ONE: &str = "[targets.web]\nrun = \"serve\"\n[workload.http]\n";

fn setups(study: &Study) -> Vec<Setup> {
    let load = study.search.as_ref().map(|search| search.max);
    let setup = |number| study.setup(number, load.filter(|_| study.settings[number].searched)).unwrap();
    (0..study.settings.len()).map(setup).collect()
}

fn workload(text: &str) -> HttpWorkload {
    setups(&read(text)).remove(0).workload.http().unwrap().clone()
}

fn names(study: &Study) -> Vec<&str> {
    study.settings.iter().map(|setting| setting.name.as_str()).collect()
}

const TUNED: &str = "[hosts]\nclient = {}\nweb = { tcp_rmem = \"1MB\" }\n[[links]]\nbetween = [\"client\", \"web\"]\n\
    [targets.web]\non = \"web\"\nrun = \"serve\"\n[workload.http]\n";

#[test]
fn a_level_of_tuning_changes_the_settings_of_its_hosts() {
    let changes = "[factors]\ntuning = [\"none\", \"buffers\"]\n[tuning.buffers]\n\
        web = { \"net.ipv4.tcp_rmem\" = \"4096 131072 8388608\" }\nclient = { \"net.core.somaxconn\" = 9 }\n";
    let study = read(&format!("{TUNED}{changes}"));
    let sysctl = |setting: usize, host: usize, name: &str| {
        setups(&study)[setting].lab.as_ref().unwrap().hosts[host].sysctls.get(name).cloned()
    };
    assert_eq!(names(&study), ["tuning=none", "tuning=buffers"]);
    assert_eq!(sysctl(0, 1, "net.ipv4.tcp_rmem").unwrap(), "4096 131072 1000000");
    assert_eq!(sysctl(1, 1, "net.ipv4.tcp_rmem").unwrap(), "4096 131072 8388608");
    assert_eq!([0, 1].map(|setting| sysctl(setting, 0, "net.core.somaxconn")), [None, Some("9".to_owned())]);
}

#[test]
fn mistakes_in_a_tuning_are_named_where_they_are() {
    let of = |text: &str| mistakes(&format!("{TUNED}[factors]\ntuning = [\"none\", \"a\"]\n{text}"));
    let first = |text: &str| of(text).first().cloned().unwrap_or_default();
    assert_eq!(of("[tuning.a]\nweb = { \"net.core.somaxconn\" = 9 }\n"), [""; 0]);
    assert!(first("[tuning.b]\nweb = {}\n").contains("has no level 'b'"), "{}", first("[tuning.b]\n"));
    assert!(first("[tuning.a]\nwep = {}\n").contains("there is no host 'wep'"));
    assert!(first("[tuning.a]\nweb = 3\n").contains("settings by their whole names"));
    assert!(first("[tuning.a]\nweb = { somaxconn = 3 }\n").contains("whole name"));
    assert!(first("").contains("changes nothing"));
    assert!(mistakes(&format!("{TUNED}[tuning.a]\nweb = {{}}\n"))[0].contains("add one to [factors]"));
    let elsewhere = "[targets.web]\nurl = \"http://10.0.0.1/\"\n[workload.http]\nusers = 1\n[factors]\n\
        tuning = [\"a\"]\n[tuning.a]\nweb = { \"net.core.somaxconn\" = 9 }\n";
    assert!(
        mistakes(elsewhere)[0].contains("only hosts of the study are tuned"),
        "{:?}",
        mistakes(elsewhere)
    );
}

#[test]
fn a_study_without_hosts_has_one_for_target_and_load() {
    let study = read(ONE);
    let setup = &setups(&study)[0];
    let plan = setup.lab.as_ref().unwrap();
    assert_eq!((plan.hosts[0].name.as_str(), plan.hosts.len(), &setup.from[..]), ("local", 1, &[0][..]));
    assert_eq!(plan.processes[0].name, "local-web");
    assert_eq!(setup.workload.http().unwrap().url, "http://127.0.0.1:8080/");
    assert_eq!((study.settings.len(), study.settings[0].name.as_str()), (1, ""));
    assert_eq!((study.trial.fresh, study.trial.repeats, study.seed), (Fresh::Setting, 1, 1));
}

#[test]
fn an_external_target_gets_its_load_from_this_machine() {
    let url = "[workload.http]\nurl = \"http://127.0.0.1:8080/x\"\n";
    let target = "[targets.old]\nurl = \"http://127.0.0.1:8080/app/\"\n[workload.http]\npath = \"/x\"\n";
    for text in [url, target] {
        let setup = setups(&read(text)).remove(0);
        assert_eq!(
            (setup.lab, setup.workload.http().unwrap().url.as_str()),
            (None, "http://127.0.0.1:8080/x")
        );
        assert_eq!(setup.from, [0_usize; 0]);
    }
    assert_eq!(workload(&target.replace("path = \"/x\"\n", "")).url, "http://127.0.0.1:8080/app/");
}

#[test]
fn combinations_are_in_the_order_of_the_file_and_limited_by_when() {
    let study = read(&format!(
        "{ONE}[factors]\nusers = {{ values = [1, 2], when = {{ mode = \"sweep\" }} }}\n\
         mode = [\"sweep\", \"one\"]\nthreads = {{ values = [1], when = {{ users = [2] }} }}\n",
    ));
    let mistakes = mistakes(&format!("{ONE}[factors]\na = [1]\n"));
    assert!(mistakes[0].contains("changes nothing"), "{mistakes:?}");
    assert_eq!(names(&study), ["users=1 mode=sweep", "users=2 mode=sweep threads=1", "mode=one"]);
    let setups = setups(&study);
    let users: Vec<Option<&str>> =
        setups.iter().map(|setup| setup.workload.http().unwrap().users.as_deref()).collect();
    assert_eq!(users, [Some("1"), Some("2"), None]);
    assert_eq!(study.settings[1].levels["threads"], Level::Number(1.0));
}

#[test]
fn a_text_that_is_only_a_placeholder_takes_the_type_of_the_level() {
    let study = read(
        "[targets.web]\nrun = \"serve\"\nport = \"{at}\"\nargs = [\"--body\", \"{size}\", \"--seed\", \"{at}\"]\n\
         env = { AT = \"{at}\" }\n[workload.http]\nkeepalive = \"{keep}\"\nduration = \"{seconds}s\"\n\
         [factors]\nat = [8081]\nsize = [\"1KiB\"]\nkeep = [false]\nseconds = [1.5]\n",
    );
    let setup = &setups(&study)[0];
    let process = &setup.lab.as_ref().unwrap().processes[0];
    let Program::Known(known) = &process.program else { panic!("{process:?}") };
    assert_eq!((known.port, known.args.join(" ").as_str()), (8081, "--body 1KiB --seed 8081"));
    assert_eq!(process.environment["AT"], "8081");
    assert_eq!(
        (setup.workload.http().unwrap().no_keepalive, setup.workload.http().unwrap().duration.as_deref()),
        (true, Some("1.5s"))
    );
    assert_eq!(setup.workload.http().unwrap().url, "http://127.0.0.1:8081/");
}

#[test]
fn a_factor_chooses_the_target_and_only_that_is_started() {
    let study = read(
        "[targets.a]\nrun = \"serve\"\n[targets.b]\nrun = \"nginx\"\nfile = { path = \"/x\", size = \"1KiB\" }\n\
         [targets.c]\ncommand = [\"./c\", \"--listen\", \":{port}\", \"{{a}}\"]\nport = 9000\n\
         ready = \"http://self:{port}/\"\n\
         [[processes]]\ncommand = [\"helper\"]\n[workload.http]\npath = \"/x\"\n[factors]\ntarget = [\"a\", \"b\", \"c\"]\n",
    );
    let setups = setups(&study);
    let started: Vec<Vec<&str>> = setups
        .iter()
        .map(|setup| setup.lab.as_ref().unwrap().processes.iter().map(|p| p.name.as_str()).collect())
        .collect();
    assert_eq!(
        started,
        [["local-helper", "local-a"], ["local-helper", "local-b"], ["local-helper", "local-c"]]
    );
    let urls: Vec<&str> = setups.iter().map(|setup| setup.workload.http().unwrap().url.as_str()).collect();
    assert_eq!(urls, ["http://127.0.0.1:8080/x", "http://127.0.0.1:80/x", "http://127.0.0.1:9000/x"]);
    let c = &setups[2].lab.as_ref().unwrap().processes[1];
    assert_eq!(c.program, Program::Command(["./c", "--listen", ":9000", "{a}"].map(str::to_owned).to_vec()));
    assert_eq!(c.ready, Some(Ready::Http { address: None, port: 9000, path: "/".to_owned() }));
    assert_eq!((c.stage, setups[2].target.as_ref().unwrap().what.as_str()), (1, "./c --listen :9000 {a}"));
}

#[test]
fn a_target_on_several_hosts_gets_connections_on_all() {
    let hosts = "[hosts]\nclient = { count = 2 }\nweb = { count = 3 }\n[[links]]\nbetween = [\"client\", \"web\"]\n\
                 [targets.site]\non = \"web\"\nrun = \"nginx\"\n[workload.http]\n";
    let setup = setups(&read(hosts)).remove(0);
    assert_eq!(setup.from, [0, 1]);
    assert_eq!(setup.workload.http().unwrap().url, "http://10.1.0.3:80/");
    assert_eq!(
        setup.workload.http().unwrap().connect_to.as_deref(),
        Some("10.1.0.3:80,10.1.0.4:80,10.1.0.5:80")
    );
    let other = setups(&read(&format!("{hosts}url = \"http://{{web2}}/\"\nfrom = \"client2\"\n"))).remove(0);
    assert_eq!(
        (other.workload.http().unwrap().url.as_str(), other.workload.http().unwrap().connect_to.as_deref()),
        ("http://10.1.0.4/", None)
    );
    assert_eq!(other.from, [1]);
}

#[test]
fn a_search_sets_its_load() {
    let search = "[search]\nvary = \"VARY\"\nmin = 10\nmax = \"1k\"\n[[goals]]\nerrors = 0\n";
    let setup = |vary: &str, rest: &str| {
        let study = read(&format!("{}{}{rest}", ONE, search.replace("VARY", vary)));
        let setup = study.setup(0, Some(640.0)).unwrap();
        (study.search.unwrap().unit, setup)
    };
    let (unit, of_users) = setup("users", "");
    assert_eq!((unit, of_users.workload.http().unwrap().users.as_deref()), (LoadUnit::Users, Some("640")));
    assert_eq!(setup("rate", "").1.workload.http().unwrap().rate.as_deref(), Some("640"));
    let (unit, of_factor) = setup("pipeline", "[factors]\npipeline = { search = true }\n");
    assert_eq!(
        (unit, of_factor.workload.http().unwrap().pipeline.as_deref()),
        (LoadUnit::Factor("pipeline".into()), Some("640"))
    );
    let text = format!("{}{search}[factors]\nqueue = {{ search = true }}\n", ONE.replace("8080", ""));
    let text = text
        .replace("VARY", "queue")
        .replace("\"serve\"\n", "\"serve\"\nargs = [\"--queue\", \"{queue}\"]\n");
    let study = read(&text);
    let setup = study.setup(0, Some(20.0)).unwrap();
    let Program::Known(known) = &setup.lab.unwrap().processes[0].program else { panic!() };
    assert_eq!(known.args, ["--queue", "20"]);
    // A search between whole ends tries only whole loads.
    assert!(study.search.as_ref().unwrap().takes_whole_loads());
    let between = study.setup(0, Some(20.4)).unwrap();
    assert_eq!(between.target.unwrap().what, "serve --queue 20");
    let fine = read(&text.replace("min = 10", "min = 0.5"));
    assert_eq!(fine.setup(0, Some(20.4)).unwrap().target.unwrap().what, "serve --queue 20.4");
    assert!(study.factors.is_empty());
}

#[test]
fn only_the_settings_of_when_are_searched() {
    let study = read(&format!(
        "{ONE}[factors]\nmode = [\"sweep\", \"limit\"]\nrate = {{ values = [100], when = {{ mode = \"sweep\" }} }}\n\
         [trial]\nduration = \"3s\"\n[search]\nvary = \"rate\"\nmin = 10\nmax = \"1k\"\nwhen = {{ mode = \"limit\" }}\n\
         trial = \"2s\"\n[[goals]]\nname = \"fast\"\np99_9 = \"10ms\"\n",
    ));
    let searched: Vec<bool> = study.settings.iter().map(|setting| setting.searched).collect();
    assert_eq!(searched, [false, true]);
    let setups = setups(&study);
    let lengths: Vec<Option<&str>> =
        setups.iter().map(|setup| setup.workload.http().unwrap().duration.as_deref()).collect();
    assert_eq!(lengths, [Some("3s"), Some("2s")]);
    assert_eq!(study.search.as_ref().unwrap().trial_duration, Some(Duration::from_secs(2)));
    let goal = &study.goals[0];
    assert_eq!((goal.name.as_str(), goal.loss_ratio), ("fast: p99.9 ≤ 10 ms", 0.001));
    assert_eq!(goal.quantity, GoalQuantity::ResponseTime { bound_ns: 10_000_000 });
}

#[test]
fn settings_that_are_not_searched_have_no_search() {
    let study = read(&format!(
        "{ONE}[factors]\nmode = [\"sweep\", \"limit\"]\n\
         method = {{ values = [\"jmeter\", \"mlrsearch\"], when = {{ mode = \"limit\" }} }}\n\
         loops = {{ values = [100], when = {{ mode = \"limit\" }} }}\n[trial]\nduration = \"3s\"\n\
         [search]\nvary = \"users\"\npreset = \"{{method}}\"\nmin = 1\nmax = 100\nwhen = {{ mode = \"limit\" }}\n\
         [[goals]]\nerrors = 0\n",
    ));
    for setting in &study.settings {
        let method = study.search_of(setting).map(|search| search.preset.as_str());
        assert_eq!(method.is_some(), setting.searched, "{}", setting.name);
        assert!(method.is_none_or(|method| setting.name.contains(method)), "{}", setting.name);
    }
    let plan = study::plan(&study, Vec::new()).unwrap();
    for search in plan.search.iter().chain(&plan.other_searches) {
        let goal = &search.method_settings["goals"][0];
        assert_eq!(goal["initial_trial_duration_s"], goal["final_trial_duration_s"], "{}", search.method);
    }
}

#[test]
fn users_that_start_slowly_have_long_trials() {
    let study = |more: &str| {
        read(&format!(
            "{ONE}think_time = \"1s\"\n{more}[search]\nvary = \"users\"\nmin = 1\nmax = 100\ntrial = \"5s\"\n[[goals]]\nerrors = 0\n"
        ))
    };
    let first_s = |study: &Study| {
        let plan = study::plan(study, Vec::new()).unwrap();
        plan.search.unwrap().method_settings["goals"][0]["initial_trial_duration_s"].as_f64()
    };
    assert_eq!(first_s(&study("")), Some(1.0));
    assert_eq!(first_s(&study("ramp_up = \"2s\"\n")), Some(5.0), "a second would see half of them");
}

#[test]
fn targets_with_missing_programs_are_left_out_with_a_warning() {
    let text = "[targets.a]\nrun = \"serve\"\n[targets.b]\nrun = \"nginx\"\nneeds = \"no-such-program\"\n\
                [workload.http]\n[factors]\ntarget = [\"a\", \"b\"]\nusers = [1, 2]\n";
    let study = read(text);
    assert_eq!(names(&study), ["target=a users=1", "target=a users=2"]);
    assert_eq!(study.factors[0].levels, [Level::Text("a".into())]);
    assert!(
        study.warnings[0].message.contains("2 of 4 settings")
            && study.warnings[0].message.contains("no-such-program")
    );
    let mistakes =
        mistakes(&text.replace("[\"a\", \"b\"]", "[\"b\"]").replace("[targets.a]\nrun = \"serve\"\n", ""));
    assert!(mistakes[0].contains("nothing is left to run"), "{mistakes:?}");
}

#[test]
fn ten_thousand_settings_are_read() {
    let levels: Vec<String> = (1..=100).map(|level| level.to_string()).collect();
    let levels = levels.join(",");
    let study = read(&format!("{ONE}[factors]\nusers = [{levels}]\nspin = [{levels}]\n"));
    assert_eq!(study.settings.len(), 10_000);
    assert!(study.describe().lines().count() <= 60);
    assert!(study.describe().contains("… and 9,994 more"));
}

#[test]
fn files_of_bodies_are_relative_to_the_study() {
    let name = concat!(env!("CARGO_MANIFEST_DIR"), "/study.toml");
    let body = |body: &str| {
        let study = study::file::read(name, &format!("{ONE}body = \"{body}\"\n"), &[], &HOST);
        study.map(|study| study.setup(0, None).unwrap().workload.http().unwrap().body.clone().unwrap())
    };
    assert_eq!(body("@Cargo.toml").unwrap(), concat!("@", env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"));
    assert!(body("@no-such-file").unwrap_err()[0].message.contains("no-such-file"));
    // Templates must stay as they are, because only the trial fills them in.
    assert_eq!(body("{{user}}").unwrap(), "{{user}}");
}

#[test]
fn levels_must_not_be_secrets_and_copies_of_the_file_mask_them() {
    let text = |token: &str| {
        format!(
            "title = \"x\"  # X-Api-Key: copy-secret-1\n[targets.web]\nurl = \"http://ann:copy-secret-2@127.0.0.1:1/?page=2\"\n\
             [workload.http]\nheaders = [\"X-Trace: {{token}}\", \"Cookie: s=copy-\\u0073ecret-3\", \"Accept: y\"]\n\
             [factors]\ntoken = [\"{token}\", \"$${{TOKEN}}\"]\n"
        )
    };
    let study = read(&text("open"));
    let Source::File(document) = &study.source else { panic!("it is a file") };
    let copy = document.masked_text();
    assert!(!copy.contains("secret"), "{copy}");
    for part in [
        "X-Api-Key: ***",
        "//***@127.0.0.1:1/?page=2",
        "\"Cookie: ***\", \"Accept: y\"",
        "{token}",
        "$${TOKEN}",
    ] {
        assert!(copy.contains(part), "{part}: {copy}");
    }
    let refused = mistakes(&text("http://ann:level-secret@h/"));
    assert!(
        refused.len() == 1 && refused[0].contains("this level of 'token' is sent as a secret"),
        "{refused:?}"
    );
}

#[test]
fn copies_of_the_file_mask_secrets_in_environments() {
    let study = read(
        "[targets.web]\nrun = \"serve\"\nenv = { DB_PASSWORD = \"env-hunter\", DB_URL = \"db://ann:env-secret@h/\", LANG = \"C\" }\n\
         [workload.http]\n",
    );
    let Source::File(document) = &study.source else { panic!("it is a file") };
    let copy = document.masked_text();
    let env = "env = { DB_PASSWORD = \"***\", DB_URL = \"db://***@h/\", LANG = \"C\" }";
    assert!(copy.contains(env), "{copy}");
    // Kept logs are masked in the same way.
    assert_eq!(secrets::mask::mask_learned_text("env-hunter env-secret"), "*** ***");
}

#[test]
fn exceptions_are_not_run_unless_the_command_line_asks_for_them() {
    let text = format!(
        "{ONE}[factors]\nusers = [1, 2]\nthreads = [1, 2]\n[[except]]\nusers = 2\nthreads = [2, 1]\n[[except]]\nthreads = 2\n"
    );
    assert_eq!(names(&read(&text)), ["users=1 threads=1"]);
    let with = |overrides: &[(&str, &str)]| {
        let overrides: Vec<_> =
            overrides.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let study = study::file::read("f", &text, &overrides, &HOST).unwrap();
        study.settings.into_iter().map(|setting| setting.name).collect::<Vec<_>>()
    };
    assert_eq!(with(&[("users", "1,3")]), ["users=1 threads=1", "users=3 threads=1"]);
    assert_eq!(with(&[("users", "2"), ("threads", "1,2")]), ["users=2 threads=1", "users=2 threads=2"]);
}

#[test]
fn levels_with_missing_programs_are_left_out_with_a_warning() {
    let text = |needs: &str| {
        format!(
            "{ONE}[factors]\nusers = {{ values = [1, 2], needs = {{ 2 = \"{needs}\", 7 = \"none-such\" }} }}\n"
        )
    };
    assert_eq!((read(&text("sh")).settings.len(), read(&text("sh")).warnings.len()), (2, 0));
    let study = read(&text("no-such-program"));
    assert_eq!(names(&study), ["users=1"]);
    let message = &study.warnings[0].message;
    assert!(
        message.contains("1 of 2 settings") && message.contains("users=2 needs no-such-program"),
        "{message}"
    );
    let mistakes = mistakes(&text("no-such-program").replace("[1, 2]", "[2]"));
    assert!(mistakes[0].contains("nothing is left to run: users=2 needs no-such-program"), "{mistakes:?}");
}

#[test]
fn a_plan_has_the_host_settings_that_differ() {
    let study = read(
        "[hosts]\na = { tcp_rmem = \"{buffer}\", tcp_wmem = \"4MB\" }\nb = { tcp_wmem = \"64MB\" }\n\
         [[links]]\nbetween = [\"a\", \"b\"]\nname = \"wan\"\nrate = \"1gbit\"\ndelay = \"114ms\"\n[targets.t]\non = \"b\"\nrun = \"socat\"\n\
         args = [\"-u\", \"TCP-LISTEN:{port}\", \"-\"]\nport = 9\n[workload.command]\nfrom = \"a\"\nrun = [\"{proofload}\", \"--version\"]\n\
         [factors]\nbuffer = [\"2MB\", \"8MB\"]\n",
    );
    let plan = study::plan(&study, Vec::new()).unwrap();
    let expected = [2, 8].map(|mb| {
        let line = ("net.ipv4.tcp_rmem".to_owned(), format!("4096 131072 {mb}000000"));
        [("a".to_owned(), [line].into())].into()
    });
    assert_eq!(
        plan.settings.iter().map(|setting| setting.host_settings.clone()).collect::<Vec<_>>(),
        expected
    );
    assert!(plan.quantities.iter().any(|known| known.name == "link_wan_buffer_bit_per_s" && known.is_main));
    let own = std::env::current_exe().unwrap().display().to_string();
    assert!(plan.workload.starts_with(&own), "{}", plan.workload);
}
