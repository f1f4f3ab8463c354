//! The syntax of Fluentd's configuration, version 1: directives, parameters, comments and quoted values.
//!
//! Reference: <https://docs.fluentd.org/configuration/config-file>.

use super::mistakes::Mistakes;

/// Maximum nesting of directives. Real files have three levels.
const MAX_DEPTH: usize = 16;

/// Directives that occur only at the top level of a file.
const OUTER: [&str; 4] = ["source", "match", "filter", "system"];

/// A directive `<name argument> … </name>`, or the whole file.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Directive {
    pub(super) name: String,
    pub(super) argument: String,
    /// The directive's byte offset in the file.
    pub(super) at: usize,
    pub(super) parameters: Vec<Parameter>,
    pub(super) children: Vec<Directive>,
}

/// A parameter: a line `name value`.
#[derive(Debug, PartialEq)]
pub(super) struct Parameter {
    pub(super) name: String,
    /// The value without quotes and with its escapes resolved; empty if there is only a name.
    pub(super) value: String,
    pub(super) at: usize,
}

/// Parses a file. After a mistake, continues at the next line.
pub(super) fn parse(text: &str, mistakes: &mut Mistakes<'_>) -> Directive {
    let mut parser = Parser { text, at: 0, mistakes };
    // The open directives, outermost first. The first stands for the file itself.
    let mut open = vec![Directive::default()];
    loop {
        parser.skip_blank();
        let start = parser.at;
        if parser.at == text.len() {
            break;
        } else if parser.eat("</") {
            parser.close(start, &mut open);
        } else if parser.eat("<") {
            if let Some(directive) = parser.open(start) {
                if open.len() > MAX_DEPTH {
                    parser.mistakes.add(start, format!("directives are nested more than {MAX_DEPTH} deep"));
                }
                open.push(directive);
            }
        } else if let Some(parameter) = parser.parameter()
            && let Some(innermost) = open.last_mut()
        {
            innermost.parameters.push(parameter);
        }
    }
    while open.len() > 1 {
        let mut last = open.pop().expect("there is more than one");
        parser.mistakes.add(last.at, format!("<{0}> is never closed: </{0}> is missing", last.name));
        // Top-level directives cannot be nested, so those inside the unclosed directive are placed after it.
        let (behind, within) =
            last.children.into_iter().partition(|inner| OUTER.contains(&inner.name.as_str()));
        last.children = within;
        parent(&mut open).children.push(last);
        parent(&mut open).children.extend::<Vec<_>>(behind);
    }
    open.pop().expect("the file itself is never closed")
}

struct Parser<'t, 'm, 'n> {
    text: &'t str,
    at: usize,
    mistakes: &'m mut Mistakes<'n>,
}

impl<'t> Parser<'t, '_, '_> {
    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn eat(&mut self, what: &str) -> bool {
        let is_next = self.rest().starts_with(what);
        if is_next {
            self.at += what.len();
        }
        is_next
    }

    fn eat_while(&mut self, fits: impl Fn(char) -> bool) -> &'t str {
        let rest = self.rest();
        let end = rest.find(|c| !fits(c)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    /// Skips blanks, line ends and comments.
    fn skip_blank(&mut self) {
        loop {
            self.eat_while(char::is_whitespace);
            if !self.rest().starts_with('#') {
                return;
            }
            self.skip_line();
        }
    }

    fn skip_line(&mut self) {
        self.eat_while(|c| c != '\n');
    }

    fn name(&mut self) -> &'t str {
        self.eat_while(|c| c.is_ascii_alphanumeric() || c == '_')
    }

    /// Checks that nothing but a comment follows on the line.
    fn end_of_line(&mut self, behind: &str) {
        self.eat_while(|c| matches!(c, ' ' | '\t' | '\r'));
        if !self.rest().is_empty() && !self.rest().starts_with(['\n', '#']) {
            self.mistakes.add(self.at, format!("nothing but a comment may follow {behind} on its line"));
        }
        self.skip_line();
    }

