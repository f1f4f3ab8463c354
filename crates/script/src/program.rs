//! Steps, compiled to a list of operations.

use record::{Distribution, RequestPlan, ScriptPlan, StatusSet, StepAction, StepPlan, Text};

use crate::{
    ScriptMistake,
    answer::Needs,
    check::Check,
    condition::Condition,
    names::{Names, Place},
    state::Values,
    take::Finder,
    template::Template,
};

/// Maximum number of runs of a repeated step.
pub(crate) const MAX_RUNS: u32 = 1_000_000;

/// The steps of a script.
#[derive(Debug, Default)]
pub(crate) struct Program {
    pub(crate) operations: Vec<Operation>,
    pub(crate) requests: Vec<Step>,
    /// The paths that an iteration may take, each with the sum of the weights up to it.
    pub(crate) choices: Vec<Choice>,
    /// Number of loops.
    pub(crate) loops: usize,
}

/// A path that an iteration may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Choice {
    pub(crate) weight_up_to: u64,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

#[derive(Debug)]
pub(crate) enum Operation {
    /// Send the request of this index.
    Request(usize),
    /// Continue at `to` unless the condition holds.
    Unless { condition: Condition, to: usize },
    /// Begin a loop; continue at `to` if its number of runs is 0.
    Begin { turn: usize, times: Times, to: usize },
    /// End a run of a loop; continue at `to` if the loop has runs left.
    Again { turn: usize, to: usize },
    /// Same as `Again`, but also requires the condition to hold.
    While { turn: usize, condition: Condition, to: usize },
}

#[derive(Debug)]
pub(crate) enum Times {
    Fixed(u32),
    /// The value of a name, and its maximum.
    Named(Place, u32),
}

impl Times {
    /// The number of runs; `None` if the value is not a whole number, or is too large.
    pub(crate) fn count(&self, values: &Values) -> Option<u32> {
        match self {
            Self::Fixed(n) => Some(*n),
            Self::Named(place, most) => runs(values.get(*place), *most),
        }
    }
}

/// The number of runs that a value gives. `None` if it is not a whole number up to `most`.
pub(crate) fn runs(value: &[u8], most: u32) -> Option<u32> {
    std::str::from_utf8(value).ok()?.trim().parse().ok().filter(|n| *n <= most)
}

/// A step that sends a request.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) name: Box<str>,
    pub(crate) request: RequestTemplate,
    pub(crate) pause: Option<Distribution>,
    pub(crate) expect: StatusSet,
    pub(crate) checks: Vec<Check>,
    /// Values to take: their index, their finder, the maximum if they are a step's number of runs, and their name.
    pub(crate) takes: Vec<(usize, Finder, Option<u32>, Box<str>)>,
    pub(crate) needs: Needs,
    pub(crate) goes_on_after_failure: bool,
}

impl Step {
    /// The text of a fault, after the name of the step if it has one.
    pub(crate) fn told(&self, fault: &str) -> String {
        if self.name.is_empty() { fault.to_owned() } else { format!("step '{}': {fault}", self.name) }
    }
}

/// A request, compiled.
#[derive(Debug)]
pub(crate) struct RequestTemplate {
    pub(crate) method: Box<str>,
    pub(crate) target: Template,
    /// All header fields: the name with `: ` after it, and the value.
    pub(crate) fields: Vec<(Box<[u8]>, Template)>,
    pub(crate) body: Template,
    /// Whether a `Content-Length` field is added.
    pub(crate) has_length: bool,
    /// Whether a `Connection: close` field is added.
    pub(crate) closes: bool,
    pub(crate) is_secure: bool,
    /// Scheme and host. Redirects are followed only to URLs that begin with them.
    pub(crate) origin: Box<[u8]>,
}

/// The state of the compilation.
struct Compiler<'a> {
    names: &'a Names,
    keepalive: bool,
    secure: bool,
    cookies: bool,
    redirects: bool,
    traces: bool,
    mistakes: &'a mut Vec<ScriptMistake>,
    program: Program,
}

impl Program {
    /// How often the only request uses `counter`; `None` if there are several requests.
    pub(crate) fn counters(&self) -> Option<u64> {
        let [Step { request, .. }] = &self.requests[..] else { return None };
        let fields = request.fields.iter().map(|(_, value)| value);
        Some(fields.chain([&request.target, &request.body]).map(Template::counters).sum())
    }

