//! Imports the configurations of other programs.
//!
//! [`fluentd`] imports a `fluentd.conf` with one `http` source and one `file` output. A parameter without effect here
//! produces a note. Any other parameter that cannot be applied is a mistake, because ignoring it silently would mislead
//! the user. `docs/listen.md` lists the mapping.

mod chunks;
mod input;
mod mistakes;
mod output;
mod section;
mod syntax;
mod values;

use events::Rules;
use settings::Mistake;

pub use crate::tag_pattern::TagPattern;

use self::{
    mistakes::Mistakes,
    section::Section,
    syntax::{Directive, parse},
};
use crate::{Compat, Config};

/// An imported configuration.
#[derive(Debug, Clone)]
pub struct Imported {
    /// The equivalent configuration.
    pub config: Config,
    /// The rules for reading bodies without `--compat fluentd`: proofload's defaults, changed by what the file states.
    pub own_rules: Rules,
    /// Notes on parameters without effect, each with its position and the reason.
    pub notes: Vec<Mistake>,
}

/// Parses Fluentd's configuration, version 1. `name` is the file's name for messages. Relative paths start at the
/// current folder, as in Fluentd.
///
/// # Errors
/// All mistakes in the order of the file, each with its line and the supported alternatives.
pub fn fluentd(name: &str, text: &str) -> Result<Imported, Vec<Mistake>> {
    let mut mistakes = Mistakes::new(name, text);
    let root = parse(text, &mut mistakes);
    match read(&root, &mut mistakes) {
        Some((config, own_rules)) if !mistakes.has_any() => {
            Ok(Imported { config, own_rules, notes: mistakes.notes() })
        }
        _ => Err(mistakes.sorted()),
    }
}

fn read(root: &Directive, mistakes: &mut Mistakes<'_>) -> Option<(Config, Rules)> {
    let (mut sources, mut outputs) = (Vec::new(), Vec::new());
    for parameter in &root.parameters {
        mistakes.add(
            parameter.at,
            match parameter.name.as_str() {
                "@include" | "include" => {
                    "@include is not followed here: insert the content of that file here".to_owned()
                }
                name => format!("unknown parameter '{name}' outside all directives (known here: none)"),
            },
        );
    }
    for directive in &root.children {
        let mut refuse = |why: &str| mistakes.add(directive.at, why);
        match directive.name.as_str() {
            "source" => sources.push(directive),
            "match" if is_of_fluentd_itself(directive) => mistakes.note(
                directive.at,
                "<match fluent.**> has no effect here: this listener produces no events of its own",
            ),
            "match" => outputs.push(directive),
            "system" => system(directive, mistakes),
            "label" => refuse(
                "<label> is not supported: move the <match> out of it, and remove @label from the <source>",
            ),
            "filter" => refuse(
                "<filter> is not supported: events are stored as they arrive; add_http_headers, add_query_params and \
                 add_remote_addr of the <source> add members",
            ),
            "worker" => {
                refuse("<worker> is not supported: one process has several threads, set by --threads")
            }
            name => {
                let known = ["source", "match", "system"];
                let hint = settings::suggestion(name, known);
                refuse(&format!("unknown directive <{name}>{hint} (known here: {})", known.join(", ")));
            }
        }
    }
    let source =
        only(&sources, mistakes, "<source>", "one http source; start another listener for another port");
    let output =
        only(&outputs, mistakes, "<match>", "one file output; start another listener for another one");
    let config = output.and_then(|output| output::read(output, mistakes));
    // Uses a substitute for a faulty output, so that mistakes in the source are found too.
    let mut config = config.or_else(substitute_output)?;
    config.compat = Compat::fluentd();
    let mut own_rules = Rules::default();
    input::read(source?, &mut config, &mut own_rules, mistakes);
    Some((config, own_rules))
}

/// A substitute for an output with mistakes, so that the source can be checked. The caller discards the result.
fn substitute_output() -> Option<Config> {
    Some(Config::new(segments::Config::new("output".parse().ok()?)))
}

/// The only directive of a kind. None or several are a mistake.
fn only<'d>(
    parsed: &[&'d Directive],
    mistakes: &mut Mistakes<'_>,
    what: &str,
    how_many: &str,
) -> Option<&'d Directive> {
    for other in parsed.iter().skip(1) {
        mistakes.add(other.at, format!("a second {what}: there may be {how_many}"));
    }
    if parsed.is_empty() {
        mistakes.add(0, format!("{what} is missing: there must be {how_many}"));
    }
    parsed.first().copied()
}

/// Whether the directive matches only events of Fluentd itself.
fn is_of_fluentd_itself(directive: &Directive) -> bool {
    let mut patterns = directive.argument.split_whitespace().peekable();
    patterns.peek().is_some() && patterns.all(|pattern| pattern == "fluent" || pattern.starts_with("fluent."))
}

fn system(directive: &Directive, mistakes: &mut Mistakes<'_>) {
    let mut section = Section::of(directive, mistakes);
    section.without_effect(&["workers"], "one process has several threads, set by --threads");
    section.without_effect(&["log_level"], "give --log-level");
    section.without_effect(
        &["root_dir"],
        "there are no buffers; the journal is next to the files, or in --state",
    );
    section.without_effect(
        &[
            "process_name",
            "suppress_repeated_stacktrace",
            "emit_error_log_interval",
            "ignore_repeated_log_interval",
            "ignore_same_log_interval",
            "suppress_config_dump",
            "log_event_verbose",
            "without_source",
            "rpc_endpoint",
            "enable_get_dump",
            "strict_config_value",
            "enable_msgpack_time_support",
            "restart_worker_interval",
            "disable_shared_socket",
            "enable_input_metrics",
            "enable_size_metrics",
        ],
        "it concerns Fluentd's own process",
    );
    section.refuse(
        &["file_permission", "dir_permission"],
        "the umask of this process sets the permissions; set the umask (systemd: UMask=) and remove this line",
    );
    if let Some(log) = section.child("log") {
        section.mistakes.note(log.at, "<log> has no effect here: give --log text or --log json");
    }
    section.finish();
}

#[cfg(test)]
mod tests;
