//! Patterns of machines' names: `web[01:25]`, `db-[a:f]`, `node[0:10:2]`, and the port after a name.

use std::net::Ipv6Addr;

/// Maximum number of machines that one pattern may name.
const MAX_NAMES: u64 = 100_000;
/// Maximum length of a pattern, in bytes; a host's name has at most 255.
const MAX_LENGTH: usize = 400;
/// The letters of ranges, in Ansible's order.
const LETTERS: &[u8; 52] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

/// The names that a pattern stands for, in order, and the port after it.
///
/// # Errors
/// If a range or the port is not valid, or if the pattern names too many machines.
pub(super) fn expand(pattern: &str) -> Result<(Vec<String>, Option<u16>), String> {
    if pattern.len() > MAX_LENGTH {
        return Err(format!(
            "a machine's name here has more than {MAX_LENGTH} characters; write a host's name"
        ));
    }
    let (name, port) = split_port(pattern)?;
    let parts = parts(name)?;
    let count = parts.iter().fold(1_u64, |count, part| count.saturating_mul(part.count()));
    if count > MAX_NAMES {
        return Err(format!("'{name}' names {count} machines; an inventory may have at most {MAX_NAMES}"));
    }
    let mut names = vec![String::new()];
    for part in &parts {
        let with_part = |name: &String| (0..part.count()).map(|at| name.clone() + &part.text(at)).collect();
        names = names.iter().flat_map::<Vec<String>, _>(with_part).collect();
    }
    Ok((names, port))
}

/// Separates the port from a pattern. After an IPv6 address, there is a port only if the address is in brackets.
fn split_port(pattern: &str) -> Result<(&str, Option<u16>), String> {
    let is_ipv6 = |name: &str| name.parse::<Ipv6Addr>().is_ok();
    let has_colon = |part: &Part<'_>| matches!(part, Part::Literal(text) if text.contains(':'));
    let is_name = |name: &str| parts(name).is_ok_and(|parts| !parts.iter().any(has_colon));
    let bracketed = pattern.strip_prefix('[').and_then(|rest| rest.rsplit_once("]:"));
    let bracketed = bracketed.filter(|(name, _)| is_ipv6(name));
    match bracketed.or_else(|| pattern.rsplit_once(':').filter(|(name, _)| is_name(name))) {
        Some((_, "")) => Err(format!(
            "'{pattern}' ends in ':', as in YAML; give a YAML file a name that ends in .yml, or write the port after the colon"
        )),
        Some((name, port)) => match port.parse() {
            Ok(port) if port > 0 => Ok((name, Some(port))),
            _ => Err(format!("'{port}' is not a port; write a number from 1 to 65535")),
        },
        None => Ok((pattern, None)),
    }
}

/// A part of a pattern.
#[derive(Debug)]
enum Part<'p> {
    Literal(&'p str),
    Range {
        first: u64,
        last: u64,
        step: u64,
        /// Whether the numbers stand for letters.
        is_letters: bool,
        /// Minimum number of digits.
        width: usize,
    },
}

fn parts(pattern: &str) -> Result<Vec<Part<'_>>, String> {
    let (mut parts, mut rest) = (Vec::new(), pattern);
    while let Some((before, after)) = rest.split_once('[') {
        let unclosed = || format!("'[' has no ']' in '{pattern}'; write a range such as [01:25]");
        let (range, after) = after.split_once(']').ok_or_else(unclosed)?;
        parts.extend([Part::Literal(before), Part::range(range)?]);
        rest = after;
    }
    parts.push(Part::Literal(rest));
    Ok(parts)
}

