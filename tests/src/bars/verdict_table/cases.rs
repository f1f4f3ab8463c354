//! Studies that have a bottleneck, with random parameters.

use crate::random::Random;

/// A control group whose members can write to the disk at most 30 times a second.
pub(super) const SLOW_DISK: &str = "/sys/fs/cgroup/blkio/proofload-bar";

/// The sysctl for the SYN queue's cookies, as the case of that queue writes it.
pub(in super::super) const COOKIES: &str = "\"net.ipv4.tcp_syncookies\"";

/// A bottleneck, and a study that has it.
pub(in super::super) struct Case {
    /// The name of the cause in results.
    pub(in super::super) cause: &'static str,
    pub(in super::super) study: fn(&mut Random) -> String,
}

/// A lab of two hosts, with a `serve` that receives HTTP requests.
#[derive(Default)]
pub(in super::super) struct Web {
    pub(in super::super) client: String,
    pub(in super::super) web: String,
    pub(in super::super) link: String,
    /// Keys of the target's table.
    pub(in super::super) target: String,
    pub(in super::super) serve: String,
    pub(in super::super) workload: String,
}

impl Web {
    pub(in super::super) fn study(&self) -> String {
        let Self { client, web, link, target, serve, workload } = self;
        // An emulated link also needs a processor, so leave the hosts unpinned.
        let pinned = |cpu| if link.is_empty() { format!("cpus = \"{cpu}\", ") } else { String::new() };
        let (client, web) = (pinned("CLIENT") + client, pinned("WEB") + web);
        let arguments: Vec<String> = serve.split_whitespace().map(|word| format!("{word:?}")).collect();
        format!(
            "title = \"verdict\"\n[hosts]\nclient = {{ {client} }}\nweb = {{ {web} }}\n\
             [[links]]\nname = \"wire\"\nbetween = [\"client\", \"web\"]\n{link}\n\
             [targets.web]\non = \"web\"\nrun = \"serve\"\nargs = [{}]\n{target}\n\
             [workload.http]\nfrom = \"client\"\ntarget = \"web\"\nduration = \"4s\"\n{workload}\n\
             [trial]\nvoid_attempts = 2\n[[goals]]\nerrors = 0.0\n",
            arguments.join(", ")
        )
    }
}

