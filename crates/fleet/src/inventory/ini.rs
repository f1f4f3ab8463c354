//! Inventories in Ansible's INI format.

use std::collections::HashSet;

use super::{
    tree::{ALL, MAX_MISTAKES, Mistake, Setting, Tree, UNGROUPED, Variables},
    values::Value,
    variables::matters,
    words,
};

/// Reads an inventory.
///
/// # Errors
/// All mistakes, but not many more than a hundred.
pub(super) fn read(text: &str) -> Result<Tree, Vec<Mistake>> {
    let mut reader = Reader {
        tree: Tree::new(),
        // Machines before the first section are in no group.
        group: UNGROUPED,
        part: Part::Machines,
        declared: HashSet::from([ALL, UNGROUPED]),
        named: Vec::new(),
    };
    let mut mistakes: Vec<Mistake> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Err(why) = reader.line(number, line) {
            mistakes.push((number, why));
        }
        if mistakes.len() > MAX_MISTAKES {
            return Err(mistakes);
        }
    }
    for (number, group) in &reader.named {
        if !reader.declared.contains(group) && mistakes.len() <= MAX_MISTAKES {
            let name = reader.tree.group_name(*group);
            mistakes
                .push((*number, format!("the group '{name}' is declared nowhere; add a section [{name}]")));
        }
    }
    if mistakes.is_empty() { Ok(reader.tree) } else { Err(mistakes) }
}

/// What the lines of a section are.
#[derive(Debug, Clone, Copy)]
enum Part {
    Machines,
    Children,
    Variables,
    /// Unknown, because the heading has a mistake.
    Unknown,
}

/// The inventory after the lines so far.
struct Reader {
    tree: Tree,
    /// The group and the part of the current section.
    group: usize,
    part: Part,
    /// Groups that have a section for machines or children.
    declared: HashSet<usize>,
    /// Groups that must have such a section, each with the line that says so.
    named: Vec<(usize, usize)>,
}

impl Reader {
    fn line(&mut self, number: usize, line: &str) -> Result<(), String> {
        if let Some((name, part)) = heading(line) {
            return self.begin(number, name, part);
        }
        if line.starts_with('[') && line.ends_with(']') {
            self.part = Part::Unknown;
            return Err(
                "this is not a heading; write [GROUP], without blanks, ':' or ']' in the name".to_owned()
            );
        }
        match self.part {
            Part::Machines => self.machines(number, line),
            Part::Children => self.child(number, line),
            Part::Variables => {
                let Some((name, value)) = line.split_once('=') else {
                    return Err("expected NAME=VALUE".to_owned());
                };
                let setting = Setting { value: Value::python(value.trim()), line: number };
                self.tree.set(self.group, name.trim(), setting)
            }
            Part::Unknown => Ok(()),
        }
    }

    fn begin(&mut self, number: usize, name: &str, part: Option<&str>) -> Result<(), String> {
        self.part = Part::Unknown;
        let part = match part {
            None | Some("hosts") => Part::Machines,
            Some("children") => Part::Children,
            Some("vars") => Part::Variables,
            Some(part) => {
                let hint = settings::suggestion(part, ["children", "vars", "hosts"]);
                return Err(format!(
                    "'[{name}:{part}]' is not a heading{hint}; write [{name}], [{name}:children] or [{name}:vars]"
                ));
            }
        };
        self.group = self.tree.group(name)?;
        self.part = part;
        if matches!(part, Part::Variables) {
            self.named.push((number, self.group));
        } else {
            self.declared.insert(self.group);
        }
        Ok(())
    }

    fn machines(&mut self, number: usize, line: &str) -> Result<(), String> {
        let words = words::split(line, true)?;
        let Some((pattern, settings)) = words.split_first() else { return Ok(()) };
        if pattern == "---" {
            return Err("'---' begins a YAML file; give it a name that ends in .yml".to_owned());
        }
        let mut variables = Variables::new();
        for (at, setting) in (2..).zip(settings) {
            // The word is not shown: it may be a piece of a password.
            let Some((name, value)) = setting.split_once('=') else {
                return Err(format!(
                    "word {at} of this line is not NAME=VALUE; put a value that has blanks in quotes"
                ));
            };
            if matters(name) {
                let setting = Setting { value: Value::python(value), line: number };
                variables.insert(name.to_owned(), setting);
            }
        }
        self.tree.add(pattern, self.group, &variables, number)
    }

    fn child(&mut self, number: usize, line: &str) -> Result<(), String> {
        let end = line.find(|c: char| c.is_whitespace() || [':', ']'].contains(&c)).unwrap_or(line.len());
        let (name, behind) = line.split_at(end);
        if name.is_empty() || !is_nothing(behind) {
            return Err("expected the name of one group, such as web".to_owned());
        }
        let child = self.tree.group(name)?;
        self.named.push((number, child));
        self.tree.contain(self.group, child, number);
        Ok(())
    }
}

/// The group and the part of a heading: `[GROUP]` or `[GROUP:PART]`.
fn heading(line: &str) -> Option<(&str, Option<&str>)> {
    let (inside, behind) = line.strip_prefix('[')?.split_once(']')?;
    let (name, part) = inside.split_once(':').map_or((inside, None), |(name, part)| (name, Some(part)));
    let is_word = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_alphanumeric() || c == '_');
    let is_heading = !name.is_empty() && !name.contains(char::is_whitespace) && part.is_none_or(is_word);
    (is_heading && is_nothing(behind)).then_some((name, part))
}

/// Whether the rest of a line is blank, or a comment.
fn is_nothing(behind: &str) -> bool {
    let behind = behind.trim_start();
    behind.is_empty() || behind.starts_with('#')
}
