//! Programs as the load of a trial: run at once, timed, counted, and ended with all that they started.
//!
//! * [`Order`]: what is run.
//! * [`runner`]: the process that runs it, on a host or here, and writes a [`Report`].
//! * [`MemoryGroup`]: the memory of all its processes.
//! * [`Flows`]: what goes over interfaces meanwhile.
//! * [`number_in`]: a number from what a program wrote.

mod flows;
mod memory;
mod numbers;
mod order;
pub mod runner;

pub use flows::Flows;
pub use memory::MemoryGroup;
pub use numbers::number_in;
pub use order::{COPY, Order, Report, VARIABLE};
