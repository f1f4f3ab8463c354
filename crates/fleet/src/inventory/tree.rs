//! What an inventory says: machines, groups and their variables; and what that means for each machine.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{
    ranges,
    values::Value,
    variables::{PRIORITY, matters},
};

/// The group of all machines.
pub(super) const ALL: usize = 0;
/// The group of the machines that are in no other group but `all`.
pub(super) const UNGROUPED: usize = 1;

/// Maximum number of mistakes in a file. After it, reading ends.
pub(super) const MAX_MISTAKES: usize = 100;
/// Maximum number of machines.
const MAX_MACHINES: usize = 100_000;
/// Maximum number of groups, mentions of machines, and their variables. With ranges and aliases, a small file can have many.
pub(super) const MAX_FACTS: usize = 1_000_000;
/// Maximum sum, over all machines, of the number of their groups.
const MAX_MEMBERSHIPS: usize = 2_000_000;

/// A mistake with its line; 0 if it has none.
pub(super) type Mistake = (usize, String);

/// The variables of a machine or a group, by name: those that matter.
pub(super) type Variables = BTreeMap<String, Setting>;

/// A variable's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) value: Value,
    /// The line on which it is set; 0 if unknown.
    pub(super) line: usize,
}

/// The machines and groups that an inventory names, in its order.
#[derive(Debug)]
pub(super) struct Tree {
    groups: Vec<Group>,
    machines: Vec<Listed>,
    /// Indices by name.
    group_numbers: HashMap<String, usize>,
    machine_numbers: HashMap<String, usize>,
    /// The line on which a group (the first) is said to contain another.
    contained: BTreeMap<(usize, usize), usize>,
    facts: usize,
}

#[derive(Debug)]
struct Group {
    name: String,
    priority: i64,
    variables: Variables,
}

/// A machine that an inventory lists.
#[derive(Debug)]
struct Listed {
    name: String,
    line: usize,
    /// The groups that list it.
    groups: BTreeSet<usize>,
    variables: Variables,
}

/// A machine with everything that its groups say about it.
#[derive(Debug)]
pub(super) struct Merged<'t> {
    pub(super) name: &'t str,
    /// The line that names it first; 0 if unknown.
    pub(super) line: usize,
    /// All groups that it is in, sorted, without `all`.
    pub(super) groups: Vec<&'t str>,
    pub(super) variables: BTreeMap<&'t str, &'t Setting>,
}

impl Tree {
    /// An inventory without machines. `all` contains every group.
    pub(super) fn new() -> Self {
        let group = |name: &str| Group { name: name.to_owned(), priority: 1, variables: Variables::new() };
        Self {
            groups: ["all", "ungrouped"].map(group).into(),
            machines: Vec::new(),
            group_numbers: HashMap::from([("all".to_owned(), ALL), ("ungrouped".to_owned(), UNGROUPED)]),
            machine_numbers: HashMap::new(),
            contained: BTreeMap::new(),
            facts: 0,
        }
    }

    /// The group of this name. Adds it if it is new.
    ///
    /// # Errors
    /// If the inventory is too large.
    pub(super) fn group(&mut self, name: &str) -> Result<usize, String> {
        if let Some(group) = self.group_numbers.get(name) {
            return Ok(*group);
        }
        self.count(1)?;
        self.groups.push(Group { name: name.to_owned(), priority: 1, variables: Variables::new() });
        self.group_numbers.insert(name.to_owned(), self.groups.len() - 1);
        Ok(self.groups.len() - 1)
    }

    pub(super) fn group_name(&self, group: usize) -> &str {
        &self.groups[group].name
    }

    /// A group contains another.
    pub(super) fn contain(&mut self, parent: usize, child: usize, line: usize) {
        self.contained.entry((parent, child)).or_insert(line);
    }

    /// Sets a variable of a group.
    ///
    /// # Errors
    /// If it is a priority that is not a whole number.
    pub(super) fn set(&mut self, group: usize, name: &str, setting: Setting) -> Result<(), String> {
        let group = &mut self.groups[group];
        if name == PRIORITY {
            let Value::Text(text) = &setting.value else {
                return Err(format!("{PRIORITY} is not a whole number; write one, such as 10"));
            };
            let odd = |_| format!("{PRIORITY} is '{text}'; write a whole number, such as 10");
            group.priority = text.parse::<i64>().map_err(odd)?;
        } else if matters(name) {
            group.variables.insert(name.to_owned(), setting);
        }
        Ok(())
    }

