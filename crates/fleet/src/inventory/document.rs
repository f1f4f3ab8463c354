//! YAML documents as trees whose nodes know their lines. JSON is YAML, too.

use std::{
    collections::{HashMap, HashSet},
    rc::Rc,
};

use granit_parser::{Event, Parser, ScalarStyle};

use super::{
    tree::{MAX_FACTS, MAX_MISTAKES, Mistake},
    values::{COMPOUND, ENCRYPTED, Value},
};

/// Maximum depth of nesting, including that of what aliases stand for. Readers of the tree recurse for each level.
const MAX_DEPTH: usize = 100;

/// A node of a document. An alias is the same node as the one that it names, so that a few aliases cannot fill the memory.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) content: Content,
    /// Line, from 1.
    pub(super) line: usize,
    /// How many levels are within it.
    depth: usize,
}

/// What a node holds.
#[derive(Debug)]
pub(super) enum Content {
    Scalar {
        text: String,
        style: Style,
    },
    List(Vec<Rc<Node>>),
    /// The entries in order, each key once, with those that `<<` merges.
    Map(Vec<Entry>),
}

/// How a scalar is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// Without quotes and tag: it may be a number or null.
    Plain,
    /// As a text.
    Text,
    /// With the tag `!vault`.
    Encrypted,
}

/// An entry of a mapping.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) key: String,
    /// The line of the key.
    pub(super) line: usize,
    pub(super) value: Rc<Node>,
}

impl Node {
    /// The node as the value of a variable.
    pub(super) fn value(&self) -> Value {
        match &self.content {
            Content::Scalar { text, style: Style::Plain } => Value::yaml(text),
            Content::Scalar { text, style: Style::Text } => Value::Text(text.clone()),
            Content::Scalar { style: Style::Encrypted, .. } => Value::Other(ENCRYPTED),
            Content::List(_) | Content::Map(_) => Value::Other(COMPOUND),
        }
    }
}

/// Reads a document; none if the text holds none.
///
/// # Errors
/// All mistakes up to the first that makes the rest unreadable.
pub(super) fn read(text: &str) -> Result<Option<Rc<Node>>, Vec<Mistake>> {
    let mut builder = Builder::default();
    for next in Parser::new_from_str(text) {
        let done = match next {
            Ok((event, span)) => {
                let line = span.start.line();
                builder.event(event, line).map_err(|why| (line, why))
            }
            Err(error) => Err((error.marker().line(), format!("this is not YAML: {}", error.info()))),
        };
        let is_readable = done.is_ok();
        builder.mistakes.extend(done.err());
        if !is_readable || builder.mistakes.len() > MAX_MISTAKES {
            break;
        }
    }
    if builder.mistakes.is_empty() { Ok(builder.root) } else { Err(builder.mistakes) }
}

/// The document after the events so far.
#[derive(Default)]
struct Builder {
    /// The lists and mappings that have not ended, from the outermost.
    open: Vec<Open>,
    anchors: HashMap<usize, Rc<Node>>,
    root: Option<Rc<Node>>,
    /// Number of nodes, and of entries merged by `<<`.
    nodes: usize,
    mistakes: Vec<Mistake>,
}

/// A list or a mapping that has not ended.
struct Open {
    line: usize,
    /// 0 if it has none.
    anchor: usize,
    is_map: bool,
    /// The items of a list; keys and values of a mapping alternately.
    items: Vec<Rc<Node>>,
}

impl Builder {
    fn event(&mut self, event: Event<'_>, line: usize) -> Result<(), String> {
        match event {
            Event::DocumentStart(..) if self.root.is_some() => {
                Err("a second document begins here; an inventory is one document".to_owned())
            }
            Event::Scalar(text, style, anchor, tag) => {
                let style = match tag.as_deref().map(|tag| tag.parts()) {
                    Some(("!", tag)) if tag.starts_with("vault") => Style::Encrypted,
                    None if style == ScalarStyle::Plain => Style::Plain,
                    _ => Style::Text,
                };
                let content = Content::Scalar { text: text.into_owned(), style };
                self.place(Node { content, line, depth: 0 }, anchor)
            }
            Event::SequenceStart(_, anchor, _) => self.begin(anchor, line, false),
            Event::MappingStart(_, anchor, _) => self.begin(anchor, line, true),
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Alias(anchor) => match self.anchors.get(&anchor).cloned() {
                Some(node) => self.put(node),
                None => Err("an alias is inside the node that it names; write out the content".to_owned()),
            },
            _ => Ok(()),
        }
    }

    fn begin(&mut self, anchor: usize, line: usize, is_map: bool) -> Result<(), String> {
        self.open.push(Open { line, anchor, is_map, items: Vec::new() });
        check_depth(self.open.len())
    }

    fn end(&mut self) -> Result<(), String> {
        let Some(Open { line, anchor, is_map, items }) = self.open.pop() else { return Ok(()) };
        let depth = 1 + items.iter().map(|item| item.depth).max().unwrap_or_default();
        let content = if is_map { Content::Map(self.entries(&items)?) } else { Content::List(items) };
        self.place(Node { content, line, depth }, anchor)
    }

    fn place(&mut self, node: Node, anchor: usize) -> Result<(), String> {
        let node = Rc::new(node);
        if anchor > 0 {
            self.anchors.insert(anchor, Rc::clone(&node));
        }
        self.put(node)
    }

    fn put(&mut self, node: Rc<Node>) -> Result<(), String> {
        self.count(1)?;
        check_depth(self.open.len() + node.depth)?;
        match self.open.last_mut() {
            Some(open) => open.items.push(node),
            None => self.root = Some(node),
        }
        Ok(())
    }

