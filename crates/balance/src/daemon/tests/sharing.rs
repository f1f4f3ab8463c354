//! Several balancers at the same time: each has its own tables, and none uses those of another.

use super::*;

#[test]
fn as_root_tables_of_a_balancer_that_runs_are_nobody_elses() {
    alone_at("sharing::as_root_tables_of_a_balancer_that_runs_are_nobody_elses", |folder| {
        let (text, other_text) = (file("", PLAIN), file("", PLAIN).replace("0.100", "0.101"));
        let first = Running::start(folder, "eth0", &text);
        let pins = first.instance.pins();
        // A daemon with another state folder cannot know the first daemon.
        let other = Folder::at("/run/other").unwrap();
        let refused = Daemon::start(options(&other, "eth0", &other_text)).map(drop).unwrap_err().to_string();
        for part in [&*pins.to_string_lossy(), "a running balancer uses it", "(--name)"] {
            assert!(refused.contains(part), "{refused}");
        }
        assert!(!other.path().join("balance").exists(), "a refusal leaves a folder");
        assert!(crate::unpin(&pins).unwrap_err().to_string().contains("a running balancer uses it"));
        assert!(is_attached() && pins.join("rings").exists() && first.statistics().trouble.is_none());

        // The next start continues with kept tables and their state. Tables without state have no owner.
        first.end(Order::Keep).unwrap();
        let again = Running::start(folder, "eth0", &text);
        assert!(is_attached());
        again.end(Order::Keep).unwrap();
        let second = Running::start(&other, "eth0", &other_text);
        assert!(is_attached());
        second.end(Order::Stop).unwrap();
        until("nothing is attached", || !is_attached());
        assert!(!pins.exists());
    });
}

/// Names the container that this process represents.
const CONTAINER: &str = "BALANCE_TEST_CONTAINER";

#[test]
fn as_root_balancers_of_two_containers_share_a_bpf_file_system() {
    let name = "balancers_of_two_containers_share_a_bpf_file_system";
    if let Ok(container) = std::env::var(CONTAINER) {
        return in_a_container(&container);
    }
    alone_at(&format!("sharing::as_root_{name}"), |_| {
        let start = |container: &str| {
            let mut unshare = Command::new("unshare");
            unshare.args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
            unshare.arg(std::env::current_exe().unwrap()).arg("--exact");
            let started = unshare
                .arg(format!("daemon::tests::sharing::as_root_{name}"))
                .env(CONTAINER, container)
                .spawn();
            until("it balances", || fs::exists(format!("/run/{container}/ready")).unwrap());
            started.unwrap()
        };
        let mut containers = ["one", "two"].map(|container| (container, start(container)));
        for (container, process) in &mut containers {
            fs::write(format!("/run/{container}/end"), "").unwrap();
            assert!(process.wait().unwrap().success(), "{container}");
        }
    });
}

fn in_a_container(container: &str) {
    shell(
        "ip link add eth0 type veth peer name far; ip address add 10.0.0.1/24 dev eth0; ip link set eth0 up",
    );
    let folder = Folder::at(format!("/run/{container}")).unwrap();
    let daemon = Running::start(&folder, "eth0", &file("", PLAIN));
    fs::write(folder.path().join("ready"), "").unwrap();
    until("it is to end", || folder.path().join("end").exists());
    assert!(
        is_attached() && daemon.instance.pins().join("rings").exists(),
        "another one has taken its tables"
    );
    daemon.end(Order::Stop).unwrap();
}
