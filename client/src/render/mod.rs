//! Drawing: pure functions from wire types to styled lines.

pub(crate) mod approval;
pub(crate) mod diff;
pub(crate) mod line;
pub(crate) mod list;
pub(crate) mod markdown;
pub(crate) mod style;
pub(crate) mod wrap;

pub(crate) use style::{Ink, Line, Style};
