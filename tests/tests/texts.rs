//! What the source says outside of its logic: every message in one file for review, and no public name that nobody names.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    fmt::Write,
    fs,
    path::{Path, PathBuf},
};

use proofload_tests::rust_files;
use syn::{
    Item, ItemStruct, Meta, Type,
    visit::{self, Visit},
};

/// Every message of the crates, by file. `make docs` writes it anew.
const MESSAGES: &str = "tests/messages.txt";

/// Types that other crates are given and need not name: they stand in the signature of something that is named.
const GIVEN: [&str; 15] = [
    "audit::AuditError",
    "events::TimeError",
    "http1::Fed",
    "lab::HostHandle",
    "load::FixedByUser",
    "record::NotText",
    "segments::Quantiles",
    "segments::Truncation",
    "serve::Admission",
    "serve::TlsReport",
    "study::CommandWorkload",
    "study::StudyFile",
    "tls::Cipher",
    "undo::Cleaned",
    "undo::Restored",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

#[test]
fn every_message_is_in_the_file_of_messages() {
    let mut all =
        "Every message, help text and log line of the crates, for review. Written by make docs.\n".to_owned();
    for (path, text) in sources() {
        let mut messages = Messages::default();
        messages.visit_file(&syn::parse_file(&text).unwrap());
        if !messages.0.is_empty() {
            let _ = write!(all, "\n{path}\n");
            for message in messages.0 {
                let _ = writeln!(all, "  {}", message.escape_debug());
            }
        }
    }
    let kept = root().join(MESSAGES);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&kept, &all).unwrap();
    }
    let before = fs::read_to_string(&kept).unwrap_or_default();
    let differs = before.lines().zip(all.lines()).find(|(before, now)| before != now);
    assert!(
        before == all,
        "messages are not those of {MESSAGES}: {differs:?}; `make docs` writes it anew: review the difference"
    );
}

/// Lines of a file, fields of a type, and files with its `impl`s, at the most: what changes its state is read in one sitting.
const MOST_LINES: usize = 600;
const MOST_FIELDS: usize = 20;
const MOST_FILES: usize = 3;

/// Types that have more yet. They may shrink, and then leave the list.
const LARGE: [(&str, usize, usize); 13] = [
    ("balance::Config", 20, 4),
    ("balance::Daemon", 32, 6),
    ("copy::Carrier", 20, 6),
    ("lab::Lab", 20, 5),
    ("listen::Engine", 20, 5),
    ("load::HttpWorkload", 20, 9),
    ("load::Recorder", 22, 5),
    ("load::Slot", 30, 3),
    ("load::Worker", 34, 9),
    ("record::ResultFolder", 20, 4),
    ("serve::Engine", 20, 5),
    ("study::Runner", 25, 4),
    ("study::Testbed", 20, 5),
];

#[test]
fn the_state_of_a_type_is_read_in_one_sitting() {
    let mut large: Vec<String> = Vec::new();
    let mut types: BTreeMap<String, (usize, BTreeSet<String>)> = BTreeMap::new();
    for (path, text) in sources() {
        let lines = text.lines().count();
        if lines > MOST_LINES {
            large.push(format!("{path}: {lines} lines"));
        }
        let crate_name = path.split('/').nth(1).unwrap_or_default();
        for item in syn::parse_file(&text).unwrap().items {
            let (name, fields) = match &item {
                Item::Struct(item) if !is_plan(item) => (item.ident.to_string(), item.fields.len()),
                Item::Impl(item) if item.trait_.is_none() => (type_name(&item.self_ty), 0),
                _ => continue,
            };
            let (most, files) = types.entry(format!("{crate_name}::{name}")).or_default();
            *most = fields.max(*most);
            if fields == 0 {
                files.insert(path.clone());
            }
        }
    }
    for (name, (fields, files)) in &types {
        let listed = LARGE.iter().find(|(large, ..)| large == name);
        let (most_fields, most_files) =
            listed.map_or((MOST_FIELDS, MOST_FILES), |(_, fields, files)| (*fields, *files));
        if *fields > most_fields || files.len() > most_files {
            large.push(format!("{name}: {fields} fields, `impl`s in {files:?}"));
        }
        if listed.is_some() && *fields <= MOST_FIELDS && files.len() <= MOST_FILES {
            large.push(format!("{name} has shrunk: take it off the list"));
        }
    }
    assert!(large.is_empty(), "{large:#?}");
}

