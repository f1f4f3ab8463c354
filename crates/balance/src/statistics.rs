//! The statistics of a balancer, as types and in the OpenMetrics format.

use std::{collections::BTreeMap, fmt::Write, net::IpAddr};

use serde::{Deserialize, Serialize};

use crate::{
    Error, Reason, ServerCounts, Table, VipCounts,
    balancer::{Balancer, ServerState, VipState},
    layout::mac_text,
};

/// Reasons with their names. The first [`DROPS`] of them are reasons for drops.
const REASONS: [(&str, Reason); 8] = [
    ("malformed", Reason::Malformed),
    ("no_server", Reason::NoServer),
    ("all_full", Reason::AllFull),
    ("waits_for_server", Reason::Waits),
    ("no_first_fragment", Reason::NoFirstFragment),
    ("over_budget", Reason::OverBudget),
    ("syn_not_remembered", Reason::SynNotRemembered),
    ("ack_not_remembered", Reason::AckNotRemembered),
];
const LEAVING: &str = "leaving";
const DROPS: usize = 6;

/// The counts of a balancer since its tables were created.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Statistics {
    /// Its name.
    pub name: String,
    /// Its device.
    pub device: String,
    /// Where its program processes frames: `cls` or `xdp`.
    pub hook: String,
    /// The ID of its process.
    pub process: u32,
    /// Time for which this process has run, in seconds.
    pub uptime_s: f64,
    /// The last sweep over all flows.
    pub sweep: SweepStatistics,
    /// A problem with the device, for example that the program is not attached to it. The balancer tries each second to
    /// solve it.
    #[serde(default)]
    pub trouble: Option<String>,
    /// Frames that were passed to the kernel because no VIP could be read from them.
    pub unreadable_frames: u64,
    /// All VIPs, leaving ones included.
    pub vips: Vec<VipStatistics>,
}

/// A sweep over all flows.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SweepStatistics {
    /// Age of its beginning in seconds; none before the first sweep.
    pub age_s: Option<f64>,
    /// Its duration in seconds.
    pub took_s: f64,
    /// Number of flows it read.
    pub flows: u64,
    /// Number of flows it removed because they were idle or closed.
    pub forgotten: u64,
}

/// A VIP.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VipStatistics {
    /// Address and ports, in one word.
    pub name: String,
    /// The address.
    pub address: IpAddr,
    /// The ports; 0 stands for all other ports.
    pub ports: Vec<u16>,
    /// `maglev` or `round-robin`.
    pub schedule: String,
    /// Whether it was removed from the configuration and waits for the end of its flows.
    pub is_leaving: bool,
    /// Number of dropped frames by reason.
    pub drops: BTreeMap<String, u64>,
    /// Number of frames sent to the server that the ring chose, whose flows were not remembered, by reason.
    pub not_remembered: BTreeMap<String, u64>,
    /// All servers, leaving ones included.
    pub servers: Vec<ServerStatistics>,
}

/// A server of a VIP.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServerStatistics {
    /// Its name.
    pub name: String,
    /// Its own address.
    pub address: IpAddr,
    /// Its MAC address, if known.
    pub mac: Option<String>,
    /// Its weight.
    pub weight: u32,
    /// `up`, `full`, `down`, `draining` or `leaving`. If several apply, the last one in this order.
    pub state: String,
    /// Whether its checks succeed and it answers ARP or neighbour discovery for its address.
    pub is_up: bool,
    /// Reason why its checks fail.
    pub why_down: Option<String>,
    /// From this number of connections on, it gets no new ones.
    pub max_connections: Option<u32>,
    /// Its share of the places of the ring, from 0 to 1.
    pub ring_ratio: f64,
    /// Number of established connections that were not closing at the last sweep.
    pub active: u64,
    /// Number of connections after FIN or RST at the last sweep.
    pub closing: u64,
    /// Number of new flows that it got.
    pub flows: u64,
    /// Number of new flows whose address and port had ended another flow less than 1.07 s before. They got that flow's
    /// server and took no turn of round robin.
    pub kept: u64,
    /// Number of flows that continued after their handshakes.
    pub established: u64,
    /// Number of frames sent to it.
    pub packets: u64,
    /// Bytes of the frames, with Ethernet headers.
    pub bytes: u64,
}

