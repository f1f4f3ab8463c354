//! The tables `[[actions]]`: actions on hosts during each trial.

use lab::{
    Balancer, BalancerKind,
    file::HostNames,
    plan::{LinkKind, Plan},
};
use settings::{Reader, Value};
use toml::de::{DeTable, DeValue};

use super::levels::Levels;
use crate::study::{Action, ActionKind};

/// The key of the tables.
pub(super) const NAME: &str = "actions";
/// An action must have exactly one of these keys.
const DONE: [&str; 4] = ["do", "command", "kill", "link"];
/// The commands of `proofload balance` that can be actions.
const BALANCE_COMMANDS: [&str; 4] = ["add", "set", "drain", "remove"];

/// Reads the actions of a setting. Leaves out an action that consists only of a factor without a level in this setting.
pub(super) fn read(
    reader: &mut Reader<'_>,
    tree: &DeTable<'_>,
    levels: &Levels<'_>,
    names: Option<HostNames<'_>>,
    balancer: Option<&Balancer>,
) -> Vec<Action> {
    let Some(value) = tree.get(NAME) else { return Vec::new() };
    let Some(names) = names else {
        reader.mistake(value.span(), "[[actions]] needs hosts of the study: add [hosts]");
        return Vec::new();
    };
    let mut actions = Vec::new();
    for written in reader.array(value, "tables [[actions]]") {
        let Some(value) = levels.substitute(reader, written) else { continue };
        let keys = |value: &Value<'_>| {
            let table = value.get_ref().as_table();
            table.map_or(0, |table| DONE.iter().filter(|key| table.contains_key(**key)).count())
        };
        if keys(written) == 1 && keys(&value) == 0 {
            continue;
        }
        actions.extend(read_one(reader, &value, names, balancer));
    }
    actions
}

fn read_one(
    reader: &mut Reader<'_>,
    value: &Value<'_>,
    names: HostNames<'_>,
    balancer: Option<&Balancer>,
) -> Vec<Action> {
    let mut table = reader.table(value, "a table such as { at = \"10s\", on = \"web3\", kill = \"nginx\" }");
    let at = table.require(reader, "at", "when, after the load began, such as \"10s\"");
    let at = at.and_then(|value| reader.time(value));
    let on = table.take("on");
    let hosts = on.map(|value| names.groups.read_hosts(reader, value));
    let mut done = Vec::new();
    for key in DONE {
        let Some(value) = table.take(key) else { continue };
        let what = match key {
            "do" => read_balance(reader, value, names, (balancer, hosts.as_deref())).map(ActionKind::Balance),
            "command" => read_command(reader, value).map(ActionKind::Command),
            "kill" => reader.text(value).map(|name| ActionKind::Kill(name.to_owned())),
            _ => {
                let hosts = hosts.as_deref().unwrap_or_default();
                read_link(reader, value, names.plan, hosts).map(ActionKind::Link)
            }
        };
        done.push(what);
    }
    let span = table.span();
    table.finish(reader);
    let [what] = &done[..] else {
        let message = "an action does one thing: give do = \"drain web3\", command = [\"…\"], kill = \"nginx\" or link = \"down\"";
        reader.mistake(span, message);
        return Vec::new();
    };
    let (Some(at), Some(what)) = (at, what) else { return Vec::new() };
    let hosts = match (hosts, what, balancer) {
        (Some(hosts), ..) => hosts,
        (None, ActionKind::Balance(_), Some(balancer)) => vec![balancer.host],
        (None, ..) => {
            reader.mistake(span, "'on' is missing: name the host that the action is for");
            return Vec::new();
        }
    };
    hosts.into_iter().map(|host| Action { at, host, what: what.clone() }).collect()
}

/// Reads words such as `drain web3`, and returns the arguments for `proofload balance`.
fn read_balance(
    reader: &mut Reader<'_>,
    value: &Value<'_>,
    HostNames { plan, groups }: HostNames<'_>,
    (balancer, hosts): (Option<&Balancer>, Option<&[usize]>),
) -> Option<Vec<String>> {
    let words: Vec<&str> = reader.text(value)?.split_whitespace().collect();
    let mut refuse = |message: String| reader.refuse(value.span(), message);
    let Some(balancer) = balancer.filter(|balancer| hosts.is_none_or(|hosts| *hosts == [balancer.host]))
    else {
        let message =
            "'do' acts on the host of the [balancer] only: add a [balancer], or name its host in 'on'";
        return refuse(message.to_owned());
    };
    if balancer.kind != BalancerKind::L2dsr {
        return refuse(format!(
            "'do' works only with run = \"l2dsr\", not with {}: limit the action to l2dsr by a factor whose levels are the commands, \
             with when = {{ balancer = \"l2dsr\" }}",
            balancer.kind.name()
        ));
    }
    let [command, server, options @ ..] = &words[..] else {
        return refuse(format!(
            "give a command and a server, such as \"drain {}\"",
            plan.hosts[balancer.servers[0]].name
        ));
    };
    if !BALANCE_COMMANDS.contains(command) {
        return refuse(format!("'{command}' is not one of {}", BALANCE_COMMANDS.join(", ")));
    }
    let host = match groups.members_of(server).as_deref() {
        Some([host]) => *host,
        _ => return refuse(format!("there is no host '{server}'")),
    };
    let service = std::net::SocketAddr::new(balancer.vip, balancer.port).to_string();
    let mut all = vec![(*command).to_owned(), service];
    if *command == "add" {
        let fits = |address: std::net::IpAddr| address.is_ipv4() == balancer.vip.is_ipv4();
        let Some(address) = plan.shared_address(balancer.host, host, &fits) else {
            return refuse(format!("'{server}' has no link to the balancer: join them by a link"));
        };
        all.extend([address.to_string(), "--server-name".to_owned()]);
    }
    all.push((*server).to_owned());
    all.extend(options.iter().map(|&word| word.to_owned()));
    Some(all)
}

fn read_command(reader: &mut Reader<'_>, value: &Value<'_>) -> Option<Vec<String>> {
    let values = reader.array(value, "a list of words such as [\"pkill\", \"x\"]");
    if values.is_empty() && matches!(value.get_ref(), DeValue::Array(_)) {
        reader.mistake(value.span(), "a command needs at least the program's name");
    }
    let words: Option<Vec<String>> =
        values.iter().map(|value| reader.text(value).map(str::to_owned)).collect();
    words.filter(|words| !words.is_empty())
}

fn read_link(reader: &mut Reader<'_>, value: &Value<'_>, plan: &Plan, hosts: &[usize]) -> Option<bool> {
    let text = reader.text(value)?;
    let on = ["down", "up"].iter().position(|word| *word == text);
    if on.is_none() {
        reader.mistake(value.span(), format!("'{text}' is neither \"down\" nor \"up\""));
    }
    let is_on_segment = |host: &usize| {
        let mut links = plan.ends_of(*host).map(|(link, _)| link);
        links.any(|link| matches!(link.kind, LinkKind::Segment { .. }))
    };
    if let Some(host) = hosts.iter().find(|host| !is_on_segment(host)) {
        let name = &plan.hosts[*host].name;
        let message = format!(
            "'{name}' is on no segment, so it has no port to switch: join it by a segment, or name another host in 'on'"
        );
        return reader.refuse(value.span(), message);
    }
    on.map(|on| on == 1)
}
