//! What bounded a trial.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What bounded a trial, by the counters of kernels and links.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// What bounded the trial, the nearest first. Empty if it could not be determined.
    pub bottlenecks: Vec<Bottleneck>,
    /// What did not bound it.
    pub excluded: Vec<Excluded>,
    /// Counters that were not available, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// The parts of the users' time, which add up to 1; empty for programs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub account: Vec<TimePart>,
}

/// A part of the users' time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TimePart {
    /// What the users, or the programs that served them, did meanwhile.
    pub state: TimeState,
    /// The program that the requests were in, or the address that it asked; empty if they were in none.
    pub program: String,
    /// The program's host; empty for this machine.
    pub place: String,
    /// Its share of the users' time (0 to 1).
    pub share: f64,
}

/// What bounded a trial, or would have been next to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Bottleneck {
    /// What it is.
    pub cause: Cause,
    /// The host or link where it is; empty for this machine.
    pub place: String,
    /// The figures that show it.
    pub evidence: String,
    /// How far the evidence goes.
    pub certainty: Certainty,
}

/// How far evidence goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Certainty {
    /// It explains the trial, but other things would look the same.
    Likely,
    /// The kernel counted the limit itself, such as drops at a full queue.
    Counted,
}

/// A cause that the evidence excludes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Excluded {
    /// What did not bound the trial.
    pub cause: Cause,
    /// The figures that show it.
    pub evidence: String,
}

impl TimePart {
    /// The state with its program: `asleep in nginx on web`.
    pub fn state_in_words(&self) -> String {
        let mut words = self.state.words().to_owned();
        if !self.program.is_empty() {
            words += &format!(" in {}", self.program);
        }
        if !self.place.is_empty() {
            words += &format!(" on {}", self.place);
        }
        words
    }

    /// Whether it passed in this program.
    pub fn is_in(&self, place: &str, program: &str) -> bool {
        self.place == place && self.program == program
    }

    fn in_words(&self) -> String {
        format!("{:.0} % {}", self.share * 100.0, self.state_in_words())
    }
}

crate::named_enum! {
    /// What can bound a trial; `docs/verdict.md` says what shows each.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum Cause {
        /// The generator itself: its processors, or its own limits.
        Generator "the generator",
        /// The source ports of the load's hosts.
        SourcePorts "the source ports",
        /// The rate of a link.
        LinkRate "the rate",
        /// The queue of a link, which was too short for bursts.
        LinkQueue "the queue",
        /// A queue of packets in the kernel: that of a processor or of an interface.
        PacketQueue "the kernel's queue of packets",
        /// Packets that a link lost, which keep the congestion window small.
        PacketLoss "packet loss",
        /// The congestion window.
        CongestionWindow "the congestion window",
        /// The receive window of the side that takes the data.
        ReceiveWindow "the receive window",
        /// The send buffer of the side that sends the data.
        SendBuffer "the send buffer",
        /// The window of an SSH channel.
        SshWindow "SSH's window",
        /// A thread or a core that had no time left.
        HotCore "a busy core",
        /// Processors that other programs use while the target waits for them.
        LacksProcessor "the lack of a free processor",
        /// A signal that stops the target's process.
        Stopped "the stopped process",
        /// The target sends an answer in pieces, and waits for the acknowledgement of the first one (Nagle's algorithm), which the other side
        /// delays.
        DelayedAck "Nagle's algorithm with delayed acknowledgements",
        /// A limit of rates, which refuses requests.
        RateLimiter "a rate limit",
        /// The processor quota of a control group.
        CpuQuota "the processor quota",
        /// The queue of connections that wait to be accepted.
        AcceptQueue "the accept queue",
        /// The queue of connections whose handshake is not complete.
        SynQueue "the SYN queue",
        /// The number of connections that a program serves at a time.
        ConnectionLimit "the program's limit of connections",
        /// The descriptor limit of a process.
        Descriptors "the descriptor limit",
        /// The table of connection tracking.
        Conntrack "the connection tracking table",
        /// The disk.
        Disk "the disk",
        /// The target waits, without work for its processors: its handler takes the time.
        SlowHandler "the service itself",
        /// The load itself: the target could have carried more.
        OfferedLoad "the offered load",
    }
    /// The cause in words, which can follow "bound by".
    pub fn words;
}

crate::named_enum! {
    /// What users, or the programs that served them, did for a part of the users' time; `docs/verdict.md` says how each is measured.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum TimeState {
        /// Planned pauses of users.
        Paused "paused",
        /// The generator was late.
        Own "the generator's own",
        /// A request was due, and every connection was busy.
        NoFreeConnection "no free connection",
        /// A connection was being opened.
        Connecting "connecting",
        /// The kernel took the request's bytes.
        Sending "sending",
        /// On the way to the target and back.
        RoundTrips "on the way",
        /// The connection waited to be accepted.
        AcceptQueue "not accepted yet",
        /// The target's threads ran.
        Running "running",
        /// The target's threads were ready to run, but had no processor.
        Ready "ready without a processor",
        /// A quota kept the target's threads from running.
        Throttled "throttled",
        /// The target's threads waited for a device.
        Blocked "waiting for a device",
        /// A signal had stopped the target.
        Stopped "stopped",
        /// The target's threads slept, and no other program was seen to work for them: they waited for a lock, a timer, or each other.
        Asleep "asleep",
        /// The answer came in.
        Receiving "receiving",
        /// Inside the target, and nobody could see what it did.
        Unknown "unknown",
    }
    /// The state in words.
    pub fn words;
}

