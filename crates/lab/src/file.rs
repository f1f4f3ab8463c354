//! A lab file: TOML that says which hosts there are, what joins them and what runs on them.
//!
//! All mistakes are found in one go, each with its line and column and with what was expected. What comes
//! out is a [`Plan`] in which nothing is left to be decided.

mod hosts;
pub(crate) mod keys;
mod links;
mod processes;

use settings::{Mistake, Reader, Table};

pub use hosts::{HostGroups, host_schema};
pub use processes::process_schema;

use crate::plan::{Plan, Process};

/// Reads a lab file's text. `file` is its name for the mistakes.
///
/// # Errors
/// Every mistake, in the order of the file.
pub fn parse(file: &str, text: &str) -> Result<Plan, Vec<Mistake>> {
    let mut reader = Reader::new(file, text);
    let document = reader.document(text);
    if reader.has_mistakes() {
        // What is guessed behind a mistake in TOML itself would only confuse.
        return reader.end(Plan::default());
    }
    let mut table = reader.root(&document);
    let title = table.take("title").and_then(|value| reader.text(value)).unwrap_or_default().to_owned();
    let (plan, groups) = read_with_groups(&mut reader, &mut table, title);
    processes::check_placeholders(&mut reader, document.get_ref().get("processes"), &plan, &groups);
    table.finish(&mut reader);
    reader.end(plan)
}

/// Reads the keys `hosts`, `links` and `processes` of a table that may have others: a study has a lab's
/// beside its own. Mistakes go to the reader. Returns what the names of hosts stand for, too.
pub fn read_with_groups(
    reader: &mut Reader<'_>,
    table: &mut Table<'_, '_>,
    title: String,
) -> (Plan, HostGroups) {
    let (hosts, groups) = hosts::read(reader, table);
    let mut plan = Plan { title, hosts, ..Plan::default() };
    plan.links = links::read(reader, table, &plan, &groups);
    hosts::read_routes(reader, &mut plan, &groups);
    plan.processes = processes::read(reader, table, &plan, &groups);
    (plan, groups)
}

/// Reads one more table with the keys of `processes`, such as a study's target. The caller gives its name and may have
/// taken keys of its own from the table; the others are asked for here, and `finish` is done.
pub fn read_process(
    reader: &mut Reader<'_>,
    table: Table<'_, '_>,
    name: &str,
    (plan, groups): (&Plan, &HostGroups),
    stage: usize,
) -> Vec<Process> {
    processes::read_one(reader, table, Some(name), plan, groups, stage)
}

#[cfg(test)]
mod tests;
