//! `proofload listen`.

use std::io;

use super::{KnownProgram, Listen, ProgramContext};
use crate::keys::{Key, KeyType, key_table};

impl KnownProgram for Listen {
    const NAME: &'static str = "listen";
    const PORT: u16 = 9880;
    const KEYS: &'static [Key<Self>] = key_table! {
        /// length of the queue of connections not yet accepted
        "backlog", KeyType::Whole(1..1 << 31, 4096, |listener, n| listener.backlog = Some(n as u32));
    };

    fn set_up(&self, context: &ProgramContext<'_>) -> io::Result<Vec<String>> {
        let mut command = context.own_command(Self::NAME);
        // With each of these options, the user already chooses the path of the files.
        let sets_path = |arg: &String| {
            ["--path", "--import", "--config"].iter().any(|option| {
                arg.strip_prefix(option).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
            })
        };
        if !context.known.args.iter().any(sets_path) {
            let path = context.store()?.join("${tag}.%Y-%m-%d.log");
            command.extend(["--path".to_owned(), path.display().to_string()]);
        }
        if let Some(backlog) = self.backlog {
            command.extend(["--backlog".to_owned(), backlog.to_string()]);
        }
        Ok(command)
    }
}
