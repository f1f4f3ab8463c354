//! What measured values show, and what they do not.
//!
//! Pure: no clock, no I/O; what is random is seeded and gives the same answer each time. Nothing is
//! ever dropped: what looks odd becomes a warning, and warnings are part of every result.
//! `docs/statistics.md` gives each method with its source, and what it was measured to do.

pub mod compare;
pub mod holm;
mod rank_sum;
pub mod resolvable;
mod sample;
mod signed_rank;
mod student;
pub mod summary;

pub use compare::{Better, Comparison, Method, Question, Runs, Scale, Verdict, compare, compare_all};
pub use resolvable::Design;
pub use sample::{Confidence, Refusal, Sample};
pub use summary::{Summary, summarize};
