//! The table `[tuning]`: settings of hosts that a level of the factor `tuning` changes.

use std::ops::Range;

use record::Level;
use settings::{Reader, suggestion};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{levels::Levels, outline::Outline};

/// The name of the factor, and the key of the table.
pub(super) const NAME: &str = "tuning";

/// The changes of a setting's level, with their position in the file; `None` if the level does not change the hosts.
pub(super) fn changes<'d>(
    tree: &'d DeTable<'d>,
    levels: &Levels<'_>,
) -> Option<(Range<usize>, &'d DeTable<'d>)> {
    let Some(Level::Text(level)) = levels.level(NAME) else { return None };
    let value = tree.get(NAME)?.get_ref().as_table()?.get(level.as_str())?;
    Some((value.span(), value.get_ref().as_table()?))
}

/// Adds the changes to the sysctls of the hosts in `tables`.
pub(super) fn apply<'d>(
    reader: &mut Reader<'_>,
    tables: &mut DeTable<'d>,
    span: Range<usize>,
    changes: &DeTable<'d>,
) {
    let Some(DeValue::Table(hosts)) = tables.get_mut("hosts").map(Spanned::get_mut) else { return };
    for (name, settings) in changes {
        let known: Vec<String> = hosts.keys().map(|host| host.get_ref().to_string()).collect();
        let Some(DeValue::Table(host)) = hosts.get_mut(name.get_ref().as_ref()).map(Spanned::get_mut) else {
            let hint = suggestion(name.get_ref(), known.iter().map(String::as_str));
            reader.mistake(name.span(), format!("there is no host '{}'{hint}", name.get_ref()));
            continue;
        };
        let DeValue::Table(settings) = settings.get_ref() else {
            let example = "settings by their whole names, such as { \"net.core.somaxconn\" = 65535 }";
            reader.expected(settings, example);
            continue;
        };
        let key = Spanned::new(span.clone(), "sysctls".into());
        let sysctls =
            host.entry(key).or_insert_with(|| Spanned::new(span.clone(), DeValue::Table(DeTable::new())));
        // If this value is not a table, the reader of hosts reports the mistake.
        if let DeValue::Table(sysctls) = sysctls.get_mut() {
            sysctls.extend(settings.iter().map(|(name, value)| (name.clone(), value.clone())));
        }
    }
}

/// Reports changes that belong to no level of the factor.
pub(super) fn check(reader: &mut Reader<'_>, tree: &DeTable<'_>, outline: &Outline<'_>) {
    let Some(value) = tree.get(NAME) else { return };
    let Some(factor) = outline.factors.get(NAME) else {
        let message = "[tuning] lists the changes for each level of a factor 'tuning': add one to [factors], such as \
                       tuning = [\"none\", \"queues\"]";
        return reader.mistake(value.span(), message);
    };
    let DeValue::Table(changes) = value.get_ref() else {
        return reader.expected(value, "tables by levels of the factor 'tuning'");
    };
    let levels: Vec<String> = factor.levels.iter().map(|(level, _)| level.to_string()).collect();
    for (name, of_level) in changes {
        if !factor.is_overridden && !levels.iter().any(|level| level == name.get_ref()) {
            let hint = suggestion(name.get_ref(), levels.iter().map(String::as_str));
            let message = format!("the factor 'tuning' has no level '{}'{hint}", name.get_ref());
            reader.mistake(name.span(), message);
        } else if !of_level.get_ref().is_table() {
            let example = "settings by host, such as { web = { \"net.core.somaxconn\" = 65535 } }";
            reader.expected(of_level, example);
        }
    }
}
