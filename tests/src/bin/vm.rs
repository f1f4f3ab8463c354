//! Runs a script in Debian's kernel, in an emulated machine, and prints its output.

use std::{fs, io, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context, Result};
use clap::Parser;
use proofload_tests::Vm;

/// Runs a shell script in an emulated machine that boots Debian's kernel.
///
/// The exit status is the script's; 101 when the machine could not be booted or did not end in time.
#[derive(Parser)]
struct Arguments {
    /// The script; `-` reads it from standard input.
    script: PathBuf,
    /// Installed programs to take along, with their libraries.
    #[arg(long, value_delimiter = ',', default_value = "ip,tc,ping,iperf3")]
    tools: Vec<String>,
    /// Modules of the kernel to load before the script starts.
    #[arg(long, value_delimiter = ',', default_value = "veth,bridge,tun,sch_netem,sch_tbf")]
    modules: Vec<String>,
    /// Takes our binary along.
    #[arg(long)]
    proofload: bool,
    /// Prints the console too.
    #[arg(long)]
    console: bool,
    /// Longest time, in seconds by the clock out here.
    #[arg(long, default_value_t = 600)]
    timeout_s: u64,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(code) => ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)),
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::from(101)
        }
    }
}

fn run(arguments: &Arguments) -> Result<i32> {
    let script = match arguments.script.as_os_str() {
        dash if dash == "-" => io::read_to_string(io::stdin()).context("cannot read standard input")?,
        path => {
            fs::read_to_string(path).with_context(|| format!("cannot read {}", arguments.script.display()))?
        }
    };
    let mut vm = Vm::default()
        .tools(arguments.tools.iter().map(String::as_str))
        .modules(arguments.modules.iter().map(String::as_str));
    if arguments.proofload {
        vm = vm.proofload()?;
    }
    let ran = vm.run(&script, Duration::from_secs(arguments.timeout_s))?;
    if arguments.console {
        eprint!("{}", ran.console);
    }
    print!("{}", ran.output);
    eprintln!(
        "Linux {}, {:.1} s with its boot, exit status {}",
        ran.release,
        ran.wall.as_secs_f64(),
        ran.code
    );
    Ok(ran.code)
}
