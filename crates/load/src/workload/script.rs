//! Templates, feeders and the steps of a session, as users write them.

use std::path::Path;

use record::{
    Distribution, FeederPlan, HttpPlan, LoadModel, LogPlan, RequestPlan, RowOrder, ScriptPlan, StatusSet,
    StepAction, StepPlan, Text, TextRequest,
};
use script::{Script, ScriptMistake};
use settings::options::whole;

use super::{
    HttpWorkload, Ratio, UpTo,
    headers::{HeaderField, parse_header},
    request::{repeated, wrong_framing},
    text::{Mistakes, is_token, read_body, read_target, sendable},
};

/// A step as the user wrote it: a request, or a group of steps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StepText {
    /// Its name in results.
    pub name: Option<String>,
    /// Method and path of its request, such as `POST /login`; the method may be left out.
    pub request: Option<String>,
    /// Header fields beside those of the workload.
    pub headers: Vec<String>,
    /// The body: text, or `@FILE`.
    pub body: Option<String>,
    /// What its answer must have: statuses, `json:$.ok = true`, …
    pub expect: Vec<String>,
    /// Values taken from its answer: the name, and the expression that finds the value.
    pub take: Vec<(String, String)>,
    /// How often it is drawn, relative to other steps.
    pub weight: Option<String>,
    /// It runs only if this condition holds.
    pub only_if: Option<String>,
    /// How often it runs: a number, or the name of a value.
    pub repeat: Option<String>,
    /// After it ran, it runs again while this condition holds.
    pub repeat_while: Option<String>,
    /// Maximum number of runs with `repeat_while`.
    pub at_most: Option<String>,
    /// The pause after its answer.
    pub pause: Option<String>,
    /// The effect of its failure on the iteration: `end` or `go-on`.
    pub on_failure: Option<String>,
    /// The steps of a group.
    pub steps: Vec<StepText>,
}

/// The expectations of the answer to a request.
#[derive(Debug, Default)]
pub(super) struct Expectations {
    pub(super) statuses: Option<StatusSet>,
    pub(super) checks: Vec<String>,
}

impl Expectations {
    /// Separates statuses from other expectations.
    pub(super) fn parse(texts: &[String]) -> Result<Self, String> {
        let mut expectations = Self::default();
        for text in texts.iter().map(|text| text.trim()) {
            if text.starts_with(|c: char| c.is_ascii_digit()) {
                if expectations.statuses.is_some() {
                    return Err(
                        "statuses are given twice: write them as one list, such as 200,404".to_owned()
                    );
                }
                expectations.statuses = Some(text.parse().map_err(|error| format!("{error}"))?);
            } else {
                expectations.checks.push(text.to_owned());
            }
        }
        Ok(expectations)
    }
}

/// The parts that all steps share.
struct Common<'a> {
    /// Header fields of the workload, including added ones.
    fields: &'a [(String, Text)],
    expect: &'a StatusSet,
    checks: &'a [String],
    /// The request of a workload without steps.
    request: &'a TextRequest,
}

