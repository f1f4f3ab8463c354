use serde::de::DeserializeOwned;
use serde_json::Value;

use super::*;
use crate::{ErrorClass, LoadModel};

/// A record whose members have the values `factor` times 1, 2, 3 and so on.
fn numbered<T: Default + Serialize + DeserializeOwned>(factor: u64) -> T {
    let mut record = serde_json::to_value(T::default()).unwrap();
    for (number, value) in (1..).zip(record.as_object_mut().unwrap().values_mut()) {
        *value = Value::from(factor * number);
    }
    serde_json::from_value(record).unwrap()
}

#[test]
fn counts_of_workers_add_up() {
    let mut counts: Counts = numbered(10);
    counts.merge(&numbered(1));
    assert_eq!(counts, numbered(11));
}

#[test]
fn use_of_processes_adds_up_except_for_the_busiest() {
    let (mut use_of_both, other): (CpuUse, CpuUse) = (numbered(10), numbered(1));
    let busiest = (use_of_both.busiest_thread_ratio, use_of_both.busiest_loop_ratio);
    use_of_both.merge(&other);
    assert_eq!((use_of_both.busiest_thread_ratio, use_of_both.busiest_loop_ratio), busiest);
    let sums: CpuUse = numbered(11);
    let expected = CpuUse { busiest_thread_ratio: busiest.0, busiest_loop_ratio: busiest.1, ..sums };
    assert_eq!(use_of_both, expected);
    use_of_both.merge(&CpuUse { runqueue_wait_s: None, ..CpuUse::default() });
    assert_eq!(use_of_both, expected, "a process without figures changes nothing");
}

#[test]
fn absences_add_up_except_for_the_longest() {
    let mut away = Away { times: 1, total_s: 2.0, longest_s: 2.0, delayed_s: Some(2.0) };
    away.merge(&Away { times: 4, total_s: 1.5, longest_s: 0.5, delayed_s: Some(0.75) });
    assert_eq!(away, Away { times: 5, total_s: 3.5, longest_s: 2.0, delayed_s: Some(2.0) });
}

#[test]
fn every_time_and_error_of_a_worker_is_merged_and_packed() {
    let mut worker =
        HttpTrial { counts: numbered(1), away: numbered(1), cpu: numbered(1), ..HttpTrial::default() };
    let errors = [&mut worker.errors, &mut worker.retried_errors, &mut worker.connection_errors];
    errors.into_iter().for_each(|errors| errors.add(ErrorClass::Reset, 3));
    worker.statuses.insert(200, 5);
    [&mut worker.response_time, &mut worker.service_time].into_iter().for_each(|times| times.record_ns(1, 0));
    fn histograms(http: &mut HttpTrial) -> [&mut Histogram; 7] {
        [
            &mut http.response_time.observed,
            &mut http.service_time.observed,
            &mut http.connect_time,
            &mut http.first_byte_time,
            &mut http.lateness,
            &mut http.own_lateness,
            &mut http.failure_time,
        ]
    }
    histograms(&mut worker)[2..].iter_mut().for_each(|times| times.record_ns(1));
    let mut both = worker.clone();
    both.merge(&worker);
    assert!(histograms(&mut both).iter().all(|times| times.count() == 2), "{both:?}");
    let errors = [&both.errors, &both.retried_errors, &both.connection_errors];
    assert_eq!(errors.map(|errors| errors.of(ErrorClass::Reset)), [6; 3]);
    assert_eq!((both.statuses[&200], both.counts.scheduled), (10, 2 * worker.counts.scheduled));
    assert_eq!((both.away.times, both.cpu.threads), (2 * worker.away.times, 2 * worker.cpu.threads));
    let loose = both.clone();
    both.pack();
    assert_eq!(both, loose);
}

/// The number of medians of a closed load of this many seconds, with one interval per median; 0 means no median.
fn medians(seconds: u64, medians_us: &[u64]) -> Option<Vec<(f64, f64)>> {
    let intervals = medians_us.iter().enumerate().map(|(index, &us)| Interval {
        end_s: (index + 1) as f64 + 0.25,
        completed: us,
        p50_us: (us > 0).then_some(us as f64),
        ..Interval::default()
    });
    let plan = HttpPlan { duration_ns: Some(seconds * 1_000_000_000), ..HttpPlan::default() };
    HttpTrial { plan, series: intervals.collect(), ..HttpTrial::default() }.medians_over_time()
}

#[test]
fn a_trend_has_the_medians_of_the_seconds_in_which_requests_were_due() {
    let all = medians(4, &[1_000, 2_000, 3_000, 4_000]).unwrap();
    assert_eq!(all, [(1.25, 0.001), (2.25, 0.002), (3.25, 0.003), (4.25, 0.004)]);
    assert_eq!(medians(4, &[1_000, 2_000, 3_000, 4_000, 5_000]), Some(all), "nothing was due after 4 s");
    assert_eq!(medians(3, &[1_000, 2_000, 3_000, 4_000]), None, "three seconds show no trend");
    assert_eq!(medians(4, &[1_000, 2_000, 0, 4_000]), None, "nothing was completed in one of the four");
    assert_eq!(medians(5, &[1_000, 2_000, 0, 4_000, 5_000]).map(|all| all.len()), Some(4));
}

#[test]
fn tenths_of_a_second_need_twice_as_many_medians() {
    let trend_of = |tenths: u64| {
        let stage =
            crate::Stage { duration_ns: tenths * 100_000_000, from_rate_per_s: 1.0, to_rate_per_s: 1.0 };
        let load = LoadModel::Open {
            arrivals: crate::Arrivals::Constant,
            stages: vec![stage],
            connections: crate::Connections { initial: 1, most: 1 },
        };
        let interval = Interval { completed: 1, p50_us: Some(1.0), ..Interval::default() };
        let plan = HttpPlan { load, ..HttpPlan::default() };
        HttpTrial { plan, series: vec![interval; 20], ..HttpTrial::default() }.medians_over_time()
    };
    assert_eq!((trend_of(7).map(|all| all.len()), trend_of(8).map(|all| all.len())), (None, Some(8)));
}
