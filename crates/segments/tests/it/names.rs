//! Names from clients cannot leave the folder, and slices have the same names as in Fluentd.

use std::{borrow::Cow, path::Path};

use proptest::prelude::*;
use segments::{Config, Error, Failure, KeyError, Level, StorageState, Template, TemplateError};

use crate::rig::{Rig, config, names};

#[test]
fn templates_are_resolved_by_tag_member_and_time() {
    let folder = tempfile::tempdir().unwrap();
    for (template, expected) in [
        ("${tag}_%Y-%m-%d", "web.access_2020-01-13"),
        ("${tag[0]}/${tag[-1]}/%H%M%S-%j", "web/access/085209-013"),
        ("${tag[7]}.${user}%%${none}", "_missing.a_b%_missing"),
        ("fixed/%F/x", "fixed/2020-01-13/x"),
        ("%y", "20"),
        ("no/placeholder", "no/placeholder"),
    ] {
        let rig = Rig::open(config(folder.path(), template), 1);
        let member = |key: &str| (key == "user").then_some(Cow::from("a/b"));
        let key = rig.store.key("web.access", 1_578_905_529, &member).unwrap();
        let path = rig.folder.join(key.path());
        assert_eq!(path.strip_prefix(folder.path()).unwrap(), Path::new(expected));
        rig.store.close().unwrap();
    }
}

#[test]
fn wrong_templates_are_refused() {
    use TemplateError::*;
    let parsed = |text: &str| text.parse::<Template>();
    for text in ["", "/", "logs/", "..", "a/..", "."] {
        assert_eq!(parsed(text), Err(NoName(text.into())), "{text}");
    }
    assert_eq!(parsed("logs/${tag}/../x"), Err(Parent("logs/${tag}/../x".into())));
    assert_eq!(parsed("logs/%Q"), Err(Time("Q".into())));
    assert_eq!(parsed("logs/%"), Err(Time(String::new())));
    assert_eq!(parsed("logs/x.*.log"), Err(Character('*')));
    assert_eq!(parsed("logs/a\nb"), Err(Character('\n')));
    for wrong in ["${tag[x]}", "${}", "${$.a.b}"] {
        assert_eq!(parsed(wrong), Err(Placeholder(wrong.into())));
    }
    assert_eq!(parsed("logs/${tag"), Err(Placeholder("${tag".into())));
    assert!(matches!(parsed(&format!("{}x", "%Y/".repeat(16))), Err(Deep(_))));
    assert_eq!(parsed("../logs/${tag}").unwrap().folder(), Path::new("../logs"));
    assert_eq!(parsed("${tag}").unwrap().folder(), Path::new("."));
    assert_eq!(parsed("/var/log/a%H/b").unwrap().folder(), Path::new("/var/log"));
}

#[test]
fn a_key_says_how_long_it_is_good() {
    let folder = tempfile::tempdir().unwrap();
    for (template, seconds, slice) in [
        ("x", 100, None),
        ("%H", 3700, Some(3600..7200)),
        ("%H%M", 3700, Some(3660..3720)),
        ("%S", -5, Some(-5..-4)),
        ("%F", -5, Some(-86_400..0)),
    ] {
        let rig = Rig::open(config(folder.path(), template), 0);
        assert_eq!(rig.key_at("t", seconds).slice(), slice, "{template}");
        rig.store.close().unwrap();
    }
    let rig = Rig::open(config(folder.path(), "${a}/${b}"), 0);
    assert_eq!(rig.store.key("", i64::MAX, &|_| None).unwrap_err(), KeyError::Time(i64::MAX));
    let template: Template = "${a}/${b}-%H".parse().unwrap();
    assert_eq!(template.fields().collect::<Vec<_>>(), ["a", "b"]);
}

