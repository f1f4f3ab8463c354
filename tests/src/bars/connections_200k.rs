//! More connections than one process or one address can hold: both sides use several of each.

use anyhow::Result;

use super::{Bar, By, Outcome, Scale, many_connections::Plan};

pub(super) const BAR: Bar = Bar {
    name: "connections-200k",
    what: "200,000 connections (sample: 22,000) from this machine for 10 s, no error; memory reported",
    full_seconds: 60,
    decided_by: By::Times,
    run,
};

fn run(scale: Scale) -> Result<Outcome> {
    let (users, ramp_up_s, think_s) = scale.pick((22_000, 3, 3), (200_000, 20, 15));
    Plan {
        users,
        client_processes: Plan::processes_for(users).max(2),
        // The kernel spreads connections over the processes by a hash, so leave an eighth of the descriptors as slack.
        serve_processes: Plan::processes_for(users + users / 8).max(2),
        // 12 sources × 2 targets use some 8,000 of the 28,000 ports of each pair of addresses. Beyond half of them, Linux would take
        // milliseconds to find a free one.
        sources: "127.0.1.1-127.0.1.12",
        listen: &["127.0.0.1:0", "127.0.0.2:0"],
        ramp_up_s,
        think_s,
        hold_s: scale.pick(2, 10),
    }
    .run()
}
