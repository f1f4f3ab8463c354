//! The values that templates and conditions can name: columns of feeders, and values that steps take from answers.

use std::{collections::BTreeMap, sync::Arc};

use record::ScriptPlan;

use crate::{ScriptMistake, feeder::Feeder};

/// Names of the built-in values of templates, which need neither a feeder nor an answer. Messages list them.
pub(crate) const BUILT_IN: [&str; 11] = [
    "counter",
    "user",
    "iteration",
    "random",
    "string",
    "hex",
    "uuid",
    "time",
    "time_s",
    "time_ms",
    "time_us",
];

/// Start of the message about an unknown name. `Script::new` recognises such messages by it.
pub(crate) const UNKNOWN: &str = "nothing has the name";

/// The source of a named value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// A column of a feeder.
    Column { feeder: usize, column: usize },
    /// A value taken from an answer.
    Taken(usize),
}

/// The names of a script.
#[derive(Debug, Default)]
pub(crate) struct Names {
    places: BTreeMap<String, Place>,
    taken: usize,
}

impl Names {
    pub(crate) fn new(plan: &ScriptPlan, feeders: &[Arc<Feeder>], mistakes: &mut Vec<ScriptMistake>) -> Self {
        let mut names = Self::default();
        for (number, feeder) in feeders.iter().enumerate() {
            for (column, name) in feeder.columns().iter().enumerate() {
                let place = Place::Column { feeder: number, column };
                let is_taken = names.places.insert(name.clone(), place).is_some();
                let message = match has_meaning(name) {
                    true => format!("the column name '{name}' is reserved: rename the column"),
                    false if is_taken => format!("two columns have the name '{name}': rename one"),
                    false => continue,
                };
                mistakes.push(ScriptMistake { step: String::new(), key: "feeders", message });
            }
        }
        plan.for_each_request(&mut |step, request| {
            for (name, _) in &request.take {
                let mut refuse = |why: &str| {
                    let message = format!("'{name}' {why}: take the value under another name");
                    mistakes.push(ScriptMistake { step: step.name.clone(), key: "take", message });
                };
                if has_meaning(name) {
                    refuse("is a reserved name");
                } else if !is_name(name) {
                    refuse("is not a name of letters, digits, '-' and '_', a letter first");
                }
                match names.places.get(name) {
                    // Several steps may take the same value, such as a new token.
                    Some(Place::Taken(_)) => {}
                    Some(Place::Column { .. }) => refuse("is a column of a feeder"),
                    None => {
                        names.places.insert(name.clone(), Place::Taken(names.taken));
                        names.taken += 1;
                    }
                }
            }
        });
        names
    }

    /// All names, with the sources of their values.
    pub(crate) fn into_places(self) -> Vec<(String, Place)> {
        self.places.into_iter().collect()
    }

    /// Number of values that steps take from answers.
    pub(crate) fn taken(&self) -> usize {
        self.taken
    }

    pub(crate) fn find(&self, name: &str) -> Option<Place> {
        self.places.get(name).copied()
    }

    /// The message that a template's name is unknown; it lists the known names.
    pub(crate) fn unknown(&self, name: &str) -> String {
        format!(
            "{}; every template has {}; write {{{{\"…\"}}}} for a literal text",
            self.without_value(name),
            BUILT_IN.join(", ")
        )
    }

    /// The message that no feeder and no step gives a value of this name; it lists the names that they give.
    pub(crate) fn without_value(&self, name: &str) -> String {
        if BUILT_IN.contains(&name) {
            return format!("'{name}' has a new value wherever a template uses it, so it cannot be compared");
        }
        let known: Vec<&str> = self.places.keys().map(String::as_str).collect();
        let sources = match known.len() {
            0 => "no feeder gives values, and no step takes any".to_owned(),
            _ => format!("feeders and steps give {}", known.join(", ")),
        };
        format!("{UNKNOWN} '{name}': {sources}")
    }
}

/// Whether templates or conditions reserve the name.
fn has_meaning(name: &str) -> bool {
    BUILT_IN.contains(&name) || name == "status"
}

/// Whether a step can take a value by this name.
fn is_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(fits)
}