    fn close(&mut self, start: usize, open: &mut Vec<Directive>) {
        let name = self.name();
        self.eat_while(|c| matches!(c, ' ' | '\t'));
        if !self.eat(">") {
            self.mistakes.add(start, format!("'>' is missing: </{name}>"));
            return self.skip_line();
        }
        self.end_of_line("an end tag");
        let Some(index) = open.iter().skip(1).rposition(|directive| directive.name == name) else {
            return self.mistakes.add(start, format!("</{name}> closes a directive that was not opened"));
        };
        // Closes directives inside it that are still open.
        while open.len() > index + 2 {
            let inner = open.pop().expect("there are more than index + 2");
            self.mistakes
                .add(start, format!("</{}> must come first: it was opened inside <{name}>", inner.name));
            parent(open).children.push(inner);
        }
        let closed = open.pop().expect("its index was found");
        parent(open).children.push(closed);
    }

    fn open(&mut self, start: usize) -> Option<Directive> {
        let name = self.name().to_owned();
        let line = self.rest().split('\n').next().unwrap_or_default();
        let Some(end) = end_of_tag(line) else {
            self.mistakes.add(start, format!("'>' is missing: <{name} …>"));
            self.skip_line();
            return None;
        };
        let argument = line[..end].trim();
        if name.is_empty() || !line.starts_with([' ', '\t', '>', '\r']) {
            self.mistakes.add(start, "a directive needs a name, such as <source>");
        }
        if argument.contains("#{") {
            self.mistakes.add(start, EMBEDDED);
        }
        self.at += end + 1;
        self.end_of_line("a directive");
        Some(Directive { name, argument: unquoted(argument), at: start, ..Directive::default() })
    }

    fn parameter(&mut self) -> Option<Parameter> {
        let at = self.at;
        let name = self.eat_while(|c| !c.is_whitespace()).to_owned();
        self.eat_while(|c| matches!(c, ' ' | '\t' | '\r'));
        let value = match self.rest().chars().next() {
            Some(quote @ ('"' | '\'')) => {
                let value = self.quoted(at, quote)?;
                self.end_of_line("a quoted value");
                value
            }
            Some('[' | '{') => {
                let value = self.nested(at)?;
                self.end_of_line("a list");
                value
            }
            _ => self.plain(),
        };
        Some(Parameter { name, value, at })
    }

    /// Reads an unquoted value. It ends at the end of the line, or before a comment that follows a blank.
    fn plain(&mut self) -> String {
        let line = self.rest().split('\n').next().unwrap_or_default();
        let comment = line
            .char_indices()
            .find(|&(at, c)| c == '#' && line[..at].chars().next_back().is_none_or(char::is_whitespace));
        self.skip_line();
        line[..comment.map_or(line.len(), |(at, _)| at)].trim().to_owned()
    }

    fn quoted(&mut self, start: usize, quote: char) -> Option<String> {
        self.at += quote.len_utf8();
        let mut value = String::new();
        let mut characters = self.rest().char_indices();
        while let Some((offset, c)) = characters.next() {
            match c {
                _ if c == quote => {
                    self.at += offset + quote.len_utf8();
                    return Some(value);
                }
                '\\' => match characters.next() {
                    Some((_, escaped)) => value.push_str(&unescaped(quote, escaped)),
                    None => break,
                },
                '#' if quote == '"' && self.rest()[offset..].starts_with("#{") => {
                    self.mistakes.add(self.at + offset, EMBEDDED);
                    value.push(c);
                }
                _ => value.push(c),
            }
        }
        self.mistakes.add(start, format!("the quote {quote} is not closed"));
        self.at = self.text.len();
        None
    }

    /// Reads a JSON list or object, which may span lines.
    fn nested(&mut self, start: usize) -> Option<String> {
        let rest = self.rest();
        let (mut depth, mut in_text, mut escaped) = (0_usize, false, false);
        for (offset, c) in rest.char_indices() {
            match c {
                _ if escaped => escaped = false,
                '\\' if in_text => escaped = true,
                '"' => in_text = !in_text,
                '[' | '{' if !in_text => depth += 1,
                ']' | '}' if !in_text => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                self.at += offset + 1;
                return Some(rest[..=offset].to_owned());
            }
        }
        self.mistakes.add(start, "the list is never closed");
        self.at = self.text.len();
        None
    }
}

const EMBEDDED: &str = "Ruby in the configuration, #{…}, is not supported: write the value itself";

fn parent(open: &mut [Directive]) -> &mut Directive {
    open.last_mut().expect("the file itself is never closed")
}

