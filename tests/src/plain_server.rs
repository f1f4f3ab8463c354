//! Simple services as a user would write them: a page of 1,024 bytes, served by the standard library of a language with its defaults.

use std::fs;

use anyhow::{Context, Result, ensure};
use testing::PATIENCE;

use crate::{
    machine,
    process::{Launch, Process},
    temporary::TemporaryFolder,
};

/// The language of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// `http.createServer` of Node.
    Node,
    /// `net/http` of Go.
    Go,
    /// `http.server` of Python, with a thread for each connection.
    Python,
}

impl Language {
    /// The name of the language, in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Go => "go",
            Self::Python => "python",
        }
    }

    /// The program that it needs, and the Debian package of that program.
    pub fn needs(self) -> [&'static str; 2] {
        match self {
            Self::Node => ["node", "nodejs"],
            Self::Go => ["go", "golang-go"],
            Self::Python => ["python3", "python3"],
        }
    }
}

/// A running service.
#[derive(Debug)]
pub struct PlainServer {
    // Dropped in this order: the service ends before its folder is removed.
    _process: Process,
    _folder: TemporaryFolder,
    port: u16,
}

impl PlainServer {
    /// Starts the service on any free port of 127.0.0.1 and waits until it listens.
    ///
    /// # Errors
    /// If its language is not installed, or it cannot be compiled, or it does not listen.
    pub fn start(language: Language) -> Result<Self> {
        let [program, package] = language.needs();
        let path = machine::program(program)
            .with_context(|| format!("{program} is missing: apt-get install {package}"))?;
        let path = path.display().to_string();
        let folder = TemporaryFolder::new()?;
        let launch = match language {
            Language::Node => Launch::new(path).args(["-e", NODE]),
            Language::Python => Launch::new(path).args(["-c", PYTHON]),
            Language::Go => Launch::new(compiled(&path, &folder)?),
        };
        let mut process = launch.start()?;
        let port = process.find("it listens", PATIENCE, |process| {
            let stdout = process.stdout();
            stdout.split_once('\n').and_then(|(port, _)| port.trim().parse().ok())
        })?;
        Ok(Self { _process: process, _folder: folder, port })
    }

    /// The URL of the service.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }
}

/// Compiles the service, and returns the program's path.
fn compiled(go: &str, folder: &TemporaryFolder) -> Result<String> {
    let (source, program) = (folder.file("main.go"), folder.file("server"));
    fs::write(&source, GO)?;
    let build = Launch::new(go).args(["build", "-o", &program, &source]);
    // Use only what is installed; download nothing.
    let finished = build.env("GOTOOLCHAIN", "local").env("GOPROXY", "off").run(PATIENCE)?;
    ensure!(finished.code == Some(0), "go build failed:\n{}", finished.stderr);
    Ok(program)
}

const NODE: &str = "
const page = 'x'.repeat(1024);
const server = require('http').createServer((request, response) => {
    response.setHeader('Content-Type', 'text/plain');
    response.end(page);
});
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
";

const GO: &str = r#"package main

import (
	"fmt"
	"net"
	"net/http"
	"strings"
)

func main() {
	page := []byte(strings.Repeat("x", 1024))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	panic(http.Serve(listener, http.HandlerFunc(func(answer http.ResponseWriter, _ *http.Request) {
		answer.Write(page)
	})))
}
"#;

// The library writes head and body separately. With Nagle's algorithm, each answer would wait 40 ms for the client's acknowledgement, and
// the number of connections would be the limit. The library also prints a page of text for each client that disappears, which would disturb
// the next trial. Its accept queue of 5 stays unchanged.
const PYTHON: &str = "
import http.server

PAGE = b'x' * 1024

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    disable_nagle_algorithm = True

    def do_GET(self):
        self.send_response(200)
        self.send_header('Content-Type', 'text/plain')
        self.send_header('Content-Length', str(len(PAGE)))
        self.end_headers()
        self.wfile.write(PAGE)

    def log_message(self, *words):
        pass

server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
server.handle_error = lambda *connection: None
print(server.server_address[1], flush=True)
server.serve_forever()
";

#[cfg(test)]
mod tests {
    use testing::http::exchange;

    use super::*;

    // `make prove NAME=first-contact` tests the service in Node, because it installs Node.
    #[test]
    fn python_answers_with_the_page() {
        let server = PlainServer::start(Language::Python).unwrap();
        let request = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        let answer = exchange(("127.0.0.1", server.port), request).unwrap();
        assert_eq!((answer.status, answer.body), (200, vec![b'x'; 1_024]));
    }
}
