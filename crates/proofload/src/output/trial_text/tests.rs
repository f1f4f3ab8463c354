use testing::plans;

use super::*;

/// A trial of 1000 requests: 800 took 2 ms and 200 took 12 ms, of which the generator may have caused `own_ns`.
fn disturbed(own_ns: u64) -> Trial {
    let mut http = HttpTrial { plan: plans::open(1_000.0, 1, 10), measured_s: 1.0, ..HttpTrial::default() };
    (http.counts.scheduled, http.counts.sent, http.counts.completed) = (1_000, 1_000, 1_000);
    (http.throughput_per_s, http.throughput_at_most_per_s) = (1_000.0, 1_000.0);
    (0..800).for_each(|_| http.response_time.record_ns(2_000_000, 0));
    (0..200).for_each(|_| http.response_time.record_ns(12_000_000, own_ns));
    plans::trial(http)
}

#[test]
fn columns_are_as_wide_as_their_intervals() {
    let lines = |trial: &Trial| render(trial).lines().map(str::to_owned).collect::<Vec<_>>();
    let table = |lines: &[String]| {
        let head = lines.iter().position(|line| line.trim_start().starts_with("mean")).unwrap();
        (lines[head].clone(), lines[head + 1].clone())
    };
    let (head, row) = table(&lines(&disturbed(8_000_000)));
    assert_eq!(
        head,
        "                        mean      p50          p90          p95          p99        p99.9          max"
    );
    assert_eq!(
        row,
        "Response time   2.40–4.00 ms  2.00 ms 4.00–12.0 ms 4.00–12.0 ms 4.00–12.0 ms 4.00–12.0 ms 4.00–12.0 ms"
    );
    let (head, row) = table(&lines(&disturbed(0)));
    assert_eq!(head, "                    mean      p50      p90      p95      p99    p99.9      max");
    assert_eq!(row, "Response time    4.00 ms  2.00 ms  12.0 ms  12.0 ms  12.0 ms  12.0 ms  12.0 ms");
}

#[test]
fn one_line_says_how_far_a_trial_is_to_be_trusted() {
    let mut trial = disturbed(8_000_000);
    let words = "sound for 93 % of 1 s (longest stall 10.0 ms): p90 within 4.00–12.0 ms";
    trial.warnings = vec![Warning::new("generator_away", words), Warning::new("few_samples", "few")];
    let text = render(&trial);
    assert!(text.starts_with("Carried 1,000 requests/s for 1 s: p99 4.00–12.0 ms, no errors.\n"), "{text}");
    assert!(text.contains(&format!("\nValid: {words}.\n")) && text.contains("\nWarning: few.\n"), "{text}");
    assert_eq!(text.matches("sound for").count(), 1, "{text}");
    assert!(render(&disturbed(0)).contains("\nValid: no sign that the generator was the limit.\n"));
}

#[test]
fn what_a_slowed_closed_load_carried_is_a_least_value() {
    let mut trial = disturbed(0);
    let http = trial.http_mut().unwrap();
    (http.plan, http.cpu.busiest_loop_ratio) = (plans::closed(10), 0.97);
    trial.warnings = vec![Warning::new("cpu_exhausted", "the generator was the limit")];
    let text = render(&trial);
    assert!(text.starts_with("Carried ≥ 1,000 requests/s with 10 users"), "{text}");
    assert!(
        text.contains("Throughput   ≥ 1,000/s over")
            && text.contains("\nValid: the generator was the limit.\n")
    );
}
