//! The options of `proofload http` and the plan made from them.

use std::path::PathBuf;

use clap::Args;
use load::{HttpWorkload, MachineLimits};
use record::{HttpPlan, OnNoise};

use super::{
    fleet_args::FleetArgs,
    noise_args::NoiseArgs,
    observe_args::ObserveArgs,
    save::{Saved, list, text},
    workload_args::{WorkloadArgs, option_mistake},
};

const OUTPUT: &str = "Output";

/// Run one trial against an HTTP service.
///
/// Without --rate or --stage, each user sends a request, waits for the answer, and sends the next (closed load). With
/// them, requests are sent on schedule, whatever the service does (open load).
#[derive(Debug, Args)]
pub(crate) struct HttpArgs {
    #[command(flatten)]
    common: WorkloadArgs<false>,
    #[command(flatten)]
    pub observe: ObserveArgs,
    #[command(flatten)]
    pub noise: NoiseArgs,
    #[command(flatten)]
    pub fleet: FleetArgs,

    /// Write the result as JSON; - writes it, and nothing else, to standard output
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub json: Option<PathBuf>,
    /// Write the histograms as an HdrHistogram log
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub hlog: Option<PathBuf>,
    /// Write a result folder, which `proofload report` reads
    #[arg(long, value_name = "FOLDER", help_heading = OUTPUT)]
    pub out: Option<PathBuf>,
    /// Write an HTML page that opens offline
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub html: Option<PathBuf>,
    /// Write the study file that does the same, and run nothing; variables stand in the place of secrets
    #[arg(long, value_name = "STUDY.toml", help_heading = OUTPUT, conflicts_with_all = ["json", "hlog", "out", "html", "on"])]
    pub save: Option<PathBuf>,
    /// Print no progress on standard error
    #[arg(short, long, help_heading = OUTPUT)]
    pub quiet: bool,

    /// A deliberate fault of the instrument, to test that the trial becomes void
    #[arg(long, value_name = "FAULT", hide = true)]
    inject_fault: Option<String>,
}

impl HttpArgs {
    /// The workload that the command line describes.
    pub(crate) fn workload(&self) -> HttpWorkload {
        HttpWorkload { fault: self.inject_fault.clone(), ..self.common.workload() }
    }

    /// Creates the plan.
    ///
    /// # Errors
    /// All mistakes in the options.
    pub(crate) fn plan(&self, host: &MachineLimits) -> Result<HttpPlan, Vec<String>> {
        let mut mistakes = self.common.foreign_mistakes();
        // Without a valid command line of curl, planning would report the values it defines as missing.
        if self.common.lacks_curl() {
            return Err(mistakes);
        }
        match self.workload().plan(host) {
            Ok(plan) if mistakes.is_empty() => return Ok(plan),
            Ok(_) => {}
            Err(more) => mistakes.extend(more.into_iter().map(option_mistake)),
        }
        Err(mistakes)
    }

    /// A study file that is equivalent to the command line.
    pub(super) fn saved(&self) -> Saved {
        Saved {
            title: format!("One trial of {}", self.common.url()),
            head: vec![list("observe", &self.observe.observe)],
            workload: self.workload(),
            tables: vec![(
                "[trial]",
                vec![
                    text("void_attempts", Some(0)),
                    text("on_noise", self.noise.on_noise.map(OnNoise::word)),
                ],
            )],
        }
    }

    /// A note that times without a unit are seconds, if the command line has such a time.
    pub(crate) fn time_note(&self) -> Option<String> {
        self.common.time_note()
    }

    /// Notes for the user on the translation of curl's command line.
    pub(crate) fn curl_notes(&self) -> Vec<String> {
        self.common.curl_notes()
    }

