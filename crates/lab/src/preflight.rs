//! Checks, before a lab is created, that this machine meets the lab's requirements.

use std::path::Path;

use settings::placeholders;

use crate::{
    exec::search_path,
    plan::{KnownKind, Plan, Process, Program},
    program::writes_file,
};

/// One message for each requirement of the lab that this machine does not meet.
pub(crate) fn missing_requirements(plan: &Plan) -> Vec<String> {
    let mut missing_requirements = missing_processors(plan);
    missing_requirements.extend(plan.processes.iter().filter_map(missing_program));
    missing_requirements.extend(plan.processes.iter().filter_map(|process| missing_file(plan, process)));
    missing_requirements
}

/// A message if the command uses a file (`{ssh_config}`) that no program of the lab writes.
fn missing_file(plan: &Plan, process: &Process) -> Option<String> {
    let Program::Command(words) = &process.program else { return None };
    let mut names = words.iter().flat_map(|word| placeholders::names(word));
    let name =
        names.find(|name| KnownKind::all_written_files().contains(name) && !writes_file(plan, name))?;
    Some(format!("{}: no program of this lab writes the file {{{name}}}", process.name))
}

fn missing_processors(plan: &Plan) -> Vec<String> {
    let is_missing = |cpu: &&usize| !Path::new(&format!("/sys/devices/system/cpu/cpu{cpu}")).exists();
    let hosts = plan.hosts.iter().filter_map(|host| {
        let cpu = host.cpus.iter().flatten().find(is_missing)?;
        Some(format!("host {}: there is no processor {cpu} here", host.name))
    });
    hosts.collect()
}

/// A message if the program is missing. Relative paths, and paths that an earlier process may create, are not checked.
fn missing_program(process: &Process) -> Option<String> {
    let Program::Command(words) = &process.program else { return None };
    let name = words.first().filter(|name| !name.contains('{'))?;
    let is_there = match name.contains('/') {
        true => process.stage > 0 || !name.starts_with('/') || Path::new(name).exists(),
        false => search_path().split(':').any(|folder| Path::new(folder).join(name).is_file()),
    };
    (!is_there).then(|| format!("{}: there is no program {name}; is it installed?", process.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing_for(text: &str) -> Vec<String> {
        let head = "title = \"t\"\n[hosts]\n";
        missing_requirements(&crate::file::parse("lab.toml", &format!("{head}{text}")).unwrap())
    }

    #[test]
    fn missing_processors_and_programs_are_reported() {
        let missing = missing_for("a = { cpus = 1023 }\nb = { cpus = 0 }\n");
        assert!(missing.len() == 1 && missing[0].starts_with("host a: there is no processor"), "{missing:?}");
        let command = |words: &str| format!("a = {{}}\n[[processes]]\non = \"a\"\ncommand = [{words}]\n");
        for present in ["\"sh\", \"-c\", \"true\"", "\"/bin/sh\"", "\"./made/by/the/study\""] {
            assert_eq!(missing_for(&command(present)), [""; 0], "{present}");
        }
        for missing in ["\"no-such-program\"", "\"/no/such/program\""] {
            assert!(missing_for(&command(missing))[0].contains("there is no program"), "{missing}");
        }
    }
}
