//! Limits and plans for the unit tests of this crate, and for programs that measure the loop itself.

use record::{
    Arrivals, Connections, Distribution, EventFraming, EventPlan, HttpPlan, LoadModel, Request, Stage,
    receipt::RunId,
};

use crate::{HttpWorkload, MachineLimits};

/// Limits that are large enough for the plans below.
pub const LIMITS: MachineLimits = MachineLimits::EXAMPLE;

/// A closed load of `users` users without pauses.
pub fn closed(users: u64) -> HttpPlan {
    let url = "http://127.0.0.1:8080/".to_owned();
    let plan = HttpWorkload { url, seed: 1, ..HttpWorkload::default() }.plan(&LIMITS).unwrap();
    HttpPlan {
        request: Request {
            method: "GET".to_owned(),
            target: "/".to_owned(),
            headers: vec![("Host".to_owned(), "127.0.0.1:8080".to_owned())],
            body: Vec::new(),
        },
        load: LoadModel::Closed {
            users,
            loops: None,
            ramp_up_ns: 0,
            think_time: Distribution::Fixed { ns: 0 },
        },
        duration_ns: None,
        threads: 1,
        ..plan
    }
}

/// An open load at a constant rate on a fixed pool.
pub fn open(rate_per_s: f64, seconds: u64, connections: u64) -> HttpPlan {
    let duration_ns = seconds * 1_000_000_000;
    HttpPlan {
        load: LoadModel::Open {
            arrivals: Arrivals::Constant,
            stages: vec![Stage { duration_ns, from_rate_per_s: rate_per_s, to_rate_per_s: rate_per_s }],
            connections: Connections { initial: connections, most: connections },
        },
        duration_ns: Some(duration_ns),
        ..closed(1)
    }
}

/// One event in each request, without retries or receipts.
pub fn events() -> EventPlan {
    EventPlan {
        run: RunId(0xabcd),
        template: "{\"a\":1}".to_owned(),
        per_request: 1,
        framing: EventFraming::Json,
        retries: 0,
        ack: None,
        idempotency: false,
        receipts: None,
    }
}
