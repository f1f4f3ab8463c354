use super::*;
use crate::alone;

fn link(index: u32, name: &str) -> Link {
    Link {
        index,
        name: name.to_owned(),
        mac: None,
        mtu: 1_500,
        is_up: true,
        has_carrier: true,
        kind: None,
        xdp: None,
    }
}

fn planned(vips: &[&str], devices: &[&str], ignore: &str, announce: &str) -> Result<Plan, Vec<String>> {
    let present = [(1, "127.0.0.1", 8), (1, "10.0.0.100", 32), (1, "10.0.0.101", 24), (2, "10.0.0.5", 24)];
    let present =
        present.map(|(index, address, prefix)| Address { index, address: address.parse().unwrap(), prefix });
    let read = |name: &str| Ok(if name.ends_with("ignore") { ignore } else { announce }.to_owned());
    let vips: Vec<IpAddr> = vips.iter().map(|vip| vip.parse().unwrap()).collect();
    let devices: Vec<String> = devices.iter().map(|device| (*device).to_owned()).collect();
    plan(&vips, &devices, &[link(1, "lo"), link(2, "eth0.7")], &present, &read)
}

#[test]
fn settings_come_with_addresses_of_ipv4() {
    let plan = planned(&["10.0.0.102", "10.0.0.100"], &["eth0.7"], "0", "2").unwrap();
    let names: Vec<&str> = plan.settings.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(names, ["net.ipv4.conf.all.arp_ignore", "net.ipv4.conf.eth0/7.arp_ignore"]);
    assert_eq!(plan.addresses, ["10.0.0.102".parse::<IpAddr>().unwrap()]);
    let expected = [
        "net.ipv4.conf.all.arp_ignore is set to 1; it was 0",
        "net.ipv4.conf.all.arp_announce is 2 already",
        "net.ipv4.conf.eth0/7.arp_ignore is set to 1; it was 0",
        "net.ipv4.conf.eth0/7.arp_announce is 2 already",
        "10.0.0.102/32 is added to lo",
        "lo has 10.0.0.100/32 already",
    ];
    assert_eq!(plan.lines, expected);
    assert!(planned(&["10.0.0.102"], &[], "8", "2").unwrap().settings.len() == 1, "8 answers for nothing");
    assert_eq!(planned(&["2001:db8::1"], &[], "0", "0").unwrap().settings, []);
    // The larger value prevails: 3 of a device over 1 for all devices.
    let names = |ignore| {
        let plan = planned(&["10.0.0.102"], &[], ignore, "2").unwrap();
        plan.settings.into_iter().map(|(name, ..)| name).collect::<Vec<_>>()
    };
    assert!(names("3").contains(&"net.ipv4.conf.eth0/7.arp_ignore".to_owned()), "{:?}", names("3"));
    assert_eq!(names("2"), [""; 0]);
}

#[test]
fn what_is_unsafe_is_refused_at_once() {
    let wrong = planned(
        &["10.0.0.5", "10.0.0.101", "127.0.0.9", "224.0.0.1", "10.0.0.7", "10.0.0.7"],
        &["eth1"],
        "0",
        "0",
    );
    let wrong = wrong.unwrap_err();
    let parts = [
        "there is no device eth1; there are: lo, eth0.7",
        "eth0.7 has 10.0.0.5",
        "ip address del 10.0.0.101/24 dev lo",
        "127.0.0.9 cannot be a VIP",
        "224.0.0.1 cannot be a VIP",
        "10.0.0.7 is named twice",
    ];
    assert_eq!(wrong.len(), parts.len(), "{wrong:#?}");
    assert!(wrong.iter().zip(parts).all(|(wrong, part)| wrong.contains(part)), "{wrong:#?}");
    assert!(planned(&[], &[], "0", "0").is_err());
}

/// The role of another process of the test: it fails, or waits until it is killed.
const ROLE: &str = "BALANCE_TEST_ROLE";
const FOLDER: &str = "BALANCE_TEST_FOLDER";
const VIPS: [&str; 2] = ["10.0.0.100", "fd00::100"];
const NAME: &str = "server_setup::tests::as_root_a_host_is_as_it_was_after_the_end_and_after_a_kill";

