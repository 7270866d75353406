//! Keys of model providers: where they lie, who may read those places, and in which order they are looked at. A key is
//! only ever held as a [`SecretString`], which neither prints nor serialises.

mod store;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::path::PathBuf;

use secrecy::SecretString;

use crate::config::ProviderSettings;
use crate::paths::PathsError;

pub use store::{KeyStore, Listed};

/// The longest key that is taken.
const MAX_KEY: usize = 16 << 10;

/// A provider whose key is sought.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    pub provider: &'a str,
    pub settings: Option<&'a ProviderSettings>,
    /// The variable that the provider's preset reads, unless the settings name another.
    pub preset_env: Option<&'a str>,
}

/// What was found for a provider.
#[derive(Clone, Debug)]
pub enum Found {
    Key {
        secret: SecretString,
        source: Source,
    },
    /// The settings name a command that prints the key. Its output goes through [`parse_key`].
    Command(String),
}

impl Found {
    /// Where it comes from, for people.
    #[must_use]
    pub fn source(&self) -> Source {
        match self {
            Found::Key { source, .. } => source.clone(),
            Found::Command(_) => Source::Command,
        }
    }
}

/// Where a key comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// `api_key_file` of the settings.
    SettingsFile(PathBuf),
    /// `api_key_command` of the settings. The command is not shown: some carry a key.
    Command,
    /// Stored by `agentctl key add`.
    Stored(PathBuf),
    /// Handed over by the service manager.
    Credential(PathBuf),
    /// A variable of the daemon's environment.
    Variable(String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::SettingsFile(path) | Source::Stored(path) | Source::Credential(path) => {
                path.display().fmt(f)
            }
            Source::Command => f.write_str("api_key_command"),
            Source::Variable(name) => write!(f, "${name}"),
        }
    }
}

/// Why a key cannot be had or kept.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("{0:?} is no name of a provider: 1 to 64 of a-z, 0-9, - and _")]
    BadName(String),
    #[error("the key from {from} is not usable: {problem}")]
    BadKey { from: String, problem: BadKey },
    #[error("others can read {path}; close it: chmod 600 {path}", path = .0.display())]
    ReadableByOthers(PathBuf),
    #[error("{} belongs to user {owner}, not to user {uid} who runs agentd", .path.display())]
    ForeignOwner { path: PathBuf, owner: u32, uid: u32 },
    #[error(transparent)]
    Folder(#[from] PathsError),
    #[error("cannot {action} {}", .path.display())]
    Io {
        /// In words, with the verb first.
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
}

/// What is wrong with a key. Says nothing of its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadKey {
    #[error("it is empty")]
    Empty,
    #[error("it has more than one line")]
    SeveralLines,
    #[error("it has control characters")]
    Control,
    #[error("it has characters that no key has, such as blanks or quotation marks from a text editor")]
    Strange,
    #[error("it is over 16 KiB")]
    TooLong,
}

/// Takes a key as a person, a file or a command gives it: blanks around it are dropped.
///
/// # Errors
/// It cannot be a key: it would not fit a header, or is more than one line.
pub fn parse_key(text: &str) -> Result<SecretString, BadKey> {
    let key = text.trim();
    if key.is_empty() {
        Err(BadKey::Empty)
    } else if key.len() > MAX_KEY {
        Err(BadKey::TooLong)
    } else if key.contains(['\n', '\r']) {
        Err(BadKey::SeveralLines)
    } else if key.chars().any(char::is_control) {
        Err(BadKey::Control)
    } else if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        Err(BadKey::Strange)
    } else {
        Ok(SecretString::from(key))
    }
}