    pub(crate) fn new(
        plan: &ScriptPlan,
        names: &Names,
        keepalive: bool,
        secure: bool,
        mistakes: &mut Vec<ScriptMistake>,
    ) -> Self {
        let (cookies, redirects, traces) = (plan.cookies, plan.redirects > 0, plan.log.is_some());
        let program = Self::default();
        let mut compiler =
            Compiler { names, keepalive, secure, cookies, redirects, traces, mistakes, program };
        let mut weights = 0;
        for (number, step) in plan.steps.iter().enumerate() {
            if number == 0 || plan.weighted {
                compiler.check_begin(step);
            }
            let start = compiler.program.operations.len();
            compiler.step(step);
            weights += u64::from(step.weight);
            if plan.weighted {
                let end = compiler.program.operations.len();
                compiler.program.choices.push(Choice { weight_up_to: weights, start, end });
            }
        }
        if !plan.weighted {
            let end = compiler.program.operations.len();
            compiler.program.choices.push(Choice { weight_up_to: 1, start: 0, end });
        } else if weights == 0 {
            let message = "all weights are 0: no step would ever be drawn".to_owned();
            compiler.mistakes.push(ScriptMistake { step: String::new(), key: "weight", message });
        }
        compiler.program.mark_numbers();
        compiler.program
    }

    /// Sets the maximum of each taken value that is a step's number of runs.
    fn mark_numbers(&mut self) {
        let of_repeat = |operation: &Operation| match operation {
            Operation::Begin { times: Times::Named(Place::Taken(place), most), .. } => Some((*place, *most)),
            _ => None,
        };
        let numbers: Vec<(usize, u32)> = self.operations.iter().filter_map(of_repeat).collect();
        for (place, _, most, _) in self.requests.iter_mut().flat_map(|step| &mut step.takes) {
            *most = numbers.iter().filter(|(number, _)| number == place).map(|(_, most)| *most).min();
        }
    }
}

