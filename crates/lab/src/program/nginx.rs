//! nginx as a web server or as a data listener.

use std::{
    fs::{self, File},
    io,
    path::Path,
};

use serde_json::json;
use settings::{Reader, Value, schema};

use super::{KnownProgram, Nginx, ProgramContext, words};
use crate::{
    host_names::HostNames,
    keys::{Key, KeyType, key_table},
};

impl KnownProgram for Nginx {
    const NAME: &'static str = "nginx";
    const PORT: u16 = 80;
    const KEYS: &'static [Key<Self>] = key_table! {
        /// files by path and size
        "files", KeyType::Other(
            |what| {
                json!({
                    "type": "object", "description": what,
                    "additionalProperties": { "type": ["string", "integer"], "examples": ["5KiB"] }
                })
            },
            read_files,
        );
        /// one file
        "file", KeyType::Other(
            |what| {
                let path = schema::text("The path that it is served at.", "/dummy_file");
                let keys = json!({ "path": path, "size": schema::size("Its size.", "5KiB") });
                let mut table = schema::table(keys, &["path", "size"]);
                table["description"] = what.into();
                table
            },
            read_file,
        );
        /// whether it is a data listener, which logs request bodies and answers 204
        "log_bodies", KeyType::Flag(|nginx, is| nginx.log_bodies = is);
        /// length of the queue of connections not yet accepted
        "backlog", KeyType::Whole(1..1 << 31, 4096, |nginx, n| nginx.backlog = Some(n as u32));
        /// worker processes
        "workers", KeyType::Whole(1..1_025, 1, |nginx, n| nginx.workers = Some(n as u32));
    };

    fn set_up(&self, context: &ProgramContext<'_>) -> io::Result<Vec<String>> {
        let root = context.folder.join("files");
        fs::create_dir(&root)?;
        for (path, size) in &self.files {
            let file = root.join(path.trim_start_matches('/'));
            if let Some(parent) = file.parent() {
                fs::create_dir_all(parent)?;
            }
            // The file is sparse, so that its zeros need no disk space.
            File::create(&file)?.set_len(*size)?;
        }
        // In a user namespace with a single user, workers cannot change their user, and they do not need to.
        let user = if context.rootless { "user root;\nmaster_process off;" } else { "user root;" };
        let (root, temporary) = (root.display(), context.folder.display());
        let (shared, location) = match self.log_bodies {
            true => data_listener(&context.store()?, context.folder),
            false => (String::new(), "location = / { return 200 \"ok\\n\"; }".to_owned()),
        };
        let text = format!(
            "daemon off;\n{user}\nworker_processes {workers};\nworker_rlimit_nofile {descriptors};\npid {temporary}/nginx.pid;\n\
             error_log stderr warn;\nevents {{ worker_connections 16384; }}\nhttp {{\n  access_log off;\n  \
             server_tokens off;\n  sendfile on;\n  tcp_nopush on;\n  keepalive_requests 1000000000;\n  \
             default_type application/octet-stream;\n  client_body_temp_path {temporary}/body;\n  \
             proxy_temp_path {temporary}/proxy;\n  fastcgi_temp_path {temporary}/fastcgi;\n  \
             uwsgi_temp_path {temporary}/uwsgi;\n  scgi_temp_path {temporary}/scgi;\n{shared}  server {{\n    \
             listen {listen} backlog={backlog} reuseport;\n    root {root};\n    {location}\n  }}\n}}\n",
            workers = self.workers.unwrap_or(1),
            listen = match context.has_ipv6() {
                true => format!("[::]:{} ipv6only=off", context.known.port),
                false => context.known.port.to_string(),
            },
            backlog = self.backlog.unwrap_or(4096),
            descriptors = context.process.descriptors.unwrap_or(20_000),
        );
        let file = context.write("nginx.conf", &text)?;
        // Without -e, nginx would open its built-in error log before it reads the configuration.
        Ok(words(&["nginx", "-e", "stderr", "-p", &temporary.to_string(), "-c", &file]))
    }
}

/// The two parts of the configuration that make nginx a data listener: a shared part and a location. nginx reads a
/// request's body only if it forwards the request. The location therefore forwards requests, without their bodies, to a
/// second server of the same nginx, which answers 204. nginx writes the line after the answer.
fn data_listener(store: &Path, folder: &Path) -> (String, String) {
    let socket = format!("unix:{}/answer.sock", folder.display());
    let shared = format!(
        "  log_format bodies escape=none '$request_body';\n  client_body_buffer_size 1m;\n  \
         client_max_body_size 1m;\n  client_body_in_single_buffer on;\n  \
         upstream answer {{ server {socket}; keepalive 64; keepalive_requests 1000000000; }}\n  \
         server {{ listen {socket} backlog=4096; return 204; }}\n"
    );
    let location = format!(
        "location / {{\n      access_log {store}/bodies.log bodies;\n      proxy_pass http://answer;\n      \
         proxy_http_version 1.1;\n      proxy_set_header Connection \"\";\n      proxy_method GET;\n      \
         proxy_pass_request_body off;\n      proxy_set_header Content-Length \"\";\n    }}",
        store = store.display()
    );
    (shared, location)
}

fn read_files(nginx: &mut Nginx, reader: &mut Reader<'_>, value: &Value<'_>, _: &HostNames<'_>) {
    let files = reader.table(value, "a table such as { \"/5k\" = \"5KiB\" }");
    for (span, path, value) in files.entries() {
        if !is_path(path) {
            reader.mistake(span, format!("'{path}' is not the path of a file such as \"/5k\""));
        }
        nginx.files.extend(reader.size(value).map(|size| (path.to_owned(), size)));
    }
}

fn read_file(nginx: &mut Nginx, reader: &mut Reader<'_>, value: &Value<'_>, _: &HostNames<'_>) {
    let mut file = reader.table(value, "a table such as { path = \"/5k\", size = \"5KiB\" }");
    let path = file.require(reader, "path", "the path that it is served at, such as \"/5k\"");
    let size = file.require(reader, "size", "its size, such as \"5KiB\"");
    file.finish(reader);
    let (Some(at), Some(size)) = (path, size) else { return };
    if let (Some(path), Some(size)) = (reader.text(at), reader.size(size)) {
        if !is_path(path) {
            reader.mistake(at.span(), format!("'{path}' is not the path of a file such as \"/5k\""));
        }
        nginx.files.push((path.to_owned(), size));
    }
}

/// Whether a path stays inside the served folder and names a file.
fn is_path(path: &str) -> bool {
    path.starts_with('/') && !path.ends_with('/') && !path.split('/').any(|part| part == "..")
}
