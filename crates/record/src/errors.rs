//! Classes of failure, told apart by whose fault they are.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who has to act on a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// This machine ran out of something: the instrument's fault, never the target's.
    Local,
    /// The connection was not made, or broke.
    Network,
    /// The answer is not HTTP as the standards have it.
    Http,
    /// A sound answer that is not the one expected.
    Expectation,
}

macro_rules! error_classes {
    ($($variant:ident $name:literal $origin:ident $meaning:literal,)*) => {
        /// One class of failure. A request is counted in one class only.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "snake_case")]
        #[repr(u8)]
        pub enum ErrorClass { $(#[doc = $meaning] $variant,)* }

        impl ErrorClass {
            /// Every class, in the order they are shown.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The class's name in results.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Who has to act.
            pub fn origin(self) -> Origin {
                match self { $(Self::$variant => Origin::$origin,)* }
            }

            /// What happened, in words.
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning,)* }
            }
        }
    };
}

error_classes! {
    Descriptors "descriptors" Local "no file descriptor left (EMFILE, ENFILE)",
    Ports "ports" Local "no local port left towards the target (EADDRNOTAVAIL)",
    Buffers "buffers" Local "no kernel memory left for sockets (ENOBUFS, ENOMEM)",
    LocalOther "local_other" Local "this machine refused the system call",
    ConnectRefused "connect_refused" Network "connection refused",
    ConnectTimeout "connect_timeout" Network "no connection within the timeout",
    ConnectReset "connect_reset" Network "connection reset while it was being made",
    Unreachable "unreachable" Network "no route to the target",
    Reset "reset" Network "connection reset by the target",
    ClosedEarly "closed_early" Network "connection closed before the first byte of the answer",
    ClosedUnused "closed_unused" Network "connection of the pool closed by the target before it carried a request",
    Truncated "truncated" Network "connection closed inside the answer",
    Timeout "timeout" Network "no whole answer within the timeout",
    Malformed "malformed" Http "answer head that is not HTTP/1.1",
    Framing "framing" Http "lengths or chunks of the answer that contradict the standard",
    TooLarge "too_large" Http "answer head or chunk line beyond the limit",
    Unsolicited "unsolicited" Http "bytes that answer no request",
    Status "status" Expectation "status other than the expected",
}

impl fmt::Display for ErrorClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How many failures of each class.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct ErrorCounts {
    by_class: std::collections::BTreeMap<ErrorClass, u64>,
}

impl ErrorCounts {
    /// Counts `n` more failures of a class.
    pub fn add(&mut self, class: ErrorClass, n: u64) {
        if n > 0 {
            *self.by_class.entry(class).or_default() += n;
        }
    }

    /// Failures of one class.
    pub fn of(&self, class: ErrorClass) -> u64 {
        self.by_class.get(&class).copied().unwrap_or(0)
    }

    /// Failures of one origin.
    pub fn from(&self, origin: Origin) -> u64 {
        self.iter().filter(|(class, _)| class.origin() == origin).map(|(_, n)| n).sum()
    }

    /// Connections that the target or the network did not let come about, those included that the target took back
    /// before they carried anything.
    pub fn connect_failures(&self) -> u64 {
        use ErrorClass::{ClosedUnused, ConnectRefused, ConnectReset, ConnectTimeout, Unreachable};
        let classes = [ConnectRefused, ConnectTimeout, ConnectReset, Unreachable, ClosedUnused];
        classes.into_iter().map(|class| self.of(class)).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_class.values().all(|&n| n == 0)
    }

    /// All failures.
    pub fn total(&self) -> u64 {
        self.by_class.values().sum()
    }

    /// The classes that occurred, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (ErrorClass, u64)> + '_ {
        self.by_class.iter().map(|(&class, &n)| (class, n))
    }

    /// Adds another count to this one.
    pub fn merge(&mut self, other: &Self) {
        for (class, n) in other.iter() {
            self.add(class, n);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_results_are_the_names_shown() {
        for &class in ErrorClass::ALL {
            assert_eq!(serde_json::to_value(class).unwrap(), class.name());
        }
    }

    #[test]
    fn counts_merge_by_class() {
        let mut a = ErrorCounts::default();
        a.add(ErrorClass::Reset, 2);
        let mut b = ErrorCounts::default();
        b.add(ErrorClass::Reset, 3);
        b.add(ErrorClass::Descriptors, 1);
        a.merge(&b);
        assert_eq!((a.of(ErrorClass::Reset), a.from(Origin::Local), a.total()), (5, 1, 6));
    }
}
