//! Services that have time to spare, under loads that they carry: nothing at the target may be named.
//!
//! Loads stay far below what a core carries, so that it does not depend on the machine whether the service is the limit.

use anyhow::Result;

use super::{
    Load, Row, Stage, Truth, languages, rate,
    stage::named,
    strangers::{PINNED, beside_listening, lab, overflowing, process, stopping},
};
use crate::{nginx::free_address, process::Launch};

const fn healthy(name: &'static str, scene: fn(&mut Stage) -> Result<Load>) -> Row {
    Row { name, truth: Truth::HEALTHY, scene }
}

/// Beside programs that no request reaches, none of which may be blamed either.
const fn beside(name: &'static str, scene: fn(&mut Stage) -> Result<Load>) -> Row {
    Row { name, truth: Truth { stranger: "bystander", ..Truth::HEALTHY }, scene }
}

/// Users who pause for a mean of `ms` between requests.
fn pausing(url: String, users: u64, ms: u64) -> Load {
    Load::Http(url, format!("-u {users} -d 4s --think-time exp:{ms}ms"))
}

fn page_of(address: std::net::SocketAddr) -> String {
    format!("http://{address}/1k")
}

pub(super) const ROWS: &[Row] = &[
    healthy("healthy_nginx_rate", |stage| Ok(rate(stage.page()?, stage.draw(100, 600)))),
    healthy("healthy_nginx_poisson", |stage| {
        let per_s = stage.draw(100, 500);
        Ok(Load::Http(stage.page()?, format!("-R {per_s} -d 4s --arrivals poisson")))
    }),
    healthy("healthy_nginx_users", |stage| Ok(pausing(stage.page()?, stage.draw(5, 20), 50))),
    healthy("healthy_nginx_many_users", |stage| Ok(pausing(stage.page()?, stage.draw(50, 200), 1_000))),
    healthy("healthy_nginx_large", |stage| {
        let address = stage.nginx("sendfile on; tcp_nopush on;", "")?;
        Ok(rate(format!("http://{address}/100k"), stage.draw(20, 80)))
    }),
    healthy("healthy_nginx_close", |stage| {
        let per_s = stage.draw(50, 150);
        Ok(Load::Http(stage.page()?, format!("-R {per_s} -d 4s --no-keepalive")))
    }),
    healthy("healthy_nginx_pool", |stage| {
        let per_s = stage.draw(100, 400);
        Ok(Load::Http(stage.page()?, format!("-R {per_s} -c 8 -d 4s")))
    }),
    healthy("healthy_nginx_stages", |stage| {
        let most = stage.draw(200, 500);
        Ok(Load::Http(stage.page()?, format!("--stage 2s:50..{most} --stage 2s:{most}")))
    }),
    healthy("healthy_ramp", |stage| {
        let url = stage.page()?;
        Ok(Load::Http(url, "-u 20 -d 4s --ramp-up 2s --think-time exp:100ms".to_owned()))
    }),
    healthy("healthy_limit_far", |stage| {
        // The limit is never reached, and nothing is refused.
        let zone = "limit_req_zone $server_addr zone=all:1m rate=5000r/s;";
        let address = stage.nginx("limit_req zone=all burst=1000 nodelay;", zone)?;
        Ok(rate(page_of(address), stage.draw(50, 200)))
    }),
    healthy("healthy_limiter_far", |stage| {
        let address = stage.target("fast --limiter 2000")?;
        Ok(rate(page_of(address), stage.draw(50, 200)))
    }),
    healthy("healthy_uploads", |stage| {
        let (address, file) = (stage.target("fast")?, stage.file("upload"));
        std::fs::write(&file, vec![b'x'; 64_000])?;
        let per_s = stage.draw(20, 60);
        Ok(Load::Http(format!("http://{address}/"), format!("-R {per_s} -d 4s -X POST -b @{file}")))
    }),
    healthy("healthy_haproxy", |stage| {
        let behind = stage.nginx("", "")?;
        Ok(rate(page_of(stage.haproxy(behind, ["", "", ""])?), stage.draw(100, 400)))
    }),
    healthy("healthy_haproxy_users", |stage| {
        let behind = stage.nginx("", "")?;
        // Four times as many connections are allowed as there are users.
        let address = stage.haproxy(behind, ["maxconn 80", "", "maxconn 20"])?;
        Ok(pausing(page_of(address), stage.draw(10, 20), 50))
    }),
    healthy("healthy_haproxy_busy", |stage| {
        // It polls without sleeping, and is as fast as always.
        let behind = stage.target("fast")?;
        Ok(rate(page_of(stage.haproxy(behind, ["busy-polling", "", ""])?), stage.draw(50, 200)))
    }),
    healthy("healthy_haproxy_close", |stage| {
        let behind = stage.nginx("", "")?;
        let per_s = stage.draw(30, 100);
        let address = stage.haproxy(behind, ["", "option httpclose", ""])?;
        Ok(Load::Http(page_of(address), format!("-R {per_s} -d 4s")))
    }),
    healthy("healthy_nginx_proxy", |stage| {
        let behind = stage.nginx("", "")?;
        let address = stage.nginx(&format!("location / {{ proxy_pass http://{behind}; }}"), "")?;
        Ok(rate(page_of(address), stage.draw(50, 300)))
    }),
    healthy("healthy_nginx_node", |stage| {
        let behind = stage.script(["node", "-e"], &languages::node("answer.end('ok');"))?;
        let address = stage.nginx(&format!("location / {{ proxy_pass http://{behind}; }}"), "")?;
        Ok(rate(page_of(address), stage.draw(20, 100)))
    }),
    healthy("healthy_socat", |stage| {
        let behind = stage.nginx("", "")?;
        let per_s = stage.draw(50, 150);
        Ok(Load::Http(page_of(stage.socat(behind)?), format!("-R {per_s} -c 4 -d 4s")))
    }),
    healthy("healthy_node", |stage| {
        let address = stage.script(["node", "-e"], &languages::node("answer.end('ok');"))?;
        Ok(rate(page_of(address), stage.draw(50, 200)))
    }),
    healthy("healthy_node_users", |stage| {
        let address = stage.script(["node", "-e"], &languages::node("answer.end('ok');"))?;
        Ok(pausing(page_of(address), stage.draw(5, 15), 100))
    }),
    healthy("healthy_python", |stage| {
        let address = stage.script(["python3", "-c"], &languages::python("pass"))?;
        Ok(rate(page_of(address), stage.draw(20, 60)))
    }),
    healthy("healthy_python_users", |stage| {
        let address = stage.script(["python3", "-c"], &languages::python("pass"))?;
        Ok(pausing(page_of(address), stage.draw(5, 15), 500))
    }),
    healthy("healthy_go", |stage| Ok(rate(page_of(stage.go(&languages::go(""))?), stage.draw(50, 300)))),
    healthy("healthy_sleep_open", |stage| {
        // Each connection has a thread, so that nothing waits for anything: twice the rate would be carried as well.
        let (ms, per_s) = (stage.draw(1, 20), stage.draw(30, 100));
        Ok(rate(page_of(stage.target(&format!("sleep {ms}"))?), per_s))
    }),
    healthy("healthy_pool_open", |stage| {
        // An eighth of the slots is taken on average.
        let per_s = stage.draw(100, 200);
        Ok(rate(page_of(stage.target("pool 8 5")?), per_s))
    }),
    healthy("healthy_lock_open", |stage| {
        // The lock is held for a twentieth of the time.
        let per_s = stage.draw(20, 50);
        Ok(rate(page_of(stage.target("lock 1")?), per_s))
    }),
    healthy("healthy_bimodal_open", |stage| {
        let per_s = stage.draw(20, 40);
        Ok(rate(page_of(stage.target("bimodal 5 8 20")?), per_s))
    }),
    healthy("healthy_burn_open", |stage| {
        // A twentieth of a core.
        let per_s = stage.draw(50, 100);
        Ok(rate(page_of(stage.target("burn 500")?), per_s))
    }),
    healthy("healthy_spin", |stage| {
        // The loop is always busy, and answers at once.
        Ok(rate(page_of(stage.target("spin 0")?), stage.draw(50, 200)))
    }),
    healthy("healthy_bgburn", |stage| {
        let per_s = stage.draw(50, 200);
        Ok(rate(page_of(stage.target("fast --bgburn-ms 20 2")?), per_s))
    }),
    healthy("healthy_quick_writes", |stage| {
        let per_s = stage.draw(50, 200);
        Ok(rate(page_of(stage.target("fast --two-quick-writes --big 200")?), per_s))
    }),
    healthy("healthy_quota_far", |stage| {
        // A hundredth of a core, of half of one.
        let (per_s, address) = (stage.draw(30, 60), free_address()?);
        let pid = stage.target_at(address, "burn 200", |launch| launch)?;
        stage.group(None, 50, &[pid])?;
        Ok(rate(page_of(address), per_s))
    }),
    healthy("healthy_descriptors_far", |stage| {
        let (per_s, address, core) = (stage.draw(50, 200), free_address()?, stage.cores.server);
        stage.target_at(address, "fast", |launch| launch.on_core(core).descriptors(64))?;
        Ok(Load::Http(page_of(address), format!("-R {per_s} -c 8 -d 4s")))
    }),
    beside("healthy_beside_nice", |stage| {
        // A program of the lowest priority on the same core: it makes way at once.
        let program = stage.bystander()?;
        let launch = Launch::new("nice").args(["-n", "19", &program, &free_address()?.to_string()]);
        let core = stage.cores.server;
        stage.beside(launch.words("fast --bgspin").on_core(core))?;
        Ok(rate(stage.page()?, stage.draw(50, 200)))
    }),
    beside("healthy_beside_disk", |stage| {
        let file = stage.file("written");
        let write = format!(
            "for i in $(seq 20); do dd if=/dev/zero of={file} bs=1M count=8 conv=fsync status=none; sleep 0.2; done"
        );
        stage.beside(Launch::new("sh").args(["-c", &write]))?;
        Ok(rate(stage.page()?, stage.draw(50, 200)))
    }),
    beside("healthy_beside_overflow", |stage| {
        overflowing(stage)?;
        Ok(rate(stage.page()?, stage.draw(50, 200)))
    }),
    beside("healthy_beside_stopped", |stage| {
        let (program, address) = (stage.bystander()?, free_address()?);
        let launch = Launch::new(program).arg(address.to_string()).words("fast");
        let pid = stage.start(launch, |process| process.stdout().contains("listening"))?;
        stopping(stage, pid, 100, 900)?;
        Ok(rate(stage.page()?, stage.draw(50, 200)))
    }),
    beside("healthy_beside_same_port", |stage| {
        // Users who pause, so that it does not matter that the other one has half of the core.
        let address = stage.target("fast")?;
        beside_listening(stage, &format!("127.0.0.2:{}", address.port()))?;
        Ok(pausing(page_of(address), 5, 500))
    }),
    beside("healthy_beside_quota", |stage| {
        let program = stage.bystander()?;
        let launch = Launch::new(program).arg(free_address()?.to_string()).words("fast --bgspin");
        let pid = stage.beside(launch)?;
        stage.group(None, 2, &[pid])?;
        Ok(rate(stage.page()?, stage.draw(50, 200)))
    }),
    beside("healthy_beside_lock", |stage| {
        // Another service makes its own clients wait.
        let (program, address) = (stage.bystander()?, free_address()?);
        let launch = Launch::new(program).arg(address.to_string()).words("lock 5");
        stage.start(launch, |process| process.stdout().contains("listening"))?;
        stage.beside(Launch::new(named("ab")?).words(&format!("-r -q -k -t 20 -c 16 http://{address}/")))?;
        Ok(rate(stage.page()?, stage.draw(50, 200)))
    }),
    healthy("healthy_lab", |stage| {
        let per_s = stage.draw(50, 300);
        Ok(Load::Study(lab(PINNED, "", "fast", &format!("rate = {per_s}"))))
    }),
    healthy("healthy_lab_link", |stage| {
        // A hundredth of the link's rate.
        let per_s = stage.draw(50, 100);
        let link = "rate = \"100mbit\"\ndelay = \"1ms\"";
        Ok(Load::Study(lab(["", ""], link, "fast --big 1000", &format!("rate = {per_s}"))))
    }),
    healthy("healthy_lab_far", |stage| {
        // The path takes the time. Users as many as are wanted would get the same answers.
        let delay_ms = stage.draw(20, 40);
        Ok(Load::Study(lab(["", ""], &format!("delay = \"{delay_ms}ms\""), "fast", "users = 4")))
    }),
    healthy("healthy_lab_monitor", |stage| {
        let per_s = stage.draw(50, 200);
        let text = lab(["", ""], "", "fast", &format!("rate = {per_s}"));
        let text = text.replace("[[links]]", "monitor = {}\n[[links]]");
        let text = text.replace("\"web\"]\n", "\"web\", \"monitor\"]\n");
        Ok(Load::Study(format!("{text}{}", process("monitor", "0.0.0.0:9000 fast --bgspin"))))
    }),
];
