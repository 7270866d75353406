//! Command lines as the gate sees them: taken apart into what rules are matched against.

mod line;
mod parse;
mod pattern;
mod readonly;
#[cfg(test)]
mod tests;
mod word;
mod wrapped;

pub use line::{Direction, Doubt, Line, Part, Proof, Redirect, Word};
pub use parse::analyse;
pub use pattern::{CommandPattern, escape};
