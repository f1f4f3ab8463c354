//! `<match>` of type `file`: files and the format of lines.

use events::{LineFormat, Rules};
use segments::{Compression, Template};

use super::{chunks::Chunks, mistakes::Mistakes, section::Section, syntax::Directive, values};
use crate::{Config, tag_pattern::TagPattern};

/// Returns a configuration that stores events like this output.
pub(super) fn read(directive: &Directive, mistakes: &mut Mistakes<'_>) -> Option<Config> {
    let mut section = Section::of(directive, mistakes);
    match section.text("@type") {
        Some("file") => {}
        Some(other) => {
            let way = match other {
                "copy" => "; take the <match> of type file out of its <store>",
                _ => "",
            };
            let why = format!("a <match> of type '{other}' is not supported (supported: file){way}");
            section.add(why);
            return None;
        }
        None => {
            section.add("@type is missing: @type file");
            return None;
        }
    }
    section.common();
    let tags = TagPattern::parse(section.argument());
    let tags = tags.map_err(|why| section.add(why)).ok();
    let chunks = Chunks::read(section.child("buffer"), section.mistakes);
    let append = section.flag("append").unwrap_or(false);
    let suffix = match section.flag("add_path_suffix") {
        Some(false) => {
            section.take("path_suffix");
            ""
        }
        _ => section.text("path_suffix").unwrap_or(".log"),
    };
    let (template, suffix) = path(&mut section, &chunks, suffix, append).unzip();
    let mut store = template.map(segments::Config::new);
    if let Some(store) = &mut store {
        store.suffix = suffix.unwrap_or_default();
        store.append = append;
        store.utc = chunks.utc;
        store.symlink =
            section.read("symlink_path", |text| text.parse::<Template>().map_err(|error| error.to_string()));
    }
    let compress = section.read("compress", |text| match text {
        "text" => Ok(Compression::None),
        "gz" | "gzip" => Ok(Compression::Gzip),
        "zstd" => Ok(Compression::Zstd),
        _ => Err(format!("'{text}' is not supported (supported: text, gzip, zstd)")),
    });
    section
        .without_effect(&["recompress"], "there are no chunks; a file is compressed once, when it has ended");
    section.refuse(
        &["time_slice_format", "time_slice_wait", "utc", "localtime"],
        "it is from Fluentd 0.12; write the placeholders into path, and timekey_use_utc into <buffer>",
    );
    section.refuse(
        &["buffer_type", "buffer_path", "flush_interval"],
        "it is from Fluentd 0.12 and has no effect here: remove it",
    );
    let format = section.child("format");
    let format = format.map_or(Some(LineFormat::OutFile { time: true, tag: true }), |format| {
        line_format(format, section.mistakes)
    });
    section.refuse_child(
        "inject",
        "lines carry the time and the tag before the record: output_time, output_tag",
    );
    if let Some(secondary) = section.child("secondary") {
        section.mistakes.note(
            secondary.at,
            "<secondary> has no effect here: events that cannot be stored are not acknowledged, so there is nothing to store elsewhere",
        );
    }
    section.finish();
    let mut store = store?;
    store.compress = compress.unwrap_or_default();
    Some(Config { rules: Rules::fluentd(), format: format?, tags: Some(tags?), ..Config::new(store) })
}

/// The path template and the suffix that Fluentd derives from `path`.
fn path(
    section: &mut Section<'_, '_, '_>,
    chunks: &Chunks,
    suffix: &str,
    append: bool,
) -> Option<(Template, String)> {
    let Some(parameter) = section.take("path") else {
        section.add("path is missing: it says where the files are stored, such as path logs/${tag}");
        return None;
    };
    let path = parameter.value.as_str();
    let read = whole_path(path, chunks, suffix, append).and_then(|(template, suffix)| {
        let template = template.parse::<Template>().map_err(|error| error.to_string())?;
        Ok((template, suffix))
    });
    read.map_err(|why| section.mistakes.add(parameter.at, format!("path: {why}"))).ok()
}

fn whole_path(path: &str, chunks: &Chunks, suffix: &str, append: bool) -> Result<(String, String), String> {
    chunks.check_placeholders(path)?;
    let time = chunks.time_format();
    if let Some((before, after)) = path.split_once('*') {
        if time.is_empty() {
            return Err("'*' stands for the time, so <buffer> must name the time: <buffer time>".to_owned());
        }
        // Without `append`, the file index comes after the time, so nothing but a suffix may follow.
        let is_end = !after.contains(['/', '%', '$']);
        return match (after.contains('*'), is_end) {
            (false, true) => Ok((format!("{before}{time}"), after.to_owned())),
            (false, false) if append => Ok((format!("{before}{time}{after}"), String::new())),
            _ => Err("'*' may only be followed by the end of a file name".to_owned()),
        };
    }
    let pieces = || time.as_bytes().chunks(2).map(|piece| std::str::from_utf8(piece).unwrap_or_default());
    let missing: Vec<&str> = pieces().filter(|piece| !path.contains(piece)).collect();
    if time.is_empty() || missing.is_empty() {
        Ok((path.to_owned(), suffix.to_owned()))
    } else if missing.len() == time.len() / 2 {
        Ok((format!("{path}.{time}"), suffix.to_owned()))
    } else {
        Err(format!("slices of this timekey need {} too", missing.join(" ")))
    }
}

fn line_format(directive: &Directive, mistakes: &mut Mistakes<'_>) -> Option<LineFormat> {
    let mut section = Section::of(directive, mistakes);
    let kind = section.text("@type").unwrap_or("out_file");
    section.common();
    section.read("newline", |newline| match newline {
        "lf" => Ok(()),
        _ => Err(format!("'{newline}' is not supported (supported: lf)")),
    });
    let format = match kind {
        "out_file" => {
            section.read("delimiter", |delimiter| {
                let upper = delimiter.to_uppercase();
                let is_other = upper.contains("SPACE") || upper.contains("COMMA");
                if is_other {
                    Err(format!("'{delimiter}' is not supported (supported: TAB)"))
                } else {
                    Ok(())
                }
            });
            section.read("time_type", |kind| match kind {
                "string" => Ok(()),
                _ => Err(format!("'{kind}' is not supported (supported: string)")),
            });
            section.refuse(
                &["time_format", "timezone"],
                "the time is ISO 8601 with its offset; set TZ for this process",
            );
            section.refuse(&["utc", "localtime"], "give timekey_use_utc in <buffer>, which applies to both");
            LineFormat::OutFile {
                time: section.flag("output_time").unwrap_or(true),
                tag: section.flag("output_tag").unwrap_or(true),
            }
        }
        "json" => {
            section.refuse(&["add_newline"], "every line ends with a newline");
            LineFormat::Json
        }
        "csv" => {
            section.read("delimiter", |delimiter| match delimiter {
                "," | "COMMA" => Ok(()),
                _ => Err(format!("'{delimiter}' is not supported (supported: ,)")),
            });
            section.without_effect(&["force_quotes"], "fields are quoted where RFC 4180 requires it");
            let fields = section.read("fields", values::list);
            if fields.as_ref().is_none_or(Vec::is_empty) {
                section.add("fields is missing: the members that become columns");
            }
            LineFormat::Csv { fields: fields.unwrap_or_default() }
        }
        other => {
            let why = format!("a format of type '{other}' is not supported (supported: out_file, json, csv)");
            section.add(why);
            return None;
        }
    };
    section.finish();
    Some(format)
}
