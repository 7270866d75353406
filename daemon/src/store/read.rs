//! Reading the index: rows for lists, how far each session is known, where something was said.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::Path;

use agentd_protocol::Timestamp;
use agentd_protocol::search::{SearchRole, SnippetPart};
use agentd_protocol::session::{Activity, Health, ModelInfo, Row};
use rusqlite::types::Type;
use rusqlite::{named_params, params};
use serde::de::DeserializeOwned;
use uuid::Uuid;

use super::query::{self, MATCH_BEGINS, MATCH_ENDS, Query};
use super::schema::Database;
use crate::ids::{Seq, SessionId};
use crate::journal::Reach;

type Sql<T> = Result<T, rusqlite::Error>;

/// Matches that a search looks at, newest first: a word that stands everywhere must not read all of everything.
const CANDIDATES: u32 = 2_000;

/// Hits of one session, so that it does not hide the others.
const HITS_OF_ONE: usize = 3;

/// Words of a snippet.
const SNIPPET: u32 = 24;

/// Columns of a row, in the order of [`row`].
const ROW: &str = "id, parent, handle, title, cwd, mode, provider, model, reason, created_at, updated_at, outcome, archived, \
     last_prompt, held";

/// Which rows, and in which order.
#[derive(Clone, Copy, Debug)]
pub enum Order<'a> {
    /// By id, from the one after this.
    Created { after: Option<SessionId>, cwd: Option<&'a str> },
    /// Newest change first.
    Updated { cwd: Option<&'a str> },
}

/// A place where something was said.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    pub row: Row,
    pub seq: Seq,
    pub at: Timestamp,
    pub role: SearchRole,
    pub snippet: Vec<SnippetPart>,
}

pub(super) struct Reader {
    database: Database,
    generation: u64,
}

/// A match, before it is known whether it is shown.
struct Candidate {
    key: i64,
    session: i64,
    seq: u64,
    at: i64,
    role: i64,
}

