//! First contact: the result for a user who searches for the limit of a service, knows only its URL, and has two shared processors.

use std::fs;

use anyhow::{Context, Result, ensure};
use record::GoalOutcome;
use serde_json::Value;
use testing::PATIENCE;

use super::{Bar, By, Outcome, Scale, is_wanted};
use crate::{
    Nginx, NginxOptions, Proofload, Serve,
    hog::{Bursts, Hog},
    machine::{self, Confined, Cores},
    plain_server::{Language, PlainServer},
    process::Launch,
    random::Random,
    stats::{median, spread},
    temporary::TemporaryFolder,
};

mod wrong_protocol;

pub(super) const BAR: Bar = Bar {
    name: "first-contact",
    what: "limit rate URL --budget 60s beside a hog of 30 %: 18 of 20 answers of five services are useful; nothing is said of \
           what does not answer",
    full_seconds: 2_100,
    decided_by: By::Both,
    run,
};

/// The hog's share of each processor (0 to 1), and the lengths of its shortest and longest bursts.
const HOG_SHARE: f64 = 0.3;
const HOG_BURSTS_MS: [f64; 2] = [0.2, 50.0];
/// The same for a goal of 20 ms at the 99th percentile. Bursts are shorter, because a target that stops for longer has no capacity for that
/// goal.
const P99_BURSTS_MS: [f64; 2] = [0.2, 5.0];
/// Number of runs for each service.
const RUNS: u64 = 4;
/// Number of runs for a goal at the 99th percentile.
const P99_RUNS: u64 = 2;
/// Range of the capacities of `serve`, per second. Two processors can carry these beside the hog, the target and the generator.
const CAPACITIES_PER_S: [f64; 2] = [500.0, 5_000.0];

fn run(scale: Scale) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    if is_wanted("wrong_protocol") {
        wrong_protocol::check(&mut outcome)?;
    }
    if scale.is_timed() {
        contacts(&mut outcome, scale)?;
    }
    Ok(outcome)
}

/// A service that the user tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Service {
    Nginx,
    Plain(Language),
    Serve,
}

impl Service {
    const ALL: [Self; 5] = [
        Self::Nginx,
        Self::Plain(Language::Node),
        Self::Plain(Language::Go),
        Self::Plain(Language::Python),
        Self::Serve,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Plain(language) => language.name(),
            Self::Serve => "serve",
        }
    }

    /// A program that the service needs and this machine does not have.
    fn missing(self) -> Option<String> {
        let needs: &[[&str; 2]] = match self {
            Self::Nginx => &[["nginx", "nginx-light"], ["wrk", "wrk"]],
            Self::Plain(language) => &[language.needs(), ["wrk", "wrk"]],
            Self::Serve => &[],
        };
        let missing = needs.iter().find(|[program, _]| machine::program(program).is_none());
        missing.map(|[program, package]| format!("{program} is missing: apt-get install {package}"))
    }
}

/// A running service. It ends when dropped.
enum Running {
    Nginx(Nginx),
    Plain(PlainServer),
    Serve(Serve),
}

impl Running {
    /// Starts a service; `serve` with this capacity per second.
    fn start(service: Service, capacity_per_s: f64) -> Result<Self> {
        Ok(match service {
            Service::Nginx => Self::Nginx(Nginx::start(&NginxOptions::default())?),
            Service::Plain(language) => Self::Plain(PlainServer::start(language)?),
            Service::Serve => {
                let service_ns = (1e9 / capacity_per_s).round();
                Self::Serve(Serve::start(&format!("--capacity 1 --service-time fixed:{service_ns}ns"))?)
            }
        })
    }

    fn url(&self) -> String {
        match self {
            Self::Nginx(nginx) => nginx.url("/1k"),
            Self::Plain(server) => server.url(),
            Self::Serve(serve) => serve.url(),
        }
    }
}

