//! One process holds as many connections as a limit of 20,000 descriptors allows.

use anyhow::Result;

use super::{Bar, By, Outcome, Scale, many_connections::Plan};

pub(super) const BAR: Bar = Bar {
    name: "connections-18k",
    what: "18,000 connections from one process, all in use for 10 s, no error",
    full_seconds: 20,
    decided_by: By::Times,
    run,
};

fn run(scale: Scale) -> Result<Outcome> {
    Plan {
        users: 18_000,
        client_processes: 1,
        serve_processes: Plan::processes_for(18_000).max(2),
        // Beyond half of an address's ports, about 14,000, Linux tries thousands of them in turn for each connection: connect(2) then takes
        // milliseconds, and the ramp-up stalls. So use several source addresses.
        sources: "127.0.1.1-127.0.1.4",
        listen: &["127.0.0.1:0"],
        ramp_up_s: 3,
        think_s: 3,
        hold_s: scale.pick(2, 10),
    }
    .run()
}
