//! The statistics of `proofload balance`.

use std::{
    thread,
    time::{Duration, Instant},
};

use lab::HostHandle;
use serde_json::Value;

use super::{Values, output_of, own_command};

/// Longest time until the first checks of `proofload balance` have found all servers.
const CHECKS_TIMEOUT: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Names of the quantities, and their descriptions for users. The name of a drop counter ends with the drop's reason.
pub(super) const QUANTITIES: [(&str, &str); 10] = [
    ("balancer_new_flows", "new flows"),
    ("balancer_forwarded_packets", "packets sent to servers"),
    ("balancer_drops_malformed", "packets dropped: malformed"),
    ("balancer_drops_no_server", "packets dropped: no server"),
    ("balancer_drops_all_full", "packets dropped: all servers full"),
    ("balancer_drops_waits_for_server", "packets dropped: their server is down"),
    ("balancer_drops_no_first_fragment", "packets dropped: fragments without the first one"),
    ("balancer_drops_over_budget", "packets dropped: more new flows than may be remembered"),
    ("balancer_syn_not_remembered", "new flows not remembered"),
    ("balancer_ack_not_remembered", "packets of flows that were not remembered"),
];

/// Reads the statistics.
pub(super) fn values(host: HostHandle<'_>) -> Result<Values, String> {
    Ok(of(&statistics(&host)?))
}

/// Waits until all servers are up.
pub(super) fn wait_until_up(host: HostHandle<'_>) -> Result<(), String> {
    let deadline = Instant::now() + CHECKS_TIMEOUT;
    loop {
        let down = down(&statistics(&host)?);
        if down.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(format!("the balancer considers these servers down: {}", down.join("; ")));
        }
        thread::sleep(POLL_INTERVAL);
    }
}

fn statistics(host: &HostHandle<'_>) -> Result<Value, String> {
    let command =
        own_command(host, &["balance", "stats", "--json", "-"]).map_err(|error| error.to_string())?;
    serde_json::from_str(&output_of(&command)?).map_err(|error| format!("its output cannot be read: {error}"))
}

fn list<'s>(value: &'s Value, key: &str) -> &'s [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

/// The servers that are not up, with the reasons.
fn down(statistics: &Value) -> Vec<String> {
    let servers = list(statistics, "vips").iter().flat_map(|vip| list(vip, "servers"));
    let down = servers.filter(|server| server["is_up"] != true);
    down.map(|server| {
        let why = server["why_down"].as_str().unwrap_or("no check has succeeded yet");
        format!("{} ({why})", server["name"].as_str().unwrap_or_default())
    })
    .collect()
}

fn of(statistics: &Value) -> Values {
    let mut values: Values = QUANTITIES.iter().map(|(name, _)| ((*name).to_owned(), 0.0)).collect();
    let mut add = |name: String, more: f64| {
        // A newer version may report drop reasons that have no quantity here; ignore them.
        if let Some(value) = values.get_mut(&name) {
            *value += more;
        }
    };
    let number = |value: &Value| value.as_f64().unwrap_or_default();
    for vip in list(statistics, "vips") {
        for server in list(vip, "servers") {
            add("balancer_new_flows".to_owned(), number(&server["flows"]));
            add("balancer_forwarded_packets".to_owned(), number(&server["packets"]));
        }
        for (reason, count) in vip["drops"].as_object().into_iter().flatten() {
            add(format!("balancer_drops_{reason}"), number(count));
        }
        for (reason, count) in vip["not_remembered"].as_object().into_iter().flatten() {
            add(format!("balancer_{reason}"), number(count));
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn statistics_are_summed_over_vips_and_servers() {
        let server =
            |name: &str, is_up: bool| json!({ "name": name, "is_up": is_up, "flows": 3, "packets": 10 });
        let vip = json!({
            "servers": [server("a", true), server("b", false)],
            "drops": { "no_server": 2, "of_later_versions": 1 }, "not_remembered": { "syn_not_remembered": 4 }
        });
        let statistics = json!({ "vips": [vip, vip] });
        let values = of(&statistics);
        assert_eq!(values.len(), QUANTITIES.len());
        assert_eq!((values["balancer_new_flows"], values["balancer_forwarded_packets"]), (12.0, 40.0));
        assert_eq!((values["balancer_drops_no_server"], values["balancer_drops_malformed"]), (4.0, 0.0));
        assert_eq!(values["balancer_syn_not_remembered"], 8.0);
        assert_eq!(down(&statistics), ["b (no check has succeeded yet)"; 2]);
    }
}
