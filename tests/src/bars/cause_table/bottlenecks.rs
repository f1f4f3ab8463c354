//! Bottlenecks of services, of what stands before them, and of the instrument.

use record::Cause::*;

use super::{
    Load, Row, Truth, rate,
    strangers::{PINNED, lab, stopping},
    users,
};
use crate::nginx::free_address;

const ONE_CORE: Truth = Truth { first: &[HotCore], absent: &[OfferedLoad, Disk, CpuQuota], ..Truth::BOUND };
const QUOTA: Truth = Truth { first: &[CpuQuota], uncounted: &[OfferedLoad, HotCore], ..Truth::BOUND };
const REFUSED: Truth = Truth { first: &[RateLimiter], ..Truth::BOUND };

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "lock",
        truth: Truth::SERVICE,
        scene: |stage| {
            let (ms, count) = (stage.draw(5, 20), stage.draw(8, 32));
            Ok(users(stage.target(&format!("lock {ms}"))?, count))
        },
    },
    Row {
        name: "lock_open",
        // An open load that a lock cannot carry.
        truth: Truth::SERVICE,
        scene: |stage| {
            let ms = stage.draw(8, 15);
            let address = stage.target(&format!("lock {ms}"))?;
            Ok(rate(format!("http://{address}/"), 1_300 / ms))
        },
    },
    Row {
        name: "lock_close",
        // Each request has a new connection, whose handshake costs nothing beside the lock.
        truth: Truth::SERVICE,
        scene: |stage| {
            let ms = stage.draw(8, 15);
            Ok(users(stage.target(&format!("lock {ms} --close"))?, 16))
        },
    },
    Row {
        name: "pool",
        truth: Truth::SERVICE,
        scene: |stage| {
            let (slots, ms) = (stage.draw(3, 10), stage.draw(20, 60));
            Ok(users(stage.target(&format!("pool {slots} {ms}"))?, 4 * slots))
        },
    },
    Row {
        name: "sleep_users",
        // No queue, but each user waits for its answer nearly always: only a faster answer gives more requests.
        truth: Truth::SERVICE,
        scene: |stage| {
            let ms = stage.draw(50, 200);
            Ok(users(stage.target(&format!("sleep {ms}"))?, 8))
        },
    },
    Row {
        name: "bgburn_lock",
        truth: Truth { uncounted: &[OfferedLoad, HotCore], ..Truth::SERVICE },
        scene: |stage| {
            let ms = stage.draw(8, 15);
            Ok(users(stage.target(&format!("lock {ms} --bgburn-ms 10 5"))?, 16))
        },
    },
    Row {
        name: "proxy_lock",
        truth: Truth::SERVICE,
        scene: |stage| {
            let ms = stage.draw(8, 15);
            let behind = stage.target(&format!("lock {ms}"))?;
            Ok(users(stage.target(&format!("proxy {behind}"))?, 16))
        },
    },
    Row {
        name: "nginx_lock",
        truth: Truth::SERVICE,
        scene: |stage| {
            let ms = stage.draw(8, 15);
            let behind = stage.target(&format!("lock {ms}"))?;
            Ok(users(stage.nginx(&format!("location / {{ proxy_pass http://{behind}; }}"), "")?, 16))
        },
    },
    Row {
        name: "haproxy_queue",
        // HAProxy lets two requests through at a time. It took all connections, so to the outside it is a service that waits.
        truth: Truth {
            first: &[SlowHandler, ConnectionLimit],
            uncounted: &[OfferedLoad, HotCore, AcceptQueue, SynQueue],
            ..Truth::SERVICE
        },
        scene: |stage| {
            let ms = stage.draw(15, 30);
            let behind = stage.target(&format!("sleep {ms}"))?;
            Ok(users(stage.haproxy(behind, ["", "", "maxconn 2"])?, 16))
        },
    },
    Row {
        name: "haproxy_maxconn",
        // HAProxy takes four connections, whose users keep them; all others wait to be accepted.
        truth: Truth { first: &[ConnectionLimit], ..Truth::BOUND },
        scene: |stage| {
            let most = stage.draw(3, 5);
            let behind = stage.target("sleep 10")?;
            Ok(users(stage.haproxy(behind, [&format!("maxconn {most}"), "", ""])?, 20))
        },
    },
    Row {
        name: "burn",
        truth: ONE_CORE,
        scene: |stage| {
            let us = stage.draw(500, 3_000);
            Ok(users(stage.target(&format!("burn {us}"))?, 8))
        },
    },
    Row {
        name: "burn_lock",
        // One thread at a time computes, as with an interpreter's lock: the core is full, and the others sleep.
        truth: Truth { first: &[HotCore, SlowHandler], ..ONE_CORE },
        scene: |stage| {
            let us = stage.draw(500, 3_000);
            Ok(users(stage.target(&format!("burn-lock {us}"))?, 8))
        },
    },
    Row {
        name: "quota",
        truth: QUOTA,
        scene: |stage| {
            let (percent, address) = (stage.draw(10, 30), free_address()?);
            let pid = stage.target_at(address, "burn 1000", |launch| launch)?;
            stage.group(None, percent, &[pid])?;
            Ok(users(address, 8))
        },
    },
    Row {
        name: "quota_above",
        // The nearest group with a quota never reaches it.
        truth: QUOTA,
        scene: |stage| {
            let (percent, address) = (stage.draw(10, 20), free_address()?);
            let pid = stage.target_at(address, "burn 1000", |launch| launch)?;
            let above = stage.group(None, percent, &[])?;
            stage.group(Some(above), percent, &[pid])?;
            Ok(users(address, 8))
        },
    },
    Row {
        name: "sigstop_lock",
        // The stops take a sixth of the time, and the lock the rest.
        truth: Truth { uncounted: &[OfferedLoad, HotCore], ..Truth::SERVICE },
        scene: |stage| {
            let (ms, address, core) = (stage.draw(8, 15), free_address()?, stage.cores.server);
            let pid = stage.target_at(address, &format!("lock {ms}"), |launch| launch.on_core(core))?;
            stopping(stage, pid, 500, 100)?;
            Ok(users(address, 16))
        },
    },
    Row {
        name: "limiter",
        truth: REFUSED,
        scene: |stage| {
            let most = stage.draw(10, 30) * 10;
            let address = stage.target(&format!("fast --limiter {most}"))?;
            Ok(rate(format!("http://{address}/"), 2 * most))
        },
    },
    Row {
        name: "nginx_limit_req",
        truth: REFUSED,
        scene: |stage| {
            let most = stage.draw(100, 300);
            let zone =
                format!("limit_req_zone $server_addr zone=all:1m rate={most}r/s; limit_req_status 429;");
            let address = stage.nginx("limit_req zone=all burst=5 nodelay;", &zone)?;
            Ok(rate(format!("http://{address}/1k"), 2 * most))
        },
    },
    Row {
        name: "nginx_limit_rate",
        // nginx itself pauses between the parts of an answer. No link and no window is the limit.
        truth: Truth {
            first: &[SlowHandler, RateLimiter],
            may_be_open: true,
            uncounted: &[LinkRate, ReceiveWindow, SendBuffer, CongestionWindow, HotCore, OfferedLoad],
            ..Truth::BOUND
        },
        scene: |stage| {
            let kilo = stage.draw(200, 500);
            let address = stage.nginx(&format!("limit_rate {kilo}k;"), "")?;
            Ok(Load::Http(format!("http://{address}/100k"), "-u 8 -d 4s".to_owned()))
        },
    },
    Row {
        name: "descriptors",
        truth: Truth { first: &[Descriptors], uncounted: &[OfferedLoad, HotCore, SynQueue], ..Truth::BOUND },
        scene: |stage| {
            let (limit, address, core) = (stage.draw(30, 60), free_address()?, stage.cores.server);
            let change = |launch: crate::process::Launch| launch.on_core(core).descriptors(limit);
            stage.target_at(address, "sleep 20", change)?;
            Ok(users(address, 3 * limit))
        },
    },
    Row {
        name: "accept_slow",
        // The thread that accepts is the limit, and the queue before it overflows: either is right.
        truth: Truth {
            first: &[AcceptQueue, ConnectionLimit, SlowHandler],
            uncounted: &[OfferedLoad, HotCore],
            ..Truth::BOUND
        },
        scene: |stage| {
            let backlog = stage.draw(3, 6);
            let address = stage.target(&format!("fast --close --backlog {backlog} --accept-ms 40"))?;
            Ok(Load::Http(format!("http://{address}/"), "-u 32 -d 6s --no-keepalive".to_owned()))
        },
    },
    Row {
        name: "link_rate",
        truth: Truth { first: &[LinkRate], place: "wire", ..Truth::BOUND },
        scene: |stage| {
            let (mbit, kb) = (stage.draw(8, 30), stage.draw(50, 200));
            let link = format!("rate = \"{mbit}mbit\"\ndelay = \"2ms\"\nqueue = \"1MB\"");
            Ok(Load::Study(lab(["", ""], &link, &format!("fast --big {kb}000"), "users = 6")))
        },
    },
    Row {
        name: "loss_large",
        truth: Truth { first: &[PacketLoss], ..Truth::BOUND },
        scene: |stage| {
            let delay_ms = stage.draw(10, 25);
            let link = format!("delay = \"{delay_ms}ms\"\nloss = \"1%\"");
            Ok(Load::Study(lab(["", ""], &link, "fast --big 5000000", "users = 2")))
        },
    },
    Row {
        name: "lock_far",
        // The round trip is a sixth of an answer's time.
        truth: Truth { place: "web", ..Truth::SERVICE },
        scene: |stage| {
            let ms = stage.draw(8, 12);
            Ok(Load::Study(lab(["", ""], "delay = \"10ms\"", &format!("lock {ms}"), "users = 16")))
        },
    },
    Row {
        name: "generator_neighbour",
        truth: Truth::INSTRUMENT,
        scene: |stage| {
            let url = stage.page()?;
            for _ in 0..8 {
                stage.spinner(stage.cores.generator)?;
            }
            Ok(Load::Http(url, "-u 16 -d 4s".to_owned()))
        },
    },
    Row {
        name: "generator_rate",
        truth: Truth::INSTRUMENT,
        scene: |stage| {
            let kilo = stage.draw(400, 800);
            let (load, hosts) = (format!("rate = \"{kilo}k\"\nthreads = 1\nconnections = 32"), PINNED);
            Ok(Load::Study(lab(hosts, "", "fast", &load)))
        },
    },
    Row {
        name: "source_ports",
        truth: Truth::INSTRUMENT,
        scene: |stage| {
            let last = stage.draw(20_100, 20_300);
            let client = format!("sysctls = {{ \"net.ipv4.ip_local_port_range\" = \"20000 {last}\" }}");
            Ok(Load::Study(lab([&client, ""], "", "sleep 500", "rate = 1_000")))
        },
    },
];