    /// Adds the machines of a pattern to a group, and sets their variables.
    ///
    /// # Errors
    /// If the pattern is not valid, or the inventory is too large.
    pub(super) fn add(
        &mut self,
        pattern: &str,
        group: usize,
        variables: &Variables,
        line: usize,
    ) -> Result<(), String> {
        let (names, port) = ranges::expand(pattern)?;
        for name in names {
            self.count(variables.len())?;
            let known = self.machine_numbers.contains_key(&name);
            let machine = self.machine(&name, group, line)?;
            // Ansible takes the port only from the first mention of the machine.
            if let Some(port) = port.filter(|_| !known) {
                let port = Setting { value: Value::Text(port.to_string()), line };
                self.machines[machine].variables.insert("ansible_port".to_owned(), port);
            }
            // Ansible looks for a group of this name before it looks for a machine.
            let target = match self.group_numbers.get(&name) {
                Some(group) => &mut self.groups[*group].variables,
                None => &mut self.machines[machine].variables,
            };
            target.extend(variables.iter().map(|(name, setting)| (name.clone(), setting.clone())));
        }
        Ok(())
    }

    /// The machine of this name, in a group. Adds it if it is new.
    ///
    /// # Errors
    /// If the inventory is too large.
    pub(super) fn machine(&mut self, name: &str, group: usize, line: usize) -> Result<usize, String> {
        self.count(1)?;
        let machine = match self.machine_numbers.get(name) {
            Some(machine) => *machine,
            None if self.machines.len() == MAX_MACHINES => {
                return Err(format!("more than {MAX_MACHINES} machines are named; split the inventory"));
            }
            None => {
                let (groups, variables) = (BTreeSet::new(), Variables::new());
                self.machines.push(Listed { name: name.to_owned(), line, groups, variables });
                self.machine_numbers.insert(name.to_owned(), self.machines.len() - 1);
                self.machines.len() - 1
            }
        };
        self.machines[machine].groups.insert(group);
        Ok(machine)
    }

    /// Sets a variable of a machine.
    pub(super) fn set_own(&mut self, machine: usize, name: &str, setting: Setting) {
        if matters(name) {
            self.machines[machine].variables.insert(name.to_owned(), setting);
        }
    }

    /// Counts what the inventory says.
    ///
    /// # Errors
    /// If that is too much.
    pub(super) fn count(&mut self, facts: usize) -> Result<(), String> {
        self.facts += facts;
        match self.facts {
            0..=MAX_FACTS => Ok(()),
            _ => Err(format!(
                "up to here the inventory names more than {MAX_FACTS} machines, groups and variables, repetitions included; split it"
            )),
        }
    }

    /// All machines in the order of the inventory, each with its groups and variables. Variables of `all` give way to
    /// those of other groups, these to those of groups within them, and all to those of the machine. Of groups equally
    /// deep, the one of higher priority prevails, then the one whose name is later in the alphabet.
    ///
    /// # Errors
    /// If a group contains itself, or the machines are in too many groups.
    pub(super) fn merged(&self) -> Result<Vec<Merged<'_>>, Mistake> {
        let parents = self.parents();
        let depths = self.depths(&parents)?;
        let mut order: Vec<usize> = (0..self.groups.len()).collect();
        let place = |group: &usize| {
            let of = &self.groups[*group];
            (depths[*group], of.priority, of.name.as_str())
        };
        order.sort_by(|one, other| place(one).cmp(&place(other)));
        let mut ranks = vec![0; order.len()];
        order.iter().enumerate().for_each(|(rank, group)| ranks[*group] = rank);

