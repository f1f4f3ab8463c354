//! Rows of CSV and NDJSON files, which provide values for templates.

use std::{collections::BTreeMap, io, path::Path};

use rand::RngExt as _;
use rand_pcg::Pcg64Mcg;
use record::{FeederPlan, RowOrder, input};
use serde_json::value::RawValue;

/// Maximum size of a file in bytes, because its rows are kept in memory.
const MAX_FILE_BYTES: u64 = 1 << 30;

/// A file's rows, in memory.
#[derive(Debug)]
pub(crate) struct Feeder {
    columns: Vec<String>,
    /// All values, row by row.
    values: Vec<u8>,
    /// End of each value in `values`.
    ends: Vec<u32>,
    order: RowOrder,
}

/// A line's number, and the result of reading it.
type Line = (usize, Result<(), String>);

impl Feeder {
    /// Reads a file.
    pub(crate) fn read(plan: &FeederPlan) -> Result<Self, String> {
        let path = Path::new(&plan.file);
        let bytes = read_bounded(path).map_err(|error| {
            format!(
                "cannot read {}: {error}; give CSV with the column names in its first line, or NDJSON",
                plan.file
            )
        })?;
        let endings = ["ndjson", "jsonl", "json"];
        let is_json = path.extension().is_some_and(|ending| endings.iter().any(|known| ending == *known));
        let text = input::decode(&bytes).map_err(|why| format!("cannot read {}: {why}", plan.file))?;
        let mut feeder =
            Self { columns: Vec::new(), values: Vec::new(), ends: Vec::new(), order: plan.order };
        let rows = if is_json { feeder.read_ndjson(text) } else { feeder.read_csv(text) };
        input::each_line(&plan.file, rows, |row| row)?;
        match feeder.rows() {
            0 => Err(format!("{} has no row below the line of column names", plan.file)),
            _ => Ok(feeder),
        }
    }

    /// Reads CSV rows; returns the result for each line.
    fn read_csv(&mut self, text: &str) -> Vec<Line> {
        let quotes = check_quotes(text.as_bytes()).err();
        // Lines after a wrong quote are not read, because they may be split in the wrong places.
        let sound = quotes.as_ref().map_or(usize::MAX, |(line, _)| line - 1);
        let sound: String = text.split_inclusive('\n').take(sound).collect();
        let mut lines: Vec<Line> = Vec::new();
        let mut reader = csv::ReaderBuilder::new().from_reader(sound.as_bytes());
        let place = |error: &csv::Error| error.position().map_or(1, csv::Position::line) as usize;
        match reader.headers() {
            Ok(names) => self.columns = names.iter().map(|name| name.trim().to_owned()).collect(),
            Err(error) => lines.push((place(&error), Err(error.to_string()))),
        }
        if let [only] = &self.columns[..]
            && let Some(separator) = only.chars().find(|c| [';', '\t', '|'].contains(c))
        {
            let what = if separator == '\t' { "tabs".to_owned() } else { format!("'{separator}'") };
            return vec![(
                1,
                Err(format!("its column names look separated by {what}: separate columns by commas")),
            )];
        }
        if let Some(name) = repeated(&self.columns) {
            lines.push((1, Err(format!("two columns have the name '{name}': rename one"))));
        }
        for row in reader.byte_records() {
            lines.push(match row {
                Ok(row) => {
                    let number = row.position().map_or(1, csv::Position::line) as usize;
                    (number, row.iter().try_for_each(|value| self.push(value)))
                }
                Err(error) => (place(&error), Err(error.to_string())),
            });
        }
        lines.extend(quotes.map(|(line, why)| (line, Err(why))));
        lines
    }

    fn read_ndjson(&mut self, text: &str) -> Vec<Line> {
        let lines = (1..).zip(text.split('\n')).filter(|(_, line)| !line.trim_ascii().is_empty());
        lines.map(|(number, line)| (number, self.read_object(line))).collect()
    }

    fn read_object(&mut self, line: &str) -> Result<(), String> {
        let row: BTreeMap<String, Box<RawValue>> =
            serde_json::from_str(line).map_err(|error| format!("not a JSON object: {error}"))?;
        if self.columns.is_empty() {
            self.columns = row.keys().cloned().collect();
        }
        if row.len() != self.columns.len() {
            return Err(format!("the object must have the keys of the first: {}", self.columns.join(", ")));
        }
        for column in 0..self.columns.len() {
            let name = &self.columns[column];
            let value = match row.get(name) {
                // Numbers are kept as written in the file.
                Some(value) => {
                    serde_json::from_str::<String>(value.get()).unwrap_or_else(|_| value.get().to_owned())
                }
                None => return Err(format!("the key '{name}' of the first object is missing")),
            };
            self.push(value.as_bytes())?;
        }
        Ok(())
    }

