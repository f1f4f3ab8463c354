//! Statistics of repeated runs: medians with intervals, and comparisons.
//!
//! Pure: no clock, no I/O. Random numbers are seeded, so that the same values give the same result. No value is
//! dropped: an outlier causes a warning, and warnings are part of every result. `docs/statistics.md` gives the source
//! and the measured properties of each method.

mod compare;
mod holm;
mod rank_sum;
mod resolvable;
mod sample;
mod signed_rank;
mod student;
mod summary;

pub use compare::{Better, Comparison, Method, Question, Runs, Scale, Verdict, compare, compare_all};
pub use resolvable::Design;
pub use sample::{Confidence, Sample, SampleError};
pub use summary::{Summary, summarize};