impl HttpWorkload {
    /// The script that the workload needs; `None` if every request is the same and is judged by its status alone.
    pub(super) fn script(
        &self,
        request: &TextRequest,
        expectations: &Expectations,
        expect: &StatusSet,
        mistakes: &mut Mistakes,
    ) -> Option<ScriptPlan> {
        let is_fixed = self.steps.is_empty()
            && self.feeders.is_empty()
            && !self.cookies
            && self.redirects.is_none()
            && self.log.is_none()
            && expectations.checks.is_empty()
            && !request.is_template();
        if is_fixed {
            return None;
        }
        for (field, given) in [("events", self.events.is_some()), ("pipeline", self.pipeline.is_some())] {
            if given {
                let message = "it needs requests that are all alike: leave it out, or templates, steps, feeders, the log, cookies, \
                               redirects and expectations beside statuses";
                mistakes.add(field, message);
            }
        }
        if self.log_sample.is_some() && self.log.is_none() {
            mistakes.add("log_sample", "there is no log: give its file too");
        }
        if self.log.as_deref() == Some("-") {
            mistakes.add("log", "standard output has the result: give a file, such as /dev/stderr");
        }
        let sample_ratio = mistakes.typed("log_sample", &self.log_sample);
        let feeders: Vec<FeederPlan> = self.feeders.iter().map(|text| feeder(text)).collect();
        for FeederPlan { file, .. } in &feeders {
            let order = file.rsplit_once(',').map_or("", |(_, order)| order);
            let is_word = !order.is_empty() && order.bytes().all(|b| b.is_ascii_lowercase() || b == b'-');
            if is_word && !Path::new(file).exists() {
                let message = format!(
                    "'{order}' is not an order of rows: write in-order, once, random or per-user after the comma"
                );
                mistakes.add("feeders", message);
            }
        }
        let redirects = mistakes.typed("redirects", &self.redirects);
        let common = Common { fields: &request.headers, expect, checks: &expectations.checks, request };
        let steps = if self.steps.is_empty() {
            vec![common.only_step()]
        } else {
            if self.body.is_some() || self.method.is_some() {
                let field = if self.body.is_some() { "body" } else { "method" };
                mistakes.add(field, "with steps, each step has its own: put it into a step");
            }
            let steps = common.steps(&self.steps, "step", mistakes);
            // With weights, an iteration chooses one of the steps, so all must have a weight.
            let missing = self.steps.iter().position(|step| step.weight.is_none());
            if let (true, Some(number)) = (self.is_weighted(), missing) {
                let message = format!(
                    "step {} has no 'weight', but others have one: give all steps one, so that each iteration draws a step, or none, \
                     so that it runs all in order",
                    number + 1
                );
                mistakes.add("steps", message);
            }
            steps
        };
        Some(ScriptPlan {
            feeders,
            weighted: self.is_weighted(),
            steps,
            cookies: self.cookies,
            redirects: redirects.map_or(0, |UpTo(redirects)| redirects),
            log: self.log.clone().map(|file| {
                mistakes.read("log", files::claim("--log", Path::new(&file)));
                LogPlan { file, sample_ratio: sample_ratio.map_or(0.01, |Ratio(ratio)| ratio) }
            }),
        })
    }

    fn is_weighted(&self) -> bool {
        self.steps.iter().any(|step| step.weight.is_some())
    }

    /// Compiles a plan's script, so that its mistakes are known before anything starts.
    pub(super) fn check_script(&self, plan: &HttpPlan, mistakes: &mut Mistakes) {
        let Some(script) = &plan.script else { return };
        if plan.load.is_open() && script.may_run_out() {
            let message = "an open load needs a row for every arrival, and rows that are used once run out: leave out ',once', \
                           or choose users";
            mistakes.add("feeders", message);
        }
        let found = match Script::new(script, plan.keepalive, plan.tls.is_some()) {
            Ok(compiled) => return self.check_rows_per_user(&compiled, &plan.load, mistakes),
            Err(found) => found,
        };
        for ScriptMistake { step, key, message } in found {
            // Without steps, the keys belong to the workload itself.
            match (self.steps.is_empty(), key) {
                (_, "feeders") => mistakes.add("feeders", message),
                (true, "expect") => mistakes.add("expect", message),
                (true, "headers") => mistakes.add("headers", message),
                (true, "body") => mistakes.add("body", message),
                (true, _) => mistakes.add("url", message),
                (false, "") => mistakes.add("steps", message),
                (false, "url") => mistakes.add("steps", format!("step '{step}', request: {message}")),
                (false, key) => mistakes.add("steps", format!("step '{step}', {key}: {message}")),
            }
        }
    }