/// The position of the unquoted `>` that ends a tag.
fn end_of_tag(line: &str) -> Option<usize> {
    let mut quote = None;
    line.char_indices().find_map(|(at, c)| {
        match (quote, c) {
            (None, '>') => return Some(at),
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), _) if open == c => quote = None,
            _ => {}
        }
        None
    })
}

fn unquoted(argument: &str) -> String {
    let inner = ['"', '\''].iter().find_map(|&quote| {
        let inner = argument.strip_prefix(quote)?.strip_suffix(quote)?;
        (!inner.contains(quote)).then_some(inner)
    });
    inner.unwrap_or(argument).to_owned()
}

fn unescaped(quote: char, escaped: char) -> String {
    match (quote, escaped) {
        ('\'', '\'' | '\\') => escaped.to_string(),
        ('\'', _) => format!("\\{escaped}"),
        (_, 'n') => "\n".to_owned(),
        (_, 'r') => "\r".to_owned(),
        (_, 't') => "\t".to_owned(),
        (_, 'f') => "\u{c}".to_owned(),
        (_, 'b') => "\u{8}".to_owned(),
        // A backslash at the end of a line continues it.
        (_, '\n') => String::new(),
        _ => escaped.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Directive, Vec<String>) {
        let mut mistakes = Mistakes::new("f", text);
        let root = parse(text, &mut mistakes);
        (root, mistakes.sorted().iter().map(ToString::to_string).collect())
    }

    fn values(directive: &Directive) -> Vec<(&str, &str)> {
        directive.parameters.iter().map(|p| (p.name.as_str(), p.value.as_str())).collect()
    }

    #[test]
    fn directives_parameters_and_comments_are_read() {
        let (root, mistakes) = read(
            "# a comment\n<source>\n  @type http # why\n  port 9880\r\n  alone\n  path a#b\n</source>\n\
             <match a.** {b,c}>\n  <buffer tag, time>\n  </buffer> # end\n</match>",
        );
        assert_eq!(mistakes, Vec::<String>::new());
        let [source, output] = &root.children[..] else { panic!("{root:?}") };
        assert_eq!((source.name.as_str(), source.at), ("source", 12));
        assert_eq!(values(source), [("@type", "http"), ("port", "9880"), ("alone", ""), ("path", "a#b")]);
        assert_eq!((output.name.as_str(), output.argument.as_str()), ("match", "a.** {b,c}"));
        assert_eq!(output.children[0].argument, "tag, time");
    }

    #[test]
    fn quotes_keep_blanks_and_resolve_escapes() {
        let (root, mistakes) = read(
            "a \"x # y\\t\\\"\\\\z\" # c\nb 'raw \\n #{x} it\\'s'\nc \"two\nlines\"\nd [\"x\", # no\n \"]\"]\ne {\"k\": \"}\"}",
        );
        assert_eq!(mistakes, Vec::<String>::new());
        assert_eq!(
            values(&root),
            [
                ("a", "x # y\t\"\\z"),
                ("b", "raw \\n #{x} it's"),
                ("c", "two\nlines"),
                ("d", "[\"x\", # no\n \"]\"]"),
                ("e", "{\"k\": \"}\"}")
            ]
        );
    }

    #[test]
    fn every_mistake_is_told_with_its_place() {
        let (_, mistakes) = read(
            "<source>\n<parse>\n</source>\n</match>\n<match\n<>\n</>\nh \"#{Socket.gethostname}\"\nq 'open",
        );
        assert_eq!(
            mistakes,
            [
                "f:3:1: </parse> must come first: it was opened inside <source>",
                "f:4:1: </match> closes a directive that was not opened",
                "f:5:1: '>' is missing: <match …>",
                "f:6:1: a directive needs a name, such as <source>",
                "f:8:4: Ruby in the configuration, #{…}, is not supported: write the value itself",
                "f:9:1: the quote ' is not closed",
            ]
        );
        let (_, mistakes) = read("<source>\n  port 1\n</source> x\n<match **>");
        assert_eq!(
            mistakes,
            [
                "f:3:11: nothing but a comment may follow an end tag on its line",
                "f:4:1: <match> is never closed: </match> is missing"
            ]
        );
    }
}
