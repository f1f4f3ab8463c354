//! One user's path through the steps of a script.

mod bytes;

use http1::{Response, ResponseSink};
use rand::RngExt as _;
use record::ErrorClass;

use self::bytes::{is_of_body, push_traceparent, replace};
use crate::{
    Script,
    answer::{Answer, AnswerSink},
    cookies::Cookies,
    program::{Operation, Step, runs},
    redirect::resolve,
    state::{Values, WorkerState},
    template::{is_sendable, is_unreserved, percent_encode},
};

/// Maximum number of operations between two requests. A program that needs more repeats steps that send nothing.
const MAX_OPERATIONS: u32 = 1_000_000;

/// A user's state.
#[derive(Debug)]
pub struct User {
    values: Values,
    /// The next operation.
    next: usize,
    /// The operation at which the iteration ends.
    end: usize,
    /// Index of the step whose request is sent or answered.
    current: usize,
    turns: Box<[u32]>,
    cookies: Cookies,
    answer: Answer,
    /// The target of the last answer's redirect, and whether it must be requested by GET.
    redirect: Option<(Vec<u8>, bool)>,
    redirects_left: u32,
    /// The target of the current request; if there is a log, also the target with its secrets masked.
    target: Vec<u8>,
    shown_target: Vec<u8>,
    /// The `traceparent` of the current request; empty if there is no log.
    trace: Vec<u8>,
    /// A value in the current request had a character that a header cannot carry.
    is_spoilt: bool,
    has_failed: bool,
    /// The cause of the last answer's failure, if more than its class is known.
    cause: Option<String>,
}

/// The judgement of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// As expected.
    Good,
    /// Not as expected.
    Failed(ErrorClass),
}

/// The next action after a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advance {
    /// The iteration has another request. `pause_ns`: the pause of the previous step; `None` for the load's think time.
    Request {
        /// The pause, in nanoseconds.
        pause_ns: Option<u64>,
    },
    /// The iteration has ended.
    Ended {
        /// As in `Request`.
        pause_ns: Option<u64>,
        /// Whether a step of the iteration failed.
        has_failed: bool,
    },
}

impl User {
    /// The user with this number, from 1.
    pub fn new(script: &Script, number: u64) -> Self {
        Self {
            values: Values::new(script, number),
            next: 0,
            end: 0,
            current: 0,
            turns: vec![0; script.program.loops].into(),
            cookies: Cookies::default(),
            answer: Answer::default(),
            redirect: None,
            redirects_left: 0,
            target: Vec::new(),
            shown_target: Vec::new(),
            trace: Vec::new(),
            is_spoilt: false,
            has_failed: false,
            cause: None,
        }
    }

    /// Begins an iteration and advances to its first request. False if a feeder has no row left for it.
    pub fn begin(&mut self, script: &Script, state: &mut WorkerState) -> bool {
        if !state.has_rows(script) {
            return false;
        }
        self.values.begin(script, state);
        self.cookies.clear();
        self.has_failed = false;
        let program = &script.program;
        let choice = match &program.choices[..] {
            [only] => *only,
            choices => {
                let drawn = state.rng.random_range(0..choices.last().map_or(1, |choice| choice.weight_up_to));
                choices[choices.partition_point(|choice| choice.weight_up_to <= drawn)]
            }
        };
        (self.next, self.end) = (choice.start, choice.end);
        self.values.rng = state.rng.clone();
        self.run_to_request(script);
        true
    }

    /// Index of the step whose request is sent or answered.
    pub fn step(&self) -> usize {
        self.current
    }

    /// The numbers of the user and of its iteration, both from 1.
    pub fn numbers(&self) -> (u64, u64) {
        (self.values.user, self.values.iteration)
    }

    /// The target of the current request with its secrets masked, if the script has a log.
    pub fn shown_target(&self) -> &[u8] {
        &self.shown_target
    }

    /// The `traceparent` of the current request; empty if the script has no log.
    pub fn trace(&self) -> &[u8] {
        &self.trace
    }

    /// The cause of the last answer's failure, if more than its class is known.
    pub fn cause(&self) -> Option<&str> {
        self.cause.as_deref()
    }

    /// Whether the current request is a HEAD request, whose answer has no body.
    pub fn is_head_request(&self, script: &Script) -> bool {
        &*script.program.requests[self.current].request.method == "HEAD"
    }

    /// Whether the bytes of the answer's body must be read.
    pub fn reads_body(&self, script: &Script) -> bool {
        script.program.requests[self.current].needs.reads_body()
    }

