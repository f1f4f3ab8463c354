//! The known settings and their real effects. The facts come from the kernel's ip-sysctl.rst, net.rst and vm.rst, or
//! from its source if these are not specific enough.

/// The scope of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Each network namespace has a separate value.
    Namespace,
    /// The whole machine has one value. It can be changed only from the initial network namespace; in others, the
    /// setting is missing or read-only.
    Machine,
}

/// A rule that decides which values of a setting are wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Every number is right.
    Any,
    /// The setting is a word.
    Word,
    /// The setting has no effect or does not exist.
    Obsolete,
    /// Smaller numbers are harmful.
    AtLeast(u64),
    /// Larger numbers are harmful.
    AtMost(u64),
    /// Numbers below the machine's default are harmful.
    NotLowered,
    /// Three numbers of pages. The last one may be at most a quarter of the memory.
    Pages,
    /// Several numbers in ascending order.
    Rising,
    /// The default. An administrator who changes it expects an effect that the setting does not have.
    Misunderstood(u64),
    /// No effect unless `net.ipv4.tcp_syncookies` is 0.
    WithoutSyncookies,
    /// No effect on interfaces without a queue.
    WithQueue,
}

/// A known setting.
#[derive(Debug, Clone, Copy)]
pub struct Known {
    /// Its name in the form of sysctl(8).
    pub name: &'static str,
    /// The unit of its numbers; empty for switches and words.
    pub unit: &'static str,
    /// The scope of its value.
    pub(crate) scope: Scope,
    pub(crate) rule: Rule,
    /// The counter that justifies a change if it rises; empty if the kernel has none.
    pub counter: &'static str,
    /// Its real effect today.
    pub remark: &'static str,
}

macro_rules! known {
    ($($scope:ident $name:literal, $unit:literal, $rule:expr, $counter:literal: $remark:literal;)*) => {
        /// All known settings, sorted by name.
        pub static KNOWN: &[Known] = &[$(Known {
            name: $name,
            unit: $unit,
            scope: Scope::$scope,
            rule: $rule,
            counter: $counter,
            remark: $remark,
        }),*];
    };
}

