//! The options that describe a workload, shared by the commands that generate load.

use std::cell::OnceCell;

use clap::Args;
use load::{FieldMistake, HttpWorkload, OPTIONS};
use settings::options::OptionSpec;

use super::{
    foreign_options::ForeignOptions,
    options::{Given, Table},
    peers::{
        curl::{CurlLine, shell},
        table::header_name,
    },
};

/// A workload as given on the command line; [`HttpWorkload::plan`] parses it. With `SEARCH`, it has no options that a
/// search sets itself.
#[derive(Debug, Args)]
pub(crate) struct WorkloadArgs<const SEARCH: bool> {
    /// URL to send requests to, such as http://127.0.0.1:8080/path
    #[arg(required_unless_present_any = ["curl", "curl_words"])]
    url: Option<String>,
    /// Send what this command line of curl sends: URL, method, header, body, TLS. @FILE reads the line from a file, - from
    /// standard input. A line may also be pasted at the end, after --
    #[arg(long, value_name = "LINE", help_heading = "Request", conflicts_with = "curl_words")]
    curl: Option<String>,
    /// A command line of curl, as pasted: curl 'http://…' -H '…'
    #[arg(last = true, value_name = "curl …", hide = true)]
    curl_words: Vec<String>,
    #[arg(skip)]
    curl_line: OnceCell<Option<Result<CurlLine, Vec<String>>>>,
    #[command(flatten)]
    given: Given<Workload<SEARCH>>,
    /// Seed of everything random
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Machine")]
    seed: u64,
    /// Run even if the plan does not fit this machine (the trial will be void)
    #[arg(long, help_heading = "Machine")]
    force: bool,

    #[command(flatten)]
    foreign: ForeignOptions,
}

impl<const SEARCH: bool> WorkloadArgs<SEARCH> {
    /// The URL argument, or the URL in curl's command line.
    pub(crate) fn url(&self) -> String {
        self.workload().url
    }

    /// Seed of all random numbers.
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// Mistakes in options of other tools and in curl's command line.
    pub(crate) fn foreign_mistakes(&self) -> Vec<String> {
        let mut mistakes =
            self.foreign.mistakes(self.given.has("keepalive"), self.url.as_deref().unwrap_or_default());
        match self.curl_line() {
            Some(Ok(line)) => {
                let options = self.given.0.iter().map(|(option, _)| option.flag()).collect::<Vec<_>>();
                let headers = self.given.0.iter().filter(|(option, _)| option.key == "headers");
                let headers: Vec<String> = headers.flat_map(|(_, values)| values.clone()).collect();
                mistakes.extend(line.conflicts(self.url.is_some(), &options, &headers));
            }
            Some(Err(why)) => mistakes.extend(why.iter().map(|why| format!("--curl: {why}"))),
            None => {}
        }
        mistakes
    }

    /// Whether curl's command line is given but invalid, so that there is no workload.
    pub(crate) fn lacks_curl(&self) -> bool {
        matches!(self.curl_line(), Some(Err(_)))
    }

    /// Notes for the user on curl's command line, then the equivalent `proofload http` command.
    pub(crate) fn curl_notes(&self) -> Vec<String> {
        let Some(Ok(line)) = self.curl_line() else { return Vec::new() };
        // Planning has already registered the secrets in the line, so they can be masked in it.
        self.curl.iter().for_each(|line| shell::learn(line));
        let mut notes = line.notes().to_vec();
        let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
        notes.push(line.same(&own_words(words)).map_or_else(
            || {
                "no command without --curl is shown: the body comes from a file, is long, or is not text"
                    .to_owned()
            },
            |same| format!("The same: {same}"),
        ));
        notes
    }

    /// A note that times without a unit are seconds, if the command line has such a time.
    pub(crate) fn time_note(&self) -> Option<String> {
        let mut own = HttpWorkload::default();
        // Cannot fail, because options are stored as text; the plan reports invalid values.
        self.given.apply(&mut own);
        own.times_without_unit()
    }

    /// The workload of the options and of curl's command line. Its URL and load are not yet validated.
    pub(crate) fn workload(&self) -> HttpWorkload {
        let Self { url, seed, force, .. } = self;
        let url = url.clone().unwrap_or_default();
        let mut workload = HttpWorkload { url, seed: *seed, force: *force, ..HttpWorkload::default() };
        if let Some(Ok(line)) = self.curl_line() {
            line.apply(&mut workload);
        }
        let mut of_curl = std::mem::take(&mut workload.headers);
        // Cannot fail, because options are stored as text; the plan reports invalid values.
        self.given.apply(&mut workload);
        if let Some(Ok(line)) = self.curl_line() {
            let names = workload
                .headers
                .iter()
                .map(|field| header_name(field))
                .filter(|name| line.is_curl_default(name));
            names.for_each(|name| of_curl.retain(|field| !header_name(field).eq_ignore_ascii_case(name)));
        }
        workload.headers.splice(0..0, of_curl);
        workload
    }

    /// The parsed command line of curl, if given. Parsed only once, because it may come from standard input.
    fn curl_line(&self) -> Option<&Result<CurlLine, Vec<String>>> {
        let read = || match (&self.curl, &self.curl_words[..]) {
            (Some(line), _) => Some(CurlLine::read(line)),
            (None, []) => None,
            (None, words) => Some(CurlLine::parse(words)),
        };
        self.curl_line.get_or_init(read).as_ref()
    }
}

/// Arguments of this process, without the program's name and without curl's command line.
fn own_words(words: impl Iterator<Item = String>) -> Vec<String> {
    let (mut own, mut is_of_curl) = (Vec::new(), false);
    for word in words.skip(1).take_while(|word| word != "--") {
        if !is_of_curl && !word.starts_with("--curl") {
            own.push(word.clone());
        }
        is_of_curl = word == "--curl";
    }
    own
}

/// The options of a workload. `SEARCH` leaves out those that a search determines itself.
#[derive(Debug)]
struct Workload<const SEARCH: bool>;

impl<const SEARCH: bool> Table for Workload<SEARCH> {
    type Config = HttpWorkload;
    const HAS_POSITIONALS: bool = true;

    fn settings() -> impl Iterator<Item = &'static OptionSpec<HttpWorkload>> {
        let options = OPTIONS.iter().filter(|option| !(SEARCH && option.excluded_from_search));
        options.map(|option| &option.spec)
    }
}

/// Converts a mistake in a field to a message that names the field's option.
pub(crate) fn option_mistake(mistake: FieldMistake) -> String {
    let option = OPTIONS.iter().find(|option| option.spec.key == mistake.field);
    let name = match (mistake.field, option) {
        ("fault", _) => "--inject-fault".to_owned(),
        (_, Some(option)) => format!("--{}", option.spec.flag()),
        (_, None) => "URL".to_owned(),
    };
    format!("{name}: {}", mistake.message)
}
