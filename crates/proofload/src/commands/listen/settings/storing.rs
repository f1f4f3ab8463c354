//! Where lines are stored, and how they look.

use segments::{Compression, Template};

use super::{Kind, Setting, choice, count, path, size, time, told};
use crate::commands::listen::draft::{DEFAULT_PATH, Format};

const STORING: &str = "Storing";

const FORMATS: &[&str] = &["out_file", "json", "csv", "raw"];
const COMPRESSIONS: &[&str] = &["none", "gzip", "zstd"];

pub(super) const SETTINGS: &[Setting] = &[
    Setting {
        key: "path",
        kind: Kind::Text,
        value_name: "PATH",
        heading: STORING,
        help: "Where events are stored: ${tag}, ${tag[1]}, ${member} of the event and %Y %m %d %H %M %S of its time are filled in",
        default: DEFAULT_PATH,
        example: "/var/lib/events/${tag}_%Y-%m-%d.log",
        apply: |draft, values| draft.set_path(values[0]),
    },
    Setting {
        key: "state",
        kind: Kind::Text,
        value_name: "FOLDER",
        heading: STORING,
        help: "Folder of the journal that a start after a crash recovers from [default: .proofload beside the files]",
        default: "",
        example: "/var/lib/proofload",
        apply: |draft, values| {
            draft.state = Some(path(values[0])?);
            Ok(())
        },
    },
    Setting {
        key: "format",
        kind: Kind::Choice(FORMATS),
        value_name: "FORMAT",
        heading: STORING,
        help: "How a line looks: out_file (time, tag, JSON, parted by tabs), json, csv, or raw (the text as sent)",
        default: "out_file",
        example: "json",
        apply: |draft, values| {
            draft.format =
                choice(values[0], FORMATS, &[Format::OutFile, Format::Json, Format::Csv, Format::Raw])?;
            Ok(())
        },
    },
    Setting {
        key: "no_time",
        kind: Kind::Flag,
        value_name: "",
        heading: STORING,
        help: "Lines of out_file without the time",
        default: "",
        example: "true",
        apply: |draft, _| {
            draft.has_time = false;
            Ok(())
        },
    },
    Setting {
        key: "no_tag",
        kind: Kind::Flag,
        value_name: "",
        heading: STORING,
        help: "Lines of out_file without the tag",
        default: "",
        example: "true",
        apply: |draft, _| {
            draft.has_tag = false;
            Ok(())
        },
    },
    Setting {
        key: "csv_fields",
        kind: Kind::Text,
        value_name: "NAME,NAME",
        heading: STORING,
        help: "Members of an event that become the columns of csv",
        default: "",
        example: "user,name",
        apply: |draft, values| {
            draft.csv_fields = values[0].split(',').map(|name| name.trim().to_owned()).collect();
            if draft.csv_fields.iter().any(String::is_empty) {
                return Err(format!("'{}' is not a list of members such as user,name", values[0]));
            }
            Ok(())
        },
    },
    Setting {
        key: "utc",
        kind: Kind::Flag,
        value_name: "",
        heading: STORING,
        help: "Times of lines and of paths, and those of events that name no zone, in UTC instead of local time",
        default: "",
        example: "true",
        apply: |draft, _| {
            draft.config.store.utc = true;
            draft.reading.is_utc = true;
            Ok(())
        },
    },
    Setting {
        key: "no_append",
        kind: Kind::Flag,
        value_name: "",
        heading: STORING,
        help: "Begin new files, _0, _1, …, at each start instead of going on in those that are there",
        default: "",
        example: "true",
        apply: |draft, _| {
            draft.config.store.append = false;
            Ok(())
        },
    },
    Setting {
        key: "rotate_size",
        kind: Kind::Size,
        value_name: "SIZE",
        heading: STORING,
        help: "Begin a new file, _1, _2, …, where one would grow larger",
        default: "",
        example: "1GiB",
        apply: |draft, values| {
            draft.config.store.rotate_bytes = Some(size(values[0], 4096)?);
            Ok(())
        },
    },
    Setting {
        key: "compress",
        kind: Kind::Choice(COMPRESSIONS),
        value_name: "none|gzip|zstd",
        heading: STORING,
        help: "Compress files that have ended; a file that still grows is plain",
        default: "none",
        example: "zstd",
        apply: |draft, values| {
            let all = [Compression::None, Compression::Gzip, Compression::Zstd];
            draft.config.store.compress = choice(values[0], COMPRESSIONS, &all)?;
            Ok(())
        },
    },
    Setting {
        key: "symlink",
        kind: Kind::Text,
        value_name: "PATH",
        heading: STORING,
        help: "Symbolic link that always leads to the newest file",
        default: "",
        example: "/var/lib/events/${tag}.log",
        apply: |draft, values| {
            draft.config.store.symlink = Some(values[0].parse::<Template>().map_err(told)?);
            Ok(())
        },
    },
    Setting {
        key: "open_files",
        kind: Kind::Count(1),
        value_name: "N",
        heading: STORING,
        help: "Files written to at once; the one unused for longest is closed. As many again may be open until their last sync",
        default: "1000",
        example: "200",
        apply: |draft, values| {
            draft.config.store.open_most = count(values[0], 1)?;
            Ok(())
        },
    },
    Setting {
        key: "end_after",
        kind: Kind::Time,
        value_name: "TIME",
        heading: STORING,
        help: "A file without new lines for so long has ended",
        default: "10m",
        example: "1m",
        apply: |draft, values| {
            draft.config.store.idle = time(values[0])?;
            Ok(())
        },
    },
];
