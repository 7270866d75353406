//! Where the C library of this machine can load them (glibc 2.36), addresses that the loader fills in are packed: the program
//! is a twentieth smaller, on the disk and in memory. Elsewhere it is linked as usual.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // What is built for another machine says nothing about its C library.
    let here = std::env::var("HOST").ok() == std::env::var("TARGET").ok();
    let gnu = std::env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|env| env == "gnu");
    if here && gnu && glibc().is_some_and(|version| version >= (2, 36)) {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// The version of this machine's C library, if it is glibc and says so.
fn glibc() -> Option<(u32, u32)> {
    let said = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?;
    let said = String::from_utf8(said.stdout).ok()?;
    let (major, minor) = said.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
