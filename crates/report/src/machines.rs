//! The part that each machine of a fleet had in a trial.

use record::{
    Histogram, HttpTrial, MachineTrial,
    units::{show_count, show_time_ns},
};

/// The columns of [`machine_rows`].
pub const MACHINE_COLUMNS: [&str; 9] =
    ["machine", "share", "completed", "failed", "p50", "p99", "late p99", "busiest thread", "clock"];

/// A time that differs from the median of the machines by more than this factor is marked.
const OUTLIER_FACTOR: f64 = 2.0;

/// A row for each machine that made load: response times, the 99th percentile of the generator's lateness, its busiest thread, and how
/// well its clock is known. A time that is far from those of the other machines has a `!`. The row of a lost machine ends with the
/// reason.
pub fn machine_rows(http: &HttpTrial) -> Vec<Vec<String>> {
    let time = |of: fn(&MachineTrial) -> &Histogram, quantile: f64| {
        move |machine: &MachineTrial| {
            let times = of(machine);
            (!times.is_empty()).then(|| times.quantile_ns(quantile))
        }
    };
    let (p50, p99) = (time(|m| &m.response_time, 0.5), time(|m| &m.response_time, 0.99));
    let late = time(|m| &m.own_lateness, 0.99);
    let column = |of: &dyn Fn(&MachineTrial) -> Option<u64>| marked(http.machines.iter().map(of).collect());
    let times: [Vec<String>; 3] = [column(&p50), column(&p99), column(&late)];
    let row = |(index, machine): (usize, &MachineTrial)| {
        let name = match &machine.lost {
            Some(why) => format!("{} (lost: {why})", machine.name),
            None => machine.name.clone(),
        };
        let is_unknown = machine.lost.is_some() && machine.counts.scheduled == 0;
        let count = |n: u64| if is_unknown { "–".to_owned() } else { show_count(n) };
        vec![
            name,
            format!("{:.0} %", machine.share_ratio * 100.0),
            count(machine.counts.completed),
            count(machine.counts.failed),
            times[0][index].clone(),
            times[1][index].clone(),
            times[2][index].clone(),
            format!("{:.0} %", machine.cpu.busiest_loop_ratio * 100.0),
            format!("±{}", show_time_ns((machine.clock_bound_s * 1e9) as u64)),
        ]
    };
    http.machines.iter().enumerate().map(row).collect()
}

/// Times as text. Those that are far from the median of at least three have a `!`.
fn marked(times: Vec<Option<u64>>) -> Vec<String> {
    let mut known: Vec<u64> = times.iter().copied().flatten().collect();
    known.sort_unstable();
    let median = known.get(known.len() / 2).copied().unwrap_or(0) as f64;
    let is_far = |time: u64| {
        let time = time as f64;
        known.len() >= 3 && (time > OUTLIER_FACTOR * median || time * OUTLIER_FACTOR < median)
    };
    let show = |time: Option<u64>| match time {
        None => "–".to_owned(),
        Some(time) if is_far(time) => format!("{} !", show_time_ns(time)),
        Some(time) => show_time_ns(time),
    };
    times.into_iter().map(show).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_differs_is_marked_and_a_lost_one_named() {
        let machine = |name: &str, ns: u64| {
            let mut response_time = Histogram::default();
            (0..100).for_each(|_| response_time.record_ns(ns));
            MachineTrial {
                name: name.to_owned(),
                share_ratio: 0.25,
                response_time,
                ..MachineTrial::default()
            }
        };
        let lost = MachineTrial { lost: Some("gone".to_owned()), ..machine("c4", 1_000_000) };
        let machines =
            vec![machine("c1", 1_000_000), machine("c2", 1_100_000), machine("c3", 9_000_000), lost];
        let rows = machine_rows(&HttpTrial { machines, ..HttpTrial::default() });
        let marks: Vec<bool> = rows.iter().map(|row| row[4].ends_with('!')).collect();
        assert_eq!(marks, [false, false, true, false]);
        assert_eq!(
            (rows[3][0].as_str(), rows[0][1].as_str(), rows[0][6].as_str()),
            ("c4 (lost: gone)", "25 %", "–")
        );
        assert!(rows.iter().all(|row| row.len() == MACHINE_COLUMNS.len()));
    }
}
