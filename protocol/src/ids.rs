//! Ids. Each kind is its own type, on the wire each is a string. An id below a session contains the session's id, so
//! the session that owns it is found without an index: `<sessionId>:a:<random>`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

/// Why a string is no id of the kind asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdError {
    expected: &'static str,
}

impl fmt::Display for IdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {}", self.expected)
    }
}

impl std::error::Error for IdError {}

macro_rules! string_serde {
    ($name:ident, $expected:literal) => {
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(d)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{self}")
            }
        }
        #[cfg(feature = "schema")]
        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({"type": "string", "description": $expected})
            }
        }
    };
}

/// Only the one canonical spelling (lower case, hyphens) is an id: an id becomes a folder's name, and two spellings of
/// one name would be two sessions.
fn canonical_uuid(text: &str) -> Option<Uuid> {
    let uuid = Uuid::try_parse(text).ok()?;
    let mut buffer = Uuid::encode_buffer();
    (uuid.hyphenated().encode_lower(&mut buffer) == text).then_some(uuid)
}

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Uuid);

        impl $name {
            /// A new id that sorts after the ones made before it.
            #[must_use]
            pub fn generate() -> Self {
                Self(Uuid::now_v7())
            }
            #[must_use]
            pub fn from_uuid(uuid: Uuid) -> Self {
                Self(uuid)
            }
            #[must_use]
            pub fn as_uuid(&self) -> &Uuid {
                &self.0
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.hyphenated().fmt(f)
            }
        }
        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                canonical_uuid(text).map(Self).ok_or(IdError { expected: "a lower-case UUID" })
            }
        }
        string_serde!($name, "a lower-case UUID");
    };
}

uuid_id!(
    /// Names a session. A UUIDv7 when the daemon makes it; any UUID when a client does.
    SessionId
);
uuid_id!(
    /// Names a turn: the id of the prompt that started it. Always given together with its session.
    TurnId
);
uuid_id!(
    /// Names one daemon's state folder; stable over restarts and upgrades.
    DaemonId
);

macro_rules! session_scoped_id {
    ($(#[$doc:meta])* $name:ident, $letter:literal, $expected:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name {
            session: SessionId,
            token: String,
        }

        impl $name {
            /// `token` must be lower-case hexadecimal.
            #[must_use]
            pub fn new(session: SessionId, token: String) -> Self {
                debug_assert!(is_token(&token));
                Self { session, token }
            }
            /// A new id with 128 random bits, so it cannot be guessed.
            #[must_use]
            pub fn generate(session: SessionId) -> Self {
                Self { session, token: Uuid::new_v4().simple().to_string() }
            }
            /// The session that owns the thing named.
            #[must_use]
            pub fn session(&self) -> SessionId {
                self.session
            }
            #[must_use]
            pub fn token(&self) -> &str {
                &self.token
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!("{}:", $letter, ":{}"), self.session, self.token)
            }
        }
        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                let error = IdError { expected: $expected };
                let (session, rest) = text.split_once(':').ok_or(error.clone())?;
                let token = rest.strip_prefix(concat!($letter, ":")).ok_or(error.clone())?;
                if !is_token(token) {
                    return Err(error);
                }
                Ok(Self { session: session.parse().map_err(|_| error)?, token: token.to_owned() })
            }
        }
        string_serde!($name, $expected);
    };
}

fn is_token(token: &str) -> bool {
    (1..=64).contains(&token.len()) && token.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

session_scoped_id!(
    /// Names an approval. Unguessable; stays the same over restarts.
    ApprovalId, "a", "<sessionId>:a:<hex>"
);
session_scoped_id!(
    /// Names one tool call. Made by the daemon; providers' own call ids never leave it.
    CallId, "c", "<sessionId>:c:<hex>"
);
session_scoped_id!(
    /// Names one message of a session.
    MessageId, "m", "<sessionId>:m:<hex>"
);

/// The number of a journaled record: rises within a session, starts at 1, is not contiguous on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Seq(pub u64);

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of an event in the daemon's feed: rises over all sessions, also over restarts, and is not contiguous. It
/// never goes back and fits a double.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct FeedSeq(pub u64);

impl fmt::Display for FeedSeq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The SHA-256 of some content, written `sha256:<64 hex digits>`. A plan's revision is the digest of its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

impl Digest {
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
    /// The 64 hex digits without the prefix.
    #[must_use]
    pub fn hex(&self) -> String {
        self.0.iter().map(|b| format!("{b:02x}")).collect()
    }
    /// Whether `prefix` (at least 12 hex digits, with or without `sha256:`) begins this digest. People type these.
    #[must_use]
    pub fn has_prefix(&self, prefix: &str) -> bool {
        let prefix = prefix.strip_prefix("sha256:").unwrap_or(prefix);
        prefix.len() >= 12 && self.hex().starts_with(prefix)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl FromStr for Digest {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        let error = IdError { expected: "sha256:<64 lower-case hex digits>" };
        let hex = text.strip_prefix("sha256:").ok_or(error.clone())?;
        if hex.len() != 64 || !hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(error);
        }
        let mut bytes = [0u8; 32];
        for (byte, pair) in bytes.iter_mut().zip(hex.as_bytes().chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| error.clone())?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| error.clone())?;
        }
        Ok(Self(bytes))
    }
}

string_serde!(Digest, "sha256:<64 lower-case hex digits>");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_session_ids_are_refused() {
        let upper = SessionId::generate().to_string().to_uppercase();
        let simple = SessionId::generate().as_uuid().simple().to_string();
        let long = "a".repeat(10_000);
        for text in
            ["", "..", "../../x", "/etc/passwd", "a\0b", upper.as_str(), simple.as_str(), long.as_str()]
        {
            assert!(text.parse::<SessionId>().is_err(), "{text:?} was taken");
        }
    }

    #[test]
    fn scoped_ids_round_trip_and_name_their_session() {
        let session = SessionId::generate();
        let id = ApprovalId::generate(session);
        let again: ApprovalId = id.to_string().parse().unwrap();
        assert_eq!(again, id);
        assert_eq!(again.session(), session);
        assert!(id.to_string().parse::<CallId>().is_err(), "an approval id is no call id");
        for bad in [
            ":a:0f",
            "x:a:0f",
            &format!("{session}:a:"),
            &format!("{session}:a:../x"),
            &format!("{session}:a:0F"),
        ] {
            assert!(bad.parse::<ApprovalId>().is_err(), "{bad:?} was taken");
        }
    }

    #[test]
    fn digest_round_trips_and_matches_prefixes() {
        let digest = Digest::from_bytes([0xab; 32]);
        assert_eq!(digest.to_string().parse::<Digest>().unwrap(), digest);
        assert!(digest.has_prefix("abababababab"));
        assert!(digest.has_prefix("sha256:abababababab"));
        assert!(!digest.has_prefix("ababab"), "too short to be safe");
        assert!(!digest.has_prefix("bbababababab"));
    }
}
