//! What becomes of every kind of frame, byte for byte, and what is counted: the program runs on frames without a network, once as
//! cls_bpf and once as XDP. This needs root, so the tests' names begin with `as_root`.

mod flows;
mod fragments;
mod frames;
mod table;
mod world;
