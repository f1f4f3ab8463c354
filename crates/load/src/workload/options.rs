//! What the table of a workload's options is made of.

use settings::options::OptionSpec;

use super::HttpWorkload;

/// An option of a workload, as it stands in the table of all.
#[derive(Debug)]
pub struct HttpOption {
    /// What every option has.
    pub spec: OptionSpec<HttpWorkload>,
    /// Whether its text may be `@FILE`.
    pub names_files: bool,
    /// Whether a search for the largest load says it otherwise.
    pub is_of_one_trial: bool,
    /// What it is called in the words of a workload; empty if it is not said there, or in a way of its own.
    pub label: &'static str,
    /// What was written, if anything was.
    pub written: fn(&HttpWorkload) -> Option<String>,
}

impl HttpOption {
    /// Of which nothing has been said.
    pub(super) const PLAIN: Self = Self {
        spec: OptionSpec::EMPTY,
        names_files: false,
        is_of_one_trial: false,
        label: "",
        written: |_| None,
    };
}

/// A workload's field, which takes values as they were written.
pub(super) trait Field {
    fn put(&mut self, values: &[&str]);
    fn written(&self) -> Option<String>;
}

impl Field for Option<String> {
    fn put(&mut self, values: &[&str]) {
        *self = values.first().map(|&value| value.to_owned());
    }

    fn written(&self) -> Option<String> {
        self.clone()
    }
}

impl Field for Vec<String> {
    fn put(&mut self, values: &[&str]) {
        *self = values.iter().map(|&value| value.to_owned()).collect();
    }

    fn written(&self) -> Option<String> {
        (!self.is_empty()).then(|| self.join(" "))
    }
}

impl Field for bool {
    /// Flags are only put where they are not as they are by default.
    fn put(&mut self, _: &[&str]) {
        *self = true;
    }

    fn written(&self) -> Option<String> {
        None
    }
}

/// Makes the workload and the table of its options of one list. Of each: its help, the field, what [`OptionSpec`] says of it,
/// and what [`HttpOption`] says besides.
macro_rules! workload {
    ($(
        $(#[doc = $help:literal])+
        $field:ident: $type:ty = $key:literal, $kind:expr, $value:literal, $heading:expr, $default:literal, $example:literal
            $({ $($plus:tt)+ })? $(and { $($more:tt)+ })?;
    )+) => {
        /// An HTTP workload, as written. What holds for fields that are none, [`OPTIONS`] says.
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        pub struct HttpWorkload {
            /// What requests are sent to: `http://127.0.0.1:8080/path`; the scheme may be left out.
            pub url: String,
            $($(#[doc = $help])+ pub $field: $type,)+
            /// Seed of everything random.
            pub seed: u64,
            /// Run even though the plan does not fit this machine.
            pub force: bool,
            /// A deliberate fault in the instrument.
            pub fault: Option<String>,
        }

        /// The options of a workload, in the order of the help.
        pub static OPTIONS: &[HttpOption] = &[$(HttpOption {
            spec: settings::option_spec!([$($help),+], $key, $kind, $value, $heading, $default, $example, |workload, values| {
                workload.$field.put(values)
            } $(, { $($plus)+ })?),
            written: |workload| workload.$field.written(),
            $($($more)+,)?
            ..HttpOption::PLAIN
        }),+];
    };
}

pub(super) use workload;