known! {
    Machine "fs.file-max", "files", Rule::NotLowered, "files.open":
        "bounds the open files of all processes together; the limit of one process is its RLIMIT_NOFILE (ulimit -n)";
    Machine "fs.nr_open", "files", Rule::NotLowered, "":
        "the largest RLIMIT_NOFILE that a process may be given";
    Machine "kernel.numa_balancing", "", Rule::Any, "":
        "moves memory between nodes, which stops threads for moments; without effect on a machine with one node";
    Machine "net.core.busy_poll", "µs", Rule::Any, "":
        "spins in poll() for packets: less delay for more processor time, and only with drivers that support it";
    Machine "net.core.busy_read", "µs", Rule::Any, "":
        "spins in read() for packets: less delay for more processor time, and only with drivers that support it";
    Machine "net.core.default_qdisc", "", Rule::WithQueue, "":
        "the queue of interfaces that are made later; veth and lo have none";
    Machine "net.core.dev_weight", "packets", Rule::Any, "softnet.squeezes":
        "packets that a processor takes at once from its own queue (veth, lo, RPS); drivers of network cards have a weight of their own";
    Machine "net.core.netdev_budget", "packets", Rule::Any, "softnet.squeezes":
        "packets of a round of softirq; the round also ends after netdev_budget_usecs, whichever is first";
    Machine "net.core.netdev_budget_usecs", "µs", Rule::Any, "softnet.squeezes":
        "longest round of softirq; the round also ends after netdev_budget packets, whichever is first";
    Machine "net.core.netdev_max_backlog", "packets", Rule::AtMost(200_000), "softnet.drops":
        "a queue of each processor, used by veth, lo and RPS; at a million packets a second, 200,000 of them wait for 200 ms, after which TCP retransmits packets that only wait";
    Machine "net.core.netdev_weight", "packets", Rule::Obsolete, "softnet.squeezes":
        "no kernel has this setting; net.core.dev_weight exists";
    Machine "net.core.rmem_default", "bytes", Rule::Any, "Udp.RcvbufErrors":
        "the receive buffer of sockets other than TCP's, which have tcp_rmem";
    Machine "net.core.rmem_max", "bytes", Rule::Any, "Udp.RcvbufErrors":
        "the largest receive buffer that a program may ask for (SO_RCVBUF); does not bound what TCP gives itself, which tcp_rmem does";
    Namespace "net.core.somaxconn", "connections", Rule::Any, "TcpExt.ListenOverflows":
        "the longest accept queue that a program may ask for in listen(); the program must ask, and start after the change";
    Machine "net.core.wmem_default", "bytes", Rule::Any, "Udp.SndbufErrors":
        "the send buffer of sockets other than TCP's, which have tcp_wmem";
    Machine "net.core.wmem_max", "bytes", Rule::Any, "Udp.SndbufErrors":
        "the largest send buffer that a program may ask for (SO_SNDBUF); does not bound what TCP gives itself, which tcp_wmem does";
    Namespace "net.ipv4.conf.all.rp_filter", "", Rule::Any, "TcpExt.IPReversePathFilter":
        "drops packets whose answer would leave through another interface, as with direct server return";
    Namespace "net.ipv4.ip_forward", "", Rule::Any, "Ip.ForwDatagrams":
        "routes packets of others; neither a proxy nor layer-2 direct server return needs it";
    Namespace "net.ipv4.ip_local_port_range", "ports", Rule::Rising, "":
        "source ports for each remote address and port; programs that connect see EADDRNOTAVAIL when they are used up. More source addresses help further; listeners inside the range may find their port taken";
    Namespace "net.ipv4.route.max_size", "routes", Rule::Obsolete, "":
        "without effect since Linux 3.6, which has no cache of IPv4 routes";
    Namespace "net.ipv4.tcp_abort_on_overflow", "", Rule::AtMost(0), "TcpExt.ListenOverflows":
        "1 resets connections at a full accept queue, which a client that tries again would have survived";
    Namespace "net.ipv4.tcp_congestion_control", "", Rule::Word, "Tcp.RetransSegs":
        "how fast a sender grows and shrinks its window";
    Namespace "net.ipv4.tcp_fack", "", Rule::Obsolete, "":
        "without effect since Linux 4.15";
    Namespace "net.ipv4.tcp_fin_timeout", "seconds", Rule::Misunderstood(60), "sockstat.TCP.orphan":
        "is not the time of TIME_WAIT, which is always 60 s; it only bounds how long a socket that its program has closed waits in FIN_WAIT_2";
    Namespace "net.ipv4.tcp_keepalive_intvl", "seconds", Rule::Any, "TcpExt.TCPKeepAlive":
        "only for programs that ask for keep-alive probes (SO_KEEPALIVE)";
    Namespace "net.ipv4.tcp_keepalive_probes", "probes", Rule::Any, "TcpExt.TCPKeepAlive":
        "only for programs that ask for keep-alive probes (SO_KEEPALIVE)";
    Namespace "net.ipv4.tcp_keepalive_time", "seconds", Rule::Any, "TcpExt.TCPKeepAlive":
        "only for programs that ask for keep-alive probes (SO_KEEPALIVE)";
    Machine "net.ipv4.tcp_low_latency", "", Rule::Obsolete, "":
        "without effect since Linux 4.14";
    Machine "net.ipv4.tcp_max_orphans", "sockets", Rule::NotLowered, "TcpExt.TCPAbortOnMemory":
        "a guard against attacks: connections beyond it are reset, whatever they still have to send";
    Namespace "net.ipv4.tcp_max_syn_backlog", "connections", Rule::WithoutSyncookies, "TcpExt.TCPReqQFullDrop":
        "counts only while tcp_syncookies is 0; otherwise the SYN queue is as long as the accept queue that the program asked for";
    Namespace "net.ipv4.tcp_max_tw_buckets", "sockets", Rule::NotLowered, "TcpExt.TCPTimeWaitOverflow":
        "a guard against attacks: beyond it sockets skip TIME_WAIT, and late packets may reach the wrong connection";
    Machine "net.ipv4.tcp_mem", "pages", Rule::Pages, "TcpExt.TCPMemoryPressures":
        "memory of all TCP sockets together, in pages and not in bytes";
    Namespace "net.ipv4.tcp_moderate_rcvbuf", "", Rule::AtLeast(1), "TcpExt.PruneCalled":
        "0 stops the receive buffer from growing with the path";
    Namespace "net.ipv4.tcp_no_metrics_save", "", Rule::Any, "":
        "0 lets a connection begin with the metrics of an earlier one to the same address, so that trials are not independent";
    Namespace "net.ipv4.tcp_notsent_lowat", "bytes", Rule::Any, "":
        "bytes that wait unsent in a socket before it refuses more; saves memory, does not speed up";
    Namespace "net.ipv4.tcp_rmem", "bytes", Rule::Rising, "TcpExt.PruneCalled":
        "least, first and largest receive buffer of a TCP socket; it grows by itself, so only long paths of high rate need a larger one";
    Namespace "net.ipv4.tcp_sack", "", Rule::AtLeast(1), "TcpExt.TCPLossFailures":
        "0 makes every loss cost a round trip more";
    Namespace "net.ipv4.tcp_slow_start_after_idle", "", Rule::Any, "":
        "1 makes a kept connection begin slowly again after a pause";
    Namespace "net.ipv4.tcp_syn_retries", "retries", Rule::Any, "TcpExt.TCPSynRetrans":
        "how often a connecting program sends its SYN again before it gives up; 6 take about 2 minutes";
    Namespace "net.ipv4.tcp_synack_retries", "retries", Rule::Any, "TcpExt.TCPTimeouts":
        "how often the answer to a SYN is sent again";
    Namespace "net.ipv4.tcp_syncookies", "", Rule::AtMost(1), "TcpExt.TCPReqQFullDoCookies":
        "1 answers with SYN cookies when the SYN queue is full; 2 answers every SYN with a cookie, which is for tests of the kernel and loses TCP options";
    Namespace "net.ipv4.tcp_timestamps", "", Rule::AtLeast(1), "":
        "0 removes the timestamps from every segment: round-trip times are measured less often, and tcp_tw_reuse does nothing";
    Namespace "net.ipv4.tcp_tw_recycle", "", Rule::Obsolete, "TcpExt.TCPTimeWaitOverflow":
        "removed in Linux 4.12, because it broke clients behind NAT; tcp_tw_reuse is for the connecting side";
    Namespace "net.ipv4.tcp_tw_reuse", "", Rule::AtMost(2), "sockstat.TCP.tw":
        "1 lets the connecting side use a port in TIME_WAIT again after a second, given timestamps; 2 does so on loopback only. Does nothing for a listener";
    Namespace "net.ipv4.tcp_window_scaling", "", Rule::AtLeast(1), "":
        "0 bounds every window to 64 KiB";
    Namespace "net.ipv4.tcp_wmem", "bytes", Rule::Rising, "":
        "least, first and largest send buffer of a TCP socket; it grows by itself, so only long paths of high rate need a larger one";
    Machine "net.ipv4.udp_mem", "pages", Rule::Pages, "Udp.MemErrors":
        "memory of all UDP sockets together, in pages and not in bytes";
    Namespace "net.ipv6.conf.all.disable_ipv6", "", Rule::Any, "":
        "1 takes all IPv6 addresses away; they do not come back with 0";
    Machine "net.netfilter.nf_conntrack_buckets", "buckets", Rule::Any, "":
        "size of the hash table of tracked connections; with more than four entries per bucket, lookups are slow";
    Machine "net.netfilter.nf_conntrack_max", "connections", Rule::NotLowered, "conntrack.drop":
        "how many connections are tracked at once; packets of further connections are dropped. It is best not to track connections on the path of a test";
    Machine "net.nf_conntrack_max", "connections", Rule::NotLowered, "conntrack.drop":
        "another name of net.netfilter.nf_conntrack_max";
    Machine "vm.swappiness", "", Rule::AtMost(60), "pressure.memory.some_us":
        "how readily memory of programs is swapped out for the cache of files; a listener that is swapped out stops";
}