impl Reader {
    pub(super) fn open(path: &Path, generation: u64) -> Sql<Self> {
        Ok(Self { database: Database::open_to_read(path)?, generation })
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    pub(super) fn is_in_place(&self, path: &Path) -> bool {
        self.database.is_in_place(path)
    }

    pub(super) fn rows(
        &self,
        order: &Order<'_>,
        text: Option<&str>,
        visit: &mut dyn FnMut(Row) -> ControlFlow<()>,
    ) -> Sql<()> {
        let (after, cwd, by) = match *order {
            Order::Created { after, cwd } => (after, cwd, "id"),
            Order::Updated { cwd } => (None, cwd, "updated_at DESC, id DESC"),
        };
        let after = after.map(|id| *id.as_uuid()).unwrap_or_default();
        let mut statement = self.database.connection.prepare(&format!(
            "SELECT {ROW} FROM sessions WHERE id > ?1 AND (?2 IS NULL OR cwd = ?2) ORDER BY {by}"
        ))?;
        let mut rows = statement.query(params![after.as_bytes(), cwd])?;
        let text = text.map(str::to_lowercase);
        while let Some(found) = rows.next()? {
            // Most rows do not have the text, and to make a row costs more than to look for it.
            if let Some(text) = &text
                && !has(found, 2, text)?
                && !has(found, 3, text)?
            {
                continue;
            }
            if visit(row(found)?).is_break() {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn children(&self) -> Sql<Vec<(SessionId, SessionId)>> {
        let mut statement =
            self.database.connection.prepare("SELECT id, parent FROM sessions WHERE parent IS NOT NULL")?;
        let id = |bytes: [u8; 16]| SessionId::from_uuid(Uuid::from_bytes(bytes));
        let pairs = statement.query_map([], |found| Ok((id(found.get(0)?), id(found.get(1)?))))?;
        pairs.collect()
    }

    pub(super) fn known(&self, only: Option<SessionId>) -> Sql<HashMap<SessionId, (Row, Reach)>> {
        let only = only.map(|id| *id.as_uuid().as_bytes());
        let mut statement = self.database.connection.prepare(&format!(
            "SELECT {ROW}, bytes, next_seq FROM sessions WHERE {}",
            if only.is_some() { "id = ?1" } else { "?1 IS NULL" }
        ))?;
        let rows = statement.query_map(params![only], |found| {
            let row = row(found)?;
            Ok((row.session_id, (row, Reach { bytes: found.get(15)?, next: Seq(found.get(16)?) })))
        })?;
        rows.collect()
    }

    pub(super) fn search(&self, query: &Query) -> Sql<Vec<Found>> {
        // One view of the index for all that follows.
        let transaction = self.database.connection.unchecked_transaction()?;
        let mut candidates = self.candidates(query)?;
        candidates.sort_by_key(|candidate| std::cmp::Reverse((candidate.at, candidate.key)));
        let mut of_session: HashMap<i64, usize> = HashMap::new();
        candidates.retain(|candidate| {
            let seen = of_session.entry(candidate.session).or_default();
            *seen += 1;
            *seen <= HITS_OF_ONE || query.session.is_some()
        });
        candidates.truncate(query.limit);
        let mut snippets = self.snippets(query, &candidates)?;
        let mut found = Vec::with_capacity(candidates.len());
        for hit in candidates {
            let sql = format!("SELECT {ROW} FROM sessions WHERE key = ?1");
            found.push(Found {
                row: self.database.connection.query_row(&sql, [hit.session], row)?,
                seq: Seq(hit.seq),
                at: Timestamp::from_unix_ms(hit.at),
                role: role(hit.role),
                snippet: query::parts(&snippets.remove(&hit.key).unwrap_or_default()),
            });
        }
        transaction.finish()?;
        Ok(found)
    }

    fn candidates(&self, query: &Query) -> Sql<Vec<Candidate>> {
        // The order of the tables is meant: matches from the newest on, until there are enough.
        let mut statement = self.database.connection.prepare(
            "SELECT words.rowid, texts.session, texts.seq, texts.at, texts.role
             FROM words CROSS JOIN texts ON texts.key = words.rowid CROSS JOIN sessions ON sessions.key = texts.session
             WHERE words MATCH :words AND (:cwd IS NULL OR sessions.cwd = :cwd)
                 AND (:session IS NULL OR sessions.id = :session)
             ORDER BY words.rowid DESC LIMIT :limit",
        )?;
        let session = query.session.map(|id| *id.as_uuid().as_bytes());
        let parameters = named_params! {
            ":words": query.expression, ":cwd": query.cwd, ":session": session, ":limit": CANDIDATES,
        };
        let found = statement.query_map(parameters, |found| {
            Ok(Candidate {
                key: found.get(0)?,
                session: found.get(1)?,
                seq: found.get(2)?,
                at: found.get(3)?,
                role: found.get(4)?,
            })
        })?;
        found.collect()
    }

    /// The text around each hit. In one go: to look a word up is what costs.
    fn snippets(&self, query: &Query, hits: &[Candidate]) -> Sql<HashMap<i64, String>> {
        let keys: Vec<i64> = hits.iter().map(|hit| hit.key).collect();
        let (Some(first), Some(last)) = (keys.iter().min(), keys.iter().max()) else {
            return Ok(HashMap::new());
        };
        let list = keys.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
        // The plus keeps SQLite from looking the words up anew for each number of the list.
        let mut statement = self.database.connection.prepare(&format!(
            "SELECT rowid, snippet(words, 0, :begins, :ends, '…', :size) FROM words
             WHERE words MATCH :words AND rowid BETWEEN :first AND :last AND +rowid IN ({list})"
        ))?;
        let parameters = named_params! {
            ":words": query.expression, ":first": first, ":last": last, ":size": SNIPPET,
            ":begins": MATCH_BEGINS.to_string(), ":ends": MATCH_ENDS.to_string(),
        };
        let found = statement.query_map(parameters, |found| Ok((found.get(0)?, found.get(1)?)))?;
        found.collect()
    }
}

/// A number for each role; those of titles and all others are told apart by the writer too.
pub(super) fn role_number(role: SearchRole) -> i64 {
    match role {
        SearchRole::Title => 0,
        SearchRole::User => 1,
        SearchRole::Assistant => 2,
    }
}

fn role(number: i64) -> SearchRole {
    match number {
        0 => SearchRole::Title,
        1 => SearchRole::User,
        _ => SearchRole::Assistant,
    }
}

fn has(found: &rusqlite::Row<'_>, column: usize, text: &str) -> Sql<bool> {
    let value: Option<&str> = found.get_ref(column)?.as_str_or_null()?;
    Ok(value.is_some_and(|value| value.to_lowercase().contains(text)))
}

/// A session that is not in memory does nothing and waits for nobody, so that is what its row says.
fn row(found: &rusqlite::Row<'_>) -> Sql<Row> {
    let id = |column: usize| -> Sql<Option<SessionId>> {
        let bytes: Option<[u8; 16]> = found.get(column)?;
        Ok(bytes.map(|bytes| SessionId::from_uuid(Uuid::from_bytes(bytes))))
    };
    Ok(Row {
        session_id: id(0)?.ok_or(rusqlite::Error::InvalidQuery)?,
        parent: id(1)?,
        handle: found.get(2)?,
        title: found.get(3)?,
        cwd: found.get(4)?,
        mode: name(found, 5)?,
        model: ModelInfo { provider: found.get(6)?, model: found.get(7)?, reason: found.get(8)? },
        created_at: Timestamp::from_unix_ms(found.get(9)?),
        updated_at: Timestamp::from_unix_ms(found.get(10)?),
        last_outcome: name(found, 11)?,
        activity: Activity::Idle,
        waiting_for: Vec::new(),
        health: Health::Ok,
        archived: found.get(12)?,
        last_prompt: found.get(13)?,
        held_prompts: found.get(14)?,
    })
}

/// A value of the protocol that is kept by its name on the wire.
fn name<T: DeserializeOwned>(found: &rusqlite::Row<'_>, column: usize) -> Sql<Option<T>> {
    let text: Option<String> = found.get(column)?;
    text.map(|text| {
        serde_json::from_value(serde_json::Value::String(text))
            .map_err(|error| rusqlite::Error::FromSqlConversionFailure(column, Type::Text, Box::new(error)))
    })
    .transpose()
}