        let (mut merged, mut memberships) = (Vec::with_capacity(self.machines.len()), 0);
        for machine in &self.machines {
            let mut groups = BTreeSet::from([ALL]);
            let mut waiting: Vec<usize> = machine.groups.iter().copied().collect();
            while let Some(group) = waiting.pop() {
                if groups.insert(group) {
                    waiting.extend(&parents[group]);
                }
            }
            // `ungrouped` is only for machines that no other group has.
            if groups.iter().all(|group| *group <= UNGROUPED) {
                groups.insert(UNGROUPED);
            } else {
                groups.remove(&UNGROUPED);
            }
            memberships += groups.len();
            if memberships > MAX_MEMBERSHIPS {
                let why = format!(
                    "the machines are in more than {MAX_MEMBERSHIPS} groups altogether; split the inventory"
                );
                return Err((machine.line, why));
            }
            merged.push(self.merge(machine, groups, &ranks));
        }
        Ok(merged)
    }

    fn merge<'t>(&'t self, machine: &'t Listed, groups: BTreeSet<usize>, ranks: &[usize]) -> Merged<'t> {
        let mut groups: Vec<usize> = groups.into_iter().collect();
        groups.sort_unstable_by_key(|group| ranks[*group]);
        let all = groups.iter().map(|group| &self.groups[*group].variables).chain([&machine.variables]);
        let variables = all.flatten().map(|(name, setting)| (name.as_str(), setting)).collect();
        let named = groups.iter().filter(|group| **group != ALL);
        let mut names: Vec<&str> = named.map(|group| self.groups[*group].name.as_str()).collect();
        names.sort_unstable();
        Merged { name: &machine.name, line: machine.line, groups: names, variables }
    }

    /// The groups that contain each group; `all`, if no other does.
    fn parents(&self) -> Vec<Vec<usize>> {
        let mut parents = vec![Vec::new(); self.groups.len()];
        for (parent, child) in self.contained.keys() {
            parents[*child].push(*parent);
        }
        for of in parents.iter_mut().skip(1).filter(|of| of.is_empty()) {
            of.push(ALL);
        }
        parents
    }

    /// How deep each group is: the length of the longest way to it from `all`.
    fn depths(&self, parents: &[Vec<usize>]) -> Result<Vec<usize>, Mistake> {
        let mut children = vec![Vec::new(); parents.len()];
        for (child, of) in parents.iter().enumerate() {
            of.iter().for_each(|parent| children[*parent].push(child));
        }
        // For each group, the number of parents without a depth yet.
        let mut waits: Vec<usize> = parents.iter().map(Vec::len).collect();
        let mut ready: Vec<usize> = (0..parents.len()).filter(|group| waits[*group] == 0).collect();
        let mut depths = vec![0; parents.len()];
        while let Some(group) = ready.pop() {
            for &child in &children[group] {
                depths[child] = depths[child].max(depths[group] + 1);
                waits[child] -= 1;
                if waits[child] == 0 {
                    ready.push(child);
                }
            }
        }
        let Some(waiting) = waits.iter().position(|waits| *waits > 0) else { return Ok(depths) };
        // A group that still waits has a parent that waits, so this way upward ends on a cycle.
        let above =
            |group: usize| parents[group].iter().copied().find(|parent| waits[*parent] > 0).unwrap_or(group);
        let mut group = parents.iter().fold(waiting, |group, _| above(group));
        // There may be no line that says that `all` contains a group.
        while !self.contained.contains_key(&(above(group), group)) {
            group = above(group);
        }
        let parent = above(group);
        let (name, within) = (self.group_name(group), self.group_name(parent));
        let why =
            format!("the group '{name}', which is in '{within}', contains it; take one out of the other");
        Err((self.contained[&(parent, group)], why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(contained: &[(&str, &str)]) -> Tree {
        let mut tree = Tree::new();
        for (line, (parent, child)) in (1..).zip(contained) {
            let (parent, child) = (tree.group(parent).unwrap(), tree.group(child).unwrap());
            tree.contain(parent, child, line);
        }
        tree
    }

    #[test]
    fn depths_are_those_of_the_longest_way() {
        let tree = tree(&[("a", "b"), ("b", "c"), ("a", "c"), ("all", "a"), ("d", "c")]);
        let depths = tree.depths(&tree.parents()).unwrap();
        let of = |name: &str| depths[tree.group_numbers[name]];
        assert_eq!(["all", "ungrouped", "a", "b", "c", "d"].map(of), [0, 1, 1, 2, 3, 1]);
    }

    #[test]
    fn cycles_are_named() {
        for (contained, line, words) in [
            (&[("a", "a")] as &[_], 1, "the group 'a', which is in 'a', contains it"),
            (
                &[("a", "b"), ("b", "c"), ("c", "a"), ("a", "d")],
                3,
                "the group 'a', which is in 'c', contains it",
            ),
            (&[("a", "all")], 1, "the group 'all', which is in 'a', contains it"),
        ] {
            let (at, why) = tree(contained).merged().unwrap_err();
            assert!(at == line && why.contains(words), "{at}: {why}");
        }
    }

    #[test]
    fn long_chains_of_groups_take_no_stack() {
        let names: Vec<String> = (0..50_000).map(|group| format!("g{group}")).collect();
        let links: Vec<(&str, &str)> =
            names.windows(2).map(|pair| (pair[0].as_str(), pair[1].as_str())).collect();
        let mut tree = tree(&links);
        let last = tree.group("g49999").unwrap();
        tree.machine("web", last, 1).unwrap();
        assert_eq!(tree.merged().unwrap()[0].groups.len(), 50_000);
        tree.contain(last, ALL, 7);
        assert!(tree.merged().unwrap_err().1.contains("contains it"));
    }

    #[test]
    fn what_is_too_much_is_refused_before_memory_ends() {
        let mut tree = Tree::new();
        let none = Variables::new();
        tree.add("a[1:100000]", ALL, &none, 1).unwrap();
        assert!(tree.add("b", ALL, &none, 2).unwrap_err().contains("more than 100000 machines"));
        let again = std::iter::repeat_with(|| tree.add("a[1:100000]", ALL, &none, 3));
        assert!(again.take(10).find_map(Result::err).unwrap().contains("1000000"));
    }
}