    /// A hint for users of ab, in which `-t` is the duration. Given if the threads that `-t` sets here outnumber the
    /// processors.
    pub(crate) fn ab_hint(&self, plan: &HttpPlan, host: &MachineLimits) -> Option<String> {
        let HttpPlan { threads, .. } = plan;
        (*threads > host.cpus && self.workload().duration.is_none()).then(|| {
            format!(
                "{threads} threads on {} processors: -t is threads (as in wrk); ab's -t {threads} is --duration {threads}",
                host.cpus
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use load::MachineLimits;
    use record::{Connections, HttpPlan, LoadModel};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        http: HttpArgs,
    }

    const HOST: MachineLimits = MachineLimits::EXAMPLE;

    fn plan(line: &str) -> Result<HttpPlan, Vec<String>> {
        let words = ["http"].into_iter().chain(line.split_whitespace());
        Line::try_parse_from(words).unwrap().http.plan(&HOST)
    }

    #[test]
    fn the_value_of_events_is_optional_and_never_the_url() {
        let events = plan("--events http://127.0.0.1/x --retries 3 --ack synced").unwrap().events.unwrap();
        assert_eq!((events.template.as_str(), events.retries), (record::receipt::REFERENCE_EVENT, 3));
        let line = "http://127.0.0.1/x --events={\"a\":1} --events-per-request 5 --as array --receipts r";
        let events = plan(line).unwrap().events.unwrap();
        assert_eq!((events.template.as_str(), events.per_request), ("{\"a\":1}", 5));
        let mistakes = plan("http://127.0.0.1/ --retries 3 --as xml").unwrap_err();
        assert!(mistakes[0].starts_with("--as: ") && mistakes[1].starts_with("--retries: "), "{mistakes:?}");
    }

    #[test]
    fn options_of_wrk_work() {
        let plan = plan("-t2 -c400 -d30s http://127.0.0.1:8080/index.html?x=1").unwrap();
        assert!(matches!(plan.load, LoadModel::Closed { users: 400, .. }));
        assert_eq!((plan.threads, plan.duration_ns), (2, Some(30_000_000_000)));
        assert_eq!(plan.request.target, "/index.html?x=1");
        assert_eq!(plan.targets, ["127.0.0.1:8080".parse().unwrap()]);
    }

    #[test]
    fn options_of_ab_work() {
        let plan = plan("-n 1000 -c 10 127.0.0.1/").unwrap();
        assert_eq!((plan.requests, plan.duration_ns), (Some(1000), None));
        assert_eq!(plan.targets, ["127.0.0.1:80".parse().unwrap()]);
    }

    #[test]
    fn many_threads_without_a_duration_give_a_hint() {
        let hint = |line: &str| {
            let words = ["http"].into_iter().chain(line.split_whitespace());
            let arguments = Line::try_parse_from(words).unwrap().http;
            arguments.ab_hint(&arguments.plan(&HOST).unwrap(), &HOST)
        };
        assert!(hint("-t 30 -c 10 127.0.0.1/").unwrap().contains("ab's -t 30 is --duration 30"));
        assert_eq!(hint("-t 2 -c 10 127.0.0.1/"), None);
        assert_eq!(hint("-t 4 -c 10 -d 30 127.0.0.1/"), None);
    }

    #[test]
    fn foreign_options_are_reported_with_other_mistakes() {
        assert!(plan("-k --latency 127.0.0.1/").is_ok());
        let mistakes = plan("-s x.lua -u 0 127.0.0.1/").unwrap_err();
        assert_eq!(mistakes.len(), 2, "{mistakes:?}");
        assert!(mistakes[0].starts_with("-s: ") && mistakes[1].starts_with("--users: "), "{mistakes:?}");
        assert_eq!(plan("-p body.json 127.0.0.1/").unwrap_err(), ["-p: write --body @body.json"]);
    }

    #[test]
    fn options_of_wrk2_work() {
        let plan = plan("-t1 -c100 -d30s -R2000 http://127.0.0.1/").unwrap();
        let LoadModel::Open { stages, connections, .. } = plan.load else { panic!() };
        assert_eq!(stages[0].from_rate_per_s, 2_000.0);
        assert_eq!(connections, Connections { initial: 100, most: 100 });
    }

    #[test]
    fn the_default_duration_includes_the_ramp_up() {
        let plan = plan("http://127.0.0.1:8080/ --users 200k --ramp-up 20s --think-time 10s").unwrap();
        assert_eq!(plan.duration_ns, Some(30_000_000_000));
    }

    #[test]
    fn all_mistakes_are_reported_at_once() {
        let mistakes =
            plan("ftp://x -u 0 --timeout soon --expect ok --cpus x --header nonsense -d never").unwrap_err();
        assert_eq!(mistakes.len(), 7, "{mistakes:#?}");
        let mistakes = plan("127.0.0.1 --stage x --pipeline 0 --header y --inject-fault z").unwrap_err();
        let options: Vec<_> =
            mistakes.iter().filter_map(|mistake| Some(mistake.split_once(": ")?.0)).collect();
        assert_eq!(options, ["--header", "--stage", "--pipeline", "--inject-fault"]);
    }

    #[test]
    fn contradictions_are_refused() {
        for (line, word) in [
            ("http://127.0.0.1/ --rate 5 --users 3", "closed load"),
            ("http://127.0.0.1/ --rate 5 --stage 1s:5", "leave out one"),
            ("http://127.0.0.1/ --stage 1s:5 -d 5s", "stages set"),
            ("http://127.0.0.1/ -u 5 -c 6", "own connection"),
            ("http://127.0.0.1/ --pipeline 4 --no-keepalive", "kept connections"),
            ("http://127.0.0.1/ --rate 0.01 -d 1s", "no request is due"),
            ("http://127.0.0.1/ --ramp-up 5s -d 5s", "or a shorter ramp-up"),
        ] {
            let mistakes = plan(line).unwrap_err();
            assert!(mistakes.iter().any(|m| m.contains(word)), "{line}: {mistakes:?}");
        }
    }
}
