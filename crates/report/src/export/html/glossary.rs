//! The glossary of the page.

use maud::html;

use super::Section;

const TERMS: [(&str, &str); 15] = [
    (
        "Goal",
        "A condition for a load. Example: p99 ≤ 10 ms, at most 1 % of the requests fail, are never sent, or take longer \
         than 10 ms.",
    ),
    ("Lower bound", "The largest load that meets the goal and is smaller than every load that does not."),
    (
        "Upper bound",
        "The smallest load that does not meet the goal. The true limit lies between the two bounds.",
    ),
    (
        "≥ and <",
        "≥ on a load: all loads of the search met the goal. < on a load: none did. ≥ on a time: the true time may be \
         longer, because some requests were unanswered when the trial ended.",
    ),
    ("Generator-bound", "The generator could not make more load, so the limit of the target is not known."),
    (
        "Further trials",
        "Trials at the lower bound after the search. The figures of that load are from these trials, since a search runs \
         only as many trials as it needs to decide.",
    ),
    (
        "Audit",
        "Every event has a number and a checksum. The audit searches the stored files for acknowledged events. Lost events \
         are not there; duplicated events are there more often than they were sent.",
    ),
    ("Conditional throughput", "The lower bound minus the loss at that load (RFC 9971)."),
    (
        "Response time",
        "From when a request was due to the last byte of its answer. It includes all waiting, whatever the cause.",
    ),
    (
        "Service time",
        "From when a request was sent to the last byte of its answer. It does not include waiting before that.",
    ),
    (
        "Lateness",
        "How much later than due a request was sent. The generator's share is the time during which a connection was \
         free.",
    ),
    ("p50, p99", "Percentiles: half of the requests, or 99 of 100, took no longer."),
    (
        "Void",
        "A trial in which the generator or this machine was, or may have been, the limit. It decides nothing and is \
         repeated.",
    ),
    (
        "Block",
        "One interleaved pass over all settings, so that slow changes of the machine affect all of them alike.",
    ),
    (
        "Interval",
        "In brackets after a median: the range of the true median at the given confidence, for any distribution of the \
         values.",
    ),
];

pub(super) fn section() -> Section {
    let body = html! { dl { @for (term, meaning) in TERMS { dt { (term) } dd { (meaning) } } } };
    Section { anchor: "glossary", heading: "How to read this", body }
}
