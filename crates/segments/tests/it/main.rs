//! Tests of segments on real files.

mod disk;
mod killed;
mod levels;
mod names;
mod opening;
mod packing;
mod remainder;
mod rig;
mod rotation;
