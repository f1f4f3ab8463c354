//! The settings file: TOML with the names of the settings as keys.

use ::settings::{Mistake, Reader};

use super::{config_builder::ConfigBuilder, settings};

/// Applies the settings of a file. `name` is the file's name for messages.
///
/// # Errors
/// Every mistake with its line, in the order of the file.
pub(super) fn read(name: &str, text: &str, builder: &mut ConfigBuilder) -> Result<(), Vec<Mistake>> {
    let mut reader = Reader::new(name, text);
    let document = reader.document(text);
    if reader.has_mistakes() {
        // After a syntax error, further messages would be misleading.
        return reader.finish(());
    }
    let mut table = reader.root(&document);
    for setting in settings::all() {
        let Some(value) = table.take(setting.key) else { continue };
        let Some(values) = reader.option_texts(setting, value) else { continue };
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        if !values.is_empty() {
            let applied = (setting.apply)(builder, &values);
            reader.checked(value, applied.map_err(|why| format!("{}: {why}", setting.key)));
        }
    }
    table.finish(&mut reader);
    reader.finish(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_and_options_mean_the_same() {
        let mut by_file = ConfigBuilder::new(None).unwrap();
        read(
            "f",
            "listen = [\"127.0.0.1:1\", \"[::1]:2\"]\nroute = \"/a=synced\"\nbacklog = 1_000\nmax_body = 1024\n\
             budget = \"1MiB\"\nno_tag = true\nutc = false\noverload_status = 429\nidle_timeout = \"5s\"",
            &mut by_file,
        )
        .unwrap();
        let mut by_options = ConfigBuilder::new(None).unwrap();
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
    fn the_documented_file_is_valid() {
        let text = include_str!("../../../../../docs/listen.md");
        let lines = text.lines().skip_while(|line| *line != "    # listen.toml");
        let lines: Vec<&str> = lines.map_while(|line| line.strip_prefix("    ")).collect();
        let mut builder = ConfigBuilder::new(None).unwrap();
        assert_eq!(read("listen.toml", &lines.join("\n"), &mut builder), Ok(()));
        assert_eq!(builder.config.store.suffix, ".log");
        assert!(lines.len() > 5 && builder.build().is_ok());
    }

    #[test]
    fn the_file_of_init_is_valid_and_so_is_each_of_its_settings() {
        let text = crate::commands::init::commented(settings::all());
        let mut builder = ConfigBuilder::new(None).unwrap();
        assert_eq!(read("listen.toml", &text, &mut builder), Ok(()));
        assert_eq!(format!("{builder:?}"), format!("{:?}", ConfigBuilder::new(None).unwrap()));
        let given: Vec<&str> = text.lines().map(|line| line.strip_prefix('#').unwrap_or(line)).collect();
        let given: Vec<&str> = given.into_iter().filter(|line| !line.starts_with([' ', '-'])).collect();
        assert_eq!(read("listen.toml", &given.join("\n"), &mut builder), Ok(()));
        assert_eq!(builder.config.backlog, 128);
    }

    #[test]
    fn every_mistake_has_its_line() {
        let text = "listen = [\"here\"]\nmax_bdy = 1\nack = \"often\"\n\nbacklog = true\nutc = \"yes\"\nidle_timeout = 5\nroute = [1]";
        let mistakes = read("f", text, &mut ConfigBuilder::new(None).unwrap()).unwrap_err();
        let messages: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
        let expected = [
            "f:1:10: listen: 'here' is not an address",
            "f:2:1: unknown key 'max_bdy'; did you mean 'max_body'?",
            "f:3:7: ack: 'often' is not known here (known: accepted, written, synced)",
            "f:5:11: expected a whole number, found true or false",
            "f:6:7: expected true or false, found text",
            "f:7:16: expected a time in quotes",
            "f:8:10: expected text in quotes, found a whole number",
        ];
        for (message, expected) in messages.iter().zip(expected) {
            assert!(message.starts_with(expected), "{expected}\n{message}");
        }
        assert_eq!(messages.len(), expected.len(), "{messages:#?}");
        let broken = read("f", "a = = b\nc", &mut ConfigBuilder::new(None).unwrap()).unwrap_err();
        assert_eq!(broken[0].line, 1, "{broken:?}");
    }
}
