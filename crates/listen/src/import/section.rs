//! Reads a directive's parameters. Unread parameters are mistakes.

use std::{ops::RangeInclusive, time::Duration};

use settings::suggestion;

use super::{
    mistakes::Mistakes,
    syntax::{Directive, Parameter},
    values,
};

/// A directive being read, and the names that the reader has asked for.
pub(super) struct Section<'d, 'm, 't> {
    directive: &'d Directive,
    pub(super) mistakes: &'m mut Mistakes<'t>,
    known: Vec<&'static str>,
    known_children: Vec<&'static str>,
}

impl<'d, 'm, 't> Section<'d, 'm, 't> {
    /// Starts reading a directive.
    pub(super) fn of(directive: &'d Directive, mistakes: &'m mut Mistakes<'t>) -> Self {
        Self { directive, mistakes, known: Vec::new(), known_children: Vec::new() }
    }

    /// Adds a mistake about the directive as a whole.
    pub(super) fn add(&mut self, message: impl Into<String>) {
        self.mistakes.add(self.directive.at, message);
    }

    pub(super) fn argument(&self) -> &'d str {
        &self.directive.argument
    }

    /// An optional parameter. If it is repeated, the last one counts, as in Fluentd.
    pub(super) fn take(&mut self, name: &'static str) -> Option<&'d Parameter> {
        self.known.push(name);
        self.directive.parameters.iter().rev().find(|parameter| parameter.name == name)
    }

    /// An optional parameter as text.
    pub(super) fn text(&mut self, name: &'static str) -> Option<&'d str> {
        self.take(name).map(|parameter| parameter.value.as_str())
    }

    /// An optional parameter that `read` parses. An error becomes a mistake.
    pub(super) fn read<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let parameter = self.take(name)?;
        read(&parameter.value).map_err(|why| self.mistakes.add(parameter.at, format!("{name}: {why}"))).ok()
    }

    /// An optional whole number within `bounds`.
    pub(super) fn integer(&mut self, name: &'static str, bounds: RangeInclusive<u64>) -> Option<u64> {
        self.read(name, |text| {
            text.parse().ok().filter(|number| bounds.contains(number)).ok_or_else(|| {
                format!("'{text}' is not a whole number from {} to {}", bounds.start(), bounds.end())
            })
        })
    }

    /// An optional size in bytes; `k`, `m`, `g` and `t` stand for powers of 1,024.
    pub(super) fn size(&mut self, name: &'static str) -> Option<u64> {
        self.read(name, values::size)
    }

    /// An optional time; a number without a unit is in seconds.
    pub(super) fn time(&mut self, name: &'static str) -> Option<Duration> {
        self.read(name, values::time)
    }

    /// An optional boolean; a name without a value means true.
    pub(super) fn flag(&mut self, name: &'static str) -> Option<bool> {
        self.read(name, values::flag)
    }

    /// Adds notes on parameters that have no effect here. `why` is the reason.
    pub(super) fn without_effect(&mut self, names: &[&'static str], why: &str) {
        for name in names {
            if let Some(parameter) = self.take(name) {
                self.mistakes.note(parameter.at, format!("{name} has no effect here: {why}"));
            }
        }
    }

    /// Refuses known but unsupported parameters. `why` is the reason and what to do.
    pub(super) fn refuse(&mut self, names: &[&'static str], why: &str) {
        for name in names {
            if let Some(parameter) = self.take(name) {
                self.mistakes.add(parameter.at, format!("{name}: {why}"));
            }
        }
    }

    /// Reads the parameters that all Fluentd plugins accept.
    pub(super) fn common(&mut self) {
        self.take("@id");
        self.without_effect(&["@log_level", "log_level"], "give --log-level");
        self.refuse(
            &["@label"],
            "labels are not supported; move the <match> out of its <label>, and remove this line",
        );
    }

    /// An optional child directive. A second one is a mistake.
    pub(super) fn child(&mut self, name: &'static str) -> Option<&'d Directive> {
        self.known_children.push(name);
        let mut found = self.directive.children.iter().filter(|child| child.name == name);
        let first = found.next();
        for other in found {
            self.mistakes.add(other.at, format!("a second <{name}>: only one is allowed"));
        }
        first
    }

    /// Refuses a known but unsupported child directive.
    pub(super) fn refuse_child(&mut self, name: &'static str, why: &str) {
        self.known_children.push(name);
        for child in self.directive.children.iter().filter(|child| child.name == name) {
            self.mistakes.add(child.at, format!("<{name}>: {why}"));
        }
    }

    /// Refuses all parameters and child directives that were not read.
    pub(super) fn finish(self) {
        let inside = &self.directive.name;
        for parameter in &self.directive.parameters {
            let name = parameter.name.as_str();
            if !self.known.contains(&name) {
                let hint = suggestion(name, self.known.iter().copied());
                let known = list(&self.known, "nothing");
                self.mistakes.add(
                    parameter.at,
                    format!("unknown parameter '{name}' in <{inside}>{hint} (known here: {known})"),
                );
            }
        }
        for child in &self.directive.children {
            let name = child.name.as_str();
            if !self.known_children.contains(&name) {
                let hint = suggestion(name, self.known_children.iter().copied());
                let known = list(&self.known_children, "none");
                self.mistakes.add(
                    child.at,
                    format!("unknown directive <{name}> in <{inside}>{hint} (known here: {known})"),
                );
            }
        }
    }
}

fn list(names: &[&str], nothing: &str) -> String {
    if names.is_empty() { nothing.to_owned() } else { names.join(", ") }
}
