//! The house has no secret doors: crates use each other as the design says, and modules of the large ones in one direction.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use proofload_tests::rust_files;
use serde_json::Value;

/// What each crate may use of the others: DESIGN's order, with what the decisions have added. `files` and `schema` are
/// for everybody.
const MAY_USE: [(&str, &[&str]); 38] = [
    ("audit", &["record"]),
    ("balance", &["clock", "kernel", "record", "settings", "tls", "undo"]),
    ("broker", &["clock"]),
    ("clock", &[]),
    ("command", &["clock", "kernel", "record", "undo"]),
    ("copy", &["kernel", "record", "sftp"]),
    ("events", &["record"]),
    ("files", &[]),
    ("fleet", &["broker", "clock", "files", "kernel", "load", "processes", "record", "secrets", "settings"]),
    ("http1", &[]),
    ("kernel", &["clock", "record", "undo"]),
    ("lab", &["clock", "kernel", "processes", "record", "secrets", "settings", "tls", "undo"]),
    ("listen", &["clock", "events", "http1", "record", "segments", "settings", "sockets", "tls"]),
    ("load", &["clock", "http1", "kernel", "record", "script", "secrets", "settings", "tls"]),
    ("nkeys", &[]),
    ("processes", &[]),
    (
        "proofload",
        &[
            "audit",
            "balance",
            "broker",
            "command",
            "copy",
            "events",
            "fleet",
            "kernel",
            "lab",
            "listen",
            "load",
            "processes",
            "record",
            "report",
            "search",
            "secrets",
            "segments",
            "serve",
            "settings",
            "study",
            "undo",
        ],
    ),
    ("record", &[]),
    ("report", &["record"]),
    ("schema", &["schema-derive"]),
    ("schema-derive", &[]),
    ("script", &["http1", "record"]),
    ("search", &["record"]),
    ("secrets", &["record"]),
    ("segments", &[]),
    ("serve", &["clock", "http1", "record", "sockets", "tls"]),
    ("settings", &["record"]),
    ("sftp", &[]),
    ("sockets", &[]),
    (
        "study",
        &[
            "audit", "clock", "command", "fleet", "kernel", "lab", "load", "record", "search", "secrets",
            "settings", "undo", "verdict",
        ],
    ),
    ("tls", &[]),
    ("undo", &[]),
    ("verdict", &["record"]),
    // What is no part of the program.
    ("bench", &["proofload-tests", "record", "testing"]),
    ("fuzz", &["events", "http1", "load", "record", "script", "sftp", "study"]),
    ("loop-cost", &["load", "record", "testing"]),
    ("proofload-tests", &["broker", "clock", "kernel", "load", "record", "testing", "tls"]),
    ("testing", &["record"]),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// What cargo tells of the crates of the workspace.
fn packages() -> Vec<Value> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let metadata = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(metadata.status.success(), "{}", String::from_utf8_lossy(&metadata.stderr));
    let mut metadata: Value = serde_json::from_slice(&metadata.stdout).unwrap();
    serde_json::from_value(metadata["packages"].take()).unwrap()
}

/// Which of our crates each of them uses, tests left out.
fn crate_uses() -> BTreeMap<String, BTreeSet<String>> {
    let crates = packages();
    let names: BTreeSet<&str> = crates.iter().filter_map(|own| own["name"].as_str()).collect();
    let uses = |own: &Value| {
        let uses = own["dependencies"].as_array().unwrap().iter().filter(|used| used["kind"].is_null());
        let uses = uses.filter_map(|used| used["name"].as_str()).filter(|used| names.contains(used));
        uses.map(str::to_owned).collect()
    };
    crates.iter().map(|own| (own["name"].as_str().unwrap().to_owned(), uses(own))).collect()
}

