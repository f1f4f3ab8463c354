//! A balancer's statistics as a table for people.

use std::collections::BTreeMap;

use balance::{ServerStatistics, Statistics, VipStatistics};
use comfy_table::{CellAlignment, Table, presets};
use record::units::{show_bytes, show_count, show_rate};

const HEADINGS: [&str; 8] = ["", "weight", "state", "active", "closing", "new", "packets", "bytes"];

/// Earlier statistics, and the seconds since then.
pub(super) type Rates<'a> = Option<(&'a Statistics, f64)>;

/// A table in the layout of `ipvsadm -Ln --stats`. Earlier statistics add rates.
pub(super) fn text(statistics: &Statistics, rates: Rates<'_>) -> String {
    let Statistics { name, device, hook, sweep, .. } = statistics;
    let mut text = format!(
        "{name}: {hook} on {device}, process {}; {}\n\n",
        statistics.process,
        match sweep.age_s {
            Some(age_s) => format!("{} flows {age_s:.1} s ago", show_count(sweep.flows)),
            None => "flows are not counted yet".to_owned(),
        }
    );
    text += &statistics.trouble.iter().map(|what| format!("{device}: {what}\n\n")).collect::<String>();
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(HEADINGS);
    for vip in &statistics.vips {
        let before = rates.and_then(|(earlier, seconds)| {
            Some((earlier.vips.iter().find(|other| other.name == vip.name)?, seconds))
        });
        let sums = vip.sums();
        let earlier = before.map(|(vip, seconds)| (vip.sums(), seconds));
        let state = if vip.is_leaving { "leaving" } else { &vip.schedule };
        let closing = vip.servers.iter().map(|server| server.closing).sum();
        table.add_row(row(vip.name.clone(), (String::new(), state), (sums, closing), earlier));
        for server in &vip.servers {
            let known = |vip: &VipStatistics| {
                vip.servers.iter().find(|other| other.address == server.address).map(counts)
            };
            let earlier = before.and_then(|(vip, seconds)| Some((known(vip)?, seconds)));
            let marks = (server.weight.to_string(), server.state.as_str());
            table.add_row(row(
                format!("  {}", named(server)),
                marks,
                (counts(server), server.closing),
                earlier,
            ));
        }
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for line in table.lines() {
        text += line.trim_end();
        text.push('\n');
    }
    for vip in &statistics.vips {
        text += &reasons(&format!("{}: dropped ", vip.name), &vip.drops);
        text += &reasons(
            &format!("{}: sent to the server that the ring chose, flows not remembered: ", vip.name),
            &vip.not_remembered,
        );
        for server in vip.servers.iter().filter(|server| !server.is_up) {
            let why = server.why_down.as_deref().unwrap_or("unknown");
            text += &format!("{}: {} is down: {why}\n", vip.name, server.name);
        }
    }
    text
}

fn counts(server: &ServerStatistics) -> [u64; 4] {
    [server.active, server.flows, server.packets, server.bytes]
}

fn named(server: &ServerStatistics) -> String {
    let address = server.address.to_string();
    if server.name == address { address } else { format!("{} {address}", server.name) }
}

fn row(
    name: String,
    (weight, state): (String, &str),
    ([active, flows, packets, bytes], closing): ([u64; 4], u64),
    earlier: Option<([u64; 4], f64)>,
) -> Vec<String> {
    let rate = |now: u64, before: u64, seconds: f64| now.saturating_sub(before) as f64 / seconds.max(1e-9);
    let counted = match earlier {
        None => [show_count(flows), show_count(packets), show_bytes(bytes)],
        Some(([_, flows_before, packets_before, bytes_before], seconds)) => [
            show_rate(rate(flows, flows_before, seconds)),
            show_rate(rate(packets, packets_before, seconds)),
            format!("{}/s", show_bytes(rate(bytes, bytes_before, seconds) as u64)),
        ],
    };
    let [flows, packets, bytes] = counted;
    vec![name, weight, state.to_owned(), show_count(active), show_count(closing), flows, packets, bytes]
}

fn reasons(what: &str, counts: &BTreeMap<String, u64>) -> String {
    let counted = counts.iter().filter(|(_, count)| **count > 0);
    let list: Vec<String> = counted
        .map(|(reason, count)| format!("{} {}", show_count(*count), reason.replace('_', " ")))
        .collect();
    if list.is_empty() { String::new() } else { format!("{what}{}\n", list.join(", ")) }
}
