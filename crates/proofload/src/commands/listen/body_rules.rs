//! The settings that control how bodies are parsed and answered, with and without `--compat fluentd`.

use events::{Rules, TimeFormat, Zone};
use listen::{Compat, import::Imported};

/// The rules of proofload and of Fluentd, and the settings that override both. Both are kept until all options are read,
/// so `--compat` has the same effect at any place among the options.
#[derive(Debug)]
pub(crate) struct BodyRules {
    /// proofload's rules, with the settings of an imported file.
    own: Rules,
    /// Fluentd's rules, with the settings of an imported file.
    fluentd: Rules,
    /// Fluentd's answers, with the settings of an imported file.
    pub(crate) answers: Compat,
    /// The member of an event that has its time: `None` if not set, `Some(None)` for no member.
    pub time_key: Option<Option<String>>,
    /// Format of the member `time_key`.
    pub time_format: Option<TimeFormat>,
    /// Whether the member `time_key` is removed from events.
    pub drops_time_key: bool,
    /// Whether times without a zone are UTC rather than local time.
    pub is_utc: bool,
}

impl BodyRules {
    /// The rules before any setting is applied.
    pub(crate) fn new(imported: Option<&Imported>) -> Self {
        let fluentd = imported.map_or_else(Rules::fluentd, |imported| imported.config.rules.clone());
        Self {
            own: imported.map(|imported| imported.own_rules.clone()).unwrap_or_default(),
            fluentd,
            answers: imported.map_or_else(Compat::fluentd, |imported| imported.config.compat.clone()),
            time_key: None,
            time_format: None,
            drops_time_key: false,
            is_utc: false,
        }
    }

    /// The error message if the imported file has settings that require `--compat fluentd`.
    pub(crate) fn settings_for_fluentd_only(&self) -> Option<&'static str> {
        (self.answers != Compat::fluentd()).then_some(
            "--compat none: cors_allow_origins, cors_allow_credentials, respond_with_empty_img and use_204_response in \
             the imported file need --compat fluentd; remove them from the file, or leave out --compat none",
        )
    }

    /// The rules for a `--compat` mode, with at most `max_records` records in a body.
    pub(crate) fn rules(&self, compat: &Compat, max_records: usize) -> Rules {
        let base = match compat {
            Compat::None => &self.own,
            Compat::Fluentd { .. } => &self.fluentd,
        };
        Rules {
            mode: base.mode,
            time_key: self.time_key.clone().unwrap_or_else(|| base.time_key.clone()),
            time_format: self.time_format.clone().unwrap_or_else(|| base.time_format.clone()),
            keep_time_key: base.keep_time_key && !self.drops_time_key,
            zone: if self.is_utc { Zone::Utc } else { base.zone },
            max_records,
        }
    }
}

#[cfg(test)]
mod tests {
    use events::Mode;

    use super::*;
    use crate::commands::listen::{config_builder::ConfigBuilder, file, settings};

    fn imported(parse: &str, source: &str) -> Imported {
        let text = format!(
            "<source>\n@type http\n{source}\n<parse>\n{parse}\n</parse>\n</source>\n<match **>\n@type file\npath a\n</match>"
        );
        listen::import::fluentd("f", &text).unwrap()
    }

    /// Applies settings in the given order and returns the resulting rules and answers.
    fn read(imported: Option<Imported>, given: &[(&str, &str)]) -> (Rules, Compat) {
        let mut builder = ConfigBuilder::new(imported).unwrap();
        for (key, value) in given {
            let setting = settings::all().find(|setting| setting.key == *key).unwrap();
            (setting.apply)(&mut builder, &[value]).unwrap();
        }
        let config = builder.build().unwrap().config;
        (config.rules, config.compat)
    }

    #[test]
    fn the_order_of_compat_and_other_settings_does_not_matter() {
        let given = [
            ("time_key", "at"),
            ("time_format", "%Y"),
            ("utc", "true"),
            ("max_events", "7"),
            ("compat", "fluentd"),
        ];
        let expected = Rules {
            time_key: Some("at".to_owned()),
            time_format: TimeFormat::Strftime("%Y".to_owned()),
            zone: Zone::Utc,
            max_records: 7,
            ..Rules::fluentd()
        };
        let mut reversed = given;
        reversed.reverse();
        for order in [given, reversed] {
            assert_eq!(read(None, &order), (expected.clone(), Compat::fluentd()), "{order:?}");
        }
        // Settings of the file come before those of the command line.
        for (text, option) in [
            ("compat = \"fluentd\"\nmax_events = 7\ntime_format = \"%Y\"\nutc = true", ("time_key", "at")),
            ("time_key = \"at\"\nmax_events = 7\ntime_format = \"%Y\"\nutc = true", ("compat", "fluentd")),
        ] {
            let mut builder = ConfigBuilder::new(None).unwrap();
            file::read("f", text, &mut builder).unwrap();
            let setting = settings::all().find(|setting| setting.key == option.0).unwrap();
            (setting.apply)(&mut builder, &[option.1]).unwrap();
            assert_eq!(builder.build().unwrap().config.rules, expected, "{text}");
        }
    }

    #[test]
    fn compat_none_drops_only_defaults_of_fluentd() {
        let none = [("compat", "none")];
        assert_eq!(read(Some(imported("", "")), &none), (Rules::default(), Compat::None));
        assert_eq!(
            read(None, &[("compat", "fluentd"), ("compat", "none")]),
            (Rules::default(), Compat::None)
        );
        let (rules, _) = read(Some(imported("time_key at\nutc true", "")), &none);
        let expected = Rules { time_key: Some("at".to_owned()), zone: Zone::Utc, ..Rules::default() };
        assert_eq!((rules.mode, rules), (Mode::Strict, expected));
        let (rules, _) = read(Some(imported("time_key time\nkeep_time_key false", "")), &none);
        assert_eq!((rules.time_key.as_deref(), rules.keep_time_key), (Some("time"), false));
        // A later `--compat fluentd` restores Fluentd's rules and answers.
        let file = imported("time_key at", "use_204_response true");
        let (rules, compat) = (file.config.rules.clone(), file.config.compat.clone());
        assert_eq!(read(Some(file), &[none[0], ("compat", "fluentd")]), (rules, compat));
    }

    #[test]
    fn compat_none_refuses_settings_of_answers() {
        let mut builder =
            ConfigBuilder::new(Some(imported("", "cors_allow_origins [\"https://a\"]"))).unwrap();
        builder.config.compat = Compat::None;
        let mistakes = builder.build().unwrap_err();
        assert!(mistakes[0].contains("cors_allow_origins"), "{mistakes:?}");
    }
}
