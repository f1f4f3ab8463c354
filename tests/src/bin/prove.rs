//! Proves the bars: `prove` lists them, `prove NAME...` or `prove all` runs them.

use std::process::ExitCode;

use clap::Parser;
use proofload_tests::{
    Bar, Scale,
    bars::ALL,
    machine::{description, raise_descriptor_limit},
};

/// Runs the bars that proofload must clear, or lists them.
#[derive(Parser)]
struct Arguments {
    /// Names of bars, or `all`.
    names: Vec<String>,
    /// Run only the sample that every `make test` runs.
    #[arg(long)]
    sample: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.names.is_empty() {
        list();
        return ExitCode::SUCCESS;
    }
    let mut bars = Vec::new();
    for name in &arguments.names {
        match Bar::named(name) {
            Some(bar) => bars.push(bar),
            None if name == "all" => bars.extend(ALL),
            None => {
                eprintln!("there is no bar '{name}'; `prove` without arguments lists them");
                return ExitCode::from(2);
            }
        }
    }
    let limit = raise_descriptor_limit();
    println!("{}, open files {limit}", description());
    let scale = if arguments.sample { Scale::Sample } else { Scale::Full };
    let failed: Vec<&str> = bars.iter().filter(|bar| bar.check(scale).is_err()).map(|bar| bar.name).collect();
    if failed.is_empty() {
        println!("all {} bars reached", bars.len());
        ExitCode::SUCCESS
    } else {
        println!("not reached: {}", failed.join(", "));
        ExitCode::FAILURE
    }
}

fn list() {
    println!("make prove NAME=... runs one of these whole, NAME=all all of them:");
    for bar in ALL {
        println!("  {:<18} {:>4} s  {}", bar.name, bar.full_seconds, bar.what);
    }
}