#[test]
fn a_link_leads_to_the_newest_segment() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("now/${tag}.log");
    let symlink = Some(link.to_str().unwrap().parse().unwrap());
    let mut rig = Rig::open(Config { symlink, ..config(folder.path(), "all/${tag}_%F") }, 1);
    let days: Vec<_> = [86_400, 2 * 86_400, 0].map(|seconds| rig.key_at("web", seconds)).into();
    for (key, newest) in days.iter().zip(["1970-01-02", "1970-01-03", "1970-01-03"]) {
        rig.put(key, Level::Written, "line\n").unwrap();
        let to = std::fs::read_link(folder.path().join("now/web.log")).unwrap();
        assert_eq!(to, folder.path().join(format!("all/web_{newest}.log")));
    }
}

#[test]
fn a_link_never_takes_the_place_of_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("taken");
    std::fs::write(&link, "precious").unwrap();
    let symlink = Some(link.to_str().unwrap().parse().unwrap());
    let mut rig = Rig::open(Config { symlink, ..config(folder.path(), "all/${tag}") }, 1);
    rig.put(&rig.key("x"), Level::Written, "line\n").unwrap();
    assert_eq!(std::fs::read_to_string(&link).unwrap(), "precious");
    assert!(std::fs::symlink_metadata(link).unwrap().is_file());
}

#[test]
fn settings_that_do_not_go_together_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let base = || config(folder.path(), "${tag}_%F");
    let refused = |config: Config| matches!(segments::Store::open(config, 0), Err(Error::Config(_)));
    assert!(refused(Config { suffix: "/x".into(), ..base() }));
    assert!(refused(Config { symlink: Some("now-%H".parse().unwrap()), ..base() }));
    let link = folder.path().join("now-%m").to_str().unwrap().parse().unwrap();
    assert!(!refused(Config { symlink: Some(link), ..base() }));
}

#[test]
fn a_name_that_cannot_be_is_its_own_failure_only() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), "").unwrap();
    let mut rig = Rig::open(config(folder.path(), "${tag[0]}/${tag[1]}"), 1);
    let below_a_file = rig.put(&rig.key("file.x"), Level::Written, "line\n");
    assert_eq!(below_a_file, Err(Failure::Io(rustix::io::Errno::NOTDIR.raw_os_error())));
    assert_eq!(rig.store.state(), StorageState::Ok);
    rig.put(&rig.key("other.x"), Level::Synced, "line\n").unwrap();
}

#[test]
fn the_journal_is_no_place_for_lines() {
    let folder = tempfile::tempdir().unwrap();
    let mut rig = Rig::open(config(folder.path(), ".${tag}/journal"), 1);
    let receipt = rig.put(&rig.key("proofload"), Level::Synced, "line\n").unwrap();
    assert_eq!(&*receipt.segment, "_.proofload/journal.log");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_comes_in_stays_in_the_folder(
        tag in "(\\PC|[./\\\\\n\r\0-]|é){0,300}",
        member in "[./a\0]{0,300}",
    ) {
        let outer = tempfile::tempdir().unwrap();
        let inner = outer.path().join("inner");
        let mut rig = Rig::open(config(&inner, "${tag}/${member}/x${tag[1]}_%F"), 1);
        let key = rig.store.key(&tag, 0, &|_| Some(Cow::from(member.as_str()))).unwrap();
        let receipt = rig.put(&key, Level::Written, "line\n").unwrap();
        prop_assert_eq!(names(outer.path()), [format!("inner/{}", receipt.segment)]);
        prop_assert_eq!(receipt.segment.split('/').count(), 3);
    }

    #[test]
    fn a_template_is_refused_or_stays_below_its_folder(text in "(/|\\.|\\.\\.|a|\\$\\{tag\\}|\\$\\{k\\}|%Y|%%|%|\\*|\\{){1,12}") {
        if let Ok(template) = text.parse::<Template>() {
            prop_assert_eq!(template.to_string(), text);
            let placed = template.folder().components().filter(|c| c.as_os_str() == "..").count();
            let config = Config { utc: true, ..Config::new(template) };
            prop_assert!(placed <= config.template.to_string().split('/').filter(|c| *c == "..").count());
        }
    }
}
