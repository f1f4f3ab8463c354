//! Settings for the stored files and the format of their lines.

use segments::{Compression, Template};

use super::{Kind, OptionSpec, choice, count, error_text, path, size, time};
use crate::commands::listen::config_builder::{DEFAULT_PATH, Format};

const STORING: &str = "Storing";

const FORMATS: &[&str] = &["out_file", "json", "csv", "raw"];
const COMPRESSIONS: &[&str] = &["none", "gzip", "zstd"];

pub(super) const SETTINGS: &[OptionSpec] = settings::option_table! {
    /// Path of the stored files; placeholders are ${tag}, ${tag[1]}, ${member} of the event, and %Y %m %d %H %M %S of
    /// its time
    "path", Kind::Text, "PATH", STORING, DEFAULT_PATH, "/var/lib/events/${tag}_%Y-%m-%d.log",
        |builder, values| builder.set_path(values[0])?;
    /// Folder of the journal, which is used to recover after a crash [default: .proofload beside the files]
    "state", Kind::Text, "FOLDER", STORING, "", "/var/lib/proofload",
        |builder, values| builder.state = Some(path(values[0])?);
    /// Format of a line: out_file (time, tag, JSON, separated by tabs), json, csv, or raw (the text as sent)
    "format", Kind::Choice(FORMATS), "FORMAT", STORING, "out_file", "json",
        |builder, values| builder.format =
            choice(values[0], FORMATS, &[Format::OutFile, Format::Json, Format::Csv, Format::Raw])?;
    /// Omit the time in lines of out_file
    "no_time", Kind::Flag, "", STORING, "", "true",
        |builder, _| builder.has_time = false;
    /// Omit the tag in lines of out_file
    "no_tag", Kind::Flag, "", STORING, "", "true",
        |builder, _| builder.has_tag = false;
    /// Members of an event that become the columns of csv
    "csv_fields", Kind::Text, "NAME,NAME", STORING, "", "user,name",
        |builder, values| {
            builder.csv_fields = values[0].split(',').map(|name| name.trim().to_owned()).collect();
            if builder.csv_fields.iter().any(String::is_empty) {
                return Err(format!("'{}' is not a list of members such as user,name", values[0]));
            }
        };
    /// Use UTC instead of local time for lines, paths, and times of events without a zone
    "utc", Kind::Flag, "", STORING, "", "true",
        |builder, _| {
            builder.config.store.utc = true;
            builder.body_rules.is_utc = true;
        };
    /// Begin new files (_0, _1, …) at each start instead of appending to existing ones
    "no_append", Kind::Flag, "", STORING, "", "true",
        |builder, _| builder.config.store.append = false;
    /// Begin a new file (_1, _2, …) before one would become larger
    "rotate_size", Kind::Size, "SIZE", STORING, "", "1GiB",
        |builder, values| builder.config.store.rotate_bytes = Some(size(values[0], 4096)?);
    /// Compress files after their end; a file that still grows is plain
    "compress", Kind::Choice(COMPRESSIONS), "none|gzip|zstd", STORING, "none", "zstd",
        |builder, values| {
            let all = [Compression::None, Compression::Gzip, Compression::Zstd];
            builder.config.store.compress = choice(values[0], COMPRESSIONS, &all)?;
        };
    /// Symbolic link to the newest file
    "symlink", Kind::Text, "PATH", STORING, "", "/var/lib/events/${tag}.log",
        |builder, values| builder.config.store.symlink = Some(values[0].parse::<Template>().map_err(error_text)?);
    /// Most files open for writing; the least recently used is closed. As many again may be open until their last sync
    "open_files", Kind::Count(1), "N", STORING, "1000", "200",
        |builder, values| builder.config.store.max_open = count(values[0], 1)?;
    /// End a file that has had no new lines for this time
    "end_after", Kind::Time, "TIME", STORING, "10m", "1m",
        |builder, values| builder.config.store.idle = time(values[0])?;
};
