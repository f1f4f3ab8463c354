//! Inventories in Ansible's YAML format.

use super::{
    document::{Content, Node},
    tree::{MAX_MISTAKES, Mistake, Setting, Tree, Variables},
    values::Value,
    variables::matters,
};

/// The keys of a group.
const PARTS: [&str; 3] = ["hosts", "children", "vars"];

/// Whether a document is the configuration of an inventory plugin.
pub(super) fn names_plugin(root: Option<&Node>) -> bool {
    matches!(root.map(|root| &root.content), Some(Content::Map(keys)) if keys.iter().any(|of| of.key == "plugin"))
}

/// Reads an inventory.
///
/// # Errors
/// All mistakes, but not many more than a hundred.
pub(super) fn read(root: Option<&Node>) -> Result<Tree, Vec<Mistake>> {
    let mut reader = Reader { tree: Tree::new(), mistakes: Vec::new() };
    let done = reader.groups(root, None);
    reader.mistakes.extend(done.err());
    if reader.mistakes.is_empty() { Ok(reader.tree) } else { Err(reader.mistakes) }
}

/// The inventory so far. Methods fail when it makes no sense to read on.
struct Reader {
    tree: Tree,
    mistakes: Vec<Mistake>,
}

/// Keys with their lines and values.
type Entries<'n> = Vec<(&'n str, usize, Option<&'n Node>)>;

impl Reader {
    fn groups(&mut self, node: Option<&Node>, parent: Option<usize>) -> Result<(), Mistake> {
        let what = "groups, each with a colon, such as web:";
        for (name, line, node) in self.entries(node, parent.is_some(), what)? {
            let group = self.tree.group(name).map_err(|why| (line, why))?;
            if let Some(parent) = parent {
                self.tree.contain(parent, group, line);
            }
            for (part, line, node) in self.entries(node, false, "hosts:, children: or vars:")? {
                match part {
                    "hosts" => self.machines(node, group)?,
                    "children" => self.groups(node, Some(group))?,
                    "vars" => self.group_variables(node, group)?,
                    part => {
                        let hint = settings::suggestion(part, PARTS);
                        let known = PARTS.join(", ");
                        self.mistake(line, format!("unknown key '{part}'{hint} (a group has: {known})"))?;
                    }
                }
            }
        }
        Ok(())
    }

    fn machines(&mut self, node: Option<&Node>, group: usize) -> Result<(), Mistake> {
        for (pattern, line, node) in self.entries(node, true, "machines, each with a colon, such as web1:")? {
            let mut variables = Variables::new();
            for (name, line, node) in self.variables(node)? {
                if matters(name) {
                    variables.insert(name.to_owned(), setting(node, line));
                }
            }
            if let Err(why) = self.tree.add(pattern, group, &variables, line) {
                self.mistake(line, why)?;
            }
        }
        Ok(())
    }

    fn group_variables(&mut self, node: Option<&Node>, group: usize) -> Result<(), Mistake> {
        for (name, line, node) in self.variables(node)? {
            if let Err(why) = self.tree.set(group, name, setting(node, line)) {
                self.mistake(line, why)?;
            }
        }
        Ok(())
    }

    fn variables<'n>(&mut self, node: Option<&'n Node>) -> Result<Entries<'n>, Mistake> {
        self.entries(node, false, "variables, such as ansible_user: me")
    }

    /// The entries of a mapping; none if there is no value. With `or_name`, a text is a key without a value.
    fn entries<'n>(
        &mut self,
        node: Option<&'n Node>,
        or_name: bool,
        what: &str,
    ) -> Result<Entries<'n>, Mistake> {
        let Some(node) = node.filter(|node| node.value() != Value::Null) else { return Ok(Vec::new()) };
        let entries: Entries<'n> = match &node.content {
            Content::Map(entries) => {
                entries.iter().map(|entry| (entry.key.as_str(), entry.line, Some(&*entry.value))).collect()
            }
            Content::Scalar { text, .. } if or_name => vec![(text.as_str(), node.line, None)],
            _ => {
                self.mistake(node.line, format!("expected {what}"))?;
                Vec::new()
            }
        };
        self.tree.count(entries.len()).map_err(|why| (node.line, why))?;
        Ok(entries)
    }

    /// Adds a mistake; fails if there are many.
    fn mistake(&mut self, line: usize, why: String) -> Result<(), Mistake> {
        if self.mistakes.len() >= MAX_MISTAKES {
            return Err((line, why));
        }
        self.mistakes.push((line, why));
        Ok(())
    }
}

fn setting(node: Option<&Node>, line: usize) -> Setting {
    Setting { value: node.map_or(Value::Null, Node::value), line }
}
