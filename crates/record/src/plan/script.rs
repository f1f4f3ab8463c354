//! Requests made of templates, in the order of a session or selected at random by weight.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Request, StatusSet};
use crate::{distribution::Distribution, text::Text};

/// The steps of each iteration of a user, and what their requests are made of. In an open load, an iteration is what
/// arrives.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScriptPlan {
    /// Files whose rows give values to templates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub feeders: Vec<FeederPlan>,
    /// Whether each iteration runs one step, drawn by weight, instead of all in order.
    #[serde(default)]
    pub weighted: bool,
    /// The steps.
    pub steps: Vec<StepPlan>,
    /// Whether each user keeps the cookies that the target sets, and sends them back. A new iteration begins without.
    #[serde(default)]
    pub cookies: bool,
    /// Most redirects to follow for one step; 0 follows none.
    #[serde(default)]
    pub redirects: u32,
    /// The log of requests. Each request then has a `traceparent` (W3C Trace Context) of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<LogPlan>,
}

/// A log of requests: a line of JSON for each failed one, and for a sample of the others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LogPlan {
    /// Path of the file, to which lines are added.
    pub file: String,
    /// The share of completed requests that are logged, 0 to 1.
    pub sample_ratio: f64,
}

impl ScriptPlan {
    /// Whether the rows of a feeder may run out before the load ends.
    pub fn may_run_out(&self) -> bool {
        self.feeders.iter().any(|feeder| feeder.order == RowOrder::Once)
    }

    /// Whether iterations can have several requests, or more than one kind of request.
    pub fn is_session(&self) -> bool {
        !matches!(
            &self.steps[..],
            [StepPlan { repeat: None, repeat_while: None, does: StepAction::Request(_), .. }]
        )
    }

    /// Whether any step has its own pause.
    pub fn pauses(&self) -> bool {
        let mut pauses = false;
        self.for_each_request(&mut |step, _| {
            pauses |= step.pause.as_ref().is_some_and(|pause| !pause.is_zero())
        });
        pauses
    }

    /// Whether any step takes a value from its answer.
    pub fn takes_values(&self) -> bool {
        let mut takes = false;
        self.for_each_request(&mut |_, request| takes |= !request.take.is_empty());
        takes
    }

    /// The script with one run of every step, without pauses and log, to test whether a target answers.
    pub fn once(mut self) -> Self {
        fn shorten(steps: &mut [StepPlan]) {
            for step in steps {
                (step.pause, step.repeat, step.repeat_while) =
                    (Some(Distribution::Fixed { ns: 0 }), None, None);
                if let StepAction::Group { steps } = &mut step.does {
                    shorten(steps);
                }
            }
        }
        shorten(&mut self.steps);
        self.log = None;
        self
    }

    /// Calls `visit` with every step that sends a request, including the steps of groups, in the order of the plan.
    pub fn for_each_request<'a>(&'a self, visit: &mut dyn FnMut(&'a StepPlan, &'a RequestPlan)) {
        for_each_request(&self.steps, visit);
    }
}

fn for_each_request<'a>(steps: &'a [StepPlan], visit: &mut dyn FnMut(&'a StepPlan, &'a RequestPlan)) {
    for step in steps {
        match &step.does {
            StepAction::Request(request) => visit(step, request),
            StepAction::Group { steps } => for_each_request(steps, visit),
        }
    }
}

/// A file of rows, whose columns templates can name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FeederPlan {
    /// Path of the file: CSV with a line of names first, or NDJSON (`.ndjson`, `.jsonl`).
    pub file: String,
    /// Which row an iteration gets.
    pub order: RowOrder,
}

/// Which row of a feeder an iteration gets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RowOrder {
    /// The next one; after the last comes the first again. Each of several workers takes every n-th row.
    #[default]
    InOrder,
    /// The next one, each only once: when all are used, users begin no further iteration.
    Once,
    /// Any, each as likely.
    Random,
    /// Always the one of the user's number.
    PerUser,
}

