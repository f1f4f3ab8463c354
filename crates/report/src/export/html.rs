//! One HTML page that opens offline: it has no scripts, fetches nothing and has at most 1 MB.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use record::{BoundKind, GoalOutcome};

use crate::{
    Results,
    answer::{self, Answer},
    reading::{Reading, readings},
    summary::{banner, trials_line},
    text,
};

mod about;
mod answers;
mod bounded;
mod curve;
mod factors;
mod fleet;
mod flows;
mod glossary;
mod ladder;
mod lateness;
mod limits;
mod parts;
mod path;
mod percentiles;
mod representative;
mod series;
mod session;
mod validity;

use limits::Limits;

/// The largest page, in bytes.
const MAX_BYTES: usize = 1_000_000;

const STYLE: &str = include_str!("html/style.css");
/// The page's content security policy: no scripts, no fetching.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'";

/// Renders the HTML page. Lowers the limits until the page has at most [`MAX_BYTES`].
pub(crate) fn render(results: &Results) -> String {
    let readings = readings(results);
    let answers = answer::answers_with(results, &readings);
    let mut page = Page { results, readings, answers, limits: Limits::FULL };
    loop {
        let text = page.render().into_string();
        match page.limits.smaller() {
            Some(smaller) if text.len() > MAX_BYTES => page.limits = smaller,
            _ => return text,
        }
    }
}

/// The data from which the sections are rendered.
struct Page<'a> {
    results: &'a Results,
    readings: Vec<Reading>,
    answers: Vec<Answer>,
    limits: Limits,
}

/// A section of the page.
struct Section {
    anchor: &'static str,
    heading: &'static str,
    body: Markup,
}

impl Page<'_> {
    fn render(&self) -> Markup {
        let sections: Vec<Section> = [
            Some(answers::section(self)),
            bounded::section(self),
            path::section(self),
            curve::section(self),
            factors::section(self),
            percentiles::section(self),
            series::section(self),
            session::section(self),
            fleet::section(self),
            flows::section(self),
            lateness::section(self),
            about::advice(self),
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
                    // Without this empty icon, the browser would request one from the page's host.
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
        let started = self.results.result.as_ref().and_then(|result| text::utc(result.started_unix_s));
        let resumed = self.results.result.as_ref().map_or(0, |result| result.resumed);
        let mut facts: Vec<String> = started.map(|time| format!("Started {time}.")).into_iter().collect();
        facts.push(trials_line(self.results));
        if resumed > 0 {
            facts.push(format!("Resumed {}.", text::counted(resumed as usize, "time")));
        }
        facts.push(format!("proofload {}.", self.text(&self.results.plan.proofload_version)));
        facts.join(" ")
    }

    /// Text from outside, such as a name, shortened to the page's limit.
    fn text(&self, text: &str) -> String {
        text::clipped(text, self.limits.text_chars)
    }

    /// A setting's name, shortened to the page's limit.
    fn setting(&self, number: usize) -> String {
        self.text(&self.results.setting_name(number))
    }

    /// Whether the study has several settings.
    fn several_settings(&self) -> bool {
        self.results.plan.settings.len() > 1
    }

    /// Lower and upper bound of a search, marked with `≥` or `<` if the other one is missing. Omits an upper bound that
    /// limits only the generator.
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