    fn push(&mut self, value: &[u8]) -> Result<(), String> {
        if value.iter().any(|byte| matches!(byte, 0)) {
            return Err("a value has a zero byte, which no request can carry".to_owned());
        }
        self.values.extend_from_slice(value);
        self.ends.push(u32::try_from(self.values.len()).map_err(|_| "the file is too large".to_owned())?);
        Ok(())
    }

    /// Names of the columns.
    pub(crate) fn columns(&self) -> &[String] {
        &self.columns
    }

    pub(crate) fn order(&self) -> RowOrder {
        self.order
    }

    /// Number of rows.
    pub(crate) fn rows(&self) -> u64 {
        (self.ends.len() / self.columns.len().max(1)) as u64
    }

    /// The row for a user's iteration, by the iteration's number; `None` if all rows are used.
    pub(crate) fn row(&self, number: u64, user: u64, rng: &mut Pcg64Mcg) -> Option<u64> {
        let rows = self.rows();
        match self.order {
            RowOrder::InOrder => Some(number % rows),
            RowOrder::Once => (number < rows).then_some(number),
            RowOrder::Random => Some(rng.random_range(0..rows)),
            RowOrder::PerUser => Some((user - 1) % rows),
        }
    }

    /// Whether there is a row for the iteration with this number.
    pub(crate) fn has_row(&self, number: u64) -> bool {
        self.order != RowOrder::Once || number < self.rows()
    }

    /// The value in a row and column.
    pub(crate) fn value(&self, row: u64, column: usize) -> &[u8] {
        let index = row as usize * self.columns.len() + column;
        let start = if index == 0 { 0 } else { self.ends[index - 1] as usize };
        &self.values[start..self.ends[index] as usize]
    }
}

fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    // Pipes are refused: each worker process reads the file, and a pipe delivers its bytes only once.
    files::open(path).and_then(|_| files::read(path, MAX_FILE_BYTES)).map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => {
            io::Error::other("it has more than 1 GiB, and its rows are kept in memory")
        }
        _ => error,
    })
}

/// Checks that quoted values end with their quotes (RFC 4180, 2.5 to 2.7): otherwise the CSV reader would return another value.
fn check_quotes(bytes: &[u8]) -> Result<(), (usize, String)> {
    let (mut at, mut line) = (0, 1);
    while at < bytes.len() {
        let opened = line;
        if bytes[at] == b'"' {
            at += 1;
            loop {
                match bytes.get(at) {
                    None => return Err((opened, "a quote is not closed".to_owned())),
                    Some(b'"') if bytes.get(at + 1) == Some(&b'"') => at += 1,
                    Some(b'"') => break,
                    Some(byte) => line += usize::from(*byte == b'\n'),
                }
                at += 1;
            }
            if !matches!(bytes.get(at + 1), None | Some(b',' | b'\r' | b'\n')) {
                let hint = if bytes[at - 1] == b'\\' { ", not as \\\"" } else { "" };
                return Err((
                    line,
                    format!(
                        "a value continues after its closing quote: a quote within a quoted value is written twice, \"\"{hint}"
                    ),
                ));
            }
        }
        let rest = &bytes[at..];
        let end = rest.iter().position(|byte| matches!(byte, b',' | b'\n')).unwrap_or(rest.len());
        line += usize::from(rest.get(end) == Some(&b'\n'));
        at += end + 1;
    }
    Ok(())
}

