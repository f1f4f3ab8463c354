//! `proofload copy`: copies files over SSH with scp's conventions, and fills paths of high bandwidth and delay.

mod text;

use std::{
    collections::BTreeMap,
    env,
    ffi::OsString,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use copy::{CopyError, FileFilter, Job, Location, Progress, Report, copy, probe};
use glob::Pattern;
use load::raise_descriptors;
use record::units::parse_size;

use crate::{
    exit::{Exit, Refusal, Result},
    output::{
        destination::{Destination, write_result},
        progress::bar,
        standard,
    },
};

const USAGE: &str =
    "proofload copy [OPTIONS] SOURCE... DESTINATION\n       proofload copy [OPTIONS] --why HOST";
const AFTER_HELP: &str = "Examples:
  proofload copy data.tar web:/srv/           over as many connections as the path needs
  proofload copy -rp results me@far:runs      a folder, with times and permissions
  proofload copy -J gate far:'*.fits' .       back, through a jump host
  proofload copy --why me@far                 what would hold a copy back
  proofload copy -rn --exclude '*.tmp' . far:work   what would be copied
Exit status: 0 everything is there and verified, 1 something is not, 2 wrong use or no login, 130 interrupted.";

/// Copy files over ssh with scp's options, as fast as the path allows; verify them, and resume after a break.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP, override_usage = USAGE)]
pub(crate) struct CopyArgs {
    /// Files or folders, and where they go: PATH, [USER@]HOST:PATH or scp://[USER@]HOST[:PORT]/PATH; one side on this machine
    #[arg(value_names = ["SOURCE", "DESTINATION"], num_args = 2.., required_unless_present = "why")]
    paths: Vec<OsString>,
    /// Copy nothing; say what would limit copies to and from HOST, apart from disks; takes about 30 s
    #[arg(long, value_name = "HOST", conflicts_with_all = ["paths", "dry_run"])]
    why: Option<OsString>,
    /// Copy folders with what is in them
    #[arg(short, long)]
    recursive: bool,
    /// Keep times and permissions
    #[arg(short, long)]
    preserve: bool,
    /// Copy symbolic links as links, not what they lead to
    #[arg(long)]
    links: bool,
    /// Show what would be copied, and copy nothing
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Copy only files whose name, or path below the source, matches; repeatable
    #[arg(long, value_name = "PATTERN")]
    include: Vec<String>,
    /// Leave out files and folders that match; repeatable
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
    /// Do not compare what was written with what was read
    #[arg(long)]
    no_verify: bool,
    /// Do not fsync files before they are renamed to their final names
    #[arg(long)]
    no_fsync: bool,
    /// Start every file from its beginning, and keep no journal
    #[arg(long)]
    no_resume: bool,
    /// Number of connections [default: by the round trip]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    connections: Option<u32>,
    /// Use one connection only, so that other traffic on the path keeps its share
    #[arg(long, conflicts_with = "connections")]
    polite: bool,
    /// Bytes on the way at once, such as 32MiB [default: follows the path]
    #[arg(long, value_name = "SIZE")]
    in_flight: Option<String>,
    /// Limit the rate to KBIT Kbit/s, as -l of scp does
    #[arg(short, long, value_name = "KBIT", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    limit: Option<u64>,
    /// Write the result as JSON; - writes it, and nothing else, to standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Print nothing but errors
    #[arg(short, long)]
    quiet: bool,
    /// Port of the other machine's sshd
    #[arg(short = 'P', value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..), help_heading = "For ssh")]
    port: Option<u16>,
    /// Key to log in with; repeatable
    #[arg(short = 'i', value_name = "FILE", help_heading = "For ssh")]
    identity: Vec<OsString>,
    /// Jump host
    #[arg(short = 'J', value_name = "HOST", help_heading = "For ssh")]
    jump: Option<OsString>,
    /// Configuration file
    #[arg(short = 'F', value_name = "FILE", help_heading = "For ssh")]
    config: Option<OsString>,
    /// Option as in ssh_config; repeatable
    #[arg(short = 'o', value_name = "OPTION", help_heading = "For ssh")]
    option: Vec<OsString>,
    /// Cipher
    #[arg(short = 'c', value_name = "CIPHER", help_heading = "For ssh")]
    cipher: Option<OsString>,
    /// Compress
    #[arg(short = 'C', help_heading = "For ssh")]
    compress: bool,
    /// Never prompt, neither for a password nor for anything else (BatchMode)
    #[arg(short = 'B', help_heading = "For ssh")]
    batch: bool,
    #[arg(short = 'v', hide = true)]
    verbose: bool,
    #[arg(short = 'O', hide = true)]
    legacy: bool,
    #[arg(short = '3', hide = true)]
    through: bool,
    /// IPv4 only
    #[arg(short = '4', help_heading = "For ssh")]
    ipv4: bool,
    /// IPv6 only
    #[arg(short = '6', help_heading = "For ssh")]
    ipv6: bool,
}

/// Copies the files and prints the result.
pub(crate) fn run(arguments: &CopyArgs) -> Result<Exit> {
    let job = job(arguments)?;
    let json = Destination::open_optional("--json", arguments.json.as_deref())?;
    let stop = crate::stop::on_signal()?;
    // Each connection has several pipes, and each file in transfer is open, so many descriptors are needed.
    raise_descriptors();
    let shown = bar(arguments.quiet, "{spinner} {msg}");
    let mut line_at = Duration::ZERO;
    let mut show = |progress: Progress| match &shown {
        Some(bar) => bar.set_message(text::progress(&progress)),
        // Without a terminal, one line is printed per interval.
        None if !arguments.quiet && progress.elapsed >= line_at + LINE_INTERVAL => {
            line_at = progress.elapsed;
            standard::print_to_stderr(text::progress(&progress));
        }
        None => {}
    };
    if arguments.why.is_some() {
        let reports = probe(&job, &stop);
        shown.iter().for_each(indicatif::ProgressBar::finish_and_clear);
        let Some([up, down]) = unless_interrupted(reports)? else { return Ok(Exit::Interrupted) };
        let is_interrupted = up.is_interrupted || down.is_interrupted;
        let result = BTreeMap::from([("up", &up), ("down", &down)]);
        write_result(json, &result, arguments.quiet, || text::why(&up, &down))?;
        return Ok(if is_interrupted { Exit::Interrupted } else { Exit::GoalsMet });
    }
    let report = copy(&job, &stop, &mut show);
    shown.iter().for_each(indicatif::ProgressBar::finish_and_clear);
    let Some(report) = unless_interrupted(report)? else { return Ok(Exit::Interrupted) };
    for line in text::problems(&report) {
        standard::print_to_stderr(line);
    }
    let status = exit_status(&report);
    match write_result(json, &report, arguments.quiet, || text::render(&report, job.dry_run)) {
        Ok(()) => Ok(status),
        // The refusal's own status, 2, would mean that nothing was copied.
        Err(refusal) if !refusal.mistakes().is_empty() => {
            standard::print_refusal(&refusal);
            standard::print_to_stderr(
                "the result could not be written; all files were copied, except those named above",
            );
            Ok(if report.is_interrupted { Exit::Interrupted } else { Exit::GoalsNotMet })
        }
        Err(refusal) => Err(refusal),
    }
}

/// Time between two progress lines if standard error is not a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

fn exit_status(report: &Report) -> Exit {
    let is_whole = report.notes.is_empty() && report.files.iter().all(|file| file.error.is_none());
    match (report.is_interrupted, is_whole) {
        (true, _) => Exit::Interrupted,
        (false, true) => Exit::GoalsMet,
        (false, false) => Exit::GoalsNotMet,
    }
}

fn job(arguments: &CopyArgs) -> Result<Job> {
    let mut mistakes = Vec::new();
    let mut location = |word: &OsString| Location::parse(word).map_err(|why| mistakes.push(why)).ok();
    let why = arguments.why.as_ref().map(|host| {
        let is_named = matches!(Location::parse(host), Ok(Location::Remote { .. }));
        let end = if is_named { "" } else { ":" };
        [host.clone(), OsString::from(end)].into_iter().collect::<OsString>()
    });
    let here = OsString::from(".");
    let (destination, sources) = arguments.paths.split_last().unwrap_or((&here, &[]));
    let sources: Vec<_> = sources.iter().chain(&why).filter_map(&mut location).collect();
    let destination = location(destination);
    let mut patterns = |option: &str, words: &[String]| -> Vec<Pattern> {
        let pattern = |word: &String| {
            let below = word.strip_prefix("./").unwrap_or(word);
            Pattern::new(below).map_err(|why| mistakes.push(format!("{option} {word}: {why}"))).ok()
        };
        words.iter().filter_map(pattern).collect()
    };
    let include = patterns("--include", &arguments.include);
    // As in rsync and .gitignore, a pattern that ends in a slash matches only folders.
    let (of_folders, of_all): (Vec<_>, Vec<_>) =
        arguments.exclude.iter().cloned().partition(|word| word.ends_with('/'));
    let of_folders: Vec<_> = of_folders.iter().map(|word| word.trim_end_matches('/').to_owned()).collect();
    let exclude = patterns("--exclude", &of_all);
    let exclude_folders = patterns("--exclude", &of_folders);
    let in_flight = arguments
        .in_flight
        .as_ref()
        .map(|words| parse_size(words).map_err(|why| format!("--in-flight: {why}")));
    let in_flight_bytes = in_flight.transpose().unwrap_or_else(|why| {
        mistakes.push(why);
        None
    });
    let habits = [
        (arguments.verbose, "-v: use 'ssh -v HOST', which shows a login in detail"),
        (
            arguments.legacy,
            "-O: copy needs SFTP, which every OpenSSH since 2000 has; for a server without SFTP, use scp -O",
        ),
        (arguments.through, "-3: use scp -3, or run proofload copy on one of the two machines"),
    ];
    mistakes.extend(habits.into_iter().filter(|(is_used, _)| *is_used).map(|(_, answer)| answer.to_owned()));
    // Claims these files as inputs, because `ssh` reads them.
    let config = arguments.config.iter().map(|file| ("-F", file));
    for (option, file) in arguments.identity.iter().map(|file| ("-i", file)).chain(config) {
        let noted = files::reads(Path::new(file));
        mistakes.extend(noted.err().map(|why| format!("{option}: {}: {why}", file.display())));
    }
    let Some(destination) = destination.filter(|_| mistakes.is_empty()) else {
        return Err(Refusal::new(mistakes));
    };
    Ok(Job {
        sources,
        destination,
        ssh_options: ssh_options(arguments),
        choice: FileFilter {
            recursive: arguments.recursive,
            links: arguments.links,
            include,
            exclude,
            exclude_folders,
        },
        preserve: arguments.preserve,
        verify: !arguments.no_verify,
        sync: !arguments.no_fsync,
        state: state(),
        resume: !arguments.no_resume,
        connections: arguments.connections,
        is_polite: arguments.polite,
        in_flight_bytes: in_flight_bytes.map(|bytes| bytes as usize),
        limit_bytes_per_s: arguments.limit.map(|kbit| kbit * 1_000 / 8),
        dry_run: arguments.dry_run,
    })
}

/// Converts an interruption before the first file to `None`.
fn unless_interrupted<T>(done: std::result::Result<T, CopyError>) -> Result<Option<T>> {
    match done {
        Err(CopyError::Interrupted) => Ok(None),
        done => done.map(Some).map_err(Refusal::one),
    }
}

fn ssh_options(arguments: &CopyArgs) -> Vec<OsString> {
    let mut options = Vec::new();
    let mut add = |flag: &str, value: Option<OsString>| {
        if let Some(value) = value {
            options.extend([OsString::from(flag), value]);
        }
    };
    add("-F", arguments.config.clone());
    add("-p", arguments.port.map(|port| port.to_string().into()));
    arguments.identity.iter().for_each(|file| add("-i", Some(file.clone())));
    // A second channel must take the same route. ssh refuses a second -J but accepts further ProxyJump options, of which
    // the first counts.
    let jump = arguments.jump.as_ref().map(|jump| {
        let mut option = OsString::from("ProxyJump=");
        option.push(jump);
        option
    });
    add("-o", jump);
    add("-c", arguments.cipher.clone());
    add("-o", arguments.batch.then(|| "BatchMode=yes".into()));
    arguments.option.iter().for_each(|option| add("-o", Some(option.clone())));
    let flags = [(arguments.compress, "-C"), (arguments.ipv4, "-4"), (arguments.ipv6, "-6")];
    options.extend(flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| OsString::from(flag)));
    options
}

/// The folder of the journals and of data about logins: `$XDG_STATE_HOME/proofload/copy`, or its default below the home
/// folder.
fn state() -> Option<PathBuf> {
    let state = env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let state = state.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".local/state")))?;
    Some(state.join("proofload/copy"))
}
