//! The table `[balancer]`: a host between load and target.

use std::{fs, ops::Range, path::Path};

use lab::{Balancer, BalancerKind, file::HostGroups, plan::Plan};
use load::MachineLimits;
use record::Level;
use rustix::process::geteuid;
use settings::{Reader, Value};
use toml::de::{DeTable, DeValue};

use super::{
    levels::{Levels, level},
    programs,
    targets::{ResolvedTarget, TargetLocation},
};

/// The key of the table.
pub(super) const NAME: &str = "balancer";

/// The text of the key `on`, which names hosts. Placeholders are still in it.
pub(super) fn on<'d>(tree: &'d DeTable<'_>) -> Option<&'d str> {
    table(tree)?.get("on")?.get_ref().as_str()
}

/// Reads the table for a setting and adds the balancer's needs to the hosts of the plan. The outer option is `None` if there are mistakes;
/// the inner one is `None` if the file has no such table.
#[expect(clippy::option_option, reason = "the outer option means mistakes, as in the resolver")]
pub(super) fn read(
    reader: &mut Reader<'_>,
    tree: &DeTable<'_>,
    levels: &Levels<'_>,
    plan: Option<(&mut Plan, &HostGroups)>,
    target: Option<&ResolvedTarget>,
    from: &[usize],
) -> Option<Option<Balancer>> {
    let Some(value) = tree.get(NAME) else { return Some(None) };
    let Some(plan) = plan else {
        let message = "[balancer] needs hosts of the study: add [hosts], and a target on them";
        return reader.refuse(value.span(), message);
    };
    let value = levels.substitute(reader, value)?;
    let target = match target.map(|target| &target.location) {
        Some(TargetLocation::Hosts { hosts, port }) => Some((&hosts[..], *port)),
        Some(TargetLocation::External { .. }) | None => None,
    };
    lab::file::read_balancer(reader, &value, plan, target, from).map(Some)
}

/// Something that a setting's balancer needs and this machine does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shortage {
    /// The reason, as a sentence.
    pub(super) why: String,
    /// The remedy.
    pub(super) cure: String,
    /// The table's position in the file.
    pub(super) span: Range<usize>,
}

/// The first thing that this machine lacks for the balancer of a setting; `None` if it has everything.
pub(super) fn shortage(tree: &DeTable<'_>, levels: &Levels<'_>, machine: &MachineLimits) -> Option<Shortage> {
    let value = tree.get(NAME)?;
    let short = |why: String, cure: &str| Some(Shortage { why, cure: cure.to_owned(), span: value.span() });
    let key = |key: &str| level_of(table(tree)?.get(key)?, levels);
    let kind =
        BalancerKind::ALL.into_iter().find(|kind| key("run") == Some(Level::Text(kind.name().to_owned())));
    match kind? {
        BalancerKind::L2dsr if !geteuid().is_root() => short(
            "the balancer l2dsr loads a BPF program, which this user is not allowed to do".to_owned(),
            "run the study as root",
        ),
        BalancerKind::Direct | BalancerKind::L2dsr => None,
        BalancerKind::Haproxy if !programs::is_installed("haproxy") => short(
            "the balancer haproxy needs haproxy, which this machine does not have".to_owned(),
            "install it",
        ),
        BalancerKind::Haproxy => {
            let Some(Level::Number(threads)) = key("threads") else { return None };
            let processors = machine.cpus;
            (threads > f64::from(processors.max(2) - 1)).then_some(())?;
            let why = format!(
                "{threads} threads of the balancer leave none of this machine's {processors} processors to clients and servers"
            );
            short(why, "use a larger machine")
        }
        BalancerKind::Lvs if !programs::is_installed("ipvsadm") => {
            short("the balancer lvs needs ipvsadm, which this machine does not have".to_owned(), "install it")
        }
        BalancerKind::Lvs if !has_ip_vs() => short(
            "the balancer lvs needs ip_vs, which this kernel does not have".to_owned(),
            "use another kernel (such as that of Debian, see docs/vm.md)",
        ),
        BalancerKind::Lvs => None,
    }
}

/// The value of one of the table's keys in a setting, as a level.
fn level_of(value: &Value<'_>, levels: &Levels<'_>) -> Option<Level> {
    // If the text is just a placeholder, the value keeps the type of the level.
    match value.get_ref() {
        DeValue::String(text) => match super::placeholders::names(text)[..] {
            [name] if **text == format!("{{{name}}}") => levels.level(name),
            _ => level(value),
        },
        _ => level(value),
    }
}

/// Whether the kernel supports IPVS, built in or as a module.
fn has_ip_vs() -> bool {
    let modules = Path::new("/lib/modules").join(kernel::release());
    let lists = ["modules.dep", "modules.builtin"].map(|name| fs::read_to_string(modules.join(name)));
    Path::new("/proc/net/ip_vs").exists() || lists.iter().flatten().any(|list| list.contains("/ip_vs.ko"))
}

fn table<'d, 'i>(tree: &'d DeTable<'i>) -> Option<&'d DeTable<'i>> {
    tree.get(NAME)?.get_ref().as_table()
}
