//! How to read the page.

use maud::html;

use super::Section;

const TERMS: [(&str, &str); 15] = [
    (
        "Goal",
        "What a load must satisfy, such as: at most 1 % of the requests fail, are never sent, or take \
         longer than 10 ms (p99 ≤ 10 ms).",
    ),
    ("Lower bound", "The largest load that meets the goal and lies below every load that does not."),
    (
        "Upper bound",
        "The smallest load that does not meet the goal. The true limit lies between the two bounds.",
    ),
    (
        "≥ and <",
        "The search ran out of load first: the limit is at least, or below, the load named. A time with ≥ \
         may be longer, because some requests had not been answered when the trial ended.",
    ),
    (
        "Generator-bound",
        "The instrument could not make more load. The figure says nothing about where the target ends.",
    ),
    (
        "Further trials",
        "Trials at the lower bound after the search, whose figures are those of that load; the search's own trials \
         stopped as soon as they had decided.",
    ),
    (
        "Audit",
        "Every event carries a number and a checksum. What the target acknowledged is looked for in the files it \
         stored: lost is what is not there, duplicated what is there more often than it was sent.",
    ),
    ("Conditional throughput", "The lower bound less what was lost at it (RFC 9971)."),
    (
        "Response time",
        "From the moment a request was due to the last byte of its answer. It counts waiting, whoever \
         caused it.",
    ),
    (
        "Service time",
        "From the moment a request left to the last byte of its answer. It hides what waited before.",
    ),
    (
        "Lateness",
        "How much later than due a request left. The instrument's own part is that in which a connection \
         was free.",
    ),
    ("p50, p99", "Half of the requests, or 99 of 100, took no longer than this."),
    (
        "Void",
        "A trial in which the instrument was, or may have been, the limit. It decides nothing and is \
         repeated.",
    ),
    (
        "Block",
        "One interleaved pass over all settings, so that slow changes of the machine do not favour one of \
         them.",
    ),
    (
        "Interval",
        "In brackets behind a median: where the true median lies with the confidence named, whatever the \
         distribution of the values.",
    ),
];

pub(super) fn section() -> Section {
    let body = html! { dl { @for (term, meaning) in TERMS { dt { (term) } dd { (meaning) } } } };
    Section { anchor: "glossary", heading: "How to read this", body }
}
