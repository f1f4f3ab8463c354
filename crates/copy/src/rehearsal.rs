//! What a copy would refuse because of what is at the destination, told without copying.

use std::rc::Rc;

use sftp::FileType;
use tokio::task::spawn_local;

use crate::{
    Report,
    carrier::{Carrier, Direction},
    channel::Channel,
    file::{FileCopy, Item, Kind},
    folders::Missing,
    remote::NAME_IS_TAKEN,
    report::FileReport,
    tree::ASKED_AT_ONCE,
    trouble::{Result, Trouble},
};

/// Looks where folders and files would come to, and reports each file.
///
/// # Errors
/// When the connection is lost.
pub(crate) async fn rehearse(
    carrier: &Rc<Carrier>,
    channel: &Rc<Channel>,
    (folders, files): (&[Item], &[Item]),
    report: &mut Report,
) -> Result {
    let mut missing = Missing::default();
    for (folder, why) in folders.iter().zip(refusals(carrier, channel, folders).await?) {
        let Some(why) = why else { continue };
        if !missing.is_above(folder) {
            report.notes.push(folder.not_made(&why));
        }
        missing.add(folder);
    }
    for (number, (item, why)) in files.iter().zip(refusals(carrier, channel, files).await?).enumerate() {
        let file = FileCopy::new(number as u64, item.clone());
        report.files.push(match why {
            _ if missing.is_above(item) => FileReport::homeless(item),
            Some(why) => FileReport::failed(&file, why),
            None => FileReport::of(&file),
        });
    }
    Ok(())
}

/// Why each of these could not come to its target; many are asked for at once.
async fn refusals(
    carrier: &Rc<Carrier>,
    channel: &Rc<Channel>,
    items: &[Item],
) -> Result<Vec<Option<String>>> {
    let mut all = Vec::with_capacity(items.len());
    for some in items.chunks(ASKED_AT_ONCE) {
        let ask = |item: &Item| {
            let (carrier, channel, item) = (Rc::clone(carrier), Rc::clone(channel), item.clone());
            spawn_local(async move { refusal(&carrier, &channel, &item).await })
        };
        let asked: Vec<_> = some.iter().map(ask).collect();
        for asked in asked {
            all.push(asked.await.map_err(|error| Trouble::Lost(error.to_string()))??);
        }
    }
    Ok(all)
}

async fn refusal(carrier: &Carrier, channel: &Channel, item: &Item) -> Result<Option<String>> {
    let found = match carrier.manner.direction {
        Direction::Down => carrier.held.found(item),
        Direction::Up => {
            let known = channel.begin(&item.look())?.known().await;
            Trouble::unless_lost(known)?.ok().flatten().and_then(|known| known.file_type())
        }
    };
    Ok(match (&item.kind, found) {
        (_, None) | (Kind::Folder, Some(FileType::Directory)) => None,
        (Kind::Folder, Some(_)) => Some(NAME_IS_TAKEN.to_owned()),
        (_, Some(FileType::Regular | FileType::Symlink)) => None,
        _ => Some(Trouble::not_regular(&item.target).to_string()),
    })
}
