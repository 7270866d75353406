//! The gate: may this call run? Pure; the only code that decides.
//!
//! [`judge`] maps what a call would do, the session's mode, the user's rules and places to a [`Verdict`] with a stable
//! reason code. It reads no file and keeps no state, so it is tested as tables, and it can be asked again at any moment.
//! Text by a model, a tool, a page or an agent never reaches it as consent.

mod breaker;
mod critical;
pub mod effect;
mod gate;
mod offer;
mod places;
mod protected;
mod reason;
pub mod rules;
pub mod shell;
mod shell_text;

#[cfg(test)]
mod table;

pub use breaker::Breaker;
pub use gate::{Answer, PlanShell, Query, Ruling, Sandbox, Verdict, judge, judge_again_after_answer};
pub use offer::{Offer, offer};
pub use places::Places;
pub use reason::Reason;
pub use rules::{Anchors, Grant, Layer, List, RuleText, Rules};