impl Part<'_> {
    fn range(text: &str) -> Result<Self, String> {
        let odd = || format!("'[{text}]' is not a range; write [FIRST:LAST] or [FIRST:LAST:STEP]");
        let bounds: Vec<&str> = text.split(':').collect();
        let (first, last, step) = match bounds[..] {
            ["", last] => ("0", last, "1"),
            ["", last, step] => ("0", last, step),
            [first, last] => (first, last, "1"),
            [first, last, step] => (first, last, step),
            _ => return Err(odd()),
        };
        let width = if first.len() > 1 && first.starts_with('0') { first.len() } else { 0 };
        if width > 0 && last.len() != width {
            return Err(format!(
                "the ends of '[{text}]' differ in length; write both with the same number of digits, such as [01:25]"
            ));
        }
        let letter = |text: &str| match text.as_bytes() {
            [letter] => LETTERS.iter().position(|known| known == letter),
            _ => None,
        };
        let number = |text: &str| text.parse::<u64>().map_err(|_| odd());
        let (is_letters, first, last) = match (letter(first), letter(last)) {
            (Some(first), Some(last)) => (true, first as u64, last as u64),
            _ => (false, number(first)?, number(last)?),
        };
        match number(step)? {
            0 => Err(format!("the step of '[{text}]' is 0; write 1 or more")),
            _ if first > last => {
                Err(format!("'[{text}]' ends before it begins; write the smaller end first"))
            }
            step => Ok(Self::Range { first, last, step, is_letters, width }),
        }
    }

    /// How many texts it stands for.
    fn count(&self) -> u64 {
        match self {
            Self::Literal(_) => 1,
            Self::Range { first, last, step, .. } => ((last - first) / step).saturating_add(1),
        }
    }

    /// One of these texts, counted from 0.
    fn text(&self, at: u64) -> String {
        match *self {
            Self::Literal(text) => text.to_owned(),
            Self::Range { first, step, is_letters: true, .. } => {
                char::from(LETTERS[(first + at * step) as usize]).to_string()
            }
            Self::Range { first, step, width, .. } => format!("{:0width$}", first + at * step),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn patterns_are_those_of_ansible() {
        for (pattern, names, port) in [
            ("web1", "web1", None),
            ("web1.example.org:2222", "web1.example.org", Some(2222)),
            ("web_1:22", "web_1", Some(22)),
            ("192.0.2.7:22", "192.0.2.7", Some(22)),
            ("web[1:3]", "web1 web2 web3", None),
            ("web[:2]", "web0 web1 web2", None),
            ("web[01:03].x", "web01.x web02.x web03.x", None),
            ("web[08:11]:22", "web08 web09 web10 web11", Some(22)),
            ("web[8:11]", "web8 web9 web10 web11", None),
            ("web[001:003:2]", "web001 web003", None),
            ("[0:10:5]", "0 5 10", None),
            ("[1:2]:22", "1 2", Some(22)),
            ("db-[a:c]", "db-a db-b db-c", None),
            ("db-[a:e:2]x", "db-ax db-cx db-ex", None),
            ("[y:B]", "y z A B", None),
            ("r[1:2]-[a:b]", "r1-a r1-b r2-a r2-b", None),
            ("192.0.2.[1:2]:22", "192.0.2.1 192.0.2.2", Some(22)),
            ("::1", "::1", None),
            ("fe80::1:22", "fe80::1:22", None),
            ("[::1]:22", "::1", Some(22)),
            ("2001:db8::[1:2]", "2001:db8::1 2001:db8::2", None),
            ("me@web1", "me@web1", None),
        ] {
            let names = names.split(' ').map(str::to_owned).collect();
            assert_eq!(expand(pattern), Ok((names, port)), "{pattern}");
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        let long = "a".repeat(401);
        for (pattern, word) in [
            ("web[1:3", "has no ']'"),
            ("web[1]", "FIRST:LAST"),
            ("web[1-3]", "FIRST:LAST"),
            ("web[1:2:3:4]", "FIRST:LAST"),
            ("web[1:]", "FIRST:LAST"),
            ("web[a:3]", "FIRST:LAST"),
            ("web[ab:c]", "FIRST:LAST"),
            ("web[1:3:x]", "FIRST:LAST"),
            ("web[-1:3]", "FIRST:LAST"),
            ("web[1:99999999999999999999]", "FIRST:LAST"),
            ("web[01:3]", "differ in length"),
            ("web[1:3:0]", "the step"),
            ("web[3:1]", "ends before it begins"),
            ("web[c:a]", "ends before it begins"),
            ("web[1:100001]", "names 100001 machines"),
            ("[1:1000][1:1000]", "names 1000000 machines"),
            ("[0:18446744073709551615][0:18446744073709551615]", "machines"),
            ("web1:70000", "not a port"),
            ("web1:0", "not a port"),
            ("web1:x", "not a port"),
            ("all:", "YAML"),
            (long.as_str(), "400 characters"),
        ] {
            let refused = expand(pattern).unwrap_err();
            assert!(refused.contains(word), "{pattern}: {refused}");
        }
    }

    proptest! {
        #[test]
        fn a_range_has_as_many_names_as_steps(first in 0_u64..200, more in 0_u64..200, step in 1_u64..9, width in 0_usize..5) {
            let last = first + more;
            let pattern = format!("a[{first:0width$}:{last:0width$}:{step}]b");
            // Ends of different lengths are refused if the first begins with 0.
            prop_assume!(format!("{first:0width$}").len() == format!("{last:0width$}").len() || width < 2);
            let (names, port) = expand(&pattern).unwrap();
            prop_assert_eq!((names.len() as u64, port), (more / step + 1, None));
            let numbers: Vec<u64> = names.iter().map(|name| name[1..name.len() - 1].parse().unwrap()).collect();
            let right: Vec<u64> = (first..=last).step_by(step as usize).collect();
            prop_assert_eq!(numbers, right);
        }

        #[test]
        fn any_text_is_expanded_or_refused(text in "\\PC{0,40}|[a1:\\[\\].-]{0,20}") {
            let _ = expand(&text);
        }
    }
}