/// Runs everything on two processors. The hog takes either or both of them, as its bursts fall.
fn contacts(outcome: &mut Outcome, scale: Scale) -> Result<()> {
    let cores = Cores::of_this_process()?;
    let _confined = Confined::to(&[cores.server, cores.generator])?;
    let (services, runs) = scale.pick((&[Service::Serve][..], 1), (&Service::ALL[..], RUNS));
    let words = scale.pick("--budget 12s", "--budget 60s");
    let (mut useful, mut made, mut left_out) = (0, 0_u64, Vec::new());
    for &service in services.iter().filter(|service| is_wanted(service.name())) {
        if let Some(missing) = service.missing() {
            left_out.push(format!("{}: {missing}", service.name()));
            continue;
        }
        for index in 0..runs {
            useful += u64::from(contact(outcome, service, words, HOG_BURSTS_MS, index)?);
            made += 1;
        }
    }
    // At least nine of ten: 18 of 20.
    let least = (9 * made).div_ceil(10);
    if made > 0 {
        let bound = format!(">= {least}");
        outcome.time().figure("useful", format!("{useful} of {made}"), bound, useful >= least);
    }
    if !left_out.is_empty() {
        let bound = format!("{} services", services.len());
        outcome.undecided("left_out", bound, left_out.join("; "));
    }
    if scale == Scale::Full && is_wanted("serve_p99") {
        let words = format!("--p99 20ms {words}");
        let of_p99 =
            (0..P99_RUNS).map(|index| contact(outcome, Service::Serve, &words, P99_BURSTS_MS, RUNS + index));
        let useful = of_p99.collect::<Result<Vec<_>>>()?.into_iter().filter(|&useful| useful).count() as u64;
        let value = format!("{useful} of {P99_RUNS}");
        outcome.time().figure("useful_p99", value, format!("= {P99_RUNS}"), useful == P99_RUNS);
    }
    Ok(())
}

/// Searches for a service's limit once, notes the result, and says whether it is useful.
///
/// The reference for `serve` is its capacity, which a closed form gives: one server with a constant service time and constant arrivals. For
/// other services it is the median of four trials by wrk, two before the search and two after it, beside the same hog.
fn contact(
    outcome: &mut Outcome,
    service: Service,
    words: &str,
    bursts_ms: [f64; 2],
    index: u64,
) -> Result<bool> {
    let cores = Cores::of_this_process()?;
    let mut random = Random::new(index);
    let capacity_per_s = random.log_uniform(CAPACITIES_PER_S[0], CAPACITIES_PER_S[1]).round();
    let running = Running::start(service, capacity_per_s)?;
    let url = running.url();
    let mut bursts = || Bursts::new(random.any(), HOG_SHARE, bursts_ms);
    let hog = Hog::start([(cores.server, bursts()), (cores.generator, bursts())])?;
    let mut by_wrk = Vec::new();
    let mut ask_wrk = || -> Result<()> {
        let wanted = if service == Service::Serve { 0 } else { 2 };
        for _ in 0..wanted {
            by_wrk.push(wrk_per_s(&url)?);
        }
        Ok(())
    };
    ask_wrk()?;
    let answer = Answer::to(&url, words)?;
    let own_closed_per_s = closed_per_s(&url)?;
    ask_wrk()?;
    let took: Vec<String> =
        hog.end()?.iter().map(|taken| format!("{:.0} %", taken.share() * 100.0)).collect();
    let reference_per_s = if by_wrk.is_empty() { capacity_per_s } else { median(&by_wrk) };
    let judged = answer.judged(reference_per_s, own_closed_per_s);
    let (low, high) = spread(&by_wrk);
    let by_wrk = if by_wrk.is_empty() { String::new() } else { format!(" (wrk {low:.0} to {high:.0})") };
    outcome.note(format!(
        "{} {words} #{index}: reference {reference_per_s:.0}/s{by_wrk}, {}, own closed trial {own_closed_per_s:.0}/s, \
         the hog took {}: {}",
        service.name(),
        answer.shown(),
        took.join(" and "),
        judged.as_ref().map_or_else(|why| format!("NOT USEFUL, {why}"), |()| "useful".to_owned()),
    ));
    Ok(judged.is_ok())
}

/// The answer of `limit rate`.
struct Answer {
    /// The bounds. If the time ran out, they are provisional.
    goal: GoalOutcome,
    /// The first sentence of the answer.
    sentence: String,
    code: Option<i32>,
    wall_s: f64,
}

impl Answer {
    fn to(url: &str, words: &str) -> Result<Self> {
        let folder = TemporaryFolder::new()?;
        let file = folder.file("answer.json");
        let line = format!("limit rate {url} {words} --json {file} --out {} -q", folder.file("result"));
        let output = Proofload::new(&line)?.run()?;
        let text = fs::read_to_string(&file).with_context(|| output.described())?;
        let json: Value = serde_json::from_str(&text)?;
        let goal = &json["result"]["outcomes"][0]["searches"][0]["goals"][0];
        Ok(Self {
            goal: serde_json::from_value(goal.clone()).with_context(|| output.described())?,
            sentence: json["answers"][0]["sentence"].as_str().unwrap_or_default().to_owned(),
            code: output.code,
            wall_s: output.wall.as_secs_f64(),
        })
    }

