//! One module a command.

pub mod http;
pub mod http_args;
pub mod serve;
pub mod serve_args;
mod stop;
mod text;