impl Compiler<'_> {
    /// Refuses a first step that may send nothing, because an iteration without a request would take no time.
    fn check_begin(&mut self, step: &StepPlan) {
        let may_be_left_out = step.only_if.is_some()
            || step.repeat.as_ref().is_some_and(|times| !matches!(times.parse(), Ok(1_u32..)));
        if may_be_left_out {
            let key = if step.only_if.is_some() { "if" } else { "repeat" };
            let message = "an iteration must begin with a request, so its first step must always run: put another step before this one";
            self.mistake(step, key, message.to_owned());
        }
        if let StepAction::Group { steps } = &step.does {
            match steps.first() {
                Some(first) => self.check_begin(first),
                None => {
                    self.mistake(step, "steps", "it has no step: write [[….steps]] with a request".to_owned())
                }
            }
        }
    }

    fn mistake(&mut self, step: &StepPlan, key: &'static str, message: String) {
        self.mistakes.push(ScriptMistake { step: step.name.clone(), key, message });
    }

    /// Returns the value; on an error, records the mistake and returns `None`.
    fn checked<T>(&mut self, step: &StepPlan, key: &'static str, result: Result<T, String>) -> Option<T> {
        result.map_err(|message| self.mistake(step, key, message)).ok()
    }

    fn step(&mut self, step: &StepPlan) {
        let mut leaves = Vec::new();
        if let Some(text) = &step.only_if
            && let Some(condition) = self.checked(step, "if", Condition::parse(text, self.names))
        {
            leaves.push(self.program.operations.len());
            self.program.operations.push(Operation::Unless { condition, to: 0 });
        }
        let turn = self.program.loops;
        let times = step
            .repeat
            .as_ref()
            .and_then(|text| self.checked(step, "repeat", self.times(text, step.at_most)));
        let condition = step
            .repeat_while
            .as_ref()
            .and_then(|text| self.checked(step, "repeat_while", Condition::parse(text, self.names)));
        if let (Some(_), Some(_)) = (&step.repeat, &step.repeat_while) {
            self.mistake(step, "repeat_while", "the step has 'repeat' too: leave out one of them".to_owned());
        }
        let times = condition.as_ref().map(|_| Times::Fixed(step.at_most)).or(times);
        let repeats = times.is_some();
        if let Some(times) = times {
            self.program.loops += 1;
            leaves.push(self.program.operations.len());
            self.program.operations.push(Operation::Begin { turn, times, to: 0 });
        }
        let first = self.program.operations.len();
        match &step.does {
            StepAction::Request(request) => self.request(step, request),
            StepAction::Group { steps } => steps.iter().for_each(|step| self.step(step)),
        }
        self.program.operations.extend(match condition {
            Some(condition) => Some(Operation::While { turn, condition, to: first }),
            None => repeats.then_some(Operation::Again { turn, to: first }),
        });
        let end = self.program.operations.len();
        for leave in leaves {
            if let Operation::Unless { to, .. } | Operation::Begin { to, .. } =
                &mut self.program.operations[leave]
            {
                *to = end;
            }
        }
    }

    fn times(&self, text: &str, most: u32) -> Result<Times, String> {
        match text.trim().parse::<u32>() {
            Ok(n) if n <= MAX_RUNS => Ok(Times::Fixed(n)),
            Ok(_) => Err(format!("'{text}' is more than {MAX_RUNS} repetitions")),
            Err(_) => {
                let place = self.names.find(text.trim());
                place.map(|place| Times::Named(place, most)).ok_or_else(|| {
                    format!(
                        "'{text}' is not a number such as 5, and {}",
                        self.names.without_value(text.trim())
                    )
                })
            }
        }
    }

    fn request(&mut self, step: &StepPlan, plan: &RequestPlan) {
        let mut needs = Needs { cookies: self.cookies, location: self.redirects, ..Needs::default() };
        let checks = plan.checks.iter().map(|text| Check::parse(text, &mut needs)).collect::<Vec<_>>();
        let checks = checks.into_iter().filter_map(|check| self.checked(step, "expect", check)).collect();
        let mut takes = Vec::new();
        for (name, text) in &plan.take {
            let finder = Finder::parse(text, &mut needs);
            if let Some(finder) = self.checked(step, "take", finder)
                && let Some(Place::Taken(place)) = self.names.find(name)
            {
                takes.push((place, finder, None, name.as_str().into()));
            }
        }
        let request = self.template(step, plan);
        self.program.operations.push(Operation::Request(self.program.requests.len()));
        self.program.requests.push(Step {
            name: step.name.as_str().into(),
            request,
            pause: step.pause.clone(),
            expect: plan.expect.clone(),
            checks,
            takes,
            needs,
            goes_on_after_failure: plan.goes_on_after_failure,
        });
    }

    fn template(&mut self, step: &StepPlan, plan: &RequestPlan) -> RequestTemplate {
        let request = &plan.request;
        let target = self
            .checked(step, "url", Template::parse_target(&request.target, self.names))
            .unwrap_or_default();
        let mut fields = Vec::new();
        // With a log, each request gets a new `traceparent`; a second such field would invalidate both.
        let is_sent = |name: &str| !(self.traces && name.eq_ignore_ascii_case("traceparent"));
        let headers: Vec<_> = request.headers.iter().filter(|(name, _)| is_sent(name)).collect();
        for (name, value) in headers {
            // The message has no colon after the name, because the text after a secret field's colon would be masked.
            let value = Template::parse(value, self.names).map_err(|why| format!("in {name}, {why}"));
            if let Some(value) = self.checked(step, "headers", value) {
                fields.push((format!("{name}: ").into_bytes().into(), value));
            }
        }
        let body = self.checked(step, "body", Template::parse(&request.body, self.names)).unwrap_or_default();
        let has = |name: &str| request.headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
        let carries_body =
            request.body != Text::default() || matches!(&*request.method, "POST" | "PUT" | "PATCH");
        let host = request.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("host"));
        let scheme = if self.secure { "https" } else { "http" };
        let origin = format!("{scheme}://{}", host.map_or_else(String::new, |(_, host)| host.shown()));
        RequestTemplate {
            origin: origin.into_bytes().into(),
            method: request.method.as_str().into(),
            has_length: carries_body && !has("content-length") && !has("transfer-encoding"),
            closes: !self.keepalive && !has("connection"),
            is_secure: self.secure,
            target,
            fields,
            body,
        }
    }
}
