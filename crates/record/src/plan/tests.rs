use super::*;

#[test]
fn stages_step_or_ramp() {
    let step: Stage = "10s:500".parse().unwrap();
    assert_eq!((step.from_rate_per_s, step.to_rate_per_s, step.duration_ns), (500.0, 500.0, 10_000_000_000));
    let ramp: Stage = "30s:0..5k".parse().unwrap();
    assert_eq!((ramp.from_rate_per_s, ramp.to_rate_per_s), (0.0, 5_000.0));
    for bad in ["10s", "0s:5", "10s:-5", "10s:1...2", ":5", "x:5"] {
        assert!(bad.parse::<Stage>().is_err(), "{bad}");
    }
}

#[test]
fn status_sets() {
    let set: StatusSet = "2xx,304,400-404".parse().unwrap();
    assert!(set.contains(204) && set.contains(304) && set.contains(403) && !set.contains(500));
    assert_eq!(set.to_string(), "2xx,304,400-404");
    for bad in ["", "20", "xx", "404-400", "2xx,", "1000"] {
        assert!(bad.parse::<StatusSet>().is_err(), "{bad}");
    }
}

#[test]
fn faults_are_read() {
    assert_eq!("late:10,2ms".parse(), Ok(Fault::LateSends { every: 10, by_ns: 2_000_000 }));
    assert_eq!("drop:100".parse(), Ok(Fault::DropSamples { every: 100 }));
    for bad in ["late", "late:0,1ms", "drop:0", "vanish:3"] {
        assert!(bad.parse::<Fault>().is_err(), "{bad}");
    }
}
