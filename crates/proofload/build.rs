//! Strips the symbol names, because the program is copied to other machines and is smaller without them. Only debug
//! builds keep them.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("DEBUG").is_ok_and(|debug| debug == "false") {
        // Passed directly to the linker, because Cargo would pass a weaker option that takes precedence.
        println!("cargo::rustc-link-arg-bins=-Wl,--strip-all");
    }
}
