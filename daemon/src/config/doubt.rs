//! Mistakes of the settings file that may concern the model. A slip must not send somebody's code to another provider than
//! the one they chose, so what is in doubt is not guessed.

/// What of the choice of a model a mistake puts in doubt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Concern {
    /// Every provider: the file, or all its provider sections, cannot be read.
    All,
    /// Which model is meant, unless one is named.
    Model,
    /// How this provider is reached.
    Provider(String),
}

/// One such mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubt {
    pub about: Concern,
    /// File, line, and what is wrong.
    pub why: String,
}

/// The first mistake that matters for a model of `provider`, or, with no provider named, for choosing one.
#[must_use]
pub fn doubt_about<'a>(doubts: &'a [Doubt], provider: Option<&str>) -> Option<&'a Doubt> {
    doubts.iter().find(|doubt| match (&doubt.about, provider) {
        (Concern::All, _) | (_, None) => true,
        (Concern::Model, Some(_)) => false,
        (Concern::Provider(name), Some(provider)) => name == provider,
    })
}
