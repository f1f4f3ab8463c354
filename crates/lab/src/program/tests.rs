use super::*;
use crate::plan::{Flood, Host, Program};

/// The command line of a program on a host `h`, and the folder with the files that it wrote.
fn command(kind: KnownKind, args: &[&str], store: Option<PathBuf>) -> (String, tempfile::TempDir) {
    let run = tempfile::tempdir().unwrap();
    let args = args.iter().map(|&arg| arg.to_owned()).collect();
    let known = Known { kind, port: 9880, store, args };
    let process = Process {
        name: "h-it".to_owned(),
        host: 0,
        program: Program::Known(known.clone()),
        environment: Default::default(),
        directory: None,
        ready: None,
        ready_timeout: Default::default(),
        log_limit_bytes: 0,
        flood: Flood::Fail,
        descriptors: None,
        may_end: false,
        stage: 0,
    };
    let hosts = vec![Host { name: "h".to_owned(), ..Host::default() }];
    let context = ProgramContext {
        known: &known,
        process: &process,
        plan: &Plan { hosts, ..Plan::default() },
        folder: &run.path().join("own"),
        run_folder: run.path(),
        program: Path::new("/bin/proofload"),
        rootless: false,
    };
    (context.command().unwrap().join(" "), run)
}

#[test]
fn a_listener_stores_where_its_options_say() {
    let listen = KnownKind::Listen(Listen { backlog: Some(128) });
    let (words, folder) = command(listen.clone(), &[], None);
    let stored = folder.path().join("own/stored");
    let path = format!("--path {}/${{tag}}.%Y-%m-%d.log", stored.display());
    assert_eq!(words, format!("/bin/proofload listen --listen 0.0.0.0:9880 {path} --backlog 128"));
    assert!(stored.is_dir());

    let elsewhere = folder.path().join("elsewhere");
    let (words, _folder) = command(listen.clone(), &[], Some(elsewhere.clone()));
    assert!(words.contains(&format!("--path {}/", elsewhere.display())) && elsewhere.is_dir(), "{words}");

    for own in ["--path=/x", "--import", "--config"] {
        let (words, _folder) = command(listen.clone(), &[own, "y"], None);
        assert!(!words.contains("/stored/") && words.ends_with(&format!("{own} y")), "{words}");
    }
}

#[test]
fn nginx_is_a_listener_if_asked_for() {
    let text = |log_bodies| {
        let nginx = Nginx { log_bodies, backlog: Some(128), ..Nginx::default() };
        let (_, folder) = command(KnownKind::Nginx(nginx), &[], None);
        fs::read_to_string(folder.path().join("own/nginx.conf")).unwrap()
    };
    let (plain, listener) = (text(false), text(true));
    assert!(plain.contains("listen 9880 backlog=128 reuseport") && plain.contains("return 200"));
    assert!(!plain.contains("request_body"));
    assert!(listener.contains("/own/stored/bodies.log bodies;") && !listener.contains("return 200"));
}

#[test]
fn haproxy_is_configured_as_asked() {
    let text = |own: Haproxy| {
        let backends = vec![("web".to_owned(), "10.1.0.2".parse().unwrap())];
        let kind = KnownKind::Haproxy(Haproxy { backends, ..own });
        let (_, folder) = command(kind, &[], None);
        let pem = fs::read_to_string(folder.path().join("own/haproxy.pem")).unwrap_or_default();
        (fs::read_to_string(folder.path().join("own/haproxy.cfg")).unwrap(), pem)
    };
    let (plain, pem) = text(Haproxy::default());
    for line in ["nbthread 1", "mode http", "bind :9880", "server web 10.1.0.2:80", "retries 3"] {
        assert!(plain.lines().any(|own| own.trim() == line), "{line}: {plain}");
    }
    assert!(pem.is_empty() && !plain.contains("cpu-map") && !plain.contains("redispatch"), "{plain}");
    let own = Haproxy {
        pin: true,
        check: true,
        check_interval: Some(std::time::Duration::from_millis(500)),
        redispatch: true,
        maxconn: Some(99),
        backlog: Some(15_000),
        reuse: Some("always".to_owned()),
        tls: true,
        ..Haproxy::default()
    };
    let (full, pem) = text(own.clone());
    for line in ["maxconn 99", "option redispatch", "http-reuse always"] {
        assert!(full.lines().any(|own| own.trim() == line), "{line}: {full}");
    }
    assert!(full.contains("server web 10.1.0.2:80 check inter 500ms\n"), "{full}");
    assert!(
        full.contains("bind :9880 backlog 15000 ssl crt ") && full.contains("cpu-map auto:1/1-1 "),
        "{full}"
    );
    assert!(pem.contains("BEGIN CERTIFICATE") && pem.contains("BEGIN PRIVATE KEY"), "{pem}");
    let (tcp, _) = text(Haproxy { is_tcp: true, ..own });
    assert!(tcp.contains("mode tcp") && !tcp.contains("http-reuse"), "{tcp}");
}

#[test]
fn a_key_says_which_programs_have_it() {
    let keys = schema();
    let about = |key: &str| keys[key]["description"].as_str().unwrap_or_default();
    assert_eq!(about("port"), "The port that it listens on; a known program has one of its own.");
    assert_eq!(about("workers"), "nginx: worker processes. haproxy: threads.");
    for kind in KnownKind::all() {
        for (key, help, _) in kind.keys() {
            assert!(!help.is_empty() && !help.ends_with('.') && keys.contains_key(key), "{key}: {help}");
        }
    }
}