    /// Refuses a feeder that must give every user its own row but has too few rows.
    fn check_rows_per_user(&self, compiled: &Script, load: &LoadModel, mistakes: &mut Mistakes) {
        let LoadModel::Closed { users, .. } = load else { return };
        let Some(rows) = compiled.rows_per_user().filter(|rows| rows < users) else { return };
        let per_user = self.feeders.iter().find(|text| feeder(text).order == RowOrder::PerUser);
        let shown = per_user.map_or("", |text| text);
        let message = format!(
            "'{shown}' has {rows} rows for {users} users, so some users would share a row: give more rows, or in-order"
        );
        mistakes.add("feeders", message);
    }
}

impl Common<'_> {
    /// The step of a workload without steps.
    fn only_step(&self) -> StepPlan {
        let plain = RequestPlan::new(self.request.clone(), self.expect.clone());
        StepPlan::once(name_of(self.request), RequestPlan { checks: self.checks.to_vec(), ..plain }.into())
    }

    fn steps(&self, texts: &[StepText], prefix: &str, mistakes: &mut Mistakes) -> Vec<StepPlan> {
        let step = |(number, text): (usize, &StepText)| {
            let place = format!("{prefix} {}", number + 1);
            self.step(text, &place, mistakes)
        };
        texts.iter().enumerate().map(step).collect()
    }

    fn step(&self, text: &StepText, place: &str, mistakes: &mut Mistakes) -> StepPlan {
        let shown = text.name.as_ref().map_or_else(|| place.to_owned(), |name| format!("step '{name}'"));
        let mut read = Step { shown: &shown, mistakes };
        let weight = read.number("weight", text.weight.as_deref(), 1_000_000).unwrap_or(1);
        let at_most = read.number("at_most", text.at_most.as_deref(), 1_000_000);
        if at_most == Some(0) {
            read.add("at_most", "with 0 the step would never run: give at least 1".to_owned());
        }
        if text.steps.iter().any(|step| step.weight.is_some()) {
            read.add(
                "weight",
                "steps within a group all run in order: give weights to steps outside of groups".to_owned(),
            );
        }
        let pause = read.parsed("pause", text.pause.as_deref(), |text| text.parse::<Distribution>());
        let goes_on_after_failure = match text.on_failure.as_deref() {
            None | Some("end") => false,
            Some("go-on") => true,
            Some(other) => {
                read.add("on_failure", format!("'{other}' is neither end nor go-on"));
                false
            }
        };
        let (does, name) = match (&text.request, text.steps.is_empty()) {
            (Some(line), true) => {
                let request = self.request(text, line, goes_on_after_failure, &mut read);
                let name = name_of(&request.request);
                (StepAction::Request(Box::new(request)), name)
            }
            (None, false) => {
                for (key, given) in [
                    ("body", text.body.is_some()),
                    ("headers", !text.headers.is_empty()),
                    ("expect", !text.expect.is_empty()),
                    ("take", !text.take.is_empty()),
                    ("pause", text.pause.is_some()),
                    ("on_failure", text.on_failure.is_some()),
                ] {
                    if given {
                        read.add(
                            key,
                            "a group sends no request of its own: put it into one of its steps".to_owned(),
                        );
                    }
                }
                let steps = self.steps(&text.steps, place, mistakes);
                (StepAction::Group { steps }, place.to_owned())
            }
            (Some(_), false) => {
                read.add("steps", "the step also has a 'request': leave out one of them".to_owned());
                (StepAction::Group { steps: Vec::new() }, place.to_owned())
            }
            (None, true) => {
                read.add("request", "it is missing: give one, such as request = \"POST /login\"".to_owned());
                (StepAction::Group { steps: Vec::new() }, place.to_owned())
            }
        };
        let step = StepPlan::once(text.name.clone().unwrap_or(name), does);
        StepPlan {
            weight,
            only_if: text.only_if.clone(),
            repeat: text.repeat.clone(),
            repeat_while: text.repeat_while.clone(),
            at_most: at_most.unwrap_or(step.at_most),
            pause,
            ..step
        }
    }

    fn request(
        &self,
        text: &StepText,
        line: &str,
        goes_on_after_failure: bool,
        read: &mut Step<'_>,
    ) -> RequestPlan {
        let (method, target) = match line.trim().split_once(' ') {
            Some((method, target)) if is_token(method) => (method.to_owned(), target.trim()),
            _ => ((if text.body.is_some() { "POST" } else { "GET" }).to_owned(), line.trim()),
        };
        let target = read.result("request", target_of(target));
        let mut fields = Vec::new();
        for header in &text.headers {
            let field = parse_header(header).map(Some);
            fields.extend(read.result("headers", field).map(|HeaderField { name, value, .. }| (name, value)));
        }
        let is_own =
            |name: &str| fields.iter().any(|(field, _): &(String, Text)| field.eq_ignore_ascii_case(name));
        let mut headers: Vec<_> = self.fields.iter().filter(|(name, _)| !is_own(name)).cloned().collect();
        headers.extend(fields);
        repeated(&headers).into_iter().for_each(|message| read.add("headers", message));
        let body = read.result("body", text.body.as_deref().map_or(Ok(Text::default()), read_body));
        let expectations = read.result("expect", Expectations::parse(&text.expect));
        let body_bytes = (!body.is_template()).then(|| body.bytes().len());
        for (name, value) in &headers {
            if let Some(message) = wrong_framing(name, &value.shown(), body_bytes) {
                read.add("headers", message);
            }
        }
        RequestPlan {
            request: TextRequest { method, target, headers, body },
            expect: expectations.statuses.unwrap_or_else(|| self.expect.clone()),
            checks: [self.checks, &expectations.checks].concat(),
            take: text.take.clone(),
            goes_on_after_failure,
        }
    }
}