#[test]
fn crates_use_each_other_as_the_design_says() {
    let mut wrong = Vec::new();
    for (name, uses) in crate_uses() {
        let Some((_, may_use)) = MAY_USE.iter().find(|(known, _)| *known == name) else {
            wrong.push(format!("{name} is not in the list"));
            continue;
        };
        let others = uses.iter().filter(|used| {
            !["files", "schema"].contains(&used.as_str()) && !may_use.contains(&used.as_str())
        });
        wrong.extend(others.map(|used| format!("{name} uses {used}")));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_page_is_named_by_the_readme_and_its_links_lead_somewhere() {
    let readme = root().join("README.md");
    let named = fs::read_to_string(&readme).unwrap();
    let mut wrong = Vec::new();
    let mut pages: Vec<PathBuf> =
        fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path()).collect();
    pages.retain(|page| page.extension().is_some_and(|extension| extension == "md"));
    assert!(pages.len() > 20, "{pages:?}");
    for page in pages.iter().chain([&readme]) {
        let name = page.file_name().unwrap().to_str().unwrap();
        if page != &readme && !named.contains(&format!("](docs/{name})")) {
            wrong.push(format!("README.md names no docs/{name}"));
        }
        let text = fs::read_to_string(page).unwrap();
        let links = text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link);
        let files = links.filter(|link| !link.contains("://")).filter_map(|link| link.split('#').next());
        let lost = files.filter(|file| !page.with_file_name("").join(file).exists());
        wrong.extend(lost.map(|file| format!("{name} leads to {file}")));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_dependency_is_used() {
    let mut unused = Vec::new();
    // What is fuzzed is included by its path, with what it uses.
    for own in packages().into_iter().filter(|own| own["name"] != "fuzz") {
        let folder = Path::new(own["manifest_path"].as_str().unwrap()).parent().unwrap().to_owned();
        let code: String = rust_files(&folder).iter().map(|file| fs::read_to_string(file).unwrap()).collect();
        for used in own["dependencies"].as_array().unwrap() {
            let name = used["rename"].as_str().or(used["name"].as_str()).unwrap().replace('-', "_");
            // The library has another name than its package.
            let name = if name == "rustls_webpki" { "webpki" } else { &name };
            let is_path = |(at, _): (usize, &str)| {
                !code[..at].ends_with(|c: char| c.is_alphanumeric() || "_\"/.".contains(c))
            };
            if !code.match_indices(&format!("{name}::")).any(is_path)
                && !code.contains(&format!("use {name}"))
            {
                unused.push(format!("{} names {name} and does not use it", own["name"]));
            }
        }
    }
    assert!(unused.is_empty(), "{unused:#?}");
}

#[test]
fn a_library_has_one_version() {
    let mut wanted: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for own in &packages() {
        for used in own["dependencies"].as_array().unwrap().iter().filter(|used| used["path"].is_null()) {
            let version = used["req"].as_str().unwrap().to_owned();
            wanted.entry(used["name"].as_str().unwrap().to_owned()).or_default().insert(version);
        }
    }
    let several: Vec<_> = wanted.iter().filter(|(_, versions)| versions.len() > 1).collect();
    assert!(wanted.len() > 50 && several.is_empty(), "{several:#?}");
    for own in packages() {
        let manifest = own["manifest_path"].as_str().unwrap();
        let text = fs::read_to_string(manifest).unwrap();
        let (_, dependencies) = text.split_once("dependencies]").unwrap_or_default();
        let own_version =
            dependencies.lines().find(|line| line.contains(" = \"") || line.contains("version = "));
        assert_eq!(own_version, None, "{manifest}: versions stand in the Cargo.toml of the whole");
    }
}

/// Crates that nearly all use, or that are no part of the program.
const NOT_DRAWN: [&str; 11] = [
    "files",
    "record",
    "schema",
    "schema-derive",
    "settings",
    "secrets",
    "bench",
    "loop-cost",
    "proofload-tests",
    "testing",
    "fuzz",
];

/// The crates as a graph that GitHub and others draw, without arrows that follow from others.
fn picture() -> String {
    let mut uses = crate_uses();
    uses.retain(|name, _| !NOT_DRAWN.contains(&name.as_str()));
    uses.values_mut().for_each(|used| used.retain(|name| !NOT_DRAWN.contains(&name.as_str())));
    let mut text = "```mermaid\nflowchart TD\n".to_owned();
    for (name, used) in &uses {
        let follows = |to: &String| used.iter().any(|by| by != to && reaches(&uses, by, to));
        let arrows: Vec<&String> = used.iter().filter(|to| !follows(to)).collect();
        if arrows.is_empty() {
            text += &format!("    {name}\n");
        }
        arrows.iter().for_each(|to| text += &format!("    {name} --> {to}\n"));
    }
    text + "```\n"
}

fn reaches(uses: &BTreeMap<String, BTreeSet<String>>, from: &str, to: &str) -> bool {
    uses.get(from).is_some_and(|used| used.contains(to) || used.iter().any(|by| reaches(uses, by, to)))
}

#[test]
fn the_map_shows_the_house() {
    let file = root().join("docs/architecture.md");
    let text = fs::read_to_string(&file).unwrap();
    let (before, rest) = text.split_once("<!-- rooms -->\n").unwrap();
    let (drawn, after) = rest.split_once("<!-- end of rooms -->").unwrap();
    let picture = picture();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&file, format!("{before}<!-- rooms -->\n{picture}<!-- end of rooms -->{after}")).unwrap();
    } else {
        assert_eq!(drawn, picture, "`make docs` draws the picture of docs/architecture.md anew");
    }
    let quoted = text.split('`').skip(1).step_by(2);
    let paths = quoted.filter(|quoted| quoted.starts_with("crates/") || quoted.starts_with("tests/"));
    let gone: Vec<&str> = paths.filter(|path| !holds_code(&root().join(path))).collect();
    assert!(gone.is_empty(), "docs/architecture.md names paths without code: {gone:#?}");
}

/// Whether a path is a file, or a folder with more than tests.
fn holds_code(path: &Path) -> bool {
    let entries = fs::read_dir(path).map(|entries| entries.map(|entry| entry.unwrap().file_name()));
    entries.map_or(path.is_file(), |mut names| names.any(|name| name != "tests.rs"))
}

