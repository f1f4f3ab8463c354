//! Changes to a copy of a finished folder, and the expected results.

mod case;
mod edits;

use record::Ending;
use std::{fs, os::unix::fs::symlink};

pub(super) use case::{Case, Expected};
use case::{
    Expected::{Half, Sound},
    MISSING, OTHER, WRITTEN, read, refused,
};
pub(super) use edits::sealed;
use edits::*;

/// All cases.
pub(super) const CASES: &[Case] = &[
    // Trials.
    refused(
        "a digit of a figure changed",
        |copy, _| edit(copy, TRIALS, |text| digit(text, "elapsed_s\":")),
        &["line 1", WRITTEN],
    ),
    refused(
        "a digit of the last trial changed",
        |copy, _| lines(copy, |lines| lines[3] = digit(&lines[3], "throughput_per_s\":")),
        &["line 4", WRITTEN],
    ),
    refused(
        "the last trial torn",
        |copy, _| edit(copy, TRIALS, |text| cut(text, 40)),
        &["covers 4 trials", "holds 3"],
    ),
    refused(
        "the last line's end missing",
        |copy, _| edit(copy, TRIALS, |text| cut(text, 1)),
        &["covers 4 trials", "holds 3"],
    ),
    refused(
        "a trial torn in the middle",
        |copy, _| lines(copy, |lines| lines[1].truncate(500)),
        &["line 2", WRITTEN],
    ),
    refused(
        "the first line missing",
        |copy, _| lines(copy, |lines| drop(lines.remove(0))),
        &["line 1", MISSING],
    ),
    refused("a line missing", |copy, _| lines(copy, |lines| drop(lines.remove(2))), &["line 3", MISSING]),
    refused(
        "the last line missing",
        |copy, _| lines(copy, |lines| drop(lines.pop())),
        &["covers 4 trials", "holds 3"],
    ),
    refused(
        "a line twice",
        |copy, _| lines(copy, |lines| lines.insert(1, lines[1].clone())),
        &["line 3", MISSING],
    ),
    refused(
        "the last line twice",
        |copy, _| lines(copy, |lines| lines.push(lines[3].clone())),
        &["line 5", MISSING],
    ),
    refused(
        "all lines twice",
        |copy, _| lines(copy, |lines| lines.extend(lines.clone())),
        &["line 5", MISSING],
    ),
    refused(
        "two lines in each other's place",
        |copy, _| lines(copy, |lines| lines.swap(0, 2)),
        &["line 1", MISSING],
    ),
    refused(
        "an empty line",
        |copy, _| lines(copy, |lines| lines.insert(2, String::new())),
        &["line 3", WRITTEN],
    ),
    refused(
        "an empty line at the end",
        |copy, _| lines(copy, |lines| lines.push(String::new())),
        &["line 5", WRITTEN],
    ),
    refused("no trials any more", |copy, _| put(copy, TRIALS, ""), &["covers 4 trials", "holds 0"]),
    refused("the file of trials missing", |copy, _| take(copy, TRIALS), &["covers 4 trials", "holds 0"]),
    refused(
        "something else behind the trials",
        |copy, _| edit(copy, TRIALS, |text| text.to_owned() + "killed\n"),
        &["line 5", WRITTEN],
    ),
    refused(
        "zeros in the place of a trial",
        |copy, _| lines(copy, |lines| lines[1] = "\0".repeat(4096)),
        &["line 2", WRITTEN],
    ),
    refused(
        "line ends of another system",
        |copy, _| edit(copy, TRIALS, |text| text.replace('\n', "\r\n")),
        &["line 1", WRITTEN],
    ),
    refused(
        "trials laid out by another program",
        |copy, _| edit(copy, TRIALS, |text| text.replace("\":", "\": ")),
        &["line 1", WRITTEN],
    ),
    refused(
        "a mark of byte order first",
        |copy, _| edit(copy, TRIALS, |text| format!("\u{feff}{text}")),
        &["line 1", WRITTEN],
    ),
    refused(
        "the form of trials changed by hand",
        |copy, _| edit(copy, TRIALS, |text| text.replace("trial-entry/2", "trial-entry/9")),
        &["trial-entry/9"],
    ),
    refused(
        "trials of a later version",
        |copy, _| lines(copy, |lines| lines[2] = resealed(&lines[2], "trial-entry/2", "trial-entry/9")),
        &["line 3", "trial-entry/9", "trial-entry/2"],
    ),
    refused(
        "trials of an earlier version",
        |copy, _| {
            lines(copy, |lines| lines[0] = unsealed(&lines[0]).replace("trial-entry/2", "trial-entry/1"))
        },
        &["line 1", "trial-entry/1"],
    ),
    refused(
        "trials without checksums",
        |copy, _| lines(copy, |lines| lines.iter_mut().for_each(|line| *line = unsealed(line))),
        &["line 1", WRITTEN],
    ),
    refused(
        "a folder in the place of the trials",
        |copy, _| {
            take(copy, TRIALS)?;
            Ok(fs::create_dir(copy.join(TRIALS))?)
        },
        &[TRIALS, "not a regular file"],
    ),
    refused(
        "a pipe in the place of the trials",
        |copy, _| pipe(copy, TRIALS),
        &[TRIALS, "not a regular file"],
    ),
    refused(
        "a device in the place of the trials",
        |copy, _| device(copy, TRIALS),
        &[TRIALS, "not a regular file"],
    ),
    // The result.
    refused(
        "a figure of the result changed",
        |copy, _| edit(copy, RESULT, |text| digit(text, "\"median\": ")),
        &[RESULT, WRITTEN],
    ),
    refused("the result torn", |copy, _| edit(copy, RESULT, |text| cut(text, 700)), &[RESULT, WRITTEN]),
    refused("the result empty", |copy, _| put(copy, RESULT, ""), &[RESULT, WRITTEN]),
    refused("the result null", |copy, _| put(copy, RESULT, "null\n"), &[RESULT, WRITTEN]),
    refused(
        "the result a list",
        |copy, _| edit(copy, RESULT, |text| format!("[{text}]")),
        &[RESULT, WRITTEN],
    ),
    refused("the result twice", |copy, _| edit(copy, RESULT, |text| text.repeat(2)), &[RESULT, WRITTEN]),
    refused(
        "the form of the result changed by hand",
        |copy, _| edit(copy, RESULT, |text| text.replace("result/2", "result/9")),
        &["result/9"],
    ),
    refused(
        "a result of a later version",
        |copy, _| edit(copy, RESULT, |text| resealed(text, "result/2", "result/9")),
        &["result/9", "result/2"],
    ),
    refused(
        "a result of an earlier version",
        |copy, _| edit(copy, RESULT, |text| unsealed(text).replace("result/2", "result/1")),
        &["result/1"],
    ),
    refused(
        "a result called finished by hand",
        |copy, _| {
            half(copy, Ending::Interrupted, 3)?;
            edit(copy, RESULT, |text| text.replace("interrupted", "finished"))
        },
        &[RESULT, WRITTEN],
    ),
    refused(
        "a pipe in the place of the result",
        |copy, _| pipe(copy, RESULT),
        &[RESULT, "not a regular file"],
    ),
    refused(
        "a folder in the place of the result",
        |copy, _| {
            take(copy, RESULT)?;
            Ok(fs::create_dir(copy.join(RESULT))?)
        },
        &[RESULT, "not a regular file"],
    ),
    // The plan.
    refused("no plan", |copy, _| take(copy, PLAN), &["there is no plan.json"]),
    refused(
        "a bound of the plan changed",
        |copy, _| edit(copy, PLAN, |text| text.replace("10000000000", "20000000000")),
        &[PLAN, WRITTEN],
    ),
    refused(
        "a bound of the plan changed, and its checksum",
        |copy, _| edit(copy, PLAN, |text| resealed(text, "10000000000", "20000000000")),
        &[OTHER],
    ),
    refused("the plan torn", |copy, _| edit(copy, PLAN, |text| cut(text, 100)), &[PLAN, WRITTEN]),
    refused("the plan empty", |copy, _| put(copy, PLAN, ""), &[PLAN, WRITTEN]),
    refused(
        "the plan laid out by another program",
        |copy, _| edit(copy, PLAN, |text| text.replace("\n", "")),
        &[PLAN, WRITTEN],
    ),
    refused(
        "a plan of a later version",
        |copy, _| edit(copy, PLAN, |text| resealed(text, "plan/2", "plan/9")),
        &["plan/9", "plan/2"],
    ),
    refused(
        "a plan of an earlier version",
        |copy, _| edit(copy, PLAN, |text| unsealed(text).replace("plan/2", "plan/1")),
        &["plan/1"],
    ),
    refused("a pipe in the place of the plan", |copy, _| pipe(copy, PLAN), &["plan.json"]),
    // The environment.
    refused(
        "the environment changed",
        |copy, _| edit(copy, ENVIRONMENT, |text| digit(text, "\"cpus\": ")),
        &[ENVIRONMENT, WRITTEN],
    ),
    refused(
        "an environment of a later version",
        |copy, _| edit(copy, ENVIRONMENT, |text| resealed(text, "environment/2", "environment/9")),
        &["environment/9"],
    ),
    // Foreign and mixed.
    refused(
        "another study's environment",
        |copy, beside| foreign(copy, beside, "other", ENVIRONMENT),
        &[ENVIRONMENT, OTHER],
    ),
    refused(
        "what was found of a link, without its checksum",
        |copy, _| put(copy, "links.jsonl", "{\"schema\":\"proofload/link/1\",\"link\":\"wan\"}\n"),
        &["links.jsonl, line 1", WRITTEN],
    ),
    refused(
        "what a kernel counted, without its checksum",
        |copy, _| put(copy, "counters.jsonl", "{\"schema\":\"proofload/counters/1\",\"trial\":1}\n"),
        &["counters.jsonl, line 1", WRITTEN],
    ),
    read(
        "a line of a link that a killed run had begun",
        |copy, _| put(copy, "links.jsonl", "{\"crc32c\":\"0123"),
        Sound,
    ),
    refused(
        "another study's result",
        |copy, beside| foreign(copy, beside, "other", RESULT),
        &[RESULT, OTHER],
    ),
    refused(
        "another study's trials",
        |copy, beside| foreign(copy, beside, "other", TRIALS),
        &["line 1", OTHER],
    ),
    refused("another study's plan", |copy, beside| foreign(copy, beside, "other", PLAN), &[OTHER]),
    refused(
        "another study's trials and result",
        |copy, beside| {
            foreign(copy, beside, "other", TRIALS)?;
            foreign(copy, beside, "other", RESULT)
        },
        &[OTHER],
    ),
    refused(
        "another study's trials behind the own",
        |copy, beside| {
            let other = file_lines(&beside.join("other"))?;
            lines(copy, |lines| lines[2..].clone_from_slice(&other[2..]))
        },
        &["line 3", OTHER],
    ),
    refused(
        "one trial of another study",
        |copy, beside| {
            let other = file_lines(&beside.join("other"))?;
            lines(copy, |lines| lines[1].clone_from(&other[1]))
        },
        &["line 2", OTHER],
    ),
    refused(
        "the result of another run of the study",
        |copy, beside| foreign(copy, beside, "again", RESULT),
        &[RESULT, "other trials than"],
    ),
    refused(
        "the trials of another run of the study",
        |copy, beside| foreign(copy, beside, "again", TRIALS),
        &[RESULT, "other trials than"],
    ),
    refused(
        "one trial of another run of the study",
        |copy, beside| {
            let again = file_lines(&beside.join("again"))?;
            lines(copy, |lines| lines[1].clone_from(&again[1]))
        },
        &[RESULT, "other trials than"],
    ),
    refused(
        "a finished result, and trials behind it",
        |copy, _| half_finished(copy),
        &[RESULT, "finished with 3 trials", "holds 4"],
    ),
    refused(
        "an interrupted result of more trials",
        |copy, _| {
            half(copy, Ending::Interrupted, 3)?;
            lines(copy, |lines| lines.truncate(2))
        },
        &["covers 3 trials", "holds 2"],
    ),
    refused(
        "nothing at all",
        |copy, _| {
            fs::remove_dir_all(copy)?;
            Ok(fs::create_dir(copy)?)
        },
        &["there is no plan.json"],
    ),
    refused(
        "a file in the place of the folder",
        |copy, _| {
            fs::remove_dir_all(copy)?;
            Ok(fs::write(copy, "{}")?)
        },
        &["there is no plan.json"],
    ),
    // Half-finished folders, as a kill, a signal or a budget leaves them.
    read("killed behind its last trial", |copy, _| take(copy, RESULT), Half { trials: 4 }),
    read(
        "killed behind a trial",
        |copy, _| {
            take(copy, RESULT)?;
            lines(copy, |lines| lines.truncate(3))
        },
        Half { trials: 3 },
    ),
    read(
        "killed while it wrote a trial",
        |copy, _| {
            take(copy, RESULT)?;
            edit(copy, TRIALS, |text| cut(text, 900))
        },
        Half { trials: 3 },
    ),
    read(
        "killed before its first trial",
        |copy, _| {
            take(copy, RESULT)?;
            put(copy, TRIALS, "")
        },
        Half { trials: 0 },
    ),
    read("interrupted", |copy, _| half(copy, Ending::Interrupted, 3), Half { trials: 3 }),
    read("out of its budget", |copy, _| half(copy, Ending::OutOfBudget, 2), Half { trials: 2 }),
    read("failed", |copy, _| half(copy, Ending::Failed, 1), Half { trials: 1 }),
    read(
        "interrupted, gone on with, and killed",
        |copy, _| {
            let all = file_lines(copy)?;
            half(copy, Ending::Interrupted, 2)?;
            lines(copy, |lines| lines.push(all[2].clone()))
        },
        Half { trials: 3 },
    ),
    // Sound.
    read("as it is", |_, _| Ok(()), Sound),
    read(
        "with files of others",
        |copy, _| {
            put(copy, "notes.txt", "rack 3")?;
            put(copy, "result.json.partial", "{")
        },
        Sound,
    ),
    read(
        "without what is written from the others",
        |copy, _| {
            take(copy, "junit.xml")?;
            take(copy, "metrics.txt")?;
            take(copy, "study.toml")
        },
        Sound,
    ),
    read(
        "through a link",
        |copy, beside| {
            fs::remove_dir_all(copy)?;
            Ok(symlink(beside.join("own"), copy)?)
        },
        Sound,
    ),
];
