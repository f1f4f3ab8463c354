//! Enums with a text for each variant.

/// Declares an enum, the list `ALL` of its variants, and a method that gives the text of each, such as `name`.
#[macro_export]
macro_rules! named_enum {
    (
        $(#[$about:meta])*
        pub enum $type:ident {
            $($(#[$of:meta])* $variant:ident $text:literal,)+
        }
        $(#[$method_about:meta])*
        pub fn $method:ident;
    ) => {
        $(#[$about])*
        pub enum $type { $($(#[$of])* $variant,)+ }

        impl $type {
            /// All variants, in the order of their declaration.
            pub const ALL: [Self; [$($text),+].len()] = [$(Self::$variant),+];

            $(#[$method_about])*
            pub fn $method(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }
    };
}
