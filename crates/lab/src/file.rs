//! Reads a lab file: TOML that lists hosts, the links between them and the processes on them.
//!
//! Reports all mistakes at once, each with its line, its column and the expected value. The result is a complete
//! [`Plan`].

mod balancer;
mod hosts;
mod links;
mod processes;

use settings::{Mistake, Reader, Table};

pub use balancer::{balancer_schema, read_balancer};
pub use hosts::host_schema;
pub use processes::{process_schema, read_process};

pub use crate::host_names::{HostGroups, HostNames};
use crate::plan::Plan;

/// Reads the text of a lab file. Error messages call the file `file`.
///
/// # Errors
/// All mistakes, in the order of the file.
pub fn parse(file: &str, text: &str) -> Result<Plan, Vec<Mistake>> {
    let mut reader = Reader::new(file, text);
    let document = reader.document(text);
    if reader.has_mistakes() {
        // After a syntax error in the TOML, further messages would be guesses.
        return reader.finish(Plan::default());
    }
    let mut table = reader.root(&document);
    let title = table.take("title").and_then(|value| reader.text(value)).unwrap_or_default().to_owned();
    let (plan, groups) = read_with_groups(&mut reader, &mut table, title);
    let names = HostNames { plan: &plan, groups: &groups };
    processes::check_placeholders(&mut reader, document.get_ref().get("processes"), &names);
    table.finish(&mut reader);
    reader.finish(plan)
}

/// Reads the keys `hosts`, `links` and `processes` of a table, which may have other keys too, such as those of a study.
/// The reader collects the mistakes.
pub fn read_with_groups(
    reader: &mut Reader<'_>,
    table: &mut Table<'_, '_>,
    title: String,
) -> (Plan, HostGroups) {
    let (hosts, groups, routes) = hosts::read(reader, table);
    let mut plan = Plan { title, hosts, ..Plan::default() };
    plan.links = links::read(reader, table, &HostNames { plan: &plan, groups: &groups });
    hosts::read_routes(reader, &mut plan, &groups, &routes);
    plan.processes = processes::read(reader, table, &HostNames { plan: &plan, groups: &groups });
    (plan, groups)
}

#[cfg(test)]
mod tests;
