//! Collects the settings of the listener, then validates and combines them.

use std::path::{Path, PathBuf};

use events::LineFormat;
use listen::{Compat, Config, RequestFields, Tls, import::Imported};
use segments::Template;
use tracing::level_filters::LevelFilter;

use super::{body_rules::BodyRules, secrets};
use crate::commands::logs::LogFormat;

/// The default of `path`.
pub(super) const DEFAULT_PATH: &str = "events/${tag}.%Y-%m-%d.log";

/// The settings read so far; `build` validates them.
#[derive(Debug)]
pub(crate) struct ConfigBuilder {
    /// Settings that are complete when they are read. Of `rules`, only the number of records is set here; the others
    /// are in [`ConfigBuilder::body_rules`].
    pub config: Config,
    /// How bodies are parsed and answered.
    pub body_rules: BodyRules,
    /// Whether the user gave addresses. Otherwise sockets from systemd replace the default.
    pub has_explicit_addresses: bool,
    /// Format of a stored line.
    pub format: Format,
    /// Whether lines of [`Format::OutFile`] have the time.
    pub has_time: bool,
    /// Whether lines of [`Format::OutFile`] have the tag.
    pub has_tag: bool,
    /// The columns of [`Format::Csv`].
    pub csv_fields: Vec<String>,
    /// The journal's folder; `None` puts it beside the stored files.
    pub state: Option<PathBuf>,
    /// File with the certificate chain.
    pub certificates: Option<PathBuf>,
    /// File with the private key.
    pub key: Option<PathBuf>,
    /// File with bearer tokens.
    pub bearer_tokens: Option<PathBuf>,
    /// File with NAME:PASSWORD pairs.
    pub basic_users: Option<PathBuf>,
    /// File for the final report.
    pub report: Option<PathBuf>,
    pub log: LogFormat,
    pub log_level: LevelFilter,
    /// Warnings to log when the listener starts.
    pub warnings: Vec<String>,
}

/// Format of a stored line, which `build` combines with `has_time`, `has_tag` and `csv_fields`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// Time, tag and JSON, as in Fluentd's out_file.
    OutFile,
    Json,
    Csv,
    /// The text as received.
    Raw,
}

