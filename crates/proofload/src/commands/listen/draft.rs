//! What the listener is to do, while settings are still being read: some of them only mean something together.

use std::path::PathBuf;

use events::LineFormat;
use listen::{Compat, Config, RequestFields, Tls, import::Imported};
use segments::Template;
use tracing::level_filters::LevelFilter;

use super::{reading::Reading, secrets};

/// Where events go unless told otherwise.
pub(super) const DEFAULT_PATH: &str = "events/${tag}.%Y-%m-%d.log";

/// What has been read so far.
#[derive(Debug)]
pub(crate) struct Draft {
    /// What stands alone. Of its rules only how many records a body may have: [`Draft::reading`] has the others.
    pub config: Config,
    /// How bodies are read.
    pub reading: Reading,
    /// Whether addresses were given, and not the default's.
    pub listens_as_told: bool,
    /// How a line looks.
    pub format: Format,
    /// Lines of [`Format::OutFile`] have the time.
    pub has_time: bool,
    /// Lines of [`Format::OutFile`] have the tag.
    pub has_tag: bool,
    /// The columns of [`Format::Csv`].
    pub csv_fields: Vec<String>,
    /// The journal's folder, if not beside the files.
    pub state: Option<PathBuf>,
    /// File of certificates.
    pub certificates: Option<PathBuf>,
    /// File of the private key.
    pub key: Option<PathBuf>,
    /// File of tokens.
    pub bearer_tokens: Option<PathBuf>,
    /// File of names and passwords.
    pub basic_users: Option<PathBuf>,
    /// File of the report.
    pub report: Option<PathBuf>,
    /// How what happens is told.
    pub log: LogForm,
    /// What is told.
    pub log_level: LevelFilter,
}

/// How a line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// Time, tag and JSON.
    OutFile,
    /// JSON.
    Json,
    /// Comma-separated values.
    Csv,
    /// The text as it was sent.
    Raw,
}

/// How what happens is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogForm {
    /// A line for people.
    Text,
    /// A line of JSON.
    Json,
}

/// A draft made whole.
#[derive(Debug)]
pub(crate) struct Plan {
    /// For the server.
    pub config: Config,
    /// Whether addresses were given, and not the default's.
    pub listens_as_told: bool,
    /// File of the report.
    pub report: Option<PathBuf>,
    /// How what happens is told.
    pub log: LogForm,
    /// What is told.
    pub log_level: LevelFilter,
    /// What is sound but should be known.
    pub warnings: Vec<String>,
}

impl Draft {
    /// Begins with everything by default, or with what was imported.
    ///
    /// # Errors
    /// None in practice: the default path is sound.
    pub(crate) fn new(imported: Option<Imported>) -> Result<Self, String> {
        let reading = Reading::new(imported.as_ref());
        let config = match imported {
            Some(imported) => imported.config,
            None => {
                let (template, suffix) = split_path(DEFAULT_PATH)?;
                let mut config = Config::new(segments::Config::new(template));
                config.store.suffix = suffix;
                config.listen = vec![([127, 0, 0, 1], 9880).into()];
                config
            }
        };
        let (format, has_time, has_tag, csv_fields) = match &config.format {
            LineFormat::OutFile { time, tag } => (Format::OutFile, *time, *tag, Vec::new()),
            LineFormat::Json => (Format::Json, true, true, Vec::new()),
            LineFormat::Csv { fields } => (Format::Csv, true, true, fields.clone()),
            LineFormat::Raw => (Format::Raw, true, true, Vec::new()),
        };
        Ok(Self {
            config,
            reading,
            listens_as_told: false,
            format,
            has_time,
            has_tag,
            csv_fields,
            state: None,
            certificates: None,
            key: None,
            bearer_tokens: None,
            basic_users: None,
            report: None,
            log: LogForm::Text,
            log_level: LevelFilter::INFO,
        })
    }

    /// Sets where lines are stored; the end of the file's name goes behind its index.
    ///
    /// # Errors
    /// What is wrong with the path.
    pub(crate) fn set_path(&mut self, path: &str) -> Result<(), String> {
        let (template, suffix) = split_path(path)?;
        self.config.store.state = segments::Config::new(template.clone()).state;
        self.config.store.template = template;
        self.config.store.suffix = suffix;
        Ok(())
    }

    /// Reads and answers as Fluentd; what was imported of Fluentd's stays.
    pub(crate) fn be_as_fluentd(&mut self) {
        self.config.compat = self.reading.fluentds_answers();
    }

    /// Reads and answers in our own way; of what was imported only what the file itself says stays.
    pub(crate) fn be_itself(&mut self) {
        self.config.compat = Compat::None;
    }

