//! Plans of trials and studies, and their results. They are valid and small, and leave the tested properties empty.

use std::collections::BTreeMap;

use record::{
    Arrivals, Connections, Distribution, Ending, EventFraming, EventPlan, Goal, HttpPlan, HttpTrial, Kind,
    LoadModel, Measured, QuantitySummary, Request, Setting, SettingOutcome, Stage, StatusSet, StudyPlan,
    StudyResult, Trial, Validity,
    receipt::RunId,
    study::{PLAN_SCHEMA, RESULT_SCHEMA},
    trial,
};

const VERSION: &str = "0.1.0";

/// A closed load of `users` users without pauses.
pub fn closed(users: u64) -> HttpPlan {
    let think_time = Distribution::Fixed { ns: 0 };
    HttpPlan {
        url: "http://127.0.0.1:8080/".to_owned(),
        targets: vec!["127.0.0.1:8080".parse().expect("an address")],
        request: Request {
            method: "GET".to_owned(),
            target: "/".to_owned(),
            headers: vec![("Host".to_owned(), "127.0.0.1:8080".to_owned())],
            body: Vec::new(),
        },
        load: LoadModel::Closed { users, loops: None, ramp_up_ns: 0, think_time },
        keepalive: true,
        pipeline: 1,
        expect: StatusSet::success(),
        timeout_ns: 30_000_000_000,
        drain_ns: 2_000_000_000,
        threads: 1,
        processes: 1,
        spin_ns: 500_000,
        seed: 1,
        ..HttpPlan::default()
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

/// Like [`open`], but opens a connection when a request has none, up to `most` connections.
pub fn on_demand(rate_per_s: f64, seconds: u64, most: u64) -> HttpPlan {
    let mut plan = open(rate_per_s, seconds, most);
    if let LoadModel::Open { connections, .. } = &mut plan.load {
        connections.initial = 0;
    }
    plan
}

/// A plan with one event in each request, without retries or receipts.
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

/// A valid trial with these measurements.
pub fn trial(http: HttpTrial) -> Trial {
    Trial {
        schema: trial::SCHEMA.to_owned(),
        proofload_version: VERSION.to_owned(),
        command: ["proofload", "http", &http.plan.url].map(str::to_owned).to_vec(),
        started_unix_s: 1_769_860_800.0,
        elapsed_s: http.measured_s,
        interrupted: false,
        validity: Validity::from_reasons(Vec::new()),
        warnings: Vec::new(),
        verdict: None,
        quantities: BTreeMap::new(),
        measured: Measured::Http(Box::new(http)),
    }
}

/// A study without factors and without a search, in one block.
pub fn study(title: &str, goals: Vec<Goal>) -> StudyPlan {
    StudyPlan {
        schema: PLAN_SCHEMA.to_owned(),
        proofload_version: VERSION.to_owned(),
        title: title.to_owned(),
        command: ["proofload", "run", "studies/max-rps.toml", "--seed", "20260131"]
            .map(str::to_owned)
            .to_vec(),
        seed: 20_260_131,
        factors: Vec::new(),
        settings: vec![Setting::default()],
        blocks: vec![vec![0]],
        goals,
        trial_duration_s: Some(10.0),
        search: None,
        other_searches: Vec::new(),
        audit: None,
        kind: Kind::Http,
        quantities: Vec::new(),
        workload: "GET http://127.0.0.1:8080/, keep-alive, constant arrivals".to_owned(),
        inputs: String::new(),
        secrets: None,
        noise: None,
        machines: Vec::new(),
    }
}

/// The result with these outcomes, of a study without trials that took no time.
pub fn result(outcomes: Vec<SettingOutcome>) -> StudyResult {
    StudyResult {
        schema: RESULT_SCHEMA.to_owned(),
        ending: Ending::Finished,
        started_unix_s: 1_769_860_800.0,
        elapsed_s: 0.0,
        resumed: 0,
        trials: 0,
        void_trials: 0,
        outcomes,
        proofs: Vec::new(),
        warnings: Vec::new(),
    }
}

/// The outcome of a setting without any results.
pub fn outcome(setting: usize) -> SettingOutcome {
    SettingOutcome {
        setting,
        goals_met: None,
        searches: Vec::new(),
        summaries: Vec::new(),
        knee: None,
        audit: None,
        warnings: Vec::new(),
    }
}

/// The summary of a quantity with these values; at least one.
pub fn summary(quantity: &str, values: Vec<f64>) -> QuantitySummary {
    let (mut sorted, count) = (values.clone(), values.len());
    sorted.sort_by(f64::total_cmp);
    QuantitySummary {
        quantity: quantity.to_owned(),
        ends: Vec::new(),
        at_least: false,
        mean: Some(values.iter().sum::<f64>() / count as f64),
        median: (sorted[(count - 1) / 2] + sorted[count / 2]) / 2.0,
        low: sorted[0],
        high: sorted[count - 1],
        // The confidence of the interval from the smallest to the largest value.
        confidence: 1.0 - 0.5_f64.powi(count as i32 - 1),
        values,
        warnings: Vec::new(),
    }
}
