//! What the tests from outside stand on: a home of its own for each, the real daemon in it, a scripted model server beside
//! it, and the plainest client. Everything is ended and removed when dropped. A failed expectation panics and shows what
//! was seen until then.

mod chat;
mod home;
mod line;
mod model;
mod world;

pub use chat::{Chat, Verdict};
pub use home::{Home, Project, Tree, tree};
pub use line::{Line, RpcError};
pub use model::{Dialect, Model, Reply, Script, call};
pub use world::{Daemon, Start, World};

use std::time::Duration;

/// How long anything may take before a test fails. Far more than anything takes, on a busy machine too.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A program of this workspace, beside the test's own.
///
/// # Panics
/// It was not built.
#[must_use]
pub fn program(name: &str) -> std::path::PathBuf {
    let own = std::env::current_exe().expect("a running program has a path");
    // target/<profile>/deps/<test>
    let folder =
        own.parent().and_then(|deps| deps.parent()).expect("a test lies two folders below its target folder");
    let path = folder.join(name);
    assert!(path.is_file(), "{} is missing; build it first: cargo build --workspace", path.display());
    path
}

/// Says that a test shows nothing here, and what it would need: past the test runner, which hides what a test that passes
/// has to say.
pub fn skipped(test: &str, why: &str) {
    use std::io::Write as _;
    // Where even this cannot be said, nobody reads it.
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {why}");
}

/// Tries until `ready` gives something, for what no event tells of.
///
/// # Panics
/// It never did.
pub fn eventually<T>(what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
    let begun = std::time::Instant::now();
    loop {
        if let Some(found) = ready() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "still not so: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
