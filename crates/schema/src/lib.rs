//! JSON schemas of what proofload writes. Tests publish them in docs/schema; the program never makes one, and a fifth of what it would
//! compile of its records is their code. So crates depend on this one under the name `schemars`: with the feature `published` it is
//! that library, and without it the derive macro adds nothing.

#[cfg(feature = "published")]
pub use json_schemas::*;

#[cfg(not(feature = "published"))]
pub use schema_derive::JsonSchema;

/// The schema of a type whose serialization is written by hand: `by_hand!(Type, |generator| schema)`.
#[cfg(feature = "published")]
#[macro_export]
macro_rules! by_hand {
    ($of:ident, |$generator:pat_param| $schema:expr) => {
        impl $crate::JsonSchema for $of {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($of).into()
            }

            fn json_schema($generator: &mut $crate::SchemaGenerator) -> $crate::Schema {
                $schema
            }
        }
    };
}

/// Nothing, as without schemas no type has one.
#[cfg(not(feature = "published"))]
#[macro_export]
macro_rules! by_hand {
    ($of:ident, |$generator:pat_param| $schema:expr) => {};
}