    /// Appends the bytes of the current request.
    pub fn render(&mut self, script: &Script, state: &mut WorkerState, out: &mut Vec<u8>) {
        // Between two requests of an iteration, other users of the worker draw numbers of their own.
        state.rng = self.values.rng.clone();
        let request = &script.program.requests[self.current].request;
        let redirect = self.redirect.take();
        let by_get = redirect.as_ref().is_some_and(|(_, by_get)| *by_get);
        let is_redirect = redirect.is_some();
        out.extend_from_slice(if by_get { b"GET" } else { request.method.as_bytes() });
        out.push(b' ');
        self.target.clear();
        self.shown_target.clear();
        match redirect {
            Some((target, _)) => {
                percent_encode(&target, is_sendable, &mut self.target);
                if script.traces {
                    self.shown_target = self.masked(script, target);
                }
            }
            None if script.traces => {
                let shown = (&mut self.shown_target, &script.secret[..]);
                request.target.render_twice(&self.values, state, &mut self.target, shown);
            }
            None => request.target.render(&self.values, state, &mut self.target),
        }
        out.extend_from_slice(&self.target);
        out.extend_from_slice(b" HTTP/1.1\r\n");
        self.is_spoilt = false;
        let now_s = if script.cookies { state.now().as_second() } else { 0 };
        let mut keeps_cookies = script.cookies;
        for (name, value) in &request.fields {
            if by_get && is_of_body(name) {
                continue;
            }
            out.extend_from_slice(name);
            let start = out.len();
            value.render(&self.values, state, out);
            if value.constant().is_none() {
                for byte in out[start..].iter_mut().filter(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
                    (*byte, self.is_spoilt) = (b' ', true);
                }
            }
            // A request has only one Cookie field (RFC 6265, 5.4), so stored cookies follow those that the user wrote.
            if keeps_cookies && name.eq_ignore_ascii_case(b"cookie: ") {
                self.cookies.write(&self.target, request.is_secure, now_s, b"; ", out);
                keeps_cookies = false;
            }
            out.extend_from_slice(b"\r\n");
        }
        if script.traces {
            self.trace.clear();
            push_traceparent(state.traces.random(), state.traces.random(), &mut self.trace);
            out.extend_from_slice(b"traceparent: ");
            out.extend_from_slice(&self.trace);
            out.extend_from_slice(b"\r\n");
        }
        if keeps_cookies && self.cookies.write(&self.target, request.is_secure, now_s, b"Cookie: ", out) {
            out.extend_from_slice(b"\r\n");
        }
        let head_end: &[u8] = if request.closes { b"Connection: close\r\n\r\n" } else { b"\r\n" };
        let mut body = std::mem::take(&mut state.body);
        if !by_get {
            let constant = request.body.constant();
            if constant.is_none() {
                body.clear();
                request.body.render(&self.values, state, &mut body);
            }
            let bytes = constant.unwrap_or(&body);
            if request.has_length {
                out.extend_from_slice(b"Content-Length: ");
                out.extend_from_slice(itoa::Buffer::new().format(bytes.len()).as_bytes());
                out.extend_from_slice(b"\r\n");
            }
            out.extend_from_slice(head_end);
            out.extend_from_slice(bytes);
        } else {
            out.extend_from_slice(head_end);
        }
        state.body = body;
        self.values.rng = state.rng.clone();
        if !is_redirect {
            self.redirects_left = script.redirects;
        }
    }

    /// The target of a redirect, with each secret value in it masked.
    fn masked(&self, script: &Script, mut target: Vec<u8>) -> Vec<u8> {
        let mut encoded = Vec::new();
        for value in script.secret.iter().map(|place| self.values.get(*place)) {
            encoded.clear();
            percent_encode(value, is_unreserved, &mut encoded);
            target = replace(&replace(&target, value), &encoded);
        }
        target
    }

