//! Tests of the treatment of every kind of frame, byte for byte, and of the counts. The program runs on frames without
//! a network, once as cls_bpf and once as XDP. This needs root, so the names of the tests begin with `as_root`.

mod flows;
mod fragments;
mod frames;
mod table;
mod world;
