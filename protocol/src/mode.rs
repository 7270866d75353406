//! The modes of a session.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How much a session may do without asking. The table "Modes" in README.md says what each mode means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum Mode {
    /// Reads freely, asks before changes.
    Default,
    /// Edits in the workspace without asking.
    AcceptEdits,
    /// Changes nothing but the session's own plan file.
    Plan,
    /// A classifier answers instead of a person, until its breaker opens.
    Auto,
    /// Refuses whatever would ask.
    DontAsk,
    /// Asks almost nothing. Only if the user enabled it when the daemon started.
    BypassPermissions,
}

impl Mode {
    pub const ALL: [Mode; 6] =
        [Mode::Default, Mode::AcceptEdits, Mode::Plan, Mode::Auto, Mode::DontAsk, Mode::BypassPermissions];

    /// The wire name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Mode::Default => "default",
            Mode::AcceptEdits => "acceptEdits",
            Mode::Plan => "plan",
            Mode::Auto => "auto",
            Mode::DontAsk => "dontAsk",
            Mode::BypassPermissions => "bypassPermissions",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Not the name of a mode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownMode(pub String);

impl fmt::Display for UnknownMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Mode::ALL.map(Mode::name).join(", ");
        write!(f, "unknown mode {:?}; the modes are {names}", self.0)
    }
}

impl std::error::Error for UnknownMode {}

impl FromStr for Mode {
    type Err = UnknownMode;
    /// Takes the wire names, and the spellings that people type: `accept-edits`, `accept_edits`, any case.
    fn from_str(text: &str) -> Result<Self, UnknownMode> {
        let plain: String = text.chars().filter(|c| !matches!(c, '-' | '_')).collect();
        Mode::ALL
            .into_iter()
            .find(|mode| mode.name().eq_ignore_ascii_case(&plain))
            .ok_or_else(|| UnknownMode(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_agree_with_the_wire() {
        for mode in Mode::ALL {
            assert_eq!(serde_json::to_value(mode).unwrap(), mode.name());
            assert_eq!(mode.name().parse::<Mode>().unwrap(), mode);
        }
        assert_eq!("accept-edits".parse::<Mode>().unwrap(), Mode::AcceptEdits);
        let unknown = "yolo".parse::<Mode>().unwrap_err().to_string();
        assert!(unknown.contains("acceptEdits") && unknown.contains("auto"), "{unknown}");
    }
}
