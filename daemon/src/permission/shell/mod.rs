//! Command lines as the gate sees them: taken apart into what rules are matched against.

mod cwd;
mod git;
mod line;
mod meaning;
mod parse;
mod part;
mod pattern;
mod readonly;
mod strict;
#[cfg(test)]
mod tests;
mod word;
mod wrapped;

pub use line::{Among, Direction, Doubt, Line, Part, Proof, Redirect, Word};
pub use parse::analyse;
pub use pattern::{CommandPattern, escape};
