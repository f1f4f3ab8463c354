//! Describes a workload in words.

use record::units::show_time_ns;

use settings::options::Kind;

use super::{HttpOption, HttpWorkload, OPTIONS, StepText, TimeLimit};

/// Options that a study's plan describes, in this order.
const IN_PLAN: [&str; 9] =
    ["users", "rate", "connections", "loops", "requests", "pipeline", "expect", "retries", "ack"];
/// Options that the description before a run contains, in this order.
const IN_SUMMARY: [&str; 11] = [
    "users",
    "rate",
    "connections",
    "events",
    "loops",
    "requests",
    "arrivals",
    "think_time",
    "timeout",
    "threads",
    "stages",
];

impl HttpWorkload {
    /// The method of the requests.
    pub fn method(&self) -> &str {
        let has_body = self.body.is_some() || self.events.is_some();
        self.method.as_deref().unwrap_or(if has_body { "POST" } else { "GET" })
    }

    /// The description for a study's plan, with secrets masked and without the option that a search varies. `target` describes
    /// the target.
    pub fn in_words(&self, target: Option<String>, varied: Option<&str>) -> String {
        let method = if self.steps.is_empty() { format!("{} ", self.method()) } else { String::new() };
        let mut parts = vec![format!("{method}{}", secrets::mask_url(&self.url))];
        if self.events.is_some() {
            let per_request = self.events_per_request.as_deref().unwrap_or("1");
            let s = if per_request == "1" { "" } else { "s" };
            parts.push(format!("{per_request} numbered event{s} a request"));
        }
        parts.extend(self.steps_in_words());
        parts.extend(target);
        parts
            .push(if self.no_keepalive { "a connection per request" } else { "kept connections" }.to_owned());
        parts.extend(self.arrivals.as_deref().map(|arrivals| format!("{arrivals} arrivals")));
        parts.extend(IN_PLAN.iter().filter(|key| varied != Some(key)).filter_map(|key| self.option(key)));
        parts.extend(self.option("stages"));
        if !self.headers.is_empty() {
            parts.push(format!("{} header fields of its own", self.headers.len()));
        }
        parts.extend(self.option("think_time"));
        let timeout = self.timeout.as_ref().and_then(|timeout| timeout.value().ok());
        parts.extend(
            timeout.map(|TimeLimit(time)| format!("timeout {}", show_time_ns(time.as_nanos() as u64))),
        );
        parts.extend(self.other_options());
        secrets::mask(&parts.join(", ")).into_owned()
    }

    /// The description shown before a run. The option that a search varies has no value yet.
    pub fn summary(&self, varied: Option<&str>) -> Vec<String> {
        let option = |&key: &&str| {
            if varied == Some(key) { Some(format!("{key} searched for")) } else { self.option(key) }
        };
        let mut parts: Vec<String> = IN_SUMMARY.iter().filter_map(option).collect();
        parts.extend(self.steps_in_words());
        if self.no_keepalive {
            parts.push("a new connection for every request".to_owned());
        }
        parts.extend(self.other_options());
        parts
    }

    /// States once that times without a unit are seconds, if any are given.
    pub fn times_without_unit(&self) -> Option<String> {
        let options = OPTIONS
            .iter()
            .filter(|option| matches!(option.spec.kind, Kind::Time) || option.spec.key == "think_time");
        let options = options.filter_map(|option| Some((option.spec.key, (option.written)(self).pop()?)));
        let pauses =
            self.steps.iter().flat_map(StepText::all).filter_map(|step| Some(("pause", step.pause.clone()?)));
        let bare = options.chain(pauses).filter(|(_, time)| {
            // The second number of a lognormal distribution is not a time.
            let time = time.split(',').next().unwrap_or_default();
            let last = time.rsplit([':', '.']).next().unwrap_or_default();
            !time.starts_with("file:") && last.parse::<u64>().is_ok_and(|seconds| seconds > 0)
        });
        let bare: Vec<String> = bare.map(|(key, time)| format!("{key} {time}")).collect();
        (!bare.is_empty()).then(|| format!("times without a unit are seconds: {}", bare.join(", ")))
    }

    /// The steps, if there are any.
    fn steps_in_words(&self) -> Option<String> {
        let names = self
            .steps
            .iter()
            .map(|step| step.name.as_ref().or(step.request.as_ref()).map_or("a group", |name| name));
        let names: Vec<&str> = names.collect();
        (!names.is_empty()).then(|| format!("steps {}", names.join(" → ")))
    }

    fn option(&self, key: &str) -> Option<String> {
        OPTIONS.iter().find(|option| option.spec.key == key)?.in_words(self)
    }

    /// Options that have a label and are in neither list above, in the order of the table.
    fn other_options(&self) -> impl Iterator<Item = String> {
        let is_listed = |key| IN_PLAN.contains(&key) || IN_SUMMARY.contains(&key);
        let others =
            OPTIONS.iter().filter(move |option| !option.label.is_empty() && !is_listed(option.spec.key));
        others.filter_map(|option| option.in_words(self))
    }
}

impl HttpOption {
    fn in_words(&self, workload: &HttpWorkload) -> Option<String> {
        let written = (self.written)(workload);
        (!written.is_empty()).then(|| format!("{} {}", self.label, written.join(" ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_describes_more_than_users_see_before_a_run() {
        let workload = HttpWorkload {
            url: "http://a/".to_owned(),
            rate: Some("5k".into()),
            connections: Some("7".into()),
            think_time: Some("exp:1s".into()),
            headers: vec!["A: b".to_owned()],
            stages: vec!["1s:1".into(), "1s:2".into()],
            no_keepalive: true,
            ack: Some("synced".into()),
            timeout: Some("500ms".into()),
            threads: Some("2".into()),
            ..HttpWorkload::default()
        };
        assert_eq!(
            workload.in_words(Some("target b (c)".to_owned()), Some("rate")),
            "GET http://a/, target b (c), a connection per request, connections 7, acknowledged as synced, \
             stages 1s:1 1s:2, 1 header fields of its own, think time exp:1s, timeout 500 ms"
        );
        assert_eq!(
            workload.summary(Some("rate")).join(", "),
            "rate searched for, connections 7, think time exp:1s, timeout 500ms, threads 2, stages 1s:1 1s:2, a new \
             connection for every request"
        );
        let bare = HttpWorkload {
            timeout: Some("5".into()),
            think_time: Some("lognormal:20ms,0.5".into()),
            ..workload.clone()
        };
        let note = bare.times_without_unit();
        assert_eq!(note.as_deref(), Some("times without a unit are seconds: timeout 5"));
        assert_eq!(workload.times_without_unit(), None);
        let events =
            HttpWorkload { events: Some("default".into()), events_per_request: Some("3".into()), ..workload };
        let words = events.in_words(None, None);
        assert!(words.starts_with("POST http://a/, 3 numbered events a request, a connection"), "{words}");
        assert!(words.contains(", rate 5k, connections 7, "), "{words}");
    }
}
