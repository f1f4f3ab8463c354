use std::{collections::BTreeMap, fmt::Write};

use super::*;
use crate::tune::KNOWN;

/// Checks that a part of docs/host.md matches the table from the code.
fn assert_documented(part: &str, table: &str) {
    testing::assert_published("host.md", |text| {
        let (begin, end) = (format!("<!-- {part} -->\n"), format!("<!-- end of {part} -->"));
        let (before, rest) = text.split_once(&begin).unwrap();
        let (_, after) = rest.split_once(&end).unwrap();
        format!("{before}{begin}{table}{end}{after}")
    });
}

#[test]
fn the_documented_settings_and_profiles_are_those_of_the_code() {
    let mut table =
        "| setting | counts | holds for | what it does | justified if this rises |\n|---|---|---|---|---|\n"
            .to_owned();
    for known in KNOWN {
        let scope = match known.scope {
            Scope::Namespace => "each namespace",
            Scope::Machine => "the machine",
        };
        let counter = if known.counter.is_empty() { String::new() } else { format!("`{}`", known.counter) };
        let _ =
            writeln!(table, "| `{}` | {} | {scope} | {} | {counter} |", known.name, known.unit, known.remark);
    }
    assert_documented("settings", &table);

    let mut table = "| setting | wanted | by | why |\n|---|---|---|---|\n".to_owned();
    let mut rows: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for profile in PROFILES {
        for Want(name, value, why) in profile.wants.iter().copied().flatten() {
            let wants = match value {
                Value::Is(text) => format!("`{text}`"),
                Value::AtLeast(number) => format!("at least {number}"),
                Value::AtMost(number) => format!("at most {number}"),
                Value::TwoBdp => "at least twice the bandwidth-delay product (the last number)".to_owned(),
                Value::QueueAtLeast(number) => format!("at least {number}, on interfaces that are up"),
                Value::AllProcessors => "all processors, on interfaces with fewer receive queues".to_owned(),
            };
            rows.entry(format!("| `{name}` | {wants} | BY | {why} |\n")).or_default().push(profile.name);
        }
    }
    rows.into_iter().for_each(|(row, by)| table += &row.replace("BY", &by.join(", ")));
    assert_documented("profiles", &table);
}

#[test]
fn a_mask_has_the_processors_that_are_online() {
    let of = |numbers: &[u32]| mask(&numbers.iter().copied().collect());
    assert_eq!((of(&[0, 1, 2, 3]), of(&[0, 2, 4, 6])), ("f".to_owned(), "55".to_owned()));
    assert_eq!((of(&[0, 33]), of(&[])), ("2,1".to_owned(), "0".to_owned()));
    assert!(!processors().is_empty());
}

#[test]
fn any_user_can_tell_that_sys_shows_these_interfaces() {
    let test = "tune::profiles::tests::any_user_can_tell_that_sys_shows_these_interfaces";
    if crate::testing::is_run_again(test, &["-Urn"]) {
        assert!(sys_looks_own());
    } else {
        assert!(!sys_looks_own(), "/sys is that of the parent's network");
    }
}
