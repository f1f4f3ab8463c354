//! Requests built from templates and sent in sessions: which request is sent next, and how an answer is judged.
//!
//! * `template`: texts with `{{…}}`, and the values that they can insert.
//! * `feeder`: rows of files.
//! * `condition`, `program`: which step comes next.
//! * `answer`, `take`, `check`, `cookies`: the parts of an answer that are read.
//! * [`User`]: one user's path through the steps.
//!
//! This crate reads neither a clock nor a socket. The caller renders a request, sends it, feeds the answer to the user's
//! sink, and advances the user to the next request.

mod answer;
mod check;
mod condition;
mod cookies;
mod feeder;
mod names;
mod program;
mod redirect;
mod state;
mod take;
mod template;
mod user;

use std::sync::Arc;

use record::ScriptPlan;

pub use redirect::without_dots;
pub use state::{Numbering, WorkerState};
pub use user::{Advance, Outcome, User};

use feeder::Feeder;
use names::{Names, Place};
use program::Program;

/// A compiled script, which all workers of a process share.
#[derive(Debug)]
pub struct Script {
    program: Program,
    feeders: Vec<Arc<Feeder>>,
    /// Number of values that steps take from answers.
    taken: usize,
    /// The names that templates can use, with the sources of their values.
    places: Vec<(String, Place)>,
    /// Values that are masked in logs.
    secret: Vec<Place>,
    cookies: bool,
    redirects: u32,
    /// Whether each request gets a new `traceparent`.
    traces: bool,
    /// How often each iteration uses `counter`; `None` if iterations differ.
    counters: Option<u64>,
}

/// A mistake in a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptMistake {
    /// Name of the step; empty if the mistake is in a feeder.
    pub step: String,
    /// The key of the step, such as `take`.
    pub key: &'static str,
    /// What is wrong, and what to do.
    pub message: String,
}

impl Script {
    /// Compiles a plan. `keepalive`: whether a connection carries more than one request. `secure`: whether requests are
    /// sent over TLS, so that cookies marked `Secure` are sent back.
    ///
    /// # Errors
    /// All mistakes: a file of rows that cannot be read, a template with unknown names, a condition or a path that cannot
    /// be parsed.
    pub fn new(plan: &ScriptPlan, keepalive: bool, secure: bool) -> Result<Self, Vec<ScriptMistake>> {
        let mut mistakes = Vec::new();
        let mut feeders = Vec::new();
        for feeder in &plan.feeders {
            match Feeder::read(feeder) {
                Ok(feeder) => feeders.push(Arc::new(feeder)),
                Err(message) => {
                    mistakes.push(ScriptMistake { step: String::new(), key: "feeders", message });
                }
            }
        }
        let has_all_columns = mistakes.is_empty();
        let names = Names::new(plan, &feeders, &mut mistakes);
        let program = Program::new(plan, &names, keepalive, secure, &mut mistakes);
        // If a file cannot be read, its columns are unknown, so messages about unknown names are dropped.
        mistakes.retain(|mistake| has_all_columns || !mistake.message.contains(names::UNKNOWN));
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        let counters = program.counters().filter(|_| !plan.is_session() && plan.redirects == 0);
        Ok(Self {
            program,
            counters,
            taken: names.taken(),
            places: names.into_places(),
            secret: Vec::new(),
            feeders,
            cookies: plan.cookies,
            redirects: plan.redirects,
            traces: plan.log.is_some(),
        })
    }

    /// Masks the values with secret names in the targets that a log shows.
    pub fn hide(&mut self, is_secret: impl Fn(&str) -> bool) {
        let secret = self.places.iter().filter(|(name, _)| is_secret(name));
        self.secret = secret.map(|(_, place)| *place).collect();
    }

    /// Names of the steps that send requests, by their index.
    pub fn step_names(&self) -> impl Iterator<Item = &str> {
        self.program.requests.iter().map(|step| &*step.name)
    }

    /// Number of iterations after which the rows of a feeder run out or begin again; `None` without rows in order.
    pub fn rows_in_order(&self) -> Option<u64> {
        use record::RowOrder::{InOrder, Once};
        let in_order = self.feeders.iter().filter(|feeder| [InOrder, Once].contains(&feeder.order()));
        in_order.map(|feeder| feeder.rows()).min()
    }

    /// Number of users that can each have a separate row; `None` if no feeder assigns rows to users.
    pub fn rows_per_user(&self) -> Option<u64> {
        let per_user = self.feeders.iter().filter(|feeder| feeder.order() == record::RowOrder::PerUser);
        per_user.map(|feeder| feeder.rows()).min()
    }
}
