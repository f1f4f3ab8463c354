//! The type and the macro of the table of a workload's options.

use std::{ops::Deref, path::Path};

use settings::options::OptionSpec;

use super::HttpWorkload;

/// An entry in the table of a workload's options.
#[derive(Debug)]
pub struct HttpOption {
    /// Key, help, kind and default, as for the options of every command.
    pub spec: OptionSpec<HttpWorkload>,
    /// Whether its value may be `@FILE`.
    pub names_files: bool,
    /// Whether its value is the path of a file, perhaps with words after a comma.
    pub is_file: bool,
    /// Whether its value is a text of the request, in which `${NAME}` is a variable and `{{…}}` a template.
    pub is_text: bool,
    /// Whether the commands that search for the largest load lack this option.
    pub excluded_from_search: bool,
    /// Its name in a workload's description; empty if the description lacks it, or describes it differently.
    pub label: &'static str,
    /// The values as the user wrote them: none if the option is not given, several for a list.
    pub written: fn(&HttpWorkload) -> Vec<String>,
}

impl HttpOption {
    /// Returns a value with its path, if it has one, relative to `folder`: `@FILE`, a file, and `file:FILE` of a
    /// distribution.
    pub fn in_folder(&self, value: &str, folder: &Path) -> String {
        let place = |path: &str| folder.join(path).display().to_string();
        match (value.strip_prefix('@'), value.strip_prefix("file:")) {
            (Some(path), _) if self.names_files && path != "-" => format!("@{}", place(path)),
            (_, Some(path)) if self.spec.value_name == "DIST" => format!("file:{}", place(path)),
            _ if self.is_file => place(value),
            _ => value.to_owned(),
        }
    }

    /// The defaults of all fields.
    pub(super) const PLAIN: Self = Self {
        spec: OptionSpec::EMPTY,
        names_files: false,
        is_file: false,
        is_text: false,
        excluded_from_search: false,
        label: "",
        written: |_| Vec::new(),
    };
}

/// The type of a field of [`HttpWorkload`].
pub(super) trait Field {
    /// Sets the field to the values that the user wrote.
    fn set(&mut self, values: &[&str]);
    /// The values as the user wrote them.
    fn written(&self) -> Vec<String>;
}

impl<T: for<'a> From<&'a str> + Deref<Target = str>> Field for Option<T> {
    fn set(&mut self, values: &[&str]) {
        *self = values.first().map(|&value| value.into());
    }

    fn written(&self) -> Vec<String> {
        self.iter().map(|value| (**value).to_owned()).collect()
    }
}

impl<T: for<'a> From<&'a str> + Deref<Target = str>> Field for Vec<T> {
    fn set(&mut self, values: &[&str]) {
        *self = values.iter().map(|&value| value.into()).collect();
    }

    fn written(&self) -> Vec<String> {
        self.iter().map(|value| (**value).to_owned()).collect()
    }
}

impl Field for bool {
    /// A flag is only set if it differs from its default.
    fn set(&mut self, _: &[&str]) {
        *self = true;
    }

    fn written(&self) -> Vec<String> {
        self.then(|| self.to_string()).into_iter().collect()
    }
}

/// Defines [`HttpWorkload`] and [`OPTIONS`] from one list. Each entry has its help, its field, the fields of [`Setting`],
/// and those of [`HttpOption`].
macro_rules! workload {
    ($(
        $(#[doc = $help:literal])+
        $field:ident: $type:ty = $key:literal, $kind:expr, $value:literal, $heading:expr, $default:literal, $example:literal
            $({ $($plus:tt)+ })? $(and { $($more:tt)+ })?;
    )+) => {
        /// An HTTP workload, as the user wrote it. [`OPTIONS`] has the defaults of missing fields.
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        pub struct HttpWorkload {
            /// The URL of the requests: `http://127.0.0.1:8080/path`, or one with `https`; without a scheme it is `http`.
            pub url: String,
            $($(#[doc = $help])+ pub $field: $type,)+
            /// The steps of each iteration; without any, the one request of the other fields.
            pub steps: Vec<$crate::workload::StepText>,
            /// The body, if it is not valid text; takes precedence over `body`.
            pub raw_body: Option<Vec<u8>>,
            /// Seed of all random numbers.
            pub seed: u64,
            /// Run even though the plan does not fit this machine.
            pub force: bool,
            /// A deliberate fault of the instrument, for its self-test.
            pub fault: Option<String>,
        }

        /// The options of a workload, in the order of the help.
        pub static OPTIONS: &[HttpOption] = &[$(HttpOption {
            spec: settings::option_spec!([$($help),+], $key, $kind, $value, $heading, $default, $example, |workload, values| {
                workload.$field.set(values)
            } $(, { $($plus)+ })?),
            written: |workload| workload.$field.written(),
            $($($more)+,)?
            ..HttpOption::PLAIN
        }),+];
    };
}

pub(super) use workload;