/// Reads the counts from the tables.
///
/// # Errors
/// When the kernel refuses.
pub(crate) fn vips(balancer: &Balancer, table: &Table) -> Result<Vec<VipStatistics>, Error> {
    balancer.vips().iter().map(|state| vip(state, table)).collect()
}

impl VipStatistics {
    /// The label of a server: its name. If it is leaving and another server has the same name, its address is added,
    /// because the labels of series must differ.
    fn label(&self, server: &ServerStatistics) -> String {
        let is_other =
            |other: &ServerStatistics| other.name == server.name && other.address != server.address;
        match server.state == LEAVING && self.servers.iter().any(is_other) {
            true => format!("{} ({})", server.name, server.address),
            false => server.name.clone(),
        }
    }

    /// Sums over all its servers: established connections, new flows, frames, bytes.
    pub fn sums(&self) -> [u64; 4] {
        self.servers.iter().fold([0; 4], |[active, flows, packets, bytes], of| {
            [active + of.active, flows + of.flows, packets + of.packets, bytes + of.bytes]
        })
    }
}

fn vip(state: &VipState, table: &Table) -> Result<VipStatistics, Error> {
    let counts: VipCounts = table.vip_counts(state.number)?;
    let named = |reasons: &[(&str, Reason)]| {
        reasons.iter().map(|(name, reason)| ((*name).to_owned(), counts.of(*reason))).collect()
    };
    let shares = state.ring().map(crate::Ring::shares).unwrap_or_default();
    let places: usize = shares.values().sum();
    let mut servers = Vec::new();
    for server in &state.servers {
        let share = shares.get(&server.number).copied().unwrap_or_default();
        let counts = table.server_counts(server.number)?;
        servers.push(self::server(server, &counts, share as f64 / places.max(1) as f64));
    }
    Ok(VipStatistics {
        name: state.vip.name(),
        address: state.vip.address,
        ports: state.vip.ports.clone(),
        schedule: state.vip.schedule.name().to_owned(),
        is_leaving: state.is_leaving,
        drops: named(&REASONS[..DROPS]),
        not_remembered: named(&REASONS[DROPS..]),
        servers,
    })
}

fn server(state: &ServerState, counts: &ServerCounts, ring_ratio: f64) -> ServerStatistics {
    let word = match state {
        _ if state.is_leaving => LEAVING,
        _ if state.server.drain || state.server.weight == 0 => "draining",
        _ if !state.lives() => "down",
        _ if state.is_full => "full",
        _ => "up",
    };
    let mac = state.mac.as_ref().map(mac_text);
    let why_down = state.health.as_ref().err().map(|fault| fault.why.clone());
    let unresolved = || "no MAC address: the server answers neither ARP nor neighbour discovery".to_owned();
    ServerStatistics {
        name: state.server.name.clone(),
        address: state.server.address,
        mac,
        weight: state.server.weight,
        state: word.to_owned(),
        is_up: state.lives(),
        why_down: why_down.or_else(|| (!state.is_resolved).then(unresolved)),
        max_connections: state.server.max_connections,
        ring_ratio,
        active: state.flows.active,
        closing: state.flows.closing,
        flows: counts.flows,
        kept: counts.kept,
        established: counts.established,
        packets: counts.packets,
        bytes: counts.bytes,
    }
}

