//! The program goes to other machines: without the names of its functions it is smaller. Only what is made for a debugger keeps them.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("DEBUG").is_ok_and(|debug| debug == "false") {
        // To the linker itself: Cargo asks it to leave out less, and that would hold.
        println!("cargo::rustc-link-arg-bins=-Wl,--strip-all");
    }
}
