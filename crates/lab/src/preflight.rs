//! Whether this machine can have a lab, before anything of it is made.

use std::path::Path;

use settings::places;

use crate::{
    plan::{KnownKind, Plan, Process, Program},
    process::exec::search_path,
};

/// Everything that this machine missing_requirements for a lab, in words; nothing if it missing_requirements nothing.
pub(crate) fn missing_requirements(plan: &Plan) -> Vec<String> {
    let mut missing_requirements = missing_processors(plan);
    missing_requirements.extend(plan.processes.iter().filter_map(missing_program));
    missing_requirements.extend(plan.processes.iter().filter_map(|process| missing_file(plan, process)));
    missing_requirements
}

/// A file that a command names and no program of the lab writes.
fn missing_file(plan: &Plan, process: &Process) -> Option<String> {
    let Program::Command(words) = &process.program else { return None };
    let mut names = words.iter().flat_map(|word| places::names(word));
    let name = names.find(|name| KnownKind::all_written_files().contains(name) && !plan.writes_file(name))?;
    Some(format!("{}: no program of this lab writes {{{name}}}", process.name))
}

fn missing_processors(plan: &Plan) -> Vec<String> {
    let is_missing = |cpu: &&usize| !Path::new(&format!("/sys/devices/system/cpu/cpu{cpu}")).exists();
    let hosts = plan.hosts.iter().filter_map(|host| {
        let cpu = host.cpus.iter().flatten().find(is_missing)?;
        Some(format!("host {}: there is no processor {cpu} here", host.name))
    });
    hosts.collect()
}

/// A program that an earlier process may still make is looked for when it is started.
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

    fn lacked(text: &str) -> Vec<String> {
        let head = "title = \"t\"\n[hosts]\n";
        missing_requirements(&crate::file::parse("lab.toml", &format!("{head}{text}")).unwrap())
    }

    #[test]
    fn processors_and_programs_that_are_not_there_are_told() {
        let told = lacked("a = { cpus = 1023 }\nb = { cpus = 0 }\n");
        assert!(told.len() == 1 && told[0].starts_with("host a: there is no processor"), "{told:?}");
        let command = |words: &str| format!("a = {{}}\n[[processes]]\non = \"a\"\ncommand = [{words}]\n");
        for there in ["\"sh\", \"-c\", \"true\"", "\"/bin/sh\"", "\"./made/by/the/study\""] {
            assert_eq!(lacked(&command(there)), [""; 0], "{there}");
        }
        for missing in ["\"no-such-program\"", "\"/no/such/program\""] {
            assert!(lacked(&command(missing))[0].contains("there is no program"), "{missing}");
        }
    }
}
