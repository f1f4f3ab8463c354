//! One module a command.

pub mod audit;
pub mod clean;
pub mod compare;
mod habits;
pub mod http;
pub mod http_args;
mod http_kept;
pub mod lab;
pub mod limit;
mod limit_args;
pub mod link;
pub mod link_args;
pub mod listen;
mod options;
pub mod report;
pub mod run;
pub mod serve;
pub mod serve_args;
mod stop;
mod study;
mod text;
pub mod workload_args;
