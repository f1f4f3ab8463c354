//! Where lines are stored, and how they look.

use segments::{Compression, Template};

use super::{Kind, Setting, choice, count, path, size, time, told};
use crate::commands::listen::draft::{DEFAULT_PATH, Format};

const STORING: &str = "Storing";

const FORMATS: &[&str] = &["out_file", "json", "csv", "raw"];
const COMPRESSIONS: &[&str] = &["none", "gzip", "zstd"];

pub(super) const SETTINGS: &[Setting] = settings::table! {
    /// Where events are stored: ${tag}, ${tag[1]}, ${member} of the event and %Y %m %d %H %M %S of its time are
    /// filled in
    "path", Kind::Text, "PATH", STORING, DEFAULT_PATH, "/var/lib/events/${tag}_%Y-%m-%d.log",
        |draft, values| draft.set_path(values[0])?;
    /// Folder of the journal that a start after a crash recovers from [default: .proofload beside the files]
    "state", Kind::Text, "FOLDER", STORING, "", "/var/lib/proofload",
        |draft, values| draft.state = Some(path(values[0])?);
    /// How a line looks: out_file (time, tag, JSON, parted by tabs), json, csv, or raw (the text as sent)
    "format", Kind::Choice(FORMATS), "FORMAT", STORING, "out_file", "json",
        |draft, values| draft.format =
            choice(values[0], FORMATS, &[Format::OutFile, Format::Json, Format::Csv, Format::Raw])?;
    /// Lines of out_file without the time
    "no_time", Kind::Flag, "", STORING, "", "true",
        |draft, _| draft.has_time = false;
    /// Lines of out_file without the tag
    "no_tag", Kind::Flag, "", STORING, "", "true",
        |draft, _| draft.has_tag = false;
    /// Members of an event that become the columns of csv
    "csv_fields", Kind::Text, "NAME,NAME", STORING, "", "user,name",
        |draft, values| {
            draft.csv_fields = values[0].split(',').map(|name| name.trim().to_owned()).collect();
            if draft.csv_fields.iter().any(String::is_empty) {
                return Err(format!("'{}' is not a list of members such as user,name", values[0]));
            }
        };
    /// Times of lines and of paths, and those of events that name no zone, in UTC instead of local time
    "utc", Kind::Flag, "", STORING, "", "true",
        |draft, _| {
            draft.config.store.utc = true;
            draft.reading.is_utc = true;
        };
    /// Begin new files, _0, _1, …, at each start instead of going on in those that are there
    "no_append", Kind::Flag, "", STORING, "", "true",
        |draft, _| draft.config.store.append = false;
    /// Begin a new file, _1, _2, …, where one would grow larger
    "rotate_size", Kind::Size, "SIZE", STORING, "", "1GiB",
        |draft, values| draft.config.store.rotate_bytes = Some(size(values[0], 4096)?);
    /// Compress files that have ended; a file that still grows is plain
    "compress", Kind::Choice(COMPRESSIONS), "none|gzip|zstd", STORING, "none", "zstd",
        |draft, values| {
            let all = [Compression::None, Compression::Gzip, Compression::Zstd];
            draft.config.store.compress = choice(values[0], COMPRESSIONS, &all)?;
        };
    /// Symbolic link that always leads to the newest file
    "symlink", Kind::Text, "PATH", STORING, "", "/var/lib/events/${tag}.log",
        |draft, values| draft.config.store.symlink = Some(values[0].parse::<Template>().map_err(told)?);
    /// Files written to at once; the one unused for longest is closed. As many again may be open until their last
    /// sync
    "open_files", Kind::Count(1), "N", STORING, "1000", "200",
        |draft, values| draft.config.store.max_open = count(values[0], 1)?;
    /// A file without new lines for so long has ended
    "end_after", Kind::Time, "TIME", STORING, "10m", "1m",
        |draft, values| draft.config.store.idle = time(values[0])?;
};
