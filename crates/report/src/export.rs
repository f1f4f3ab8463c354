//! The output formats, one per file.

pub(crate) mod github;
pub(crate) mod html;
pub(crate) mod json;
pub(crate) mod junit;
pub(crate) mod openmetrics;
pub(crate) mod terminal;
