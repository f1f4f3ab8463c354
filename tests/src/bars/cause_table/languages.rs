//! Bottlenecks of services in the languages that users write them in.

use record::Cause::*;

use super::{Row, Truth, users};

/// An interpreter computes in one thread.
const ONE_THREAD: Truth = Truth { first: &[HotCore], ..Truth::BOUND };

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "node_burn",
        truth: ONE_THREAD,
        scene: |stage| {
            let ms = stage.draw(2, 5);
            let work = format!("const until = performance.now() + {ms}; while (performance.now() < until);");
            Ok(users(stage.script(["node", "-e"], &node(&format!("{work} answer.end('ok');")))?, 8))
        },
    },
    Row {
        name: "node_lock",
        // Timers in a chain: one answer after another, and nothing computes.
        truth: Truth::SERVICE,
        scene: |stage| {
            let ms = stage.draw(8, 15);
            let wait = format!("last = last.then(() => new Promise(done => setTimeout(done, {ms})))");
            let source = node(&format!("{wait}.then(() => answer.end('ok'));"));
            Ok(users(stage.script(["node", "-e"], &format!("let last = Promise.resolve(); {source}"))?, 16))
        },
    },
    Row {
        name: "python_lock",
        truth: Truth::SERVICE,
        scene: |stage| {
            let ms = stage.draw(8, 15);
            let work = format!("with LOCK: time.sleep({ms} / 1000)");
            Ok(users(stage.script(["python3", "-c"], &python(&work))?, 16))
        },
    },
    Row {
        name: "python_burn",
        // The threads compute in turn, with the interpreter's lock: the core is full, and the others sleep.
        truth: Truth { first: &[HotCore, SlowHandler], ..ONE_THREAD },
        scene: |stage| {
            let loops = stage.draw(20_000, 60_000);
            Ok(users(stage.script(["python3", "-c"], &python(&format!("sum(range({loops}))")))?, 8))
        },
    },
    Row {
        name: "python_nagle",
        // The library writes head and body separately.
        truth: Truth { first: &[DelayedAck], ..Truth::BOUND },
        scene: |stage| {
            let count = stage.draw(2, 5);
            let source = python("pass").replace("disable_nagle_algorithm = True", "pass");
            Ok(users(stage.script(["python3", "-c"], &source)?, count))
        },
    },
    Row {
        name: "go_lock",
        truth: Truth::SERVICE,
        scene: |stage| {
            let ms = stage.draw(8, 15);
            let work = format!("lock.Lock(); time.Sleep({ms} * time.Millisecond); lock.Unlock()");
            Ok(users(stage.go(&go(&work))?, 16))
        },
    },
    Row {
        name: "go_pool",
        // A pool of connections to a database, as a channel with so many places.
        truth: Truth::SERVICE,
        scene: |stage| {
            let (slots, ms) = (stage.draw(2, 4), stage.draw(20, 40));
            let work = format!("slots <- 1; time.Sleep({ms} * time.Millisecond); <-slots");
            let source =
                go(&work).replace("var lock sync.Mutex", &format!("var slots = make(chan int, {slots})"));
            Ok(users(stage.go(&source.replace("\"sync\"\n", ""))?, 16))
        },
    },
];

/// A service in Node, with these statements for each request.
pub(super) fn node(work: &str) -> String {
    format!(
        "require('http').createServer((request, answer) => {{ {work} }}).listen(PORT, '127.0.0.1', 1024);"
    )
}

/// A service in Python with a thread for each connection, with this statement for each request.
pub(super) fn python(work: &str) -> String {
    format!(
        "import http.server, threading, time
LOCK = threading.Lock()
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    disable_nagle_algorithm = True
    def do_GET(self):
        {work}
        self.send_response(200)
        self.send_header('Content-Length', '2')
        self.end_headers()
        self.wfile.write(b'ok')
    def log_message(self, *words):
        pass
http.server.ThreadingHTTPServer.request_queue_size = 1024
http.server.ThreadingHTTPServer(('127.0.0.1', PORT), Handler).serve_forever()
"
    )
}

/// A service in Go, with these statements for each request.
pub(super) fn go(work: &str) -> String {
    format!(
        "package main
import (
\"net/http\"
\"sync\"
\"time\"
)
var lock sync.Mutex
func main() {{
    _ = time.Now
    panic(http.ListenAndServe(\"127.0.0.1:PORT\", http.HandlerFunc(func(answer http.ResponseWriter, _ *http.Request) {{
        {work}
        answer.Write([]byte(\"ok\"))
    }})))
}}
"
    )
}