pub(in super::super) const CASES: &[Case] = &[
    Case {
        cause: "accept_queue",
        study: |random| {
            // While the target stalls, ten times as many users connect as its queue can hold.
            let backlog = 4 + random.below(12);
            Web {
                serve: format!("--backlog {backlog} --stall 1s,150ms"),
                workload: format!("users = {}\nthink_time = \"exp:200ms\"\nkeepalive = false", 15 * backlog),
                ..Web::default()
            }
            .study()
        },
    },
    Case {
        cause: "syn_queue",
        study: |random| {
            // Handshakes take a round trip, and more of them are in progress than the queue can hold. Disable cookies, because with them a
            // full queue costs nothing.
            let (backlog, delay_ms) = (6 + random.below(6), 80 + random.below(40));
            Web {
                web: format!("sysctls = {{ {COOKIES} = 0 }}"),
                link: format!("delay = \"{delay_ms}ms\""),
                serve: format!("--backlog {backlog}"),
                workload: format!(
                    "users = {}\nramp_up = \"1s\"\nthink_time = \"exp:100ms\"\nkeepalive = false",
                    8 * backlog
                ),
                ..Web::default()
            }
            .study()
        },
    },
    Case {
        cause: "receive_window",
        study: |random| {
            let (window, delay_ms) = (64 + random.below(100), 20 + random.below(30));
            Web {
                client: format!("tcp_rmem = \"{window}KiB\""),
                link: format!("delay = \"{delay_ms}ms\""),
                serve: "--body 20MB".to_owned(),
                workload: "users = 2".to_owned(),
                ..Web::default()
            }
            .study()
        },
    },
    Case {
        cause: "send_buffer",
        study: |random| {
            let (buffer, delay_ms) = (64 + random.below(100), 20 + random.below(30));
            Web {
                web: format!("tcp_wmem = \"{buffer}KiB\""),
                link: format!("delay = \"{delay_ms}ms\""),
                serve: "--body 20MB".to_owned(),
                workload: "users = 2".to_owned(),
                ..Web::default()
            }
            .study()
        },
    },
    Case {
        cause: "link_rate",
        study: |random| {
            let (rate, body) = (10 + random.below(40), 50 + random.below(200));
            Web {
                link: format!("rate = \"{rate}mbit\"\ndelay = \"2ms\""),
                serve: format!("--body {body}KB"),
                workload: "users = 8".to_owned(),
                ..Web::default()
            }
            .study()
        },
    },
    Case {
        cause: "packet_loss",
        study: |random| {
            let (loss, delay_ms) = (0.5 + 0.1 * random.below(10) as f64, 10 + random.below(20));
            Web {
                link: format!("delay = \"{delay_ms}ms\"\nloss = \"{loss:.1}%\""),
                serve: "--body 20MB".to_owned(),
                workload: "users = 2".to_owned(),
                ..Web::default()
            }
            .study()
        },
    },
    Case {
        cause: "cpu_quota",
        study: |random| {
            let quota = 0.05 + 0.02 * random.below(4) as f64;
            Web { web: format!("cpu_quota = {quota:.2}"), workload: "users = 8".to_owned(), ..Web::default() }
                .study()
        },
    },
    Case {
        cause: "slow_handler",
        study: |random| {
            let (capacity, service_ms) = (1 + random.below(8), 5 + random.below(20));
            let rate = 1_300 * capacity / service_ms;
            Web {
                serve: format!("--capacity {capacity} --service-time {service_ms}ms"),
                workload: format!("rate = {rate}"),
                ..Web::default()
            }
            .study()
        },
    },
    Case {
        cause: "source_ports",
        study: |random| {
            let last = 20_100 + random.below(200);
            Web {
                client: format!("sysctls = {{ \"net.ipv4.ip_local_port_range\" = \"20000 {last}\" }}"),
                serve: "--delay 500ms".to_owned(),
                workload: "rate = 1_000".to_owned(),
                ..Web::default()
            }
            .study()
        },
    },
    Case {
        cause: "generator",
        study: |random| {
            let rate = 400 + random.below(400);
            Web { workload: format!("rate = \"{rate}k\"\nthreads = 1\nconnections = 32"), ..Web::default() }
                .study()
        },
    },
    Case {
        cause: "descriptors",
        study: |random| {
            let descriptors = 40 + random.below(40);
            Web {
                target: format!("descriptors = {descriptors}"),
                workload: format!(
                    "users = {}\nramp_up = \"1s\"\nthink_time = \"exp:200ms\"",
                    3 * descriptors
                ),
                ..Web::default()
            }
            .study()
        },
    },
    Case {
        cause: "hot_core",
        study: |random| {
            // The sender of large answers works more than the receiver, because it also moves the receiver's packets.
            let (body_kb, users) = (800 + random.below(800), 3 + random.below(3));
            Web {
                serve: format!("--body {body_kb}KB"),
                workload: format!("users = {users}"),
                ..Web::default()
            }
            .study()
        },
    },
    Case {
        cause: "link_queue",
        study: |random| {
            let (queue_kb, body_kb) = (12 + random.below(8), 150 + random.below(100));
            Web {
                link: format!("rate = \"100mbit\"\ndelay = \"5ms\"\nqueue = \"{queue_kb}KB\""),
                serve: format!("--body {body_kb}KB"),
                workload: "users = 20\nthink_time = \"exp:200ms\"".to_owned(),
                ..Web::default()
            }
            .study()
        },
    },
    Case {
        cause: "connection_limit",
        study: |random| {
            let (most, delay_ms) = (10 + random.below(30), 30 + random.below(40));
            format!(
                "title = \"verdict\"\n[hosts]\nclient = {{}}\nproxy = {{}}\nweb = {{}}\n\
                 [[links]]\nname = \"lan\"\nbetween = [\"client\", \"proxy\", \"web\"]\n\
                 [[processes]]\non = \"web\"\nrun = \"serve\"\nport = 80\nargs = [\"--delay\", \"{delay_ms}ms\"]\n\
                 [targets.proxy]\non = \"proxy\"\nrun = \"haproxy\"\nbackends = [\"web\"]\nargs = [\"-n\", \"{most}\"]\n\
                 [workload.http]\nfrom = \"client\"\ntarget = \"proxy\"\nduration = \"4s\"\nusers = {}\n\
                 [trial]\nvoid_attempts = 2\n[[goals]]\nerrors = 0.0\n",
                5 * most
            )
        },
    },
    Case {
        cause: "ssh_window",
        study: |random| {
            let delay_ms = 80 + random.below(60);
            format!(
                "title = \"verdict\"\n[hosts]\n\
                 client = {{ tcp_rmem = \"64MiB\", tcp_wmem = \"64MiB\" }}\n\
                 server = {{ tcp_rmem = \"64MiB\", tcp_wmem = \"64MiB\" }}\n\
                 [[links]]\nname = \"sea\"\nbetween = [\"client\", \"server\"]\nrate = \"1gbit\"\ndelay = \"{delay_ms}ms\"\n\
                 [targets.sshd]\non = \"server\"\nrun = \"sshd\"\nconfig = \"debian\"\n\
                 [workload.command]\nfrom = \"client\"\n\
                 run = \"head -c 50M /dev/zero | ssh -F {{ssh_config}} server 'cat > /dev/null'\"\n\
                 [trial]\nvoid_attempts = 2\n[[goals]]\nerrors = 0.0\n"
            )
        },
    },
    Case {
        cause: "disk",
        study: |random| {
            let users = 4 + random.below(8);
            format!(
                "title = \"verdict\"\n[hosts]\nclient = {{ cpus = \"CLIENT\" }}\nweb = {{ cpus = \"WEB\" }}\n\
                 [[links]]\nname = \"wire\"\nbetween = [\"client\", \"web\"]\n\
                 [targets.web]\non = \"web\"\nport = 9880\nready = \"tcp:9880\"\ncommand = [\"sh\", \"-c\", \
                 \"echo $$ > {SLOW_DISK}/cgroup.procs; \
                 exec PROOFLOAD listen --listen 0.0.0.0:9880 --ack synced --path {{target_folder}}/events.log\"]\n\
                 [workload.http]\nfrom = \"client\"\ntarget = \"web\"\npath = \"/a\"\nmethod = \"POST\"\n\
                 body = '{{\"a\":1}}'\nheaders = [\"Content-Type: application/json\"]\n\
                 duration = \"4s\"\nusers = {users}\n[trial]\nvoid_attempts = 2\n[[goals]]\nerrors = 0.0\n"
            )
        },
    },
];

/// A study without a bottleneck: an open load at 30 % of the capacity.
pub(in super::super) const SOUND: fn(&mut Random) -> String = |random| {
    let capacity_per_s = 500 + random.below(2_000);
    Web {
        serve: format!("--capacity 1 --service-time {}us", 1_000_000 / capacity_per_s),
        workload: format!("rate = {}", capacity_per_s * 3 / 10),
        ..Web::default()
    }
    .study()
};
