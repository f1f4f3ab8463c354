use super::*;

fn mistakes_in(text: &str) -> Vec<String> {
    let mut reader = Reader::new("f", text);
    reader.document(text);
    reader.finish(()).unwrap_err().iter().map(ToString::to_string).collect()
}

#[test]
fn a_repeated_key_is_named() {
    assert_eq!(mistakes_in("a = 1\nb = 2\na = 3\n"), ["f:3:1: duplicate key 'a'"]);
    assert_eq!(mistakes_in("[t]\nx = 1\n\"x\" = 2\n"), ["f:3:1: duplicate key 'x'"]);
    assert_eq!(mistakes_in("[t.web]\n[t.web]\n"), ["f:2:4: duplicate key 'web'"]);
}

#[test]
fn of_thousands_of_mistakes_the_first_are_shown_with_their_positions() {
    let lines: String = (0..200_000).map(|number| format!("key{number:06} = 1\n")).collect();
    let mut reader = Reader::new("f", &lines);
    let document = reader.document(&lines);
    let mut table = reader.root(&document);
    table.take("key");
    table.finish(&mut reader);
    let mistakes = reader.finish(()).unwrap_err();
    assert_eq!(mistakes.len(), 1_001);
    assert_eq!((mistakes[999].line, mistakes[999].column), (1_000, 1));
    assert_eq!(mistakes[1_000].to_string(), "f:1001:1: this and 198999 more mistakes are not shown");
}

#[test]
fn columns_are_counted_in_characters_of_the_source() {
    let mut reader = Reader::new("f", "ä = 1\nbö = 2\n");
    reader.add_source("--set", 20, "x=1");
    for at in [22, 12, 3, 7, 5, 0, 40] {
        reader.mistake(at..at, "m");
    }
    let mistakes: Vec<String> = reader.finish(()).unwrap_err().iter().map(ToString::to_string).collect();
    let lines = ["f:1:1", "f:1:3", "f:1:5", "f:2:1", "f:2:5", "--set:1:3", "--set:1:4"];
    assert_eq!(mistakes, lines.map(|place| format!("{place}: m")));
}
