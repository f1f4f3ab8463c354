//! Tests of daemons in separate namespaces while other programs change their devices, addresses and disks.

mod sharing;

use std::{fs, io::Write, process::Command, thread::JoinHandle};

use aya::{
    maps::{Array, Map, MapData, MapInfo},
    programs::{SchedClassifier, TcAttachType},
};
use testing::{PATIENCE, until};
use undo::Folder;

use super::*;
use crate::{
    Change, ServerName, Statistics, Values, alone, ask,
    layout::{SERVICES, ServerBytes, SettingsBytes},
};

/// A device, and behind it a server that has the VIP.
const NETWORK: &str = "set -e
ip link set lo up
ip netns add web
ip link add eth0 address 02:00:00:00:00:01 type veth peer name eth0 address 02:00:00:00:00:11 netns web
ip netns exec web sysctl -qw net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2
ip -n web link set lo up; ip -n web link set eth0 up
ip -n web address add 10.0.0.11/24 dev eth0; ip -n web address add 10.0.0.100/32 dev lo
ip address add 10.0.0.1/24 dev eth0; ip link set eth0 up
";

/// The timeout is long, because a running server always answers or refuses, even if a slow machine delays it.
const CHECK: &str = "check = { kind = \"tcp\", interval = \"200ms\", timeout = \"60s\" }";
const PLAIN: &str = "check = { kind = \"none\" }";

fn file(of_balancer: &str, of_vip: &str) -> String {
    format!(
        "device = \"eth0\"\n{of_balancer}\n[[vips]]\naddress = \"10.0.0.100\"\nport = 80\n{of_vip}\n\
         [[vips.servers]]\nname = \"web\"\naddress = \"10.0.0.11\"\n"
    )
}

