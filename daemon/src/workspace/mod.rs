//! The only code that touches a project's files.
//!
//! A path is resolved once into a [`Located`]: the folder is held open, its true name is what gets judged, and every
//! later read or write goes through that handle. Nothing that is renamed or linked between the judgement and the work
//! can lead the work elsewhere. `/proc`, `/sys` and `/dev` are refused to everybody. All of it blocks and is bounded;
//! callers run it off the runtime's threads.

mod diff;
mod entry;
mod error;
mod facts;
mod file;
mod folder;
pub mod hunks;
mod ignored;
mod links;
mod locate;
mod programs;
mod project;
pub mod snapshot;
#[cfg(test)]
mod tests;
mod walk;

pub use diff::{Diff, DiffLimit, unified};
pub use entry::{Entry, Seen, locate_below, remove_empty_folders};
pub use error::{Kind, PathError};
pub use file::{Expected, FileContent, Replaced, private_folder};
pub use folder::{Cut, Folder, FolderEntry};
pub use links::links_among;
pub use locate::{Base, Located, locate, locate_entry};
pub use programs::is_foreign_program;
pub use project::{
    PROJECT_SETTINGS, ProjectFacts, fill_if_empty, is_still_there, is_there, locate_project_settings,
    project_facts, project_folder, project_root, project_settings,
};
pub use walk::{Depth, Found, Walk, WalkEnd, walk};

/// The largest file that is read or written whole. Larger ones are for commands that stream.
pub const MAX_FILE: u64 = 32 << 20;

/// How temporary files are named, so that one left behind by a crash is recognised and never listed.
const TEMP_PREFIX: &str = ".agentd-";
const TEMP_SUFFIX: &str = ".tmp";

fn is_temp_name(name: &[u8]) -> bool {
    name.starts_with(TEMP_PREFIX.as_bytes()) && name.ends_with(TEMP_SUFFIX.as_bytes())
}