/// A step of a session: a request, or a group of steps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepPlan {
    /// Its name in results.
    pub name: String,
    /// How often it is drawn, relative to the other steps, if the script is weighted.
    pub weight: u32,
    /// It runs only if this condition holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only_if: Option<String>,
    /// How often it runs: a number, or the name of a value. Once if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeat: Option<String>,
    /// After it ran, it runs again while this condition holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeat_while: Option<String>,
    /// Most runs with `repeat_while`.
    pub at_most: u32,
    /// The pause after its answer; none for the load's think time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<Distribution>,
    /// What it does.
    #[serde(flatten)]
    pub does: StepAction,
}

/// Default for the largest number of runs of a step that repeats while a condition holds.
const DEFAULT_AT_MOST: u32 = 1_000;

impl StepPlan {
    /// A step that runs once in each iteration, followed by the load's think time.
    pub fn once(name: impl Into<String>, does: StepAction) -> Self {
        Self {
            name: name.into(),
            weight: 1,
            only_if: None,
            repeat: None,
            repeat_while: None,
            at_most: DEFAULT_AT_MOST,
            pause: None,
            does,
        }
    }
}

/// What a step does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "does", rename_all = "snake_case")]
pub enum StepAction {
    /// It sends a request.
    Request(Box<RequestPlan>),
    /// It runs steps in order.
    Group {
        /// The steps.
        steps: Vec<StepPlan>,
    },
}

impl From<RequestPlan> for StepAction {
    fn from(request: RequestPlan) -> Self {
        Self::Request(Box::new(request))
    }
}

/// A request of texts, in which templates are filled in.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TextRequest {
    /// The method.
    pub method: String,
    /// The request target: path and query.
    pub target: Text,
    /// Header fields in order, including `Host`.
    pub headers: Vec<(String, Text)>,
    /// The body.
    pub body: Text,
}

impl TextRequest {
    /// The template of a request that a user wrote, without variables.
    ///
    /// # Errors
    /// When a `{{` has no end.
    pub fn written(request: &Request) -> Result<Self, String> {
        let headers = request.headers.iter();
        let headers = headers.map(|(name, value)| Ok((name.clone(), Text::written(value)?)));
        Ok(Self {
            method: request.method.clone(),
            target: Text::written(&request.target)?,
            headers: headers.collect::<Result<_, String>>()?,
            body: Text::written(&String::from_utf8_lossy(&request.body))?,
        })
    }

    /// The request as sent, if no part of it is a template.
    pub fn plain(&self) -> Request {
        let headers = self.headers.iter().map(|(name, value)| (name.clone(), value.shown()));
        Request {
            method: self.method.clone(),
            target: self.target.shown(),
            headers: headers.collect(),
            body: self.body.bytes(),
        }
    }

    /// Whether a part of the request is filled in each time.
    pub fn is_template(&self) -> bool {
        let values = self.headers.iter().map(|(_, value)| value);
        [&self.target, &self.body].into_iter().chain(values).any(Text::is_template)
    }
}

/// A request made of templates, and what its answer must be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RequestPlan {
    /// Method, target, header fields and body.
    pub request: TextRequest,
    /// The statuses that mean success.
    pub expect: StatusSet,
    /// What else the answer must have, such as `json:$.ok = true`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<String>,
    /// Values taken from the answer: name, and where it is, such as `json:$.token`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub take: Vec<(String, String)>,
    /// Whether the iteration goes on after the step failed.
    #[serde(default)]
    pub goes_on_after_failure: bool,
}

impl RequestPlan {
    /// A request made of templates. An answer with one of these statuses is a success, whatever its content.
    pub fn new(request: TextRequest, expect: StatusSet) -> Self {
        Self { request, expect, checks: Vec::new(), take: Vec::new(), goes_on_after_failure: false }
    }
}