fn repeated(names: &[String]) -> Option<&String> {
    let mut sorted: Vec<&String> = names.iter().collect();
    sorted.sort();
    sorted.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn read(name: &str, text: &str, order: RowOrder) -> Result<Feeder, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        Feeder::read(&FeederPlan { file: path.display().to_string(), order })
            .map_err(|why| why.replace(&path.display().to_string(), name))
    }

    fn first_column(feeder: &Feeder, (first, step): (u64, usize), n: usize) -> Vec<Option<String>> {
        use rand::SeedableRng as _;
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        let value = |number| {
            let row = feeder.row(number, 2, &mut rng)?;
            Some(String::from_utf8(feeder.value(row, 0).to_vec()).unwrap())
        };
        (first..).step_by(step).take(n).map(value).collect()
    }

    #[test]
    fn csv_and_ndjson_give_the_same_rows() {
        let csv = read("a.csv", "\u{feff}name,note\r\nann,\"x, \"\"y\"\"\"\r\nbob,\r\n", RowOrder::InOrder)
            .unwrap();
        let json = "{\"name\":\"ann\",\"note\":\"x, \\\"y\\\"\"}\n\n{\"note\":\"\",\"name\":\"bob\"}\n";
        let json = read("a.ndjson", json, RowOrder::InOrder).unwrap();
        for feeder in [csv, json] {
            assert_eq!((feeder.columns(), feeder.rows()), (&["name".to_owned(), "note".to_owned()][..], 2));
            assert_eq!(
                (feeder.value(0, 1), feeder.value(1, 0), feeder.value(1, 1)),
                (&b"x, \"y\""[..], &b"bob"[..], &b""[..])
            );
        }
    }

    #[test]
    fn rows_come_in_their_order() {
        let text = "id\na\nb\nc\n";
        let some = |ids: &[&str]| ids.iter().map(|&id| Some(id.to_owned())).collect::<Vec<_>>();
        let in_order = read("a.csv", text, RowOrder::InOrder).unwrap();
        assert_eq!(first_column(&in_order, (0, 1), 4), some(&["a", "b", "c", "a"]));
        assert_eq!(first_column(&in_order, (1, 2), 3), some(&["b", "a", "c"]));
        let once = read("a.csv", text, RowOrder::Once).unwrap();
        assert_eq!(first_column(&once, (0, 2), 3), [&some(&["a", "c"])[..], &[None]].concat());
        let per_user = read("a.csv", text, RowOrder::PerUser).unwrap();
        assert_eq!(first_column(&per_user, (0, 1), 2), some(&["b", "b"]));
        let random = read("a.csv", text, RowOrder::Random).unwrap();
        let drawn = first_column(&random, (0, 1), 300);
        for id in ["a", "b", "c"] {
            let n = drawn.iter().filter(|drawn| drawn.as_deref() == Some(id)).count();
            assert!((70..130).contains(&n), "{id}: {n}");
        }
    }

    #[test]
    fn a_wrong_file_is_refused_with_its_line() {
        let refused = |name, text| read(name, text, RowOrder::InOrder).unwrap_err();
        assert!(refused("a.csv", "a,b\n1,2\n3\n").starts_with("a.csv:3: "));
        assert!(refused("a.csv", "a,a\n1,2\n").contains("two columns have the name 'a'"));
        assert!(refused("a.csv", "a\n").contains("has no row"));
        assert!(refused("a.csv", "a,b\n1,\"x\n2,y\n").starts_with("a.csv:2: a quote is not closed"));
        for (text, why) in [
            (
                "id,t\n1,\"a \\\"b\\\" c\"\n",
                "a.csv:2: a value continues after its closing quote: a quote within",
            ),
            ("id,t\n1,\"a \\\"b\\\" c\"\n", "twice, \"\", not as \\\""),
            ("a\n\"x\n\" y\n", "a.csv:3: a value continues"),
            ("a\n\"x", "a.csv:2: a quote is not closed"),
            ("id;name\n1;ann\n", "a.csv:1: its column names look separated by ';'"),
            ("id\tname\n1\tann\n", "separated by tabs"),
            ("i\0d\0\n\0", "line 1 is not text in UTF-8: it looks like UTF-16"),
        ] {
            let refused = refused("a.csv", text);
            assert!(refused.contains(why), "{text:?}: {refused}");
        }
        let sound =
            read("a.csv", "a,b\r\n\"\",\"x\n\"\"y\"\"\"\r\n\"1;2\",\"z\"", RowOrder::InOrder).unwrap();
        assert_eq!((sound.rows(), sound.value(0, 1), sound.value(1, 0)), (2, &b"x\n\"y\""[..], &b"1;2"[..]));
        let inches = read("a.csv", "a\n5\"\n", RowOrder::InOrder).unwrap();
        assert_eq!(inches.value(0, 0), b"5\"");
        let numbers = "\u{feff}{\"a\":18446744073709551616,\"b\":0.10,\"c\":\"x\"}";
        let numbers = read("a.json", numbers, RowOrder::InOrder).unwrap();
        assert_eq!(
            [0, 1, 2].map(|column| numbers.value(0, column)),
            [&b"18446744073709551616"[..], b"0.10", b"x"]
        );
        assert!(refused("a.ndjson", "{\"a\":1}\n{\"b\":1}\n").starts_with("a.ndjson:2: the key 'a'"));
        for (name, text, lines) in [
            ("a.csv", "id,name\n1,a,x\n2\n3,b\n4\n\"5,c\n", "2 3 5 6"),
            ("a.ndjson", "{\"a\":1}\nx\n[1]\n{\"b\":2}\n{\"a\":2}\n", "2 3 4"),
        ] {
            let told = refused(name, text);
            let told: Vec<_> = told.lines().filter_map(|line| line.split(':').nth(1)).collect();
            assert_eq!(told.join(" "), lines, "{name}");
        }
        let pipe =
            Feeder::read(&FeederPlan { file: "/dev/null".to_owned(), order: RowOrder::Once }).unwrap_err();
        assert!(pipe.contains("not a regular file"), "{pipe}");
        assert!(refused("a.ndjson", "[1]\n").starts_with("a.ndjson:1: not a JSON object"));
    }
}
