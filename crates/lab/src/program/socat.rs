//! socat as a sink that reads and discards bytes.

use std::io;

use super::{KnownProgram, ProgramContext, Socat, words};
use crate::keys::{Key, KeyType, key_table};

impl KnownProgram for Socat {
    const NAME: &'static str = "socat";
    const PORT: u16 = 5001;
    const KEYS: &'static [Key<Self>] = key_table! {
        /// bytes that it reads at once
        "block", KeyType::Size("64KiB", |socat, n| socat.block = Some(n));
    };

    fn set_up(&self, context: &ProgramContext<'_>) -> io::Result<Vec<String>> {
        let listen = match context.has_ipv6() {
            true => format!("TCP6-LISTEN:{},fork,reuseaddr,ipv6-v6only=0", context.known.port),
            false => format!("TCP4-LISTEN:{},fork,reuseaddr", context.known.port),
        };
        let block = self.block.unwrap_or(8_192).to_string();
        Ok(words(&["socat", "-u", "-b", &block, &listen, "OPEN:/dev/null"]))
    }
}