/// The step that is being read, for messages.
struct Step<'a> {
    shown: &'a str,
    mistakes: &'a mut Mistakes,
}

impl Step<'_> {
    fn add(&mut self, key: &str, message: String) {
        self.mistakes.add("steps", format!("{}, {key}: {message}", self.shown));
    }

    fn result<T: Default>(&mut self, key: &str, result: Result<T, String>) -> T {
        result.unwrap_or_else(|message| {
            self.add(key, message);
            T::default()
        })
    }

    fn parsed<T, E: std::fmt::Display>(
        &mut self,
        key: &str,
        text: Option<&str>,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        parse(text?).map_err(|error| self.add(key, error.to_string())).ok()
    }

    fn number(&mut self, key: &str, text: Option<&str>, most: u64) -> Option<u32> {
        self.parsed(key, text, |text| whole(text, 0..=most))
    }
}

/// A file and the order of its rows: `users.csv`, `users.csv,random`.
fn feeder(text: &str) -> FeederPlan {
    let orders = [
        (",in-order", RowOrder::InOrder),
        (",once", RowOrder::Once),
        (",random", RowOrder::Random),
        (",per-user", RowOrder::PerUser),
    ];
    let ordered = orders.into_iter().find_map(|(ending, order)| Some((text.strip_suffix(ending)?, order)));
    let (file, order) = ordered.unwrap_or((text, RowOrder::InOrder));
    FeederPlan { file: file.to_owned(), order }
}

/// The target of a step's request.
fn target_of(written: &str) -> Result<Text, String> {
    let target = read_target(written).inspect(|target| secrets::mask::learn_url(&target.shown()))?;
    if !target.bytes().starts_with(b"/") {
        return Err(format!("'{written}' is not a path: write such as GET /items, its host is the URL's"));
    }
    Ok(sendable(target))
}

/// The default name of a step: its method and target.
fn name_of(request: &TextRequest) -> String {
    format!("{} {}", request.method, secrets::mask(&request.target.shown()))
}
