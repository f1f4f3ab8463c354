//! Files in the form of sysctl.conf(5).

/// A line that is a setting or has a mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Line number, starting with 1.
    pub number: usize,
    /// The name with dots and the value with single blanks; the text of the line if it is not a setting.
    pub setting: Result<(String, String), String>,
}

/// All lines except empty ones and comments. Never fails: the text of a line that is not a setting is returned as an
/// error.
pub fn parse(text: &str) -> Vec<Line> {
    let line = |(index, line): (usize, &str)| {
        let line = line.trim();
        // In files of sysctl.d, `-NAME` without a value excludes NAME from earlier patterns.
        let is_exclusion = line.starts_with('-') && !line.contains('=');
        let is_setting = !line.is_empty() && !line.starts_with(['#', ';']) && !is_exclusion;
        is_setting.then(|| Line { number: index + 1, setting: setting(line).ok_or_else(|| line.to_owned()) })
    };
    text.lines().enumerate().filter_map(line).collect()
}

fn setting(line: &str) -> Option<(String, String)> {
    let (name, value) = line.split_once('=')?;
    // With a leading minus sign, failures to set the value are ignored.
    let name = name.trim();
    let name = name.strip_prefix('-').unwrap_or(name).trim();
    let value = value.split_whitespace().collect::<Vec<_>>().join(" ");
    let is_name = !name.is_empty() && !name.contains(char::is_whitespace);
    (is_name && !value.is_empty()).then(|| (with_dots(name), value))
}

/// Parts of a name that are separated by slashes may contain dots. Slashes and dots are then swapped (sysctl(8)).
fn with_dots(name: &str) -> String {
    match name.find(['.', '/']).map(|at| &name[at..=at]) {
        Some("/") => {
            let swap = |c| match c {
                '/' => '.',
                '.' => '/',
                c => c,
            };
            name.chars().map(swap).collect()
        }
        _ => name.to_owned(),
    }
}
