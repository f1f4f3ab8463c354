//! The settings file: TOML whose keys are the names of the settings.

use ::settings::{Mistake, Reader, Value};
use toml::de::DeValue;

use super::{
    draft::Draft,
    settings::{self, Kind, OptionSpec},
};

/// Reads a file's text into the draft. `name` is the file's, as mistakes tell it.
///
/// # Errors
/// Every mistake, in the order of the file, each with its line.
pub(super) fn read(name: &str, text: &str, draft: &mut Draft) -> Result<(), Vec<Mistake>> {
    let mut reader = Reader::new(name, text);
    let document = reader.document(text);
    if reader.has_mistakes() {
        // What is guessed behind a mistake in TOML itself would only confuse.
        return reader.finish(());
    }
    let mut table = reader.root(&document);
    for setting in settings::all() {
        let Some(value) = table.take(setting.key) else { continue };
        let Some(values) = texts(&mut reader, setting, value) else { continue };
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        if !values.is_empty() {
            let applied = (setting.apply)(draft, &values);
            reader.checked(value, applied.map_err(|why| format!("{}: {why}", setting.key)));
        }
    }
    table.finish(&mut reader);
    reader.finish(())
}

/// A value as it would stand on the command line; none, and a mistake, if it is of another kind.
fn texts(reader: &mut Reader<'_>, setting: &OptionSpec, value: &Value<'_>) -> Option<Vec<String>> {
    let one = |text: Option<&str>| Some(vec![text?.to_owned()]);
    match (setting.kind, value.get_ref()) {
        (Kind::Flag | Kind::On, _) => {
            let usual = setting.kind == Kind::On;
            reader.flag(value).map(|flag| if flag == usual { Vec::new() } else { vec![flag.to_string()] })
        }
        (Kind::Count(_) | Kind::Rate | Kind::Size | Kind::Choice(_), DeValue::Integer(number))
            if number.radix() == 10 =>
        {
            one(Some(number.as_str()))
        }
        (Kind::Count(_), _) => one(reader.text_such_as(value, "a whole number")),
        (Kind::Size, _) => one(reader.text_such_as(value, "a size, such as \"64KiB\"")),
        (Kind::Time, _) => one(reader.text_such_as(value, "a time in quotes, such as \"10s\"")),
        (Kind::Rate | Kind::Text | Kind::Numbers | Kind::Choice(_), _) => one(reader.text(value)),
        (Kind::List, DeValue::String(text)) => one(Some(text)),
        (Kind::List, _) => {
            let items = reader.array(value, "a list of texts");
            let texts = items.iter().map(|item| reader.text(item).map(str::to_owned));
            texts.collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_the_same_as_options() {
        let mut by_file = Draft::new(None).unwrap();
        read(
            "f",
            "listen = [\"127.0.0.1:1\", \"[::1]:2\"]\nroute = \"/a=synced\"\nbacklog = 1_000\nmax_body = 1024\n\
             budget = \"1MiB\"\nno_tag = true\nutc = false\noverload_status = 429\nidle_timeout = \"5s\"",
            &mut by_file,
        )
        .unwrap();
        let mut by_options = Draft::new(None).unwrap();
        for (key, values) in [
            ("listen", &["127.0.0.1:1", "[::1]:2"][..]),
            ("route", &["/a=synced"]),
            ("backlog", &["1000"]),
            ("max_body", &["1024"]),
            ("budget", &["1MiB"]),
            ("no_tag", &["true"]),
            ("overload_status", &["429"]),
            ("idle_timeout", &["5s"]),
        ] {
            let setting = settings::all().find(|setting| setting.key == key).unwrap();
            (setting.apply)(&mut by_options, values).unwrap();
        }
        assert_eq!(format!("{by_file:?}"), format!("{by_options:?}"));
    }

    #[test]
    fn the_documented_file_is_sound() {
        let text = include_str!("../../../../../docs/listen.md");
        let lines = text.lines().skip_while(|line| *line != "    # listen.toml");
        let lines: Vec<&str> = lines.map_while(|line| line.strip_prefix("    ")).collect();
        let mut draft = Draft::new(None).unwrap();
        assert_eq!(read("listen.toml", &lines.join("\n"), &mut draft), Ok(()));
        assert_eq!(draft.config.store.suffix, ".log");
        assert!(lines.len() > 5 && draft.finish().is_ok());
    }

    #[test]
    fn every_mistake_has_its_line() {
        let text = "listen = [\"here\"]\nmax_bdy = 1\nack = \"often\"\n\nbacklog = true\nutc = \"yes\"\nidle_timeout = 5\nroute = [1]";
        let mistakes = read("f", text, &mut Draft::new(None).unwrap()).unwrap_err();
        let told: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
        let wanted = [
            "f:1:10: listen: 'here' is not an address",
            "f:2:1: unknown key 'max_bdy'; did you mean 'max_body'?",
            "f:3:7: ack: 'often' is not known here (known: accepted, written, synced)",
            "f:5:11: expected a whole number, found true or false",
            "f:6:7: expected true or false, found text",
            "f:7:16: expected a time in quotes",
            "f:8:10: expected text in quotes, found a whole number",
        ];
        for (told, wanted) in told.iter().zip(wanted) {
            assert!(told.starts_with(wanted), "{wanted}\n{told}");
        }
        assert_eq!(told.len(), wanted.len(), "{told:#?}");
        let broken = read("f", "a = = b\nc", &mut Draft::new(None).unwrap()).unwrap_err();
        assert_eq!(broken[0].line, 1, "{broken:?}");
    }
}