    /// The entries of a mapping. Its own keys take precedence over merged ones, and keys merged first over later ones.
    fn entries(&mut self, items: &[Rc<Node>]) -> Result<Vec<Entry>, String> {
        let (mut entries, mut merged, mut known) = (Vec::new(), Vec::new(), HashSet::new());
        for pair in items.chunks_exact(2) {
            let [key, value] = pair else { continue };
            match &key.content {
                Content::Scalar { text, style: Style::Plain } if text == "<<" => match &value.content {
                    Content::List(sources) => merged.extend(sources.iter().cloned()),
                    _ => merged.push(Rc::clone(value)),
                },
                Content::Scalar { text, .. } if known.insert(text.clone()) => {
                    entries.push(Entry { key: text.clone(), line: key.line, value: Rc::clone(value) });
                }
                Content::Scalar { text, .. } => {
                    let why = format!(
                        "'{text}' occurs here a second time, and Ansible forgets the first; merge them"
                    );
                    self.mistake(key.line, why);
                }
                _ => self.mistake(key.line, "a key must be a text".to_owned()),
            }
        }
        self.count(merged.len())?;
        for source in merged {
            let Content::Map(others) = &source.content else {
                self.mistake(source.line, "'<<' merges mappings only".to_owned());
                continue;
            };
            self.count(others.len())?;
            entries.extend(others.iter().filter(|other| known.insert(other.key.clone())).cloned());
        }
        Ok(entries)
    }

    fn mistake(&mut self, line: usize, why: String) {
        // There may be as many mistakes as values.
        if self.mistakes.len() <= MAX_MISTAKES {
            self.mistakes.push((line, why));
        }
    }

    fn count(&mut self, nodes: usize) -> Result<(), String> {
        self.nodes += nodes;
        match self.nodes {
            0..=MAX_FACTS => Ok(()),
            _ => Err(format!("up to here the file holds more than {MAX_FACTS} values; split the inventory")),
        }
    }
}

fn check_depth(depth: usize) -> Result<(), String> {
    match depth {
        0..=MAX_DEPTH => Ok(()),
        _ => Err(format!("this is nested more than {MAX_DEPTH} levels deep; write groups side by side")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A node in short: plain texts without quotes, keys with their lines.
    fn shown(node: &Node) -> String {
        match &node.content {
            Content::Scalar { text, style: Style::Plain } => text.clone(),
            Content::Scalar { text, style: Style::Text } => format!("{text:?}"),
            Content::Scalar { style: Style::Encrypted, .. } => "encrypted".to_owned(),
            Content::List(items) => {
                let items: Vec<String> = items.iter().map(|item| shown(item)).collect();
                format!("[{}]", items.join(", "))
            }
            Content::Map(entries) => {
                let entry = |entry: &Entry| format!("{}@{}: {}", entry.key, entry.line, shown(&entry.value));
                let entries: Vec<String> = entries.iter().map(entry).collect();
                format!("{{{}}}", entries.join(", "))
            }
        }
    }

    #[test]
    fn documents_are_read_with_their_lines() {
        for (text, right) in [
            ("a: 1\nb:\n  c: x\n", "{a@1: 1, b@2: {c@3: x}}"),
            ("{\"a\": [1, \"x\"],\n\"b\": null}", "{a@1: [1, \"x\"], b@2: null}"),
            ("a: 'x' # y\nb:\n", "{a@1: \"x\", b@2: ~}"),
            ("a: &x {u: 1, v: 2}\nb: {<<: *x, v: 3}\n", "{a@1: {u@1: 1, v@1: 2}, b@2: {v@2: 3, u@1: 1}}"),
            ("<<: [{u: 1}, {u: 2, v: 3}]\n", "{u@1: 1, v@1: 3}"),
            (
                "a: !vault |\n  $ANSIBLE_VAULT;1.1;AES256\n  3132\nb: !!str 22\n",
                "{a@1: encrypted, b@4: \"22\"}",
            ),
            ("", "nothing"),
            ("# nothing\n", "nothing"),
            ("---\n", "~"),
        ] {
            let read = read(text).unwrap();
            assert_eq!(read.map_or_else(|| "nothing".to_owned(), |root| shown(&root)), right, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_a_document_is_refused_with_its_line() {
        let deep = "[".repeat(101) + &"]".repeat(101);
        let chain: String = (1..200).map(|at| format!("a{at}: &a{at} [*a{}]\n", at - 1)).collect();
        let chain = "a0: &a0 [x]\n".to_owned() + &chain;
        for (text, line, words) in [
            ("a: 1\nb: 2\na: 3\n", 3, "'a' occurs here a second time"),
            ("a: 1\n[b]: 2\n", 2, "a key must be a text"),
            ("a: 1\n---\nb: 2\n", 2, "a second document"),
            ("<<: 1\n", 1, "'<<' merges mappings only"),
            (deep.as_str(), 1, "more than 100 levels"),
            (chain.as_str(), 100, "more than 100 levels"),
        ] {
            let mistakes = read(text).unwrap_err();
            assert!(mistakes[0].0 == line && mistakes[0].1.contains(words), "{mistakes:?}");
        }
        for text in ["a: [1\n", "a: 'x\n", "a: *x\n", "a: &x [*x]\n"] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn aliases_of_aliases_take_no_memory() {
        let line = |at: usize| format!("a{at}: &a{at} [{}]\n", vec![format!("*a{}", at - 1); 9].join(", "));
        let bomb = "a0: &a0 [x]\n".to_owned() + &(1..60).map(line).collect::<String>();
        assert!(read(&bomb).unwrap().is_some());
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,60}|[a:&*!|>'\"#,\\[\\]{}\n -]{0,40}") {
            if let Err(mistakes) = read(&text) {
                prop_assert!(!mistakes.is_empty());
            }
        }
    }
}
