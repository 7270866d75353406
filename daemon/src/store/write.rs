//! Changing the index: an update is taken only if it begins exactly where the index stands.

use agentd_protocol::search::SearchRole;
use agentd_protocol::session::Row;
use rusqlite::{OptionalExtension as _, Transaction, params};
use serde::Serialize;

use super::ledger::Repair;
use super::read::role_number;
use super::{Text, Update};
use crate::ids::{Seq, SessionId};
use crate::journal::Reach;

type Sql<T> = Result<T, rusqlite::Error>;

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// It is in the index, or was there already.
    Yes,
    /// It does not fit what the index knows.
    Needs(Repair),
}

/// The row that a session has in the index, by its key there.
struct Known {
    key: i64,
    mark: Reach,
}

/// Takes an update. One that was read from a file may have been overtaken by the session itself; that is no damage.
pub(super) fn update(db: &Transaction<'_>, update: &Update, from_file: bool) -> Sql<Taken> {
    let id = update.row.session_id;
    let known = known(db, id)?;
    let known = match known {
        // A session begins; one of the same id that was deleted before it is not this one.
        Some(known) if update.from == 0 => {
            if from_file && known.mark.bytes > 0 {
                return Ok(Taken::Needs(Repair::Tail));
            }
            remove(db, known.key)?;
            None
        }
        None if update.from > 0 => return Ok(Taken::Needs(Repair::Tail)),
        Some(known) if known.mark.bytes == update.from => Some(known),
        Some(known) if known.mark.bytes < update.from || from_file => {
            return Ok(Taken::Needs(Repair::Tail));
        }
        // It was read from the file before it was told.
        Some(known) if known.mark.bytes > update.to.bytes || known.mark == update.to => {
            return Ok(Taken::Yes);
        }
        Some(_) => return Ok(Taken::Needs(Repair::Whole)),
        None => None,
    };
    let key = match known {
        Some(known) => known.key,
        None => insert(db, &update.row)?,
    };
    change(db, key, &update.row, update.to)?;
    for text in &update.texts {
        add_text(db, key, text)?;
    }
    Ok(Taken::Yes)
}

/// A session's journal was opened and ends at `mark`.
pub(super) fn opened(db: &Transaction<'_>, id: SessionId, mark: Reach) -> Sql<Taken> {
    Ok(match known(db, id)? {
        Some(known) if known.mark == mark => Taken::Yes,
        Some(known) if known.mark.bytes < mark.bytes => Taken::Needs(Repair::Tail),
        Some(_) => Taken::Needs(Repair::Whole),
        None => Taken::Needs(Repair::Tail),
    })
}

/// Takes a session out with all its texts.
pub(super) fn forget(db: &Transaction<'_>, id: SessionId) -> Sql<()> {
    match known(db, id)? {
        Some(known) => remove(db, known.key),
        None => Ok(()),
    }
}

fn known(db: &Transaction<'_>, id: SessionId) -> Sql<Option<Known>> {
    db.query_row(
        "SELECT key, bytes, next_seq FROM sessions WHERE id = ?1",
        [id.as_uuid().as_bytes()],
        |row| Ok(Known { key: row.get(0)?, mark: Reach { bytes: row.get(1)?, next: Seq(row.get(2)?) } }),
    )
    .optional()
}

fn remove(db: &Transaction<'_>, key: i64) -> Sql<()> {
    db.execute("DELETE FROM texts WHERE session = ?1", [key])?;
    db.execute("DELETE FROM sessions WHERE key = ?1", [key])?;
    Ok(())
}

fn insert(db: &Transaction<'_>, row: &Row) -> Sql<i64> {
    db.execute(
        "INSERT INTO sessions (id, parent, handle, cwd, provider, model, reason, created_at, updated_at, bytes, next_seq)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8, 0, 1)",
        params![
            row.session_id.as_uuid().as_bytes(),
            row.parent.map(|parent| *parent.as_uuid().as_bytes()),
            row.handle,
            row.cwd,
            row.model.provider,
            row.model.model,
            row.model.reason,
            row.created_at.unix_ms(),
        ],
    )?;
    Ok(db.last_insert_rowid())
}

/// What may differ from one commit to the next.
fn change(db: &Transaction<'_>, key: i64, row: &Row, to: Reach) -> Sql<()> {
    db.execute(
        "UPDATE sessions SET title = ?2, cwd = ?3, mode = ?4, provider = ?5, model = ?6, reason = ?7, updated_at = ?8,
             outcome = ?9, bytes = ?10, next_seq = ?11, created_at = ?12, archived = ?13, last_prompt = ?14, held = ?15
         WHERE key = ?1",
        params![
            key,
            row.title,
            row.cwd,
            row.mode.map(name),
            row.model.provider,
            row.model.model,
            row.model.reason,
            row.updated_at.unix_ms(),
            row.last_outcome.map(name),
            to.bytes,
            to.next.0,
            row.created_at.unix_ms(),
            row.archived,
            row.last_prompt,
            row.held_prompts,
        ],
    )?;
    Ok(())
}

fn add_text(db: &Transaction<'_>, session: i64, text: &Text) -> Sql<()> {
    let number = role_number(text.role);
    if text.role == SearchRole::Title {
        // What a session was called before is not what it is called.
        db.execute("DELETE FROM texts WHERE session = ?1 AND role = ?2", params![session, number])?;
    }
    db.execute(
        "INSERT INTO texts (session, seq, at, role, text) VALUES (?1, ?2, ?3, ?4, ?5)",
        params![session, text.seq.0, text.at.unix_ms(), number, text.text],
    )?;
    Ok(())
}

/// The name on the wire.
fn name<T: Serialize>(value: T) -> Option<String> {
    serde_json::to_value(value).ok()?.as_str().map(str::to_owned)
}