    /// Checks that the answer is useful. The error says why it is not.
    fn judged(&self, reference_per_s: f64, own_closed_per_s: f64) -> Result<(), String> {
        let [lower, upper] = self.bounds();
        let lower = lower.ok_or("no lower bound")?;
        match upper {
            None if !self.sentence.contains("this machine was too busy") => {
                Err("no upper bound, and not that this machine was the limit".to_owned())
            }
            None if lower < 0.6 * own_closed_per_s => {
                Err(format!("no upper bound, and lower < 0.6 x {own_closed_per_s:.0}/s"))
            }
            None => Ok(()),
            Some(_) if lower < 0.5 * reference_per_s => Err("lower < 0.5 x reference".to_owned()),
            Some(_) if lower > 1.1 * reference_per_s => Err("lower > 1.1 x reference".to_owned()),
            Some(upper) if upper < 0.75 * reference_per_s => Err("upper < 0.75 x reference".to_owned()),
            Some(upper) if upper > 2.0 * lower => Err("upper > 2 x lower".to_owned()),
            Some(_) => Ok(()),
        }
    }

    fn bounds(&self) -> [Option<f64>; 2] {
        [&self.goal.lower, &self.goal.upper].map(|bound| bound.as_ref().map(|bound| bound.load))
    }

    fn shown(&self) -> String {
        let [lower, upper] =
            self.bounds().map(|bound| bound.map_or_else(|| "none".to_owned(), |load| format!("{load:.0}/s")));
        let Self { sentence, code, wall_s, goal } = self;
        let code = code.map_or_else(|| "none".to_owned(), |code| code.to_string());
        format!(
            "lower {lower}, upper {upper}, {:?}, status {code} after {wall_s:.0} s, '{sentence}'",
            goal.kind
        )
    }
}

/// The rate that wrk reaches with 64 connections in 5 s.
fn wrk_per_s(url: &str) -> Result<f64> {
    let finished = Launch::new("wrk").words("-t2 -c64 -d5s").arg(url).run(PATIENCE)?;
    let rate =
        finished.stdout.lines().find_map(|line| line.strip_prefix("Requests/sec:")?.trim().parse().ok());
    rate.with_context(|| format!("no rate from wrk: {}{}", finished.stdout, finished.stderr))
}

/// The rate that our own closed trial reaches with 64 users in 5 s. It does not measure the service, so a void trial counts, too.
fn closed_per_s(url: &str) -> Result<f64> {
    let output = Proofload::http(url, "-u 64 -d 5s -q")?.run()?;
    let rate_per_s = output.trial()?.throughput_per_s;
    ensure!(rate_per_s > 0.0, "nothing was carried: {}", output.described());
    Ok(rate_per_s)
}

#[cfg(test)]
mod tests {
    use record::{Bound, BoundKind};

    use super::*;

    #[test]
    fn an_answer_is_useful_within_its_bounds_only() {
        let judged = |lower: f64, upper: Option<f64>, sentence: &str| {
            let bound = |load: f64| Bound { load, conditional_throughput: None, trials: 1 };
            let goal = GoalOutcome {
                goal: "no errors".to_owned(),
                lower: (lower > 0.0).then(|| bound(lower)),
                upper: upper.map(bound),
                kind: BoundKind::Unfinished,
            };
            let answer = Answer { goal, sentence: sentence.to_owned(), code: Some(3), wall_s: 60.0 };
            answer.judged(1_000.0, 2_000.0).is_ok()
        };
        assert!(judged(500.0, Some(1_000.0), "") && judged(1_100.0, Some(1_200.0), ""));
        assert!(!judged(499.0, Some(900.0), "") && !judged(1_101.0, Some(1_200.0), ""));
        assert!(
            !judged(600.0, Some(740.0), "")
                && !judged(600.0, Some(1_201.0), "")
                && !judged(0.0, Some(900.0), "")
        );
        let busy = "Limit not found: carries at least 1,200 requests/s; above that, this machine was too busy or too small";
        assert!(
            judged(1_200.0, None, busy)
                && !judged(1_199.0, None, busy)
                && !judged(1_200.0, None, "Unfinished")
        );
    }
}
