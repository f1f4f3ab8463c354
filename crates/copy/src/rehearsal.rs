//! Reports, without copying, which files a copy would refuse because of existing files at the destination.

use std::rc::Rc;

use sftp::FileType;

use crate::{
    Report,
    carrier::Carrier,
    channel::Channel,
    error::{Error, Result},
    file::FileCopy,
    folders::Missing,
    item::{Item, Kind},
    options::Direction,
    remote::{ASKED_AT_ONCE, NAME_IS_TAKEN},
    report::FileReport,
};

/// Checks the targets of folders and then of files. Reports each file.
///
/// # Errors
/// If the connection is lost.
pub(crate) async fn rehearse(
    carrier: &Carrier,
    channel: &Rc<Channel>,
    (folders, files): (&[Item], &[Item]),
    report: &mut Report,
) -> Result {
    let mut missing = Missing::default();
    let all: Vec<&Item> = folders.iter().chain(files).collect();
    for some in all.chunks(ASKED_AT_ONCE) {
        let is_up = carrier.options.direction == Direction::Up;
        let ask = |item: &&Item| is_up.then(|| channel.begin(&item.look())).transpose();
        let asked = some.iter().map(ask).collect::<Result<Vec<_>>>()?;
        for (item, asked) in some.iter().zip(asked) {
            let found = match asked {
                None => carrier.held.found(item),
                Some(asked) => {
                    let known = Error::unless_lost(asked.known().await)?.ok().flatten();
                    known.and_then(|known| known.file_type())
                }
            };
            let is_homeless = missing.is_above(item);
            let file = FileCopy::new(0, (*item).clone());
            match (&item.kind, found) {
                (Kind::Folder, Some(FileType::Directory) | None) => {}
                (Kind::Folder, _) => {
                    missing.add(item);
                    report.notes.extend((!is_homeless).then(|| item.not_made(NAME_IS_TAKEN)));
                }
                _ if is_homeless => report.files.push(FileReport::homeless(item)),
                (_, Some(FileType::Regular | FileType::Symlink) | None) => {
                    report.files.push(FileReport::of(&file));
                }
                _ => {
                    let why = Error::not_regular(&item.target).to_string();
                    report.files.push(FileReport::failed(&file, why));
                }
            }
        }
    }
    Ok(())
}
