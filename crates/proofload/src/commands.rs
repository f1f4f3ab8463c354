//! One module a command.

pub mod clean;
pub mod http;
pub mod http_args;
pub mod lab;
pub mod link;
pub mod link_args;
pub mod serve;
pub mod serve_args;
mod stop;
mod text;