/// Whether a type is made of settings, or goes into a file: it has a field for each of what it says.
fn is_plan(item: &ItemStruct) -> bool {
    let derives = |derived: &str| {
        item.attrs.iter().any(|attribute| match &attribute.meta {
            Meta::List(list) => list.tokens.to_string().contains(derived),
            _ => false,
        })
    };
    item.ident.to_string().ends_with("Config") || derives("Serialize") || derives("Args")
}

fn type_name(of: &Type) -> String {
    let Type::Path(path) = of else { return String::new() };
    path.path.segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default()
}

/// A message is a text with a blank within it, or a comment that is a help text.
#[derive(Default)]
struct Messages(Vec<String>);

impl Visit<'_> for Messages {
    fn visit_item_mod(&mut self, module: &syn::ItemMod) {
        if !is_test(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_fn(&mut self, function: &syn::ItemFn) {
        if !is_test(&function.attrs) {
            visit::visit_item_fn(self, function);
        }
    }

    fn visit_item_struct(&mut self, item: &ItemStruct) {
        if is_command_line(&item.attrs) {
            self.add_help(&item.attrs);
            item.fields.iter().for_each(|field| self.add_help(&field.attrs));
        }
    }

    fn visit_item_enum(&mut self, item: &syn::ItemEnum) {
        let is_command_line = is_command_line(&item.attrs);
        for variant in &item.variants {
            let fields = variant.fields.iter().map(|field| &field.attrs);
            for attributes in std::iter::once(&variant.attrs).chain(fields) {
                if is_command_line {
                    self.add_help(attributes);
                }
                self.add_error(attributes);
            }
        }
    }

    fn visit_attribute(&mut self, _: &syn::Attribute) {}

    fn visit_lit_str(&mut self, text: &syn::LitStr) {
        self.add(&text.value());
    }

    fn visit_macro(&mut self, called: &syn::Macro) {
        // The comments in a table of options are its help; those in an enum are not shown.
        let has_help = called.path.segments.last().is_none_or(|name| name.ident != "named_enum");
        self.add_tokens(called.tokens.clone(), has_help);
    }
}

/// Whether clap makes options or commands of a type.
fn is_command_line(attributes: &[syn::Attribute]) -> bool {
    let derives = attributes.iter().filter(|attribute| attribute.path().is_ident("derive"));
    let lists = derives.filter_map(|attribute| attribute.meta.require_list().ok());
    let mut words = lists.flat_map(|list| list.tokens.clone()).map(|token| token.to_string());
    words.any(|word| ["Args", "Parser", "Subcommand", "ValueEnum"].contains(&word.as_str()))
}

impl Messages {
    /// Comments that clap shows.
    fn add_help(&mut self, attributes: &[syn::Attribute]) {
        for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("doc")) {
            if let Meta::NameValue(doc) = &attribute.meta
                && let syn::Expr::Lit(text) = &doc.value
                && let syn::Lit::Str(text) = &text.lit
            {
                self.add(text.value().trim());
            }
        }
    }

    /// The text of an error that thiserror makes.
    fn add_error(&mut self, attributes: &[syn::Attribute]) {
        let errors = attributes.iter().filter(|attribute| attribute.path().is_ident("error"));
        let lists = errors.filter_map(|attribute| attribute.meta.require_list().ok());
        lists.for_each(|list| self.add_tokens(list.tokens.clone(), true));
    }

    fn add(&mut self, text: &str) {
        let has_words =
            text.trim().split(' ').filter(|word| word.chars().any(char::is_alphabetic)).count() > 1;
        if has_words {
            self.0.push(text.to_owned());
        }
    }

    fn add_tokens(&mut self, tokens: proc_macro2::TokenStream, has_help: bool) {
        let mut is_comment = false;
        for token in tokens {
            let is_hash = matches!(&token, proc_macro2::TokenTree::Punct(sign) if sign.as_char() == '#');
            match token {
                proc_macro2::TokenTree::Group(group) if has_help || !is_comment => {
                    self.add_tokens(group.stream(), has_help);
                }
                proc_macro2::TokenTree::Literal(literal) => {
                    if let syn::Lit::Str(text) = syn::Lit::new(literal) {
                        self.add(&text.value());
                    }
                }
                _ => {}
            }
            is_comment = is_hash;
        }
    }
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || (attribute.path().is_ident("cfg")
                && attribute.parse_args::<syn::Ident>().is_ok_and(|condition| condition == "test"))
    })
}