    /// Makes it whole.
    ///
    /// # Errors
    /// Every contradiction, and every file of secrets that cannot be used.
    pub(crate) fn finish(mut self) -> Result<Plan, Vec<String>> {
        let mut mistakes = Vec::new();
        let mut warnings = Vec::new();
        if let Some(state) = self.state.take() {
            self.config.store.state = state;
        }
        self.check_format(&mut mistakes);
        self.config.rules = self.reading.rules(&self.config.compat, self.config.rules.most_records);
        if self.config.compat == Compat::None {
            mistakes.extend(self.reading.lost_without_fluentd().map(str::to_owned));
        }
        if self.config.request_fields != RequestFields::default() && self.config.compat == Compat::None {
            mistakes.push(
                "--add-http-headers, --add-query-params and --add-remote-addr need --compat fluentd".into(),
            );
        }
        match (self.certificates.take(), self.key.take()) {
            (Some(certificates), Some(key)) => self.config.tls = Some(Tls { certificates, key }),
            (Some(_), None) => {
                mistakes.push("--tls-cert needs --tls-key: the certificate's private key".into())
            }
            (None, Some(_)) => mistakes.push("--tls-key needs --tls-cert: the key's certificate".into()),
            (None, None) => {}
        }
        let files = [
            ("--bearer-token-file", self.bearer_tokens.take(), secrets::bearer as secrets::Reader),
            ("--basic-auth-file", self.basic_users.take(), secrets::basic as secrets::Reader),
        ];
        for (option, path, read) in files {
            let Some(path) = path else { continue };
            match secrets::read(&path, read) {
                Ok(found) => {
                    self.config.credentials.extend(found.credentials);
                    warnings.extend(found.warning.map(|warning| format!("{option}: {warning}")));
                }
                Err(why) => mistakes.push(format!("{option}: {why}")),
            }
        }
        if !self.config.credentials.is_empty() && self.config.tls.is_none() {
            warnings.push("tokens and passwords travel in plain text: give --tls-cert and --tls-key".into());
        }
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        Ok(Plan {
            config: self.config,
            listens_as_told: self.listens_as_told,
            report: self.report,
            log: self.log,
            log_level: self.log_level,
            warnings,
        })
    }

    fn check_format(&mut self, mistakes: &mut Vec<String>) {
        if self.format != Format::OutFile && !(self.has_time && self.has_tag) {
            mistakes
                .push("--no-time and --no-tag are for --format out_file: other lines have neither".into());
        }
        match (self.format, self.csv_fields.is_empty()) {
            (Format::Csv, true) => {
                mistakes.push("--format csv needs --csv-fields: the members that become columns".into())
            }
            (Format::Csv, false) | (_, true) => {}
            (_, false) => mistakes.push("--csv-fields needs --format csv".into()),
        }
        self.config.format = match self.format {
            Format::OutFile => LineFormat::OutFile { time: self.has_time, tag: self.has_tag },
            Format::Json => LineFormat::Json,
            Format::Csv => LineFormat::Csv { fields: std::mem::take(&mut self.csv_fields) },
            Format::Raw => LineFormat::Raw,
        };
    }
}

/// The template, and the end of the file's name that an index goes before, such as `.log`.
fn split_path(path: &str) -> Result<(Template, String), String> {
    let name = path.rfind('/').map_or(0, |slash| slash + 1);
    let dot = path[name..].rfind('.').map(|dot| name + dot).filter(|dot| *dot > name);
    let suffix = dot.map_or("", |dot| &path[dot..]);
    let is_plain = suffix.len() > 1 && suffix[1..].chars().all(|c| c.is_ascii_alphanumeric());
    let suffix = if is_plain { suffix } else { "" };
    let template =
        path[..path.len() - suffix.len()].parse::<Template>().map_err(|error| error.to_string())?;
    Ok((template, suffix.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_name_is_what_an_index_goes_before() {
        for (path, template, suffix) in [
            (DEFAULT_PATH, "events/${tag}.%Y-%m-%d", ".log"),
            ("/a.b/c", "/a.b/c", ""),
            ("a/${tag}.%Y", "a/${tag}.%Y", ""),
            ("a/b.%Y.txt", "a/b.%Y", ".txt"),
            ("a/${k.x}", "a/${k.x}", ""),
            ("a/.log", "a/.log", ""),
        ] {
            let (read, end) = split_path(path).unwrap();
            assert_eq!((read.to_string().as_str(), end.as_str()), (template, suffix), "{path}");
        }
        assert!(split_path("a/").is_err() && split_path("").is_err() && split_path("a/%Q").is_err());
    }

    #[test]
    fn contradictions_are_all_told() {
        let mut draft = Draft::new(None).unwrap();
        draft.format = Format::Json;
        draft.has_tag = false;
        draft.csv_fields = vec!["a".into()];
        draft.certificates = Some("c".into());
        draft.config.request_fields.remote_addr = true;
        draft.bearer_tokens = Some("/does/not/exist".into());
        let mistakes = draft.finish().unwrap_err();
        for part in
            ["--no-tag", "--csv-fields needs", "--add-remote-addr", "--tls-cert needs", "/does/not/exist"]
        {
            assert!(mistakes.iter().any(|mistake| mistake.contains(part)), "{part}: {mistakes:?}");
        }
        assert_eq!(mistakes.len(), 5, "{mistakes:?}");
    }

    #[test]
    fn what_was_imported_stays_unless_told_otherwise() {
        let text = "<source>\n@type http\n</source>\n<match **>\n@type file\npath a\n<format>\noutput_tag false\n</format>\n</match>";
        let imported = listen::import::fluentd("f", text).unwrap();
        let mut draft = Draft::new(Some(imported)).unwrap();
        assert!(draft.has_time && !draft.has_tag && !draft.listens_as_told);
        draft.be_as_fluentd();
        draft.set_path("b/c.txt").unwrap();
        let config = draft.finish().unwrap().config;
        assert_eq!(config.format, LineFormat::OutFile { time: true, tag: false });
        assert_eq!(
            (config.store.template.to_string().as_str(), config.store.suffix.as_str()),
            ("b/c", ".txt")
        );
        assert!(config.store.state.starts_with("b"), "{:?}", config.store.state);
    }
}
