//! Command lines as the gate sees them: taken apart into what rules are matched against.

mod line;

pub use line::{Direction, Doubt, Line, Operand, Part, Proof, Redirect, Word};