/// The texts of all files of the crates that are not tests, by their paths from the root.
fn sources() -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    for path in rust_files(&root().join("crates")) {
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        if name.split('/').nth(2) == Some("src") && is_source(Path::new(&name)) {
            files.insert(name, fs::read_to_string(&path).unwrap());
        }
    }
    assert!(files.len() > 200, "{} files", files.len());
    files
}

/// Whether a file of a crate is no test.
fn is_source(path: &Path) -> bool {
    let is_test = |part: &std::ffi::OsStr| {
        let name = part.to_string_lossy();
        ["tests", "testing", "testing.rs"].contains(&&*name) || name.ends_with("tests.rs")
    };
    !path.iter().any(is_test)
}

#[test]
fn crates_show_only_what_others_name() {
    let mut words: HashMap<String, HashSet<String>> = HashMap::new();
    for top in ["crates", "tests", "bench", "fuzz"] {
        for path in rust_files(&root().join(top)) {
            let text = fs::read_to_string(&path).unwrap();
            let known = words.entry(crate_of(&path)).or_default();
            for word in text.split(|c: char| !c.is_alphanumeric() && c != '_') {
                if !known.contains(word) {
                    known.insert(word.to_owned());
                }
            }
        }
    }
    let (mut unused, mut given) = (Vec::new(), Vec::new());
    for (path, text) in sources().iter().filter(|(path, _)| path.ends_with("/src/lib.rs")) {
        let own = crate_of(&root().join(path));
        let mut shown = Shown::default();
        shown.visit_file(&syn::parse_file(text).unwrap());
        for name in shown.0 {
            let is_named = words.iter().any(|(other, words)| *other != own && words.contains(&name));
            let full = format!("{own}::{name}");
            match GIVEN.iter().find(|known| **known == full) {
                Some(known) if !is_named => given.push(*known),
                None if !is_named => unused.push(full),
                _ => {}
            }
        }
    }
    assert!(
        unused.is_empty(),
        "no other crate names these; make them pub(crate) or delete them: {unused:#?}"
    );
}

/// What a crate's root shows: what it defines or names again with `pub`.
#[derive(Default)]
struct Shown(Vec<String>);

impl Visit<'_> for Shown {
    fn visit_item(&mut self, item: &Item) {
        let named = match item {
            Item::Const(item) => Some((&item.vis, &item.ident)),
            Item::Enum(item) => Some((&item.vis, &item.ident)),
            Item::Fn(item) => Some((&item.vis, &item.sig.ident)),
            Item::Mod(item) => Some((&item.vis, &item.ident)),
            Item::Struct(item) => Some((&item.vis, &item.ident)),
            Item::Trait(item) => Some((&item.vis, &item.ident)),
            Item::Type(item) => Some((&item.vis, &item.ident)),
            Item::Use(item) if is_public(&item.vis) => {
                self.add_tree(&item.tree);
                None
            }
            _ => None,
        };
        self.0.extend(named.filter(|(visible, _)| is_public(visible)).map(|(_, name)| name.to_string()));
    }
}

impl Shown {
    fn add_tree(&mut self, tree: &syn::UseTree) {
        match tree {
            syn::UseTree::Path(path) => self.add_tree(&path.tree),
            syn::UseTree::Name(name) => self.0.push(name.ident.to_string()),
            syn::UseTree::Rename(renamed) => self.0.push(renamed.rename.to_string()),
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| self.add_tree(tree)),
            syn::UseTree::Glob(_) => {}
        }
    }
}

fn is_public(visible: &syn::Visibility) -> bool {
    matches!(visible, syn::Visibility::Public(_))
}

/// The crate that a file belongs to. The tests of a crate stand outside of it, as other crates do.
fn crate_of(path: &Path) -> String {
    let inside: Vec<String> =
        path.strip_prefix(root()).unwrap().iter().map(|part| part.to_string_lossy().into_owned()).collect();
    match &inside[..] {
        [top, name, src, ..] if top == "crates" && src == "src" => name.clone(),
        [top, name, rest, ..] if top == "crates" => format!("{name} {rest}"),
        [top, ..] => top.clone(),
        [] => String::new(),
    }
}