fn shell(script: &str) -> String {
    let done = Command::new("sh").args(["-c", script]).output().unwrap();
    assert!(done.status.success(), "{script}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

/// Runs a test in separate namespaces with the network above. The test's function is called `as_root_` plus `name`.
fn alone(name: &str, test: impl Fn(&Folder)) {
    alone_at(&format!("as_root_{name}"), test);
}

/// Like [`alone`], for a test in a submodule; `path` is relative to this module.
fn alone_at(path: &str, test: impl Fn(&Folder)) {
    alone::run(&format!("daemon::tests::{path}"), || {
        shell(NETWORK);
        test(&Folder::at("/run/state").unwrap());
    });
}

/// A daemon that runs in a thread.
struct Running {
    instance: Instance,
    handle: Handle,
    thread: JoinHandle<Result<(), Vec<Error>>>,
}

fn options(folder: &Folder, name: &str, text: &str) -> Options {
    let path = folder.path().join(format!("{name}.toml"));
    fs::write(&path, text).unwrap();
    let config = Config::read("f", text).unwrap();
    let instance = Instance::named(name, folder).unwrap();
    Options { instance, config, file: path, text: text.to_owned() }
}

impl Running {
    fn start(folder: &Folder, name: &str, text: &str) -> Self {
        let options = options(folder, name, text);
        let instance = options.instance.clone();
        let daemon = Daemon::start(options).unwrap();
        let handle = daemon.handle();
        Self { instance, handle, thread: std::thread::spawn(move || daemon.run()) }
    }

    fn ask(&self, request: &Request) -> Answer {
        ask(&self.instance, request).unwrap()
    }

    fn statistics(&self) -> Statistics {
        let Answer::Statistics(statistics) = self.ask(&Request::Statistics) else { panic!("no statistics") };
        *statistics
    }

    fn weigh(&self, weight: u32) -> Answer {
        self.ask(&weigh(weight))
    }

    fn weight(&self) -> u32 {
        self.statistics().vips[0].servers[0].weight
    }

    fn end(self, order: Order) -> Result<(), Vec<Error>> {
        self.handle.order(order);
        self.thread.join().unwrap()
    }

    fn tables(&self) -> (ServerBytes, SettingsBytes) {
        tables(&self.instance)
    }
}

/// The table entry of the first server, and the settings.
fn tables(instance: &Instance) -> (ServerBytes, SettingsBytes) {
    let map =
        |name: &str| Map::from_map_data(MapData::from_pin(instance.pins().join(name)).unwrap()).unwrap();
    let servers: Array<_, ServerBytes> = map("servers").try_into().unwrap();
    let settings: Array<_, SettingsBytes> = map("settings").try_into().unwrap();
    (servers.get(&1, 0).unwrap(), settings.get(&0, 0).unwrap())
}

fn change(server: &str, change: Change) -> Request {
    let server = ServerName { vip: "10.0.0.100".parse().unwrap(), port: None, server: server.to_owned() };
    Request::Server { server, change }
}

fn weigh(weight: u32) -> Request {
    change("web", Change::Set(Values { weight: Some(weight), ..Values::default() }))
}

/// The daemon's answer to a request. The daemon handles nothing else meanwhile.
fn answer(daemon: &mut Daemon, request: Request) -> Answer {
    let (sender, answers) = std::sync::mpsc::channel();
    daemon.take_request(PendingRequest::new(request, sender, None));
    testing::find(PATIENCE, || {
        let messages: Vec<Message> = daemon.messages.try_iter().collect();
        for message in messages {
            match message {
                Message::Read(..) => daemon.handle_message(message),
                other => daemon.sender.send(other).unwrap(),
            }
        }
        daemon.go_on_changing();
        answers.try_recv().ok()
    })
    .unwrap()
}

fn refusal(answer: Answer) -> String {
    let Answer::Refused { why } = answer else { panic!("{answer:?} is no refusal") };
    why.join("\n")
}

fn addresses() -> String {
    shell("ip -o address show")
}

/// A process that listens on the server. Dropping the guard ends it.
struct Listener(std::process::Child);

impl Listener {
    fn start() -> Self {
        let script =
            "import socket; s = socket.create_server(('10.0.0.100', 80))\nwhile True: s.accept()[0].close()";
        let child =
            Command::new("ip").args(["netns", "exec", "web", "python3", "-c", script]).spawn().unwrap();
        let own = Self(child);
        until("the server listens", || {
            shell("ip netns exec web cat /proc/net/tcp").contains(":0050 00000000:0000 0A")
        });
        own
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn as_root_a_disk_that_takes_nothing_keeps_no_state_from_the_tables() {
    alone("a_disk_that_takes_nothing_keeps_no_state_from_the_tables", |folder| {
        let listener = Listener::start();
        // A refused change is undone once the handshakes are over, so their maximum duration is short here.
        let daemon = Running::start(folder, "eth0", &file("handshake = \"1s\"", CHECK));
        until("the server is up", || daemon.statistics().vips[0].servers[0].is_up);
        assert!(
            matches!(daemon.weigh(2), Answer::Done { .. }) && matches!(daemon.weigh(3), Answer::Done { .. })
        );
        // Statistics show a new state before the table has it. A change is answered only after all earlier writes.
        let (up, _) = daemon.tables();
        let beside = daemon.instance.state().with_extension("new");
        fs::create_dir(&beside).unwrap();
        drop(listener);
        until("the table knows that the server is down", || daemon.tables().0 != up);
        let why = refusal(daemon.weigh(9));
        assert!(why.contains("state.new") || why.contains("state.json"), "{why}");
        assert!(why.ends_with("the former configuration stays in effect"), "{why}");
        assert_eq!(daemon.weight(), 3);
        let add = Change::Add { name: None, values: Values::default() };
        refusal(daemon.ask(&change("10.0.0.12", add)));
        let listener = Listener::start();
        until("the table knows that the server is up", || daemon.tables().0 == up);
        fs::remove_dir(&beside).unwrap();
        until("changes are made again", || matches!(daemon.weigh(9), Answer::Done { .. }));
        assert_eq!(daemon.weight(), 9);
        until("what was refused is gone", || daemon.statistics().vips[0].servers.len() == 1);
        drop(listener);
        daemon.end(Order::Stop).unwrap();
    });
}

#[test]
fn as_root_a_step_waits_with_what_could_not_be_written() {
    alone("a_step_waits_with_what_could_not_be_written", |folder| {
        let mut daemon =
            Daemon::start(options(folder, "eth0", &file("handshake = \"600s\"", PLAIN))).unwrap();
        for weight in [2, 3] {
            assert!(matches!(answer(&mut daemon, weigh(weight)), Answer::Done { .. }));
        }
        // Nothing else is due within this hour.
        let later = Instant::now() + Duration::from_secs(3_600);
        daemon.next_look = later;
        daemon.sweeper.begin(&daemon.sweeps, 0);
        assert!(daemon.deadline() < later, "the second change of the ring waits for the end of handshakes");
        fs::create_dir(daemon.instance.state().with_extension("new")).unwrap();
        refusal(answer(&mut daemon, weigh(9)));
        daemon.retry_at = Some(later);
        assert!(daemon.balancer.next_step_ns().is_some());
        assert_eq!(daemon.deadline(), later, "a step that is due would wake it again and again");
    });
}

#[test]
fn as_root_a_device_may_change_go_and_come_back() {
    alone("a_device_may_change_go_and_come_back", |folder| {
        let as_it_was = addresses();
        let mut listener = Listener::start();
        // A probe gets no answer if the device changes meanwhile.
        let daemon = Running::start(folder, "eth0", &file("", &CHECK.replace("60s", "5s")));
        let is_up = || daemon.statistics().vips[0].servers[0].is_up;
        until("the server is up", is_up);
        let probed_again = |listener: Listener| {
            drop(listener);
            until("the server is seen to be down", || !is_up());
            let listener = Listener::start();
            until("the server is seen to be up", is_up);
            listener
        };
        assert!(addresses().contains("eth0    inet 10.0.0.100/32"), "{}", addresses());
        let knows = |mac: [u8; 6]| daemon.tables().1.windows(6).any(|bytes| bytes == mac);
        assert!(knows([2, 0, 0, 0, 0, 1]));
        shell("ip link set eth0 address 02:00:00:00:00:02");
        until("the tables have the other address", || knows([2, 0, 0, 0, 0, 2]));
        shell(
            "ip address flush dev eth0 scope global; ip address add 10.0.0.2/24 dev eth0; ip -n web neigh flush dev eth0",
        );
        until("the VIP is given again", || addresses().contains("eth0    inet 10.0.0.100/32"));
        // The former address has been removed, so probes now come from the other one.
        listener = probed_again(listener);

        let pins = daemon.instance.pins();
        let has_link = |index: &str| {
            ["cls-link-", "filter-"].iter().any(|kind| pins.join(format!("{kind}{index}")).exists())
        };
        let former = shell("ip -o link show eth0 | cut -d: -f1").trim().to_owned();
        assert!(has_link(&former));
        shell("ip link del eth0");
        // The daemon checks the device each second, so it has done so after this pause.
        std::thread::sleep(Duration::from_millis(1_500));
        shell(
            "ip link add eth0 address 02:00:00:00:00:03 type veth peer name eth0 address 02:00:00:00:00:12 netns web
             ip -n web link set eth0 up; ip -n web address add 10.0.0.11/24 dev eth0
             ip address add 10.0.0.1/24 dev eth0; ip link set eth0 up",
        );
        until("the VIP is on the other device", || addresses().contains("eth0    inet 10.0.0.100/32"));
        let now = shell("ip -o link show eth0 | cut -d: -f1").trim().to_owned();
        assert_ne!(now, former);
        until("it is attached to the other device only", || has_link(&now) && !has_link(&former));
        let found = [2, 0, 0, 0, 0, 0x12];
        until("the server is found there", || daemon.tables().0.windows(6).any(|bytes| bytes == found));
        until("the tables have its address", || knows([2, 0, 0, 0, 0, 3]));
        drop(probed_again(listener));
        daemon.end(Order::Stop).unwrap();
        assert!(!addresses().contains("10.0.0.100") && !pins.exists(), "{as_it_was}{}", addresses());
    });
}

#[test]
fn as_root_a_device_that_is_down_is_announced_when_it_is_up() {
    alone("a_device_that_is_down_is_announced_when_it_is_up", |folder| {
        // A host ignores announcements of its own addresses, so the server must not have the VIP here.
        shell("ip link set eth0 down; ip -n web address del 10.0.0.100/32 dev lo");
        let daemon = Running::start(folder, "eth0", &file("", PLAIN));
        // The neighbour entry is set while the device is down: once it is up, the balancer may already have announced
        // the VIP.
        shell(
            "ip -n web neigh replace 10.0.0.100 lladdr 02:00:00:00:00:99 nud stale dev eth0; ip link set eth0 up",
        );
        until("neighbours are told", || {
            shell("ip -n web neigh show 10.0.0.100 dev eth0").contains("02:00:00:00:00:01")
        });
        daemon.end(Order::Stop).unwrap();
    });
}

#[test]
fn as_root_a_device_with_another_name_is_put_back() {
    alone("a_device_with_another_name_is_put_back", |folder| {
        let silent = file("answer_arp = false", PLAIN);
        let setting = "/proc/sys/net/ipv4/conf/wan0/arp_ignore";
        shell("sysctl -qw net.ipv4.conf.eth0.arp_ignore=3 net.ipv4.conf.all.arp_ignore=0");
        let daemon = Running::start(folder, "eth0", &silent);
        assert_eq!(shell("sysctl -n net.ipv4.conf.eth0.arp_ignore"), "1\n", "with 3, it would answer");
        shell("ip link set eth0 down; ip link set eth0 name wan0");
        let done = daemon.ask(&Request::Stop { keep: false });
        assert!(matches!(&done, Answer::Done { what } if what.ends_with("has ended")), "{done:?}");
        daemon.thread.join().unwrap().unwrap();
        assert_eq!(fs::read_to_string(setting).unwrap(), "3\n");
        shell("ip link set wan0 name eth0; ip link set eth0 up");
        // `stop` reports the changes that cannot be undone.
        let daemon = Running::start(folder, "eth0", &silent);
        shell("ip netns exec web true; ip link set eth0 down; ip link set eth0 name wan0");
        fs::write(setting, "2").unwrap();
        let why = refusal(daemon.ask(&Request::Stop { keep: false }));
        assert!(why.contains("another program or user has set it since"), "{why}");
        assert!(daemon.thread.join().unwrap().is_err());
        // The larger value of the device's and that for all devices prevails.
        shell(
            "ip link set wan0 name eth0; ip link set eth0 up; sysctl -qw net.ipv4.conf.all.arp_ignore=3 net.ipv4.conf.eth0.arp_ignore=0",
        );
        let refused = Daemon::start(options(folder, "again", &silent)).map(drop).unwrap_err().to_string();
        assert!(refused.contains("set it to 0, 1 or 2"), "{refused}");
    });
}

#[test]
fn as_root_a_vip_of_another_balancer_is_refused() {
    alone("a_vip_of_another_balancer_is_refused", |folder| {
        let first = Running::start(folder, "first", &file("", PLAIN));
        let refused =
            Daemon::start(options(folder, "second", &file("", PLAIN))).map(drop).unwrap_err().to_string();
        assert!(refused.starts_with("the balancer 'first' (process "), "{refused}");
        assert!(refused.contains("has the VIP 10.0.0.100"), "{refused}");
        assert!(!options(folder, "second", &file("", PLAIN)).instance.folder.exists());
        // A balancer with another VIP can run on the same device.
        let other = file("", PLAIN).replace("0.100", "0.101");
        let second = Running::start(folder, "second", &other);
        fs::write(folder.path().join("second.toml"), file("", PLAIN)).unwrap();
        let why = refusal(second.ask(&Request::Reload));
        assert!(why.contains("'first'") && addresses().contains("10.0.0.101"), "{why}");
        second.end(Order::Stop).unwrap();
        first.end(Order::Stop).unwrap();
        assert!(!addresses().contains("10.0.0.10"), "{}", addresses());
    });
}

#[test]
fn as_root_a_file_that_is_refused_is_read_at_the_next_start() {
    alone("a_file_that_is_refused_is_read_at_the_next_start", |folder| {
        let ports = |from: u16| {
            let ports: Vec<u16> = (from..from + 9_000).collect();
            file("", PLAIN).replace("port = 80", &format!("ports = {ports:?}"))
        };
        let daemon = Running::start(folder, "eth0", &ports(1_000));
        let services = MapInfo::from_pin(daemon.instance.pins().join("services")).unwrap();
        assert_eq!(services.max_entries() as usize, SERVICES);
        let path = folder.path().join("eth0.toml");
        // The table has no room for this many new ports in addition to the existing ones.
        fs::write(&path, ports(20_000)).unwrap();
        let why = refusal(daemon.ask(&Request::Reload));
        assert!(why.contains("no room for more ports of VIPs"), "{why}");
        assert!(matches!(daemon.weigh(5), Answer::Done { .. }), "it goes on");
        let saved = fs::read_to_string(daemon.instance.state()).unwrap();
        assert!(saved.contains("1000") && !saved.contains("28999"), "the refused file counts as read");
        // Some keys need a restart that keeps the tables; others need new tables.
        for (key, next) in [
            ("hook = \"cls\"", "`proofload balance stop --keep`"),
            ("[tables]\nflows = 9", "stop`, which ends"),
        ] {
            fs::write(&path, file(key, PLAIN)).unwrap();
            let why = refusal(daemon.ask(&Request::Reload));
            assert!(why.contains(next), "{why}");
        }
        daemon.end(Order::Keep).unwrap();
        let text = file("", PLAIN);
        let daemon = Running::start(folder, "eth0", &text);
        assert_eq!((daemon.weight(), daemon.statistics().vips[0].ports.clone()), (1, vec![80]));
        let sizes = crate::Sizes { flows: 9, ..crate::Sizes::default() };
        let other = crate::loader::other_sizes(&daemon.instance.pins(), &sizes);
        assert_eq!(other, ["flows has 262144 entries, not 9"]);
        daemon.end(Order::Stop).unwrap();
    });
}

#[test]
fn as_root_a_start_that_fails_gives_no_address_and_keeps_what_was_left() {
    alone("a_start_that_fails_gives_no_address_and_keeps_what_was_left", |folder| {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let metrics = file(&format!("metrics = \"{}\"", taken.local_addr().unwrap()), PLAIN);
        let mut watch =
            Command::new("sh").args(["-c", "exec ip -o monitor address > /run/monitor"]).spawn().unwrap();
        let seen = || fs::read_to_string("/run/monitor").unwrap_or_default();
        until("it watches", || {
            shell("ip address add 10.9.9.9/32 dev lo; ip address del 10.9.9.9/32 dev lo");
            seen().contains("10.9.9.9")
        });
        let refused = Daemon::start(options(folder, "eth0", &metrics)).map(drop).unwrap_err().to_string();
        assert!(refused.contains("answer /metrics on 127.0.0.1"), "{refused}");
        shell("ip address add 10.9.9.8/32 dev lo");
        until("all is seen", || seen().contains("10.9.9.8"));
        assert!(!seen().contains("10.0.0.100"), "{}", seen());
        watch.kill().unwrap();
        watch.wait().unwrap();
        assert!(!folder.path().join("balance").exists(), "a refusal leaves a folder");

        Running::start(folder, "eth0", &file("", PLAIN)).end(Order::Keep).unwrap();
        Daemon::start(options(folder, "eth0", &metrics)).map(drop).unwrap_err();
        let pins = options(folder, "eth0", &metrics).instance.pins();
        assert!(
            addresses().contains("10.0.0.100/32") && pins.join("rings").exists(),
            "what was left goes on"
        );
        drop(taken);
        Running::start(folder, "eth0", &metrics).end(Order::Stop).unwrap();
        assert!(!addresses().contains("10.0.0.100/32"));
    });
}

#[test]
fn as_root_xdp_that_the_file_asks_for_needs_no_driver() {
    alone("xdp_that_the_file_asks_for_needs_no_driver", |folder| {
        shell("ip link add plain type bridge; ip link set plain up; ip address add 10.7.0.1/24 dev plain");
        let text = file("hook = \"xdp\"", PLAIN).replace("eth0", "plain");
        let daemon = Running::start(folder, "plain", &text);
        assert!(shell("ip link show plain").contains("xdpgeneric"));
        daemon.end(Order::Stop).unwrap();
    });
}

/// Whether a program processes the frames of eth0.
fn is_attached() -> bool {
    match SchedClassifier::query_tcx("eth0", TcAttachType::Ingress) {
        Ok((_, programs)) => !programs.is_empty(),
        // Kernels before 6.6 have no links for cls programs and use filters.
        Err(_) => shell("tc filter show dev eth0 ingress").contains("l2dsr"),
    }
}

#[test]
fn as_root_a_program_that_somebody_removes_is_attached_again() {
    alone("a_program_that_somebody_removes_is_attached_again", |folder| {
        let daemon = Running::start(folder, "eth0", &file("", PLAIN));
        let pins = daemon.instance.pins();
        let shown = pins.display();
        shell(&format!("rm {shown}/cls-link-* || tc qdisc del dev eth0 clsact"));
        until("it is attached again", is_attached);
        shell(&format!("rm -r {shown}"));
        until("it is attached once more", || is_attached() && pins.exists());
        // `stats` reports the problem until the program can be attached.
        shell(&format!(
            "until mkdir /sys/fs/bpf/other && chown 61234 /sys/fs/bpf/other && rm -r {shown} && mv -T /sys/fs/bpf/other {shown}
             do rmdir /sys/fs/bpf/other || true; done"
        ));
        until("the statistics say so", || {
            daemon.statistics().trouble.is_some_and(|what| {
                what.contains("no frame is balanced") && what.contains("belongs to user 61234")
            })
        });
        assert!(!is_attached());
        shell(&format!("rmdir {shown}"));
        until("all is well", || daemon.statistics().trouble.is_none() && is_attached());
        daemon.end(Order::Stop).unwrap();
        assert!(!pins.exists());
    });
}

#[test]
fn as_root_a_file_that_comes_slowly_keeps_nobody_waiting() {
    alone("a_file_that_comes_slowly_keeps_nobody_waiting", |folder| {
        let daemon = Running::start(folder, "eth0", &file("", CHECK));
        let path = folder.path().join("eth0.toml");
        let text = fs::read_to_string(&path).unwrap();
        fs::remove_file(&path).unwrap();
        shell(&format!("mkfifo {}", path.display()));
        std::thread::scope(|scope| {
            let reload = scope.spawn(|| daemon.ask(&Request::Reload));
            // Opening the FIFO for writing blocks until the daemon reads it.
            let mut file = File::options().write(true).open(&path).unwrap();
            writeln!(file, "# slow").unwrap();
            assert!(!reload.is_finished());
            assert_eq!(daemon.weight(), 1);
            assert!(matches!(daemon.weigh(4), Answer::Done { .. }) && daemon.weight() == 4);
            file.write_all(text.replace("name = \"web\"", "name = \"web\"\nweight = 7").as_bytes()).unwrap();
            drop(file);
            let done = reload.join().unwrap();
            assert!(matches!(done, Answer::Done { .. }) && daemon.weight() == 7, "{done:?}");
        });
        daemon.end(Order::Stop).unwrap();
    });
}

/// The file with the VIP of these tests and `vips` others.
fn many(vips: usize) -> String {
    let vip = |at: usize| {
        let server = "[[vips.servers]]\naddress = \"10.0.0.11\"\n";
        format!("[[vips]]\naddress = \"10.1.0.{}\"\nport = 80\n{PLAIN}\n{server}", at + 1)
    };
    file("", CHECK) + &(0..vips).map(vip).collect::<String>()
}

#[test]
fn as_root_a_long_change_keeps_nobody_waiting_and_is_taken_back_if_nobody_waits_for_it() {
    alone("a_long_change_keeps_nobody_waiting_and_is_taken_back_if_nobody_waits_for_it", |folder| {
        let mut daemon = Daemon::start(options(folder, "eth0", &many(0))).unwrap();
        let vips = 3 * RINGS_AT_ONCE;
        fs::write(folder.path().join("eth0.toml"), many(vips)).unwrap();
        let (client, balancer) = std::os::unix::net::UnixStream::pair().unwrap();
        let (sender, answers) = std::sync::mpsc::channel();
        daemon.take_request(PendingRequest::new(Request::Reload, sender, Some(balancer)));
        let is_read = |message: &Message| matches!(message, Message::Read(..));
        let read = std::iter::repeat_with(|| daemon.messages.recv().unwrap()).find(is_read).unwrap();
        daemon.handle_message(read);
        daemon.go_on_changing();
        assert!(daemon.balancer.is_unfinished(), "a part of it is made");
        // Meanwhile, a server becomes known and answers, so its table entry changes.
        let server = "10.0.0.11".parse().unwrap();
        let entry = |daemon: &Daemon| tables(&daemon.instance).0;
        let before = entry(&daemon);
        let id = daemon.balancer.targets()[0].id;
        daemon.handle_message(Message::Health(Event::Mac { server, mac: Some([2, 0, 0, 0, 0, 0x11]) }));
        daemon.handle_message(Message::Health(Event::Health { id, health: Ok(()) }));
        daemon.settle_or_retry();
        assert!(entry(&daemon) != before && daemon.balancer.is_unfinished());
        // Meanwhile, all requests except those for statistics wait.
        let (other, others) = std::sync::mpsc::channel();
        for request in [weigh(3), Request::Statistics] {
            daemon.take_request(PendingRequest::new(request, other.clone(), None));
        }
        assert!(matches!(others.try_recv().unwrap(), Answer::Statistics(_)) && others.try_recv().is_err());
        drop(client);
        daemon.go_on_changing();
        let why = refusal(answers.try_recv().unwrap());
        assert!(why.contains("was withdrawn; the former configuration stays in effect"), "{why}");
        assert_eq!(daemon.config.vips.len(), 1);
        daemon.go_on_changing();
        assert!(matches!(others.try_recv().unwrap(), Answer::Done { .. }), "its turn has come");
        let staying = |daemon: &Daemon| daemon.balancer.vips().iter().filter(|vip| !vip.is_leaving).count();
        assert_eq!(staying(&daemon), 1);
        // A valid change succeeds.
        let done = answer(&mut daemon, Request::Reload);
        assert!(matches!(done, Answer::Done { .. }), "{done:?}");
        assert_eq!((staying(&daemon), daemon.balancer.addresses().len()), (1 + vips, 1 + vips));
    });
}
