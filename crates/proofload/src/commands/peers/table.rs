//! Tables that translate other programs' options, and the translation of a command line with them.

use clap::{Arg, ArgAction, ArgMatches};
use load::OPTIONS;
use record::text::written_literally;

/// An option of another program, and its translation.
#[derive(Debug)]
pub(crate) struct Row {
    /// The option's letter, such as `c` for `-c`.
    pub letter: Option<char>,
    /// The option's long name; empty if it has none.
    pub long: &'static str,
    /// The placeholder of its value in the help; empty for a flag.
    pub value: &'static str,
    pub translation: Translation,
}

/// How an option of another program is translated.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Translation {
    /// Equals this option of proofload, with the same value.
    Becomes(&'static str),
    /// Asks for what proofload does by default.
    Default,
    /// Does not change the request. The text gives the reason or an alternative.
    Ignored(&'static str),
    /// Refused. The text names an alternative.
    Refused(&'static str),
    /// Handled by the program's own module. The text is the help.
    Own(&'static str),
}

/// A row for an option with a letter. An empty `long` means no long name, an empty `value` means a flag.
pub(crate) const fn row(
    letter: char,
    long: &'static str,
    value: &'static str,
    translation: Translation,
) -> Row {
    Row { letter: Some(letter), long, value, translation }
}

/// A row for an option without a letter.
pub(crate) const fn long(long: &'static str, value: &'static str, translation: Translation) -> Row {
    Row { letter: None, long, value, translation }
}

/// Options of proofload that commands for other programs' command lines also accept.
pub(super) const OWN: &[Row] = &[
    long("json", "FILE", Translation::Becomes("json")),
    long("out", "FOLDER", Translation::Becomes("out")),
    long("html", "FILE", Translation::Becomes("html")),
    long("hlog", "FILE", Translation::Becomes("hlog")),
    long("save", "STUDY.toml", Translation::Becomes("save")),
    long("on", "HOSTS", Translation::Becomes("on")),
    long("nats-creds", "FILE", Translation::Becomes("nats-creds")),
    long("nats-ca", "FILE", Translation::Becomes("nats-ca")),
    long("fleet-key", "FILE", Translation::Becomes("fleet-key")),
    long("agent-keys", "FILE", Translation::Becomes("agent-keys")),
];

/// Options of proofload that are valid only for an https:// URL.
pub(super) const TLS: [&str; 11] = [
    "alpn",
    "insecure",
    "no-resumption",
    "cacert",
    "cert",
    "key",
    "sni",
    "tls-min",
    "tls-max",
    "ciphers",
    "handshake-timeout",
];

impl Row {
    /// The option's name in messages.
    pub(crate) fn name(&self) -> String {
        match self.letter {
            Some(letter) => format!("-{letter}"),
            None => format!("--{}", self.long),
        }
    }

    /// The option as a clap argument, with or without help.
    pub(crate) fn argument(&'static self, has_help: bool) -> Arg {
        let mut argument = Arg::new(self.id()).allow_hyphen_values(true);
        argument = self.letter.into_iter().fold(argument, Arg::short);
        if !self.long.is_empty() {
            argument = argument.long(self.long);
        }
        argument = match self.value {
            "" => argument.allow_hyphen_values(false).action(ArgAction::SetTrue).overrides_with(self.id()),
            value => argument.value_name(value).action(ArgAction::Append),
        };
        if has_help { argument.help(self.help()) } else { argument }
    }

    /// The ID of the option's clap argument.
    pub(super) fn id(&self) -> String {
        self.letter.map_or_else(|| self.long.to_owned(), String::from)
    }

    fn help(&self) -> String {
        match self.translation {
            Translation::Becomes(name) => format!("proofload http --{name}"),
            Translation::Default => "Changes nothing here: proofload always does this".to_owned(),
            Translation::Ignored(why) => format!("Changes nothing here: {why}"),
            Translation::Refused(why) => format!("Refused: {why}"),
            Translation::Own(help) => help.to_owned(),
        }
    }
}

/// The options of a command line in order, each with its value; the value of a flag is empty.
#[derive(Debug)]
pub(crate) struct Given(Vec<(&'static Row, String)>);

impl Given {
    /// Collects the options that clap has matched, in the order of the command line.
    pub(crate) fn read(rows: impl IntoIterator<Item = &'static Row>, matches: &ArgMatches) -> Self {
        let mut given: Vec<(usize, &'static Row, String)> = Vec::new();
        for row in rows {
            let id = row.id();
            let places = matches.indices_of(&id).into_iter().flatten();
            if row.value.is_empty() {
                let place = places.last().unwrap_or_default();
                given.extend(matches.get_flag(&id).then(|| (place, row, String::new())));
            } else {
                let values = matches.get_many::<String>(&id).into_iter().flatten();
                given.extend(places.zip(values).map(|(place, value)| (place, row, value.clone())));
            }
        }
        given.sort_by_key(|(place, ..)| *place);
        Self(given.into_iter().map(|(_, row, value)| (row, value)).collect())
    }

    /// Iterates over the options and their values in the order of the command line.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&'static Row, &str)> {
        self.0.iter().map(|(row, value)| (*row, value.as_str()))
    }

    /// The last value of an option. The name is as in messages: `-c`, `--timeout`.
    pub(crate) fn last(&self, name: &str) -> Option<&str> {
        self.iter().filter(|(row, _)| row.name() == name).last().map(|(_, value)| value)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.last(name).is_some()
    }
}

/// The value of an option of `proofload http`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    /// The option is a flag.
    Flag,
    /// Text from the command line or from the other program's defaults. It is sent unchanged: templates, variables and
    /// `@FILE` have no special meaning in it.
    Literal(String),
    /// The path of a file that the command line names.
    File(String),
}

impl Value {
    /// The literal text; empty for a flag or a file.
    pub(super) fn words(&self) -> &str {
        if let Self::Literal(words) = self { words } else { "" }
    }

    /// The value as `proofload http` would need it on the command line for the option `name`.
    pub(super) fn written(&self, name: &str) -> Option<String> {
        let is_text = || OPTIONS.iter().any(|option| option.spec.flag() == name && option.is_text);
        match self {
            Self::Flag => None,
            Self::Literal(words) if is_text() => Some(written_literally(words, &[])),
            Self::Literal(words) => Some(words.clone()),
            Self::File(path) => Some(format!("@{path}")),
        }
    }
}

/// The URL as `proofload http` would need it on the command line.
pub(super) fn written_url(url: &str) -> String {
    written_literally(url, &['#'])
}

/// The translation of another program's command line.
#[derive(Debug, Default)]
pub(crate) struct Translated {
    /// Options of `proofload http`: their long names without hyphens, and their values.
    pub options: Vec<(&'static str, Value)>,
    /// Notes for the user on the translation.
    pub notes: Vec<String>,
    /// Reasons to refuse the command line; empty if it is accepted.
    pub mistakes: Vec<String>,
}

impl Translated {
    /// Translates with the tables alone. Skips options that the program's own module handles.
    pub(super) fn of(given: &Given) -> Self {
        let mut all = Self::default();
        for (row, value) in given.iter() {
            match row.translation {
                Translation::Becomes(name) if row.value.is_empty() => all.put(name, Value::Flag),
                Translation::Becomes(name) => all.set(name, value),
                Translation::Ignored(why) => {
                    all.notes.push(format!("{} changes nothing here: {why}", row.name()))
                }
                Translation::Refused(why) => all.mistakes.push(format!("{}: {why}", row.name())),
                Translation::Default | Translation::Own(_) => {}
            }
        }
        all
    }

    /// Sets an option. As in the other programs, a repeated option replaces the earlier value, except for headers.
    pub(super) fn put(&mut self, name: &'static str, value: Value) {
        if name != "header" {
            self.options.retain(|(given, _)| *given != name);
        }
        self.options.push((name, value));
    }

    /// Sets an option to literal text.
    pub(super) fn set(&mut self, name: &'static str, words: impl Into<String>) {
        self.put(name, Value::Literal(words.into()));
    }

    /// Sets an option unless it is already set.
    pub(super) fn set_default(&mut self, name: &'static str, words: &str) {
        if !self.options.iter().any(|(given, _)| *given == name) {
            self.set(name, words);
        }
    }

    /// Restricts source addresses to a family by its wildcard address `any`, unless the line gives a source address. The
    /// last family counts.
    pub(super) fn set_family(&mut self, any: &str) {
        let is_family =
            |value: &Value| matches!(value, Value::Literal(any) if any == "0.0.0.0" || any == "::");
        self.options.retain(|(name, value)| *name != "source" || !is_family(value));
        self.set_default("source", any);
    }

    pub(super) fn add_header(&mut self, name: &str, value: &str) {
        self.set("header", format!("{name}: {value}"));
    }

    /// The header fields of the command line.
    pub(super) fn headers(&self) -> impl Iterator<Item = &str> {
        self.options.iter().filter(|(name, _)| *name == "header").map(|(_, value)| value.words())
    }

    /// Whether an option sets this header field.
    pub(super) fn has_header(&self, name: &str) -> bool {
        self.headers().any(|field| header_name(field).eq_ignore_ascii_case(name))
    }

    /// Removes the header fields for which `is_wrong` is true.
    pub(super) fn remove_headers(&mut self, is_wrong: impl Fn(&str) -> bool) {
        self.options.retain(|(name, value)| *name != "header" || !is_wrong(value.words()));
    }

    /// The arguments of the equivalent `proofload http` command.
    pub(super) fn words(&self, url: &str) -> Vec<String> {
        let mut words = Vec::new();
        for (name, value) in self.options.iter().filter(|(name, _)| is_taken(name, url)) {
            words.push(format!("--{name}"));
            words.extend(value.written(name));
        }
        words.push(written_url(url));
        words
    }
}

/// The name of a header field. Text without a colon ends at the first semicolon or is returned whole.
pub(in crate::commands) fn header_name(field: &str) -> &str {
    field.split([':', ';']).next().unwrap_or_default().trim()
}

/// Whether an option applies to a URL. Other programs ignore TLS options for an http:// URL, but proofload would refuse
/// them.
pub(super) fn is_taken(name: &str, url: &str) -> bool {
    let is_tls_url = url.get(..8).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https://"));
    !TLS.contains(&name) || is_tls_url
}

/// Why a URL cannot be sent in a request line; `None` if it can.
pub(super) fn unsendable(url: &str) -> Option<String> {
    let wrong = url.chars().find(|c| !c.is_ascii_graphic())?;
    let shown = if wrong.is_control() || wrong == ' ' {
        "a space or a control character".to_owned()
    } else {
        format!("'{wrong}'")
    };
    Some(format!("URL: {shown} is not allowed in a request line: write it percent-encoded"))
}

/// The message if a host name contains a character that the program refuses. Addresses in brackets follow other rules.
pub(super) fn foreign_in_host(
    program: &str,
    host: &str,
    is_of_name: impl Fn(char) -> bool,
) -> Option<String> {
    let wrong = host.chars().find(|c| !host.starts_with('[') && !is_of_name(*c))?;
    Some(format!("URL: {program} takes no {wrong} in a host: give the host's name or address alone"))
}

/// Joins the words to a command. Replaces each secret by a variable that the user must set, because output must not show
/// secrets.
pub(super) fn same_line(words: &[String]) -> String {
    let mut secrets = 0;
    let mut line = "proofload".to_owned();
    for word in words {
        let masked = secrets::mask(word);
        let mut parts = masked.split(secrets::MASK);
        let mut shown = parts.next().unwrap_or_default().to_owned();
        for part in parts.filter(|_| masked != *word) {
            secrets += 1;
            let between = if part.starts_with('@') {
                format!("${{SECRET_{secrets}}}:${{PASSWORD_{secrets}}}")
            } else {
                format!("${{SECRET_{secrets}}}")
            };
            shown += &format!("{between}{part}");
        }
        line += &format!(" {}", quoted(if masked == *word { word } else { &shown }));
    }
    if secrets > 0 {
        line += "\n  first export each variable in ${…} with its secret: proofload does not print secrets";
    }
    line
}

/// Quotes a word for a shell.
pub(super) fn quoted(word: &str) -> String {
    // Quoting fails only for zero bytes, which arguments cannot contain.
    shlex::try_quote(word).map_or_else(|_| word.to_owned(), |quoted| quoted.into_owned())
}