#[test]
fn every_bar_is_in_the_documentation() {
    let page = fs::read_to_string(root().join("docs/bars.md")).unwrap();
    for bar in proofload_tests::bars::ALL {
        assert!(page.contains(&format!("`{}`", bar.name)), "docs/bars.md has no row `{}`", bar.name);
    }
}

/// `scripts/test.sh` runs all test programs but one by a pattern.
#[test]
fn no_other_test_program_begins_as_the_one_from_outside() {
    for package in packages() {
        for target in package["targets"].as_array().unwrap() {
            let name = target["name"].as_str().unwrap();
            let is_test = target["kind"][0] == "test";
            assert!(
                !is_test || !name.starts_with('e') || name == "end_to_end",
                "make test does not run the tests of {name}"
            );
        }
    }
}

#[test]
fn modules_use_each_other_in_no_circle() {
    let crates = fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path());
    let circles: Vec<String> =
        crates.filter_map(|folder| Some(cycle(&uses(&folder.join("src")))?.join(" -> "))).collect();
    assert!(circles.is_empty(), "modules use each other in a circle: {circles:#?}");
}

#[test]
fn a_cycle_is_seen() {
    let uses = |pairs: &[(&str, &str)]| {
        let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (from, to) in pairs {
            all.entry((*from).to_owned()).or_default().insert((*to).to_owned());
            all.entry((*to).to_owned()).or_default();
        }
        all
    };
    assert_eq!(cycle(&uses(&[("a", "b"), ("b", "c"), ("a", "c")])), None);
    assert_eq!(cycle(&uses(&[("a", "b"), ("b", "c"), ("c", "b")])).unwrap(), ["b", "c", "b"]);
    let text = "use crate::{one::X, two, three::{y, z}};\nuse super::super::four::w;\nlet a = crate::five::f(); // crate::six\n";
    let found: Vec<String> = named(text, 1).into_iter().collect();
    assert_eq!(found, ["five", "four", "one", "three", "two"]);
}

/// Which of a crate's modules, those right below its root, use which others; tests left out.
fn uses(source: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for path in rust_files(source) {
        let inside = path.strip_prefix(source).unwrap().with_extension("");
        let parts: Vec<String> = inside.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        if ["lib", "main"].contains(&parts[0].as_str()) || parts.iter().any(|part| part.contains("tests")) {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        let text = text.split("#[cfg(test)]\npub(crate) mod tests").next().unwrap_or_default();
        uses.entry(parts[0].clone()).or_default().extend(named(text, parts.len() - 1));
    }
    // What the root names again stands for the module that it is of.
    let root = ["lib.rs", "main.rs"].into_iter().find_map(|name| fs::read_to_string(source.join(name)).ok());
    let root = root.unwrap();
    let again = |name: &str| {
        let lines = root.split(';').filter_map(|line| line.split("pub use ").nth(1));
        let of = |line: &str| line.split("::").next().map(str::to_owned);
        lines
            .filter(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == name))
            .find_map(of)
    };
    let known: BTreeSet<String> = uses.keys().cloned().collect();
    for (module, used) in &mut uses {
        let resolved = used
            .iter()
            .map(|name| if known.contains(name) { name.clone() } else { again(name).unwrap_or_default() });
        *used = resolved.filter(|name| known.contains(name) && name != module).collect();
    }
    uses
}

/// The names right below the root of the crate that a text of a module at this depth names.
fn named(text: &str, depth: usize) -> BTreeSet<String> {
    let text: String =
        text.lines().map(|line| line.split("//").next().unwrap_or_default().to_owned() + "\n").collect();
    let mut names = BTreeSet::new();
    for path in ["crate::".to_owned(), "super::".repeat(depth + 1)] {
        for (at, _) in text.match_indices(&path) {
            let before = text[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
                continue;
            }
            names.extend(first_names(&text[at + path.len()..]));
        }
    }
    names.remove("super");
    names
}

/// The name that a path begins with, or those of its group.
fn first_names(rest: &str) -> Vec<String> {
    let word = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let Some(group) = rest.strip_prefix('{') else { return vec![word(rest)] };
    let (mut names, mut depth, mut begins) = (Vec::new(), 0, true);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => begins = true,
            c if begins && depth == 0 && c.is_alphanumeric() => {
                names.push(word(&group[at..]));
                begins = false;
            }
            _ => {}
        }
    }
    names
}

/// A way from a module back to itself, if there is one.
fn cycle(uses: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<String>> {
    fn from(
        module: &str,
        uses: &BTreeMap<String, BTreeSet<String>>,
        way: &mut Vec<String>,
        done: &mut BTreeSet<String>,
    ) -> Option<Vec<String>> {
        if let Some(place) = way.iter().position(|passed| passed == module) {
            let mut found = way[place..].to_vec();
            found.push(module.to_owned());
            return Some(found);
        }
        if !done.insert(module.to_owned()) {
            return None;
        }
        way.push(module.to_owned());
        let found = uses[module].iter().find_map(|used| from(used, uses, way, done));
        way.pop();
        found
    }
    let mut done = BTreeSet::new();
    uses.keys().find_map(|module| from(module, uses, &mut Vec::new(), &mut done))
}
