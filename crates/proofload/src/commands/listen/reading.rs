//! How bodies are read and answered, while it is still open whose way that is.

use events::{Rules, TimeFormat, Zone};
use listen::{Compat, import::Imported};

/// Both ways of reading and answering, and what settings say over either of them. `--compat` only chooses between
/// the two, so that it does not matter what comes first.
#[derive(Debug)]
pub(crate) struct Reading {
    /// Our own rules, with what an imported file itself says.
    own: Rules,
    /// Fluentd's rules, with what an imported file says.
    fluentd: Rules,
    /// Fluentd's answers, with what an imported file says.
    answers: Compat,
    /// The member that is an event's time, if any.
    pub time_key: Option<Option<String>>,
    /// How that member is written.
    pub time_format: Option<TimeFormat>,
    /// That member is taken out of the event.
    pub drops_time_key: bool,
    /// Times that name no zone are in UTC.
    pub is_utc: bool,
}

impl Reading {
    /// What holds unless settings say otherwise.
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

    /// Fluentd's answers.
    pub(crate) fn fluentds_answers(&self) -> Compat {
        self.answers.clone()
    }

    /// What is lost of an imported file's answers if they are not Fluentd's; nothing if nothing is.
    pub(crate) fn lost_without_fluentd(&self) -> Option<&'static str> {
        (self.answers != Compat::fluentd()).then_some(
            "--compat none: cors_allow_origins, cors_allow_credentials, respond_with_empty_img and use_204_response of \
             the imported file need --compat fluentd: take them out of it, or leave --compat none away",
        )
    }

    /// The rules of that way, for so many records in a body.
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
    use crate::commands::listen::{draft::Draft, file, settings};

    fn imported(parse: &str, source: &str) -> Imported {
        let text = format!(
            "<source>\n@type http\n{source}\n<parse>\n{parse}\n</parse>\n</source>\n<match **>\n@type file\npath a\n</match>"
        );
        listen::import::fluentd("f", &text).unwrap()
    }

    /// The rules and answers of settings given in that order.
    fn read(imported: Option<Imported>, given: &[(&str, &str)]) -> (Rules, Compat) {
        let mut draft = Draft::new(imported).unwrap();
        for (key, value) in given {
            let setting = settings::all().find(|setting| setting.key == *key).unwrap();
            (setting.apply)(&mut draft, &[value]).unwrap();
        }
        let config = draft.finish().unwrap().config;
        (config.rules, config.compat)
    }

    #[test]
    fn what_is_given_beside_compat_holds_in_any_order() {
        let given = [
            ("time_key", "at"),
            ("time_format", "%Y"),
            ("utc", "true"),
            ("max_events", "7"),
            ("compat", "fluentd"),
        ];
        let wanted = Rules {
            time_key: Some("at".to_owned()),
            time_format: TimeFormat::Strftime("%Y".to_owned()),
            zone: Zone::Utc,
            max_records: 7,
            ..Rules::fluentd()
        };
        let mut reversed = given;
        reversed.reverse();
        for order in [given, reversed] {
            assert_eq!(read(None, &order), (wanted.clone(), Compat::fluentd()), "{order:?}");
        }
        // The file of settings is read before the options, whichever of the two says what.
        for (text, option) in [
            ("compat = \"fluentd\"\nmax_events = 7\ntime_format = \"%Y\"\nutc = true", ("time_key", "at")),
            ("time_key = \"at\"\nmax_events = 7\ntime_format = \"%Y\"\nutc = true", ("compat", "fluentd")),
        ] {
            let mut draft = Draft::new(None).unwrap();
            file::read("f", text, &mut draft).unwrap();
            let setting = settings::all().find(|setting| setting.key == option.0).unwrap();
            (setting.apply)(&mut draft, &[option.1]).unwrap();
            assert_eq!(draft.finish().unwrap().config.rules, wanted, "{text}");
        }
    }

    #[test]
    fn none_takes_back_what_are_only_fluentds_defaults() {
        let none = [("compat", "none")];
        assert_eq!(read(Some(imported("", "")), &none), (Rules::default(), Compat::None));
        assert_eq!(
            read(None, &[("compat", "fluentd"), ("compat", "none")]),
            (Rules::default(), Compat::None)
        );
        let (rules, _) = read(Some(imported("time_key at\nutc true", "")), &none);
        let wanted = Rules { time_key: Some("at".to_owned()), zone: Zone::Utc, ..Rules::default() };
        assert_eq!((rules.mode, rules), (Mode::Strict, wanted));
        let (rules, _) = read(Some(imported("time_key time\nkeep_time_key false", "")), &none);
        assert_eq!((rules.time_key.as_deref(), rules.keep_time_key), (Some("time"), false));
        // And back again.
        let file = imported("time_key at", "use_204_response true");
        let (rules, compat) = (file.config.rules.clone(), file.config.compat.clone());
        assert_eq!(read(Some(file), &[none[0], ("compat", "fluentd")]), (rules, compat));
    }

    #[test]
    fn answers_that_only_fluentd_gives_are_not_dropped_in_silence() {
        let mut draft = Draft::new(Some(imported("", "cors_allow_origins [\"https://a\"]"))).unwrap();
        draft.config.compat = Compat::None;
        let mistakes = draft.finish().unwrap_err();
        assert!(mistakes[0].contains("cors_allow_origins"), "{mistakes:?}");
    }
}