impl ConfigBuilder {
    /// Starts with the defaults, or with an imported configuration.
    ///
    /// # Errors
    /// If the default path is invalid, which a test rules out.
    pub(crate) fn new(imported: Option<Imported>) -> Result<Self, String> {
        let body_rules = BodyRules::new(imported.as_ref());
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
            body_rules,
            has_explicit_addresses: false,
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
            log: LogFormat::Text,
            log_level: LevelFilter::INFO,
            warnings: Vec::new(),
        })
    }

    /// Sets the path of stored files. The file index comes before the suffix of the path, such as `.log`.
    ///
    /// # Errors
    /// If the path is invalid.
    pub(crate) fn set_path(&mut self, path: &str) -> Result<(), String> {
        let (template, suffix) = split_path(path)?;
        self.config.store.state = segments::Config::new(template.clone()).state;
        self.config.store.template = template;
        self.config.store.suffix = suffix;
        Ok(())
    }

    /// Selects how bodies are parsed and answered: as in Fluentd, with all imported settings, or proofload's own way,
    /// with only the settings that the imported file states itself.
    pub(crate) fn use_fluentd_compat(&mut self, is_used: bool) {
        self.config.compat = if is_used { self.body_rules.answers.clone() } else { Compat::None };
    }

    /// Validates and combines the settings.
    ///
    /// # Errors
    /// All contradictions, and all unusable files with secrets.
    pub(crate) fn build(mut self) -> Result<Self, Vec<String>> {
        let mut mistakes = Vec::new();
        if let Some(state) = self.state.take() {
            self.config.store.state = state;
        }
        self.check_format(&mut mistakes);
        self.config.rules = self.body_rules.rules(&self.config.compat, self.config.rules.max_records);
        if self.config.compat == Compat::None {
            mistakes.extend(self.body_rules.settings_for_fluentd_only().map(str::to_owned));
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
                    self.warnings.extend(found.warning.map(|warning| format!("{option}: {warning}")));
                }
                Err(why) => mistakes.push(format!("{option}: {why}")),
            }
        }
        if !self.config.credentials.is_empty() && self.config.tls.is_none() {
            self.warnings
                .push("tokens and passwords travel in plain text; give --tls-cert and --tls-key".into());
        }
        let store = &self.config.store;
        let outputs = [
            ("--path", Some(format!("{}{}", store.template, store.suffix))),
            ("--symlink", store.symlink.as_ref().map(ToString::to_string)),
        ];
        for (option, path) in outputs {
            let Some(path) = path else { continue };
            let claimed = files::claim(option, Path::new(&path));
            mistakes.extend(claimed.err().map(|why| format!("{option}: {path}: {why}")));
        }
        if mistakes.is_empty() {
            return Ok(self);
        }
        // Reads the TLS files now, because the listener would report their mistakes only at its start.
        let tls = self.config.tls.iter().flat_map(Tls::mistakes);
        mistakes.extend(tls.map(|why| format!("--tls-cert, --tls-key: {why}")));
        Err(mistakes)
    }

    fn check_format(&mut self, mistakes: &mut Vec<String>) {
        if self.format != Format::OutFile && !(self.has_time && self.has_tag) {
            mistakes.push(
                "--no-time and --no-tag need --format out_file: other lines have neither time nor tag".into(),
            );
        }
        match (self.format, self.csv_fields.is_empty()) {
            (Format::Csv, true) => mistakes
                .push("--format csv needs --csv-fields: the members of an event that become columns".into()),
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

/// Splits a path into the template and the suffix, such as `.log`, which comes after the file index.
fn split_path(path: &str) -> Result<(Template, String), String> {
    let name = path.rfind('/').map_or(0, |slash| slash + 1);
    let dot = path[name..].rfind('.').map(|dot| name + dot).filter(|dot| *dot > name);
    let suffix = dot.map_or("", |dot| &path[dot..]);
    let is_suffix = suffix.len() > 1 && suffix[1..].chars().all(|c| c.is_ascii_alphanumeric());
    let suffix = if is_suffix { suffix } else { "" };
    let template =
        path[..path.len() - suffix.len()].parse::<Template>().map_err(|error| error.to_string())?;
    Ok((template, suffix.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_split_into_template_and_suffix() {
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
        let mut builder = ConfigBuilder::new(None).unwrap();
        builder.format = Format::Json;
        builder.has_tag = false;
        builder.csv_fields = vec!["a".into()];
        builder.certificates = Some("c".into());
        builder.config.request_fields.remote_addr = true;
        builder.bearer_tokens = Some("/does/not/exist".into());
        let mut other = ConfigBuilder::new(None).unwrap();
        (other.certificates, other.key) = (Some("/no/cert".into()), Some("/no/key".into()));
        (other.bearer_tokens, other.basic_users) = (Some("/no/tokens".into()), Some("/no/users".into()));
        assert_eq!(other.build().unwrap_err().len(), 4, "each file that is missing");
        let mistakes = builder.build().unwrap_err();
        for part in
            ["--no-tag", "--csv-fields needs", "--add-remote-addr", "--tls-cert needs", "/does/not/exist"]
        {
            assert!(mistakes.iter().any(|mistake| mistake.contains(part)), "{part}: {mistakes:?}");
        }
        assert_eq!(mistakes.len(), 5, "{mistakes:?}");
    }

    #[test]
    fn imported_settings_stay_unless_overridden() {
        let text = "<source>\n@type http\n</source>\n<match **>\n@type file\npath a\n<format>\noutput_tag false\n</format>\n</match>";
        let imported = listen::import::fluentd("f", text).unwrap();
        let mut builder = ConfigBuilder::new(Some(imported)).unwrap();
        assert!(builder.has_time && !builder.has_tag && !builder.has_explicit_addresses);
        builder.use_fluentd_compat(true);
        builder.set_path("b/c.txt").unwrap();
        let config = builder.build().unwrap().config;
        assert_eq!(config.format, LineFormat::OutFile { time: true, tag: false });
        assert_eq!(
            (config.store.template.to_string().as_str(), config.store.suffix.as_str()),
            ("b/c", ".txt")
        );
        assert!(config.store.state.starts_with("b"), "{:?}", config.store.state);
    }
}
