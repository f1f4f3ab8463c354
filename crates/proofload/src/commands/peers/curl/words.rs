//! Parses the words of a command line as curl's options.

use clap::{
    Arg, ArgMatches, Command,
    error::{ContextKind, ErrorKind},
};

use super::{super::table::Row, options};

/// Prefixes of flags that have no `--no-` form in curl, because each selects one of several values.
const CHOICES: [&str; 9] =
    ["http1", "http2", "http3", "ipv", "metalink", "next", "proxy-tlsv", "sslv", "tlsv"];

/// The option that undoes a flag, such as `--no-compressed` or `--keepalive`. Whichever comes last counts.
fn counter(row: &Row) -> Option<Arg> {
    if !row.value.is_empty() || CHOICES.iter().any(|choice| row.long.starts_with(choice)) {
        return None;
    }
    let name = row.long.strip_prefix("no-").map_or_else(|| format!("no-{}", row.long), str::to_owned);
    // curl treats --location and --location-trusted alike, so the `no` form of either undoes both.
    let same = if row.long.starts_with("location") { &["L", "location-trusted"][..] } else { &[] };
    let counter = Arg::new(name.clone()).long(name.clone()).action(clap::ArgAction::SetTrue).hide(true);
    Some(counter.overrides_with_all([name, row.id()]).overrides_with_all(same))
}

/// curl's command line as a clap command.
fn command() -> Command {
    let urls = Arg::new("URL").action(clap::ArgAction::Append).num_args(0..);
    Command::new("curl")
        .disable_help_flag(true)
        .infer_long_args(true)
        .args(options::rows().map(|row| row.argument(false)))
        .args(options::rows().filter_map(counter))
        .arg(urls)
}

/// Parses a command line. Also returns a message for each unknown option.
///
/// # Errors
/// The messages so far, if the line cannot be parsed.
pub(super) fn matches(words: &[String]) -> Result<(ArgMatches, Vec<String>), Vec<String>> {
    let (mut words, mut unknown) = (words.to_vec(), Vec::new());
    loop {
        let error = match command().try_get_matches_from(&words) {
            Ok(matches) => return Ok((matches, unknown)),
            Err(error) => error,
        };
        unknown.push(in_one_line(&error));
        let option = error.get(ContextKind::InvalidArg).map(ToString::to_string).unwrap_or_default();
        let is_it = |word: &String| word == &option || word.starts_with(&format!("{option}="));
        match words.iter().position(is_it) {
            Some(at) if error.kind() == ErrorKind::UnknownArgument => drop(words.remove(at)),
            _ => return Err(unknown),
        }
    }
}

/// clap's message in one line, without the usage and without tips that do not apply.
fn in_one_line(error: &clap::Error) -> String {
    let context = |kind| error.get(kind).map(ToString::to_string);
    if let (ErrorKind::UnknownArgument, Some(option)) = (error.kind(), context(ContextKind::InvalidArg)) {
        let similar = context(ContextKind::SuggestedArg).map(|known| format!("; did you mean {known}?"));
        return format!("{option} is not a known option of curl{}", similar.unwrap_or_default());
    }
    let text = error.render().to_string();
    let lines = text.lines().take_while(|line| !line.starts_with("Usage"));
    let words: Vec<&str> = lines.flat_map(str::split_whitespace).collect();
    words.join(" ").trim_start_matches("error: ").to_owned()
}