impl Cause {
    /// Whether the cause is a property of its host or link ("of"), as a link has a rate. Other causes occur there
    /// ("on").
    fn is_part_of_its_place(self) -> bool {
        use Cause::{AcceptQueue, Conntrack, LinkQueue, LinkRate, PacketQueue, SynQueue};
        matches!(self, LinkRate | LinkQueue | PacketQueue | AcceptQueue | SynQueue | Conntrack)
    }

    /// How to raise this limit, for a target that proofload does not run itself.
    pub fn raised_by(self) -> &'static str {
        match self {
            Self::Generator => "give the load more processors, more --processes, or a machine of its own",
            Self::SourcePorts => {
                "sysctl -w net.ipv4.ip_local_port_range=\"1024 65535\" where the load is made, or more source addresses"
            }
            Self::LinkRate => "a faster link, or less data in each answer",
            Self::LinkQueue => "a longer queue where the link begins, or paced senders",
            Self::PacketQueue => {
                "sysctl -w net.core.netdev_max_backlog=10000, and interrupts spread over more cores"
            }
            Self::PacketLoss => {
                "fewer lost packets (ethtool -S and tc -s qdisc show where), or a congestion control such as bbr"
            }
            Self::CongestionWindow => {
                "several connections at once, a shorter path, or another congestion control"
            }
            Self::ReceiveWindow => {
                "sysctl -w net.ipv4.tcp_rmem=\"4096 131072 67108864\" where the data arrives, and no SO_RCVBUF in the program"
            }
            Self::SendBuffer => {
                "sysctl -w net.ipv4.tcp_wmem=\"4096 65536 67108864\" where the data is sent, and no SO_SNDBUF in the program"
            }
            Self::SshWindow => "several connections at once, or an SSH with larger windows on both sides",
            Self::HotCore => "more threads or processes of the target, or a faster core",
            Self::LacksProcessor => {
                "processors of its own for the target (taskset, cpuset), or fewer other programs on them"
            }
            Self::Stopped => {
                "kill -CONT, and nothing that stops the process (SIGSTOP, a debugger, a freezer)"
            }
            Self::DelayedAck => "TCP_NODELAY in the target, or head and body of an answer in one write",
            Self::RateLimiter => "a higher limit in the target or before it (limit_req, quotas of a gateway)",
            Self::CpuQuota => "a larger quota (cpu.max of its control group)",
            Self::AcceptQueue => {
                "sysctl -w net.core.somaxconn=65535 at the target, and as large a backlog in the program's listen()"
            }
            Self::SynQueue => {
                "sysctl -w net.ipv4.tcp_max_syn_backlog=65535 net.core.somaxconn=65535 at the target, and as large a backlog in \
                 the program's listen()"
            }
            Self::ConnectionLimit => {
                "a larger limit of connections in the program's configuration (maxconn, worker_connections)"
            }
            Self::Descriptors => "a larger limit of open files for the target (ulimit -n, LimitNOFILE=)",
            Self::Conntrack => {
                "sysctl -w net.netfilter.nf_conntrack_max=1048576, or no connection tracking for this traffic"
            }
            Self::Disk => "a faster disk, or fewer syncs",
            Self::SlowHandler => {
                "a faster handler in the target: check its waits, and how many requests it handles at a time"
            }
            Self::OfferedLoad => "a larger load",
        }
    }
}

impl Verdict {
    /// The parts of the users' time that are at least a hundredth: `84 % asleep in nginx on web, 3 % on the way`; nothing if there are none.
    pub fn account_in_words(&self) -> String {
        let words = self.account.iter().filter(|part| part.share >= 0.01).map(TimePart::in_words);
        words.collect::<Vec<_>>().join(", ")
    }

    /// The cause of the nearest bottleneck.
    pub fn first_cause(&self) -> Option<Cause> {
        self.bottlenecks.first().map(|first| first.cause)
    }

    /// What bounded the trial, where, and why: `bound by the accept queue of web1: a queue of 128 overflowed 412
    /// times`. `None` if the cause could not be determined.
    pub fn in_words(&self) -> Option<String> {
        let first = self.bottlenecks.first()?;
        let of = if first.cause.is_part_of_its_place() { "of" } else { "on" };
        let place = if first.place.is_empty() { String::new() } else { format!(" {of} {}", first.place) };
        Some(format!("bound by {}{place}: {}", first.cause.words(), first.evidence))
    }
}