    /// The sink for the answer to the current request.
    pub fn sink<'a>(&'a mut self, script: &'a Script) -> impl ResponseSink {
        AnswerSink { answer: &mut self.answer, needs: &script.program.requests[self.current].needs }
    }

    /// Judges the answer to the current request, and takes values from it.
    pub fn answered(&mut self, script: &Script, response: &Response, state: &WorkerState) -> Outcome {
        let step = &script.program.requests[self.current];
        self.values.status = response.status;
        self.answer.status = response.status;
        // The size comes from `response`, because the sink does not see bytes that the kernel drops.
        self.answer.body_bytes = response.body_bytes;
        self.answer.end(&step.needs);
        if script.cookies {
            let now_s = state.now().as_second();
            for field in &self.answer.cookies {
                self.cookies.set(field, &step.request.origin, &self.target, now_s);
            }
        }
        self.cause = None;
        if script.redirects > 0 && !self.is_spoilt && self.follows_redirect(response.status, step) {
            self.redirects_left -= 1;
            return Outcome::Good;
        }
        let outcome = self.judge(step, response.status);
        if outcome != Outcome::Good {
            self.step_failed(step);
        }
        outcome
    }

    /// Handles a request that failed without an answer.
    pub fn failed(&mut self, script: &Script) {
        self.values.status = 0;
        self.redirect = None;
        self.step_failed(&script.program.requests[self.current]);
    }

    fn step_failed(&mut self, step: &Step) {
        self.has_failed = true;
        if !step.goes_on_after_failure {
            self.next = self.end;
        }
    }

    /// Advances to the next request, or ends the iteration.
    pub fn advance(&mut self, script: &Script) -> Advance {
        if self.redirect.is_some() {
            return Advance::Request { pause_ns: Some(0) };
        }
        let pause = script.program.requests[self.current].pause.as_ref();
        let pause_ns = pause.map(|pause| pause.sample_ns(&mut self.values.rng));
        if self.run_to_request(script) {
            Advance::Request { pause_ns }
        } else {
            Advance::Ended { pause_ns, has_failed: self.has_failed }
        }
    }

    fn judge(&mut self, step: &Step, status: u16) -> Outcome {
        if !step.expect.contains(status) {
            return Outcome::Failed(ErrorClass::Status);
        }
        if !step.checks.iter().all(|check| check.holds(&self.answer)) {
            return Outcome::Failed(ErrorClass::Check);
        }
        let mut fault =
            self.is_spoilt.then(|| "a value has a line end, which no header field can carry".to_owned());
        for (place, finder, most, name) in &step.takes {
            match finder.find(&self.answer) {
                Some(value) if most.is_none_or(|most| runs(&value, most).is_some()) => {
                    self.values.take(*place, value);
                }
                Some(_) => fault = Some(format!("'{name}' is not a number of repetitions")),
                None => fault = Some(format!("the answer has nothing to take as '{name}'")),
            }
        }
        let Some(fault) = fault else { return Outcome::Good };
        self.cause = Some(step.told(&fault));
        Outcome::Failed(ErrorClass::Value)
    }

    /// Stores the target of the answer's redirect, if it is on the same host. Returns whether the redirect is followed.
    fn follows_redirect(&mut self, status: u16, step: &Step) -> bool {
        let by_get = match status {
            301 | 302 => &*step.request.method == "POST",
            303 => &*step.request.method != "HEAD",
            307 | 308 => false,
            _ => return false,
        };
        let Some(location) = self.answer.location.take() else { return false };
        let target = resolve(&location, &self.target, &step.request.origin);
        if self.redirects_left == 0 || target.is_none() {
            let fault = match target {
                Some(_) => "more redirects than --redirects allows",
                None => "a redirect to another host, port or scheme is not followed",
            };
            self.cause = Some(step.told(fault));
        }
        self.redirect = target.filter(|_| self.redirects_left > 0).map(|target| (target, by_get));
        self.redirect.is_some()
    }

    /// Runs operations up to the next request. False if the iteration has ended.
    fn run_to_request(&mut self, script: &Script) -> bool {
        for _ in 0..MAX_OPERATIONS {
            if self.next >= self.end {
                return false;
            }
            let operation = &script.program.operations[self.next];
            self.next += 1;
            match operation {
                Operation::Request(index) => {
                    self.current = *index;
                    return true;
                }
                Operation::Unless { condition, to } => {
                    if !condition.holds(&self.values) {
                        self.next = *to;
                    }
                }
                Operation::Begin { turn, times, to } => {
                    let Some(times) = times.count(&self.values) else { break };
                    self.turns[*turn] = times;
                    if times == 0 {
                        self.next = *to;
                    }
                }
                Operation::Again { turn, to } => {
                    self.turns[*turn] -= 1;
                    if self.turns[*turn] > 0 {
                        self.next = *to;
                    }
                }
                Operation::While { turn, condition, to } => {
                    self.turns[*turn] -= 1;
                    if self.turns[*turn] > 0 && condition.holds(&self.values) {
                        self.next = *to;
                    }
                }
            }
        }
        self.has_failed = true;
        false
    }
}

#[cfg(test)]
mod tests;
