//! One module a command.

pub(crate) mod audit;
pub(crate) mod clean;
pub(crate) mod compare;
pub(crate) mod copy;
pub(crate) mod foreign_options;
pub(crate) mod generate;
pub(crate) mod host;
pub(crate) mod http;
pub(crate) mod http_args;
mod http_outputs;
pub(crate) mod lab;
pub(crate) mod limit;
mod limit_args;
pub(crate) mod link;
pub(crate) mod link_args;
pub(crate) mod listen;
mod mistakes;
mod observe_args;
mod options;
pub(crate) mod peers;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod serve_args;
mod stop;
mod study;
pub(crate) mod workload_args;
