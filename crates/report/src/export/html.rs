//! One page that opens offline: no script, no address to fetch anything from, at most 1 MB.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use record::{BoundKind, GoalOutcome};

use crate::{
    Options, Results,
    answer::{self, Answer},
    export::Export,
    reading::{Reading, readings},
    summary::{banner, trials_line},
    text,
};

mod about;
mod answers;
mod chosen;
mod curve;
mod factors;
mod flows;
mod glossary;
mod ladder;
mod lateness;
mod limits;
mod parts;
mod path;
mod percentiles;
mod series;
mod validity;

use limits::Limits;

/// The page.
pub(crate) struct Html;

/// The largest page, in bytes.
const MOST_BYTES: usize = 1_000_000;

const STYLE: &str = include_str!("html/style.css");
/// Nothing is fetched, nothing is run.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'";

impl Export for Html {
    fn name(&self) -> &'static str {
        "html"
    }

    fn file_name(&self) -> Option<&'static str> {
        Some("report.html")
    }

    fn render(&self, results: &Results, _: &Options) -> String {
        let readings = readings(results);
        let answers = answer::answers_with(results, &readings);
        let mut page = Page { results, readings, answers, limits: Limits::FULL };
        loop {
            let text = page.render().into_string();
            match page.limits.smaller() {
                Some(smaller) if text.len() > MOST_BYTES => page.limits = smaller,
                _ => return text,
            }
        }
    }
}

/// What every section is made from.
struct Page<'a> {
    results: &'a Results,
    readings: Vec<Reading>,
    answers: Vec<Answer>,
    limits: Limits,
}

/// A section: its anchor, its heading, what is in it.
struct Section {
    anchor: &'static str,
    heading: &'static str,
    body: Markup,
}

impl Page<'_> {
    fn render(&self) -> Markup {
        let sections: Vec<Section> = [
            Some(answers::section(self)),
            path::section(self),
            curve::section(self),
            factors::section(self),
            percentiles::section(self),
            series::section(self),
            flows::section(self),
            lateness::section(self),
            Some(validity::section(self)),
            about::environment(self),
            Some(about::command(self)),
            about::warnings(self),
            Some(glossary::section()),
        ]
        .into_iter()
        .flatten()
        .collect();
        let title = text::clipped(&self.results.plan.title, self.limits.text_chars);
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta http-equiv="Content-Security-Policy" content=(POLICY);
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="generator" content={ "proofload " (self.text(&self.results.plan.proofload_version)) };
                    title { (title) }
                    // Without this the browser would ask the page's own host for one.
                    link rel="icon" href="data:,";
                    style { (PreEscaped(STYLE)) }
                }
                body {
                    header {
                        h1 { bdi { (title) } }
                        (answers::headline(self))
                        p.lead { bdi { (self.text(&self.results.plan.workload)) } }
                        p.meta { (self.facts()) }
                        nav aria-label="Contents" {
                            ol {
                                @for section in &sections {
                                    li { a href={ "#" (section.anchor) } { (section.heading) } }
                                }
                            }
                        }
                        @if let Some(banner) = banner(self.results) {
                            p.banner role="note" { strong { (banner) } }
                        }
                    }
                    main {
                        @for section in &sections {
                            section aria-labelledby=(section.anchor) {
                                h2 id=(section.anchor) { (section.heading) }
                                (section.body)
                            }
                        }
                    }
                }
            }
        }
    }

    fn facts(&self) -> String {
        let started = self.results.result.as_ref().and_then(|result| text::moment(result.started_unix_s));
        let resumed = self.results.result.as_ref().map_or(0, |result| result.resumed);
        let mut facts: Vec<String> = started.map(|moment| format!("Started {moment}.")).into_iter().collect();
        facts.push(trials_line(self.results));
        if resumed > 0 {
            facts.push(format!("Taken up again {}.", text::counted(resumed as usize, "time")));
        }
        facts.push(format!("proofload {}.", self.text(&self.results.plan.proofload_version)));
        facts.join(" ")
    }

    /// Foreign text, as long as there is room for.
    fn text(&self, text: &str) -> String {
        text::clipped(text, self.limits.text_chars)
    }

    /// A setting's name, as long as there is room for.
    fn setting(&self, number: usize) -> String {
        self.text(&self.results.setting_name(number))
    }

    /// Whether settings must be told apart.
    fn several_settings(&self) -> bool {
        self.results.plan.settings.len() > 1
    }

    /// Lower and upper bound of a search, with `≥` or `<` where the other one is missing. What the generator could
    /// not make is no bound of the target.
    fn bounds_shown(&self, outcome: &GoalOutcome) -> [(Option<f64>, String); 2] {
        let generator_bound = matches!(outcome.kind, BoundKind::GeneratorBound { .. });
        let lower = outcome.lower.as_ref().map(|bound| bound.load);
        let upper = outcome.upper.as_ref().map(|bound| bound.load).filter(|_| !generator_bound);
        let shown = |load: Option<f64>, other: Option<f64>, sign: &str| {
            let sign = if other.is_none() { sign } else { "" };
            (load, load.map_or_else(String::new, |load| format!("{sign}{}", self.load(load))))
        };
        [shown(lower, upper, "≥ "), shown(upper, lower, "< ")]
    }

    /// A load in the search's unit.
    fn load(&self, load: f64) -> String {
        match &self.results.plan.search {
            Some(search) => self.text(&search.unit.show(load)),
            None => record::units::show_rate(load),
        }
    }
}
