//! Property tests: an audit must find exactly the damage done to the files.

use std::path::Path;

use proptest::prelude::*;

use super::*;

/// Damage to the stored line with this index.
#[derive(Debug, Clone)]
enum Damage {
    Remove(usize),
    Double(usize),
    Flip(usize, usize),
    Foreign(usize),
}

fn damages() -> impl Strategy<Value = Vec<Damage>> {
    let one = prop_oneof![
        (0usize..40).prop_map(Damage::Remove),
        (0usize..40).prop_map(Damage::Double),
        (0usize..40, 0usize..150).prop_map(|(line, byte)| Damage::Flip(line, byte)),
        (0usize..40).prop_map(Damage::Foreign),
    ];
    prop::collection::vec(one, 0..8)
}

fn write_damaged(folder: &Path, lines: &[Vec<u8>], damages: &[Damage]) -> [u64; 4] {
    let (mut lost, mut doubled, mut corrupt, mut foreign) = (0, 0, 0, 0);
    let mut out = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        // Applies at most one damage per line, so that the expected counts are unambiguous.
        let damage = damages.iter().find(|damage| match damage {
            Damage::Remove(at) | Damage::Double(at) | Damage::Flip(at, _) | Damage::Foreign(at) => {
                *at == index
            }
        });
        match damage {
            Some(Damage::Remove(_)) => {
                lost += 1;
                continue;
            }
            Some(Damage::Double(_)) => {
                doubled += 1;
                out.extend_from_slice(line);
            }
            Some(Damage::Flip(_, byte)) => {
                (lost, corrupt) = (lost + 1, corrupt + 1);
                let mut line = line.clone();
                let event = 26..line.len() - 1;
                line[event.start + byte % event.len()] ^= 1;
                out.extend(line);
                continue;
            }
            Some(Damage::Foreign(_)) => {
                foreign += 1;
                let other = Numbering::new(REFERENCE_EVENT, RunId(1)).unwrap();
                out.extend(format!("{}\n", event(&other, 0, index as u32)).into_bytes());
            }
            None => {}
        }
        out.extend_from_slice(line);
    }
    fs::write(folder, out).unwrap();
    [lost, doubled, corrupt, foreign]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_damage_is_counted_for_what_it_is(damages in damages(), clients in 1u32..5) {
        let folder = Folder::new();
        let events = 40 / clients;
        receipts(&folder, clients, events, EventOutcome::Written, 1);
        let counts = write_damaged(&folder.0.join("files/x.log"), &stored(clients, events), &damages);
        let result = folder.audit();
        prop_assert_eq!([result.lost, result.duplicated, result.corrupt, result.foreign_events], counts);
        prop_assert_eq!((result.out_of_order, result.never_sent, result.other_lines), (0, 0, 0));
        prop_assert_eq!(result.is_clean(), counts[0] + counts[1] + counts[2] == 0);
    }
}
