//! Sessions over a real `nats-server`, the one of Debian.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use broker::{
    Access, Arrival, Broker, Event, Key, Listener, Present, PublicKey, Readiness, ServeOptions, Session,
    serve,
};
use testing::{PATIENCE, until};

#[path = "nats/credentials.rs"]
mod credentials;

/// A server of one test, which ends with it.
struct Server {
    folder: tempfile::TempDir,
    port: u16,
    more: String,
    child: Option<Child>,
}

impl Server {
    fn start(more: &str) -> Self {
        let mut server =
            Self { folder: tempfile::tempdir().unwrap(), port: 0, more: more.to_owned(), child: None };
        server.run();
        server
    }

    /// Runs the server; from the second time on, on the port that it had.
    fn run(&mut self) {
        let path = |name: &str| self.folder.path().join(name);
        let port = if self.port == 0 { "-1".to_owned() } else { self.port.to_string() };
        let config = format!("listen: \"127.0.0.1:{port}\"\nports_file_dir: {:?}\n{}\n", path(""), self.more);
        fs::write(path("config"), config).unwrap();
        let child =
            Command::new("nats-server").arg("-c").arg(path("config")).arg("-l").arg(path("log")).spawn();
        let child = child.expect("nats-server is needed: scripts/setup.sh test");
        let ports = path(&format!("nats-server_{}.ports", child.id()));
        self.child = Some(child);
        until("the server says its port", || {
            let text = fs::read_to_string(&ports).unwrap_or_default();
            let url = text.split("://127.0.0.1:").nth(1).unwrap_or_default();
            self.port = url.split('"').next().and_then(|port| port.parse().ok()).unwrap_or(self.port);
            self.port > 0 && TcpStream::connect(("127.0.0.1", self.port)).is_ok()
        });
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    fn access(&self, scheme: &str) -> Access {
        let address = format!("{scheme}://127.0.0.1:{}/load", self.port).parse().unwrap();
        Access { address, credentials: None, authorities: None }
    }

    fn broker(&self) -> Broker {
        Broker::connect(&self.access("nats"), PATIENCE).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Keys of a test.
struct Keys {
    folder: tempfile::TempDir,
}

impl Keys {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn key(&self, name: &str) -> Key {
        let path: PathBuf = self.folder.path().join(name);
        if path.exists() { Key::read(&path).unwrap() } else { Key::create(&path).unwrap() }
    }

    fn public(&self, name: &str) -> PublicKey {
        self.key(name).public()
    }
}

fn found(broker: &Broker, count: usize) -> Vec<Present> {
    let mut agents = Vec::new();
    until("the agents answer", || {
        agents = broker.agents(Duration::from_millis(50)).unwrap();
        agents.len() >= count
    });
    agents
}

fn accepted(listener: &Listener) -> broker::Accepted {
    match listener.accept(PATIENCE) {
        Arrival::Session(accepted) => *accepted,
        other => panic!("{other:?}"),
    }
}

/// A pair of ends of a session.
fn pair(controller: &Broker, listener: &Listener, keys: &Keys) -> (Session, broker::Accepted) {
    let agent = found(controller, 1).remove(0);
    let here = controller.open(&agent, &keys.key("controller"), &keys.public("agent"), PATIENCE).unwrap();
    (here, accepted(listener))
}

fn pattern(length: usize, salt: usize) -> Vec<u8> {
    (0..length).map(|at| ((at * 31 + salt) ^ (at >> 9)) as u8).collect()
}

fn exchange(session: Session, send: Vec<u8>) -> Vec<u8> {
    let Session { mut input, mut output, .. } = session;
    let writer = thread::spawn(move || input.write_all(&send));
    let mut read = Vec::new();
    output.read_to_end(&mut read).unwrap();
    writer.join().unwrap().unwrap();
    read
}

#[test]
fn a_session_carries_megabytes_both_ways() {
    let (server, keys) = (Server::start(""), Keys::new());
    let (near, far) = (server.broker(), server.broker());
    let listener = far.listen("web-1", &keys.key("agent"), &[keys.public("controller")]).unwrap();
    let (here, there) = pair(&near, &listener, &keys);
    assert_eq!(there.controller, keys.public("controller"));
    let there = thread::spawn(move || exchange(there.session, pattern(50_000_000, 1)));
    assert!(exchange(here, pattern(50_000_000, 2)) == pattern(50_000_000, 1));
    assert!(there.join().unwrap() == pattern(50_000_000, 2));
}

#[test]
fn sessions_go_on_after_the_broker_was_away() {
    let (mut server, keys) = (Server::start(""), Keys::new());
    let (near, far) = (server.broker(), server.broker());
    let listener = far.listen("web-1", &keys.key("agent"), &[keys.public("controller")]).unwrap();
    let (mut here, there) = pair(&near, &listener, &keys);
    let echo = thread::spawn(move || {
        // Moves `there` as a whole: while it exists, the agent is busy.
        let (mut there, mut line) = (there, [0; 8]);
        while there.session.output.read_exact(&mut line).is_ok()
            && there.session.input.write_all(&line).is_ok()
        {}
    });
    let mut said = [0; 8];
    for number in 0_u64..300 {
        if number % 100 == 50 {
            server.kill();
            server.run();
        }
        here.input.write_all(&number.to_be_bytes()).unwrap();
        here.output.read_exact(&mut said).unwrap();
        assert_eq!(u64::from_be_bytes(said), number);
    }
    drop(here);
    echo.join().unwrap();
    // A broker that stays away breaks the session, and both sides say why.
    let (mut here, mut there) = pair(&near, &listener, &keys);
    server.kill();
    let broken = here.output.read(&mut said).unwrap_err().to_string();
    assert!(broken.contains("for 20 s"), "{broken}");
    assert_eq!(here.ending.last_words(), Some(broken));
    assert!(there.session.output.read(&mut said).is_err());
    assert!(near.agents(Duration::from_millis(10)).unwrap_err().contains("no longer reachable"));
}

#[test]
fn only_known_keys_are_served_and_nothing_can_be_read_or_repeated() {
    const SECRET: &[u8] = b"geheim-2f7c0d9a";
    let (server, keys) = (Server::start(""), Keys::new());
    let mut spy = Spy::start(server.port);
    let (near, far) = (server.broker(), server.broker());
    let listener = far.listen("web-1", &keys.key("agent"), &[keys.public("controller")]).unwrap();
    let agent = found(&near, 1).remove(0);
    assert_eq!((agent.name.as_str(), agent.key), ("web-1", keys.public("agent")));

    let forged = near.open(&agent, &keys.key("stranger"), &keys.public("agent"), PATIENCE).unwrap_err();
    assert!(forged.contains("web-1") && forged.contains("does not accept this controller's key"), "{forged}");
    let forged = near.open(&agent, &keys.key("controller"), &keys.public("stranger"), PATIENCE).unwrap_err();
    assert!(forged.contains("another key"), "{forged}");
    let drained = near.drain(&agent, &keys.key("stranger"), &keys.public("agent"), PATIENCE).unwrap_err();
    assert!(drained.contains("does not accept"), "{drained}");

    spy.heard();
    let (mut here, mut there) = pair(&near, &listener, &keys);
    here.input.write_all(SECRET).unwrap();
    let mut read = [0; SECRET.len()];
    there.session.output.read_exact(&mut read).unwrap();
    assert_eq!(read, SECRET);
    there.session.input.write_all(SECRET).unwrap();
    here.output.read_exact(&mut read).unwrap();
    let busy = near.open(&agent, &keys.key("controller"), &keys.public("agent"), PATIENCE).unwrap_err();
    assert!(busy.contains("busy"), "{busy}");
    assert_eq!(found(&near, 1)[0].state, Readiness::Busy);

    // Everything that was carried is sent again: into the session that goes on, and as a session of its own.
    let heard = spy.heard();
    assert!(
        heard.len() > 8
            && heard.iter().all(|(_, payload)| !payload.windows(SECRET.len()).any(|part| part == SECRET))
    );
    let other_session = |subject: &str| format!("{}{}", &subject[..subject.len() - 32], "0".repeat(32));
    for (subject, payload) in
        heard.iter().filter(|(subject, _)| subject.contains(".agent.") || subject.contains(".controller."))
    {
        spy.publish(subject, payload);
        if !subject.ends_with(".here") {
            spy.publish(&other_session(subject), payload);
        }
    }
    drop(here.input);
    let mut rest = Vec::new();
    there.session.output.read_to_end(&mut rest).unwrap();
    assert!(rest.is_empty());
    drop(there);
    here.output.read_to_end(&mut rest).unwrap();
    assert!(rest.is_empty());
    // None of it has become a session, and the agent serves its controller.
    until("the agent is idle", || found(&near, 1)[0].state == Readiness::Idle);
    assert!(matches!(listener.accept(Duration::from_millis(1)), Arrival::Nothing));
    let (here, there) = pair(&near, &listener, &keys);
    drop((here, there));
}

#[test]
fn agents_of_one_name_are_both_told_and_foreign_bytes_are_borne() {
    let (server, keys) = (Server::start(""), Keys::new());
    let (near, far) = (server.broker(), server.broker());
    let listeners = ["b", "a", "a"]
        .map(|name| far.listen(name, &keys.key("agent"), &[keys.public("controller")]).unwrap());
    let agents = found(&near, 3);
    assert_eq!(agents.iter().map(|agent| agent.name.as_str()).collect::<Vec<_>>(), ["a", "a", "b"]);
    assert_ne!(agents[0].id, agents[1].id);
    assert!(far.listen("a b", &keys.key("agent"), &[keys.public("controller")]).is_err());
    assert!(far.listen("a", &keys.key("agent"), &[]).unwrap_err().contains("give at least one"));
    let mut spy = Spy::start(server.port);
    let zeros = "0".repeat(32);
    for payload in [
        &b""[..],
        b"{}",
        &[1; 26],
        &[1; 200],
        &[0xff; 300],
        br#"{"controller":"*"}"#,
        br#"{"controller":"a.b"}"#,
    ] {
        for agent in &agents {
            for subject in [
                "proofload.load.who".to_owned(),
                format!("proofload.load.agent.{}.{zeros}.{zeros}", agent.id),
                format!("proofload.load.agent.{}.x.y", agent.id),
                format!("proofload.load.agent.{}.{zeros}.here", agent.id),
            ] {
                spy.publish(&subject, payload);
            }
        }
    }
    assert_eq!(found(&near, 3), agents);
    drop(listeners);
    until("they have left", || near.agents(Duration::from_millis(20)).unwrap().is_empty());
}

#[test]
fn an_agent_runs_its_command_and_tells_how_it_ended() {
    let (server, keys) = (Server::start(""), Keys::new());
    let folder = tempfile::tempdir().unwrap();
    let marks = folder.path().to_owned();
    let script = format!(
        "read word; case $word in echo) echo ready; exec cat;; fail) echo why >&2; exit 3;; \
         hang) trap '' TERM; echo $$ >{0}/hangs; mv {0}/hangs {0}/hung; while :; do sleep 1; done;; esac",
        marks.display()
    );
    let agent = Agent::start(&server, &keys, move || {
        let mut command = Command::new("sh");
        command.arg("-c").arg(&script);
        command
    });
    let near = server.broker();
    let present = found(&near, 1).remove(0);
    let open = || {
        let mut session = None;
        until("the agent is free", || {
            session = near.open(&present, &keys.key("controller"), &keys.public("agent"), PATIENCE).ok();
            session.is_some()
        });
        session.unwrap()
    };

    let mut session = open();
    session.input.write_all(b"echo\nhello\n").unwrap();
    let mut lines = BufReader::new(session.output).lines();
    assert_eq!([(); 2].map(|()| lines.next().unwrap().unwrap()), ["ready", "hello"]);
    drop(session.input);
    assert!(lines.next().is_none());
    assert_eq!(session.ending.last_words().as_deref(), Some(""));
    assert_eq!(agent.session_ended(), "");

    let mut session = open();
    session.input.write_all(b"fail\n").unwrap();
    assert_eq!(session.output.read_to_end(&mut Vec::new()).unwrap(), 0);
    assert_eq!(session.ending.last_words().as_deref(), Some("its command ended with exit status: 3: why"));
    drop(session);
    assert!(agent.session_ended().contains("why"));

    // A command that does not end with its session is killed.
    let mut session = open();
    session.input.write_all(b"hang\n").unwrap();
    let mark = folder.path().join("hung");
    until("the command hangs", || mark.exists());
    let id = fs::read_to_string(mark).unwrap();
    session.ending.abandon("enough");
    assert_eq!(session.output.read(&mut [0]).unwrap_err().to_string(), "enough");
    drop(session);
    assert!(agent.session_ended().contains("the other side has ended the session"));
    assert!(!Path::new(&format!("/proc/{}", id.trim())).exists());

    let mut session = open();
    session.input.write_all(b"echo\n").unwrap();
    near.drain(&present, &keys.key("controller"), &keys.public("agent"), PATIENCE).unwrap();
    assert_eq!(found(&near, 1)[0].state, Readiness::Draining);
    let refused = near.open(&present, &keys.key("controller"), &keys.public("agent"), PATIENCE).unwrap_err();
    assert!(refused.contains("asked to end"), "{refused}");
    drop(session.input);
    assert_eq!(session.output.read_to_end(&mut Vec::new()).unwrap(), 6);
    agent.thread.join().unwrap().unwrap();
}

#[test]
fn an_agent_that_is_told_to_end_ends_its_session() {
    let (mut server, keys) = (Server::start(""), Keys::new());
    server.kill();
    let agent = Agent::start(&server, &keys, || Command::new("cat"));
    assert!(
        matches!(agent.events.recv_timeout(PATIENCE).unwrap(), Event::Unreachable(why) if why.contains("127.0.0.1"))
    );
    server.run();
    let near = server.broker();
    let present = found(&near, 1).remove(0);
    let mut session = near.open(&present, &keys.key("controller"), &keys.public("agent"), PATIENCE).unwrap();
    session.input.write_all(b"x").unwrap();
    session.output.read_exact(&mut [0]).unwrap();
    agent.stop.store(true, Ordering::Relaxed);
    assert!(session.output.read(&mut [0]).unwrap_err().to_string().contains("has ended the session"));
    agent.thread.join().unwrap().unwrap();

    let wrong = Agent::start(&server, &keys, || Command::new("/nonexistent/program"));
    let present = found(&near, 1).remove(0);
    let mut session = near.open(&present, &keys.key("controller"), &keys.public("agent"), PATIENCE).unwrap();
    assert_eq!(session.output.read(&mut [0]).unwrap(), 0);
    assert!(session.ending.last_words().unwrap().contains("cannot be started"));
    drop(session);
    assert!(wrong.session_ended().contains("cannot be started"));
    wrong.stop.store(true, Ordering::Relaxed);
    wrong.thread.join().unwrap().unwrap();
}

#[test]
fn a_broker_is_believed_only_with_its_authority() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    let issue = |name: &str| {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        fs::write(path(name), params.self_signed(&key).unwrap().pem()).unwrap();
        rcgen::Issuer::new(params, key)
    };
    let (authority, _) = (issue("authority"), issue("other"));
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate =
        rcgen::CertificateParams::new(["127.0.0.1".to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
    fs::write(path("certificate"), certificate.pem()).unwrap();
    fs::write(path("key"), key.serialize_pem()).unwrap();
    let server = Server::start(&format!(
        "tls {{ cert_file: {:?}, key_file: {:?} }}",
        path("certificate"),
        path("key")
    ));
    for scheme in ["tls", "nats"] {
        let mut access = server.access(scheme);
        access.authorities = Some(path("authority"));
        Broker::connect(&access, PATIENCE).unwrap();
        access.authorities = Some(path("other"));
        let refused = Broker::connect(&access, Duration::ZERO).unwrap_err();
        assert!(refused.contains("certificate"), "{refused}");
        access.authorities = Some(path("key"));
        assert!(Broker::connect(&access, PATIENCE).unwrap_err().contains("no certificate"));
    }
    let plain = Server::start("");
    let access = Access { authorities: Some(path("authority")), ..plain.access("nats") };
    assert!(Broker::connect(&access, Duration::ZERO).is_err());
}

#[test]
fn credentials_are_shown_to_the_broker_and_to_nobody_else() {
    let place = tempfile::tempdir().unwrap();
    let made = credentials::Credentials::new();
    let server = Server::start(&made.config);
    let path = place.path().join("user.creds");
    fs::write(&path, &made.file).unwrap();
    let mode = |mode| fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    mode(0o600);
    let mut access = server.access("nats");
    let refused = Broker::connect(&access, PATIENCE).unwrap_err();
    assert!(refused.contains("wants a login"), "{refused}");
    access.credentials = Some(path.clone());
    let keys = Keys::new();
    let [near, far] = [(); 2].map(|()| Broker::connect(&access, PATIENCE).unwrap());
    let listener = far.listen("web-1", &keys.key("agent"), &[keys.public("controller")]).unwrap();
    drop(pair(&near, &listener, &keys));
    mode(0o644);
    assert!(Broker::connect(&access, PATIENCE).unwrap_err().contains("set its mode to 600"));
    mode(0o600);
    fs::write(&path, credentials::Credentials::new().file).unwrap();
    let refused = Broker::connect(&access, PATIENCE).unwrap_err();
    assert!(refused.contains("does not accept these credentials"), "{refused}");
    for wrong in [String::new(), made.file.replace("NKEY SEED-----\nSU", "NKEY SEED-----\nSX")] {
        fs::write(&path, &wrong).unwrap();
        let refused = Broker::connect(&access, PATIENCE).unwrap_err();
        assert!(refused.contains("cannot use the credentials") && !refused.contains(&made.seed), "{refused}");
    }
}

#[test]
fn a_thousand_sessions_share_a_connection() {
    const COUNT: usize = 1000;
    let (server, keys) = (Server::start(""), Keys::new());
    let (near, far) = (server.broker(), server.broker());
    let (agent, controller) = (keys.key("agent"), keys.key("controller"));
    let name = |number: usize| format!("agent-{number:03}");
    let listeners: Vec<Listener> =
        (0..COUNT).map(|number| far.listen(&name(number), &agent, &[controller.public()]).unwrap()).collect();
    let agents = found(&near, COUNT);
    let mut sessions = Vec::new();
    for present in &agents {
        sessions.push(near.open(present, &controller, &agent.public(), PATIENCE).unwrap());
    }
    let threads = fs::read_dir("/proc/self/task").unwrap().count();
    assert!(threads < 100, "{threads} threads");
    for (number, listener) in listeners.iter().enumerate() {
        let mut there = accepted(listener).session;
        sessions[number].input.write_all(name(number).as_bytes()).unwrap();
        let mut read = [0; 9];
        there.output.read_exact(&mut read).unwrap();
        assert_eq!(read, name(number).as_bytes());
    }
}

/// An agent on a thread.
struct Agent {
    events: mpsc::Receiver<Event>,
    stop: Arc<AtomicBool>,
    thread: thread::JoinHandle<Result<(), String>>,
}

impl Agent {
    fn start(server: &Server, keys: &Keys, command: impl Fn() -> Command + Send + 'static) -> Self {
        let options = ServeOptions {
            access: server.access("nats"),
            name: "web-1".to_owned(),
            key: keys.key("agent"),
            controllers: vec![keys.public("controller")],
        };
        let (sender, events) = mpsc::channel();
        let stop = Arc::<AtomicBool>::default();
        let thread = thread::spawn({
            let stop = stop.clone();
            move || serve(&options, command, &stop, |event| drop(sender.send(event)))
        });
        Self { events, stop, thread }
    }

    fn session_ended(&self) -> String {
        loop {
            if let Event::SessionEnded(words) = self.events.recv_timeout(PATIENCE).unwrap() {
                return words;
            }
        }
    }
}

/// A client that may read and write everything on the broker.
struct Spy {
    writer: TcpStream,
    heard: mpsc::Receiver<(String, Vec<u8>)>,
}

impl Spy {
    fn start(port: u16) -> Self {
        let mut writer = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let mut reader = BufReader::new(writer.try_clone().unwrap());
        writer.write_all(b"CONNECT {\"verbose\":false}\r\nSUB > 1\r\nPING\r\n").unwrap();
        let (sender, heard) = mpsc::channel();
        let (ready, is_ready) = mpsc::channel();
        let mut answer = writer.try_clone().unwrap();
        thread::spawn(move || {
            let mut line = String::new();
            while reader.read_line(&mut line).is_ok_and(|count| count > 0) {
                let words: Vec<&str> = line.split_whitespace().collect();
                match words[..] {
                    ["MSG", subject, _, length] => {
                        let mut payload = vec![0; length.parse::<usize>().unwrap() + 2];
                        reader.read_exact(&mut payload).unwrap();
                        payload.truncate(payload.len() - 2);
                        let _ = sender.send((subject.to_owned(), payload));
                    }
                    ["PING"] => answer.write_all(b"PONG\r\n").unwrap(),
                    ["PONG"] => drop(ready.send(())),
                    _ => {}
                }
                line.clear();
            }
        });
        is_ready.recv_timeout(PATIENCE).unwrap();
        Self { writer, heard }
    }

    /// What was carried since the last call.
    fn heard(&mut self) -> Vec<(String, Vec<u8>)> {
        self.publish("proofload.mark", b"");
        let mut heard = Vec::new();
        loop {
            let message = self.heard.recv_timeout(PATIENCE).unwrap();
            if message.0 == "proofload.mark" {
                return heard;
            }
            heard.push(message);
        }
    }

    fn publish(&mut self, subject: &str, payload: &[u8]) {
        let head = format!("PUB {subject} {}\r\n", payload.len());
        self.writer.write_all(&[head.as_bytes(), payload, b"\r\n"].concat()).unwrap();
    }
}