#[test]
fn as_root_a_host_is_as_it_was_after_the_end_and_after_a_kill() {
    let Ok(role) = std::env::var(ROLE) else { return alone::run(NAME, in_a_namespace_of_its_own) };
    let folder = Folder::at(std::env::var(FOLDER).unwrap()).unwrap();
    if role == "fails" {
        let vips = VIPS.map(|vip| vip.parse().unwrap());
        let failed = ServerSetup::start(&vips, &["eth0".to_owned()], &folder).unwrap_err();
        return assert!(failed[0].contains("give fd00::100 to lo"), "{failed:?}");
    }
    let _setup = start(&folder, &VIPS);
    std::fs::write(folder.path().join("ready"), "").unwrap();
    std::thread::park();
}

/// The command that runs this test in another process with a role.
fn again(role: &str, folder: &Folder) -> std::process::Command {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", NAME]).env(ROLE, role).env(FOLDER, folder.path());
    command
}

fn start(folder: &Folder, vips: &[&str]) -> ServerSetup {
    let vips: Vec<IpAddr> = vips.iter().map(|vip| vip.parse().unwrap()).collect();
    ServerSetup::start(&vips, &["eth0".to_owned()], folder).unwrap()
}

/// The settings and the addresses of lo.
fn state() -> (String, Vec<String>) {
    let names = ["all.arp_ignore", "all.arp_announce", "eth0.arp_ignore", "eth0.arp_announce"];
    let settings =
        names.map(|name| Setting::read(&kernel::sysctl_path(&format!("net.ipv4.conf.{name}"))).unwrap());
    let mut netlink = Netlink::open().unwrap();
    let mut addresses: Vec<String> =
        netlink.addresses().unwrap().iter().map(|own| format!("{}/{}", own.address, own.prefix)).collect();
    addresses.sort();
    (settings.concat(), addresses)
}

fn in_a_namespace_of_its_own() {
    let made = "ip link set lo up && ip link add eth0 type veth peer name eth1 && sysctl -qw net.ipv4.conf.eth0.arp_announce=1 \
                net.ipv4.conf.all.arp_ignore=0 net.ipv4.conf.all.arp_announce=0 net.ipv4.conf.eth0.arp_ignore=0";
    assert!(std::process::Command::new("sh").args(["-c", made]).status().unwrap().success());
    let temporary = tempfile::tempdir().unwrap();
    let folder = Folder::at(temporary.path().join("state")).unwrap();
    let before = state();
    assert_eq!(before.0, "0001");
    let addresses = ["10.0.0.100/32", "127.0.0.1/8", "::1/128", "fd00::100/128"].map(str::to_owned);

    let setup = start(&folder, &VIPS);
    assert_eq!(state(), ("1212".to_owned(), addresses.to_vec()));
    let refused = ServerSetup::start(&["10.0.0.101".parse().unwrap()], &[], &folder).unwrap_err();
    assert!(refused.len() == 1 && refused[0].contains("on this host already"), "{refused:?}");
    setup.end().unwrap();
    assert_eq!(state(), before);

    // After a kill, the host stays a server until `clean`, and the next command continues with the existing changes.
    for is_resumed in [true, false] {
        let kept = tempfile::tempdir_in(&temporary).unwrap();
        let journals = Folder::at(kept.path().join("state")).unwrap();
        let mut child = again("waits", &journals).spawn().unwrap();
        testing::until("the server is set up", || journals.path().join("ready").exists());
        std::fs::remove_file(journals.path().join("ready")).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(state(), ("1212".to_owned(), addresses.to_vec()));
        assert_eq!(undo::clean(&journals).unwrap().undone, Vec::<String>::new());
        if is_resumed {
            let setup = start(&journals, &VIPS[..1]);
            assert!(setup.lines().iter().any(|line| line.contains("fd00::100 is removed from lo")));
            assert_eq!(state().1, addresses[..3]);
            setup.end().unwrap();
        } else {
            // A command that fails leaves the earlier changes in place.
            let switch = kernel::sysctl_path("net.ipv6.conf.lo.disable_ipv6");
            Setting::write(&switch, "1").unwrap();
            let failed = again("fails", &journals).output().unwrap();
            let text = String::from_utf8_lossy(&failed.stdout);
            assert!(failed.status.success() && text.contains("1 passed"), "{text}");
            Setting::write(&switch, "0").unwrap();
            let now = state();
            assert!(now.0 == "1212" && now.1.contains(&addresses[0]), "{now:?}");
            let cleaned = undo::clean_all(&journals).unwrap();
            assert_eq!((cleaned.undone.len(), cleaned.failures.len()), (6, 0), "{cleaned:?}");
        }
        assert_eq!(state(), before);
    }
}
