//! Command lines of other load generators. A table for each program translates its options. `proofload wrk`, `wrk2` and
//! `ab` accept these lines and run the equivalent `proofload http`.

mod ab;
pub(crate) mod curl;
pub(super) mod table;
mod wrk;

use std::{fmt, marker::PhantomData};

use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches, Parser};

use super::{http, http_args::HttpArgs};
use crate::{
    exit::{Exit, Refusal, Result},
    output::peer_text,
};
pub(crate) use ab::Ab;
use table::{Given, OWN, Row, Translated, same_line};
pub(crate) use wrk::{Wrk, Wrk2};

/// A load generator whose command line proofload understands.
pub(crate) trait Peer: fmt::Debug + 'static {
    /// Description of the command, for the help.
    const ABOUT: &'static str;
    /// The program's options, in the order of the help.
    const ROWS: &'static [Row];

    /// Translates a command line to the URL, the other options, and the layout of the output.
    fn translate(url: &str, given: &Given) -> (String, Translated, peer_text::Layout);
}

/// A command line of another program, as typed.
#[derive(Debug)]
pub(crate) struct PeerArgs<P> {
    url: String,
    given: Given,
    program: PhantomData<P>,
}

impl<P: Peer> Args for PeerArgs<P> {
    fn augment_args(command: Command) -> Command {
        let url = Arg::new("url").value_name("URL").required(true).help("URL to send requests to");
        let rows = P::ROWS.iter().map(|row| row.argument(true));
        let own_rows = OWN.iter().map(|row| row.argument(true).help_heading("Output of proofload"));
        let command = command.about(P::ABOUT).infer_long_args(true).after_help(EXIT_STATUS);
        command.args(rows).args(own_rows).arg(url.action(ArgAction::Set))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

const EXIT_STATUS: &str = "Exit status, as for proofload http: 0 every request was completed, 1 some were not, 2 wrong \
                           use or refused, 3 void (nothing may be concluded), 130 interrupted.";

impl<P: Peer> FromArgMatches for PeerArgs<P> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let url = matches.get_one::<String>("url").cloned().unwrap_or_default();
        let given = Given::read(P::ROWS.iter().chain(OWN), matches);
        Ok(Self { url, given, program: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The options of `proofload http`, parsed from words.
#[derive(Debug, Parser)]
#[command(no_binary_name = true)]
struct HttpLine {
    #[command(flatten)]
    http: HttpArgs,
}

/// Runs the trial and prints its result in the other program's layout.
pub(crate) fn run<P: Peer>(arguments: &PeerArgs<P>) -> Result<Exit> {
    let (words, translated, layout) = arguments.http_words().map_err(Refusal::new)?;
    let read = HttpLine::try_parse_from(&words).map_err(Refusal::one)?;
    let line = same_line(&[&["http".to_owned()][..], &words].concat());
    http::run_shown(&read.http, false, |trial| peer_text::render(trial, &layout, &translated.notes, &line))
}

impl<P: Peer> PeerArgs<P> {
    /// The command line as arguments of `proofload http`.
    ///
    /// # Errors
    /// All refused options.
    fn http_words(&self) -> Result<(Vec<String>, Translated, peer_text::Layout), Vec<String>> {
        let (url, translated, layout) = P::translate(&self.url, &self.given);
        if !translated.mistakes.is_empty() {
            return Err(translated.mistakes);
        }
        Ok((translated.words(&url), translated, layout))
    }

    /// The command line as parsed options of `proofload http`.
    ///
    /// # Errors
    /// All refused options.
    #[cfg(test)]
    pub(crate) fn http(&self) -> Result<HttpArgs, Vec<String>> {
        let (words, ..) = self.http_words()?;
        HttpLine::try_parse_from(words).map(|line| line.http).map_err(|error| vec![error.to_string()])
    }
}

#[cfg(test)]
mod tests;