/// A metric of a server: name, kind, help, value.
type Measure = (&'static str, &'static str, &'static str, fn(&ServerStatistics) -> u64);

const MEASURES: [Measure; 8] = [
    ("flows", "counter", "New flows that were given to the server.", |of| of.flows),
    ("kept", "counter", "New flows that reused a recent address and port, and kept its server.", |of| {
        of.kept
    }),
    ("established", "counter", "Flows that have gone on after their handshakes.", |of| of.established),
    ("packets", "counter", "Frames that were sent to the server.", |of| of.packets),
    ("bytes", "counter", "Bytes of the frames that were sent to the server.", |of| of.bytes),
    ("active_connections", "gauge", "Connections that are established and not closing.", |of| of.active),
    ("weight", "gauge", "Weight of the server.", |of| of.weight.into()),
    ("up", "gauge", "Whether the checks of the server succeed.", |of| of.is_up.into()),
];

/// The statistics in the OpenMetrics format.
pub(crate) fn open_metrics(statistics: &Statistics) -> String {
    let mut out = String::new();
    for (name, kind, help, value) in MEASURES {
        let family = format!("proofload_balance_server_{name}");
        let end = if kind == "counter" { "_total" } else { "" };
        // Writing to a String cannot fail.
        let _ = writeln!(out, "# TYPE {family} {kind}\n# HELP {family} {help}");
        for vip in &statistics.vips {
            for server in &vip.servers {
                let labels =
                    format!("vip=\"{}\",server=\"{}\"", escaped(&vip.name), escaped(&vip.label(server)));
                let _ = writeln!(out, "{family}{end}{{{labels}}} {}", value(server));
            }
        }
    }
    let families = [
        ("dropped", "Frames to the VIP that were dropped."),
        ("not_remembered", "Frames sent to the server that the ring chose, whose flows were not remembered."),
    ];
    for (at, (name, help)) in families.into_iter().enumerate() {
        let family = format!("proofload_balance_vip_{name}");
        let _ = writeln!(out, "# TYPE {family} counter\n# HELP {family} {help}");
        for vip in &statistics.vips {
            let counts = if at == 0 { &vip.drops } else { &vip.not_remembered };
            for (reason, count) in counts {
                let vip = escaped(&vip.name);
                let _ = writeln!(out, "{family}_total{{vip=\"{vip}\",reason=\"{reason}\"}} {count}");
            }
        }
    }
    out += "# EOF\n";
    out
}

/// The escaped value of a label. Names of servers may contain any characters except blanks and control characters.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_metrics_have_a_family_for_each_kind_and_an_end() {
        let server = ServerStatistics {
            name: "web\"1".to_owned(),
            address: IpAddr::from([10, 0, 1, 1]),
            mac: None,
            weight: 3,
            state: "up".to_owned(),
            is_up: true,
            why_down: None,
            max_connections: None,
            ring_ratio: 1.0,
            active: 5,
            closing: 0,
            flows: 7,
            kept: 1,
            established: 6,
            packets: 70,
            bytes: 7_000,
        };
        let address = |last| IpAddr::from([10, 0, 1, last]);
        let leaving =
            ServerStatistics { address: address(2), state: LEAVING.to_owned(), flows: 8, ..server.clone() };
        let alone = ServerStatistics { name: "web2".to_owned(), address: address(3), ..leaving.clone() };
        let vip = VipStatistics {
            name: "10.0.0.9:80".to_owned(),
            address: IpAddr::from([10, 0, 0, 9]),
            ports: vec![80],
            schedule: "maglev".to_owned(),
            is_leaving: false,
            drops: [("all_full".to_owned(), 2)].into(),
            not_remembered: [("syn_not_remembered".to_owned(), 1)].into(),
            servers: vec![server, leaving, alone],
        };
        let text = open_metrics(&Statistics { vips: vec![vip], ..Statistics::default() });
        for line in [
            "# TYPE proofload_balance_server_flows counter",
            "proofload_balance_server_flows_total{vip=\"10.0.0.9:80\",server=\"web\\\"1\"} 7",
            "proofload_balance_server_flows_total{vip=\"10.0.0.9:80\",server=\"web\\\"1 (10.0.1.2)\"} 8",
            "proofload_balance_server_flows_total{vip=\"10.0.0.9:80\",server=\"web2\"} 8",
            "proofload_balance_server_active_connections{vip=\"10.0.0.9:80\",server=\"web\\\"1\"} 5",
            "proofload_balance_vip_dropped_total{vip=\"10.0.0.9:80\",reason=\"all_full\"} 2",
            "proofload_balance_vip_not_remembered_total{vip=\"10.0.0.9:80\",reason=\"syn_not_remembered\"} 1",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}\n{text}");
        }
        assert!(
            text.ends_with("# EOF\n") && text.matches("# TYPE").count() == text.matches("# HELP").count()
        );
    }
}
