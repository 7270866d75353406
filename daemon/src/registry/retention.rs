//! Retention: sessions that nobody has touched for long, or the oldest beyond a size, are removed, if the settings say so.
//!
//! A clock can be wrong, and a removed session does not come back. So time is not taken from the clock alone: a stretch in
//! which no session was begun or touched counts only up to a bound, see [`Reckoning`]; and a round is left out when the
//! clock has moved otherwise than time has passed.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use agentd_protocol::Timestamp;
use agentd_protocol::session::Row;
use tokio::time::Instant;

use super::Registry;
use crate::ids::SessionId;
use crate::session::command::Command;
use crate::session::{SessionError, blocking, unstored};
use crate::store::{Order, Standing};

const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;

/// What was touched within this time stays, whatever the settings say.
const FRESH: i64 = DAY;
/// Of a stretch without any use so much counts towards that: right after a clock has jumped, nothing is old by it.
const FRESH_PAUSE: i64 = 20 * HOUR;
/// Of a stretch without any use so much counts as age, and never more than a quarter of the greatest one.
const MAX_PAUSE: i64 = 7 * DAY;

/// After "ready", and from then on.
const FIRST: Duration = Duration::from_secs(10 * 60);
const EVERY: Duration = Duration::from_secs(3_600);
/// The clock may be set by so much between two rounds.
const SET: i64 = 10 * 60_000;

/// Names that a notice has.
const NAMED: usize = 5;

/// How long and how much is kept; what is absent has no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    pub max_age_days: Option<u64>,
    pub max_size_mib: Option<u64>,
}

impl Limits {
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    fn max_age(&self) -> Option<i64> {
        self.max_age_days.map(|days| i64::try_from(days).unwrap_or(i64::MAX).saturating_mul(DAY))
    }

    fn max_bytes(&self) -> Option<u64> {
        self.max_size_mib.map(|mib| mib.saturating_mul(1 << 20))
    }
}

/// Ages of moments as they are believed: all the time since then, of each stretch in which nothing happened only so much.
struct Reckoning {
    /// Moments at which something happened, the newest first, with their ages.
    ages: Vec<(i64, i64)>,
}

impl Reckoning {
    fn new(now: Timestamp, happened: impl Iterator<Item = Timestamp>, pause: i64) -> Self {
        let now = now.unix_ms();
        // What lies in the future says that the clock is wrong, or was, and nothing about age.
        let mut times: Vec<i64> = happened.map(Timestamp::unix_ms).filter(|at| *at <= now).collect();
        times.sort_unstable_by_key(|at| std::cmp::Reverse(*at));
        let (mut last, mut age) = (now, 0_i64);
        let ages = times
            .into_iter()
            .map(|at| {
                age = age.saturating_add(last.saturating_sub(at).min(pause));
                last = at;
                (at, age)
            })
            .collect();
        Self { ages }
    }

    /// Of one of the moments; one in the future is new.
    fn age(&self, at: Timestamp) -> i64 {
        let at = at.unix_ms();
        let index = self.ages.partition_point(|(known, _)| *known > at);
        self.ages.get(index).map_or(0, |(_, age)| *age)
    }
}

/// A session with those that belong to it: they go together.
#[derive(Clone, Debug)]
struct Tree {
    /// Children before their parents.
    members: Vec<Row>,
    /// The newest of them.
    updated: Timestamp,
}

/// Sessions with their children, the longest untouched first.
fn trees(rows: Vec<Row>) -> Vec<Tree> {
    let parents: HashMap<SessionId, Option<SessionId>> =
        rows.iter().map(|row| (row.session_id, row.parent)).collect();
    // The way up ends: at a session without a parent, at one that is gone, or after more steps than there are sessions.
    let way = |id: SessionId| {
        let up =
            |id: &SessionId| parents.get(id).copied().flatten().filter(|parent| parents.contains_key(parent));
        let mut way = std::iter::successors(Some(id), up).take(parents.len());
        let depth = way.clone().count();
        (way.by_ref().last().unwrap_or(id), depth)
    };
    let mut by_root: HashMap<SessionId, Vec<(usize, Row)>> = HashMap::new();
    for row in rows {
        let (root, depth) = way(row.session_id);
        by_root.entry(root).or_default().push((depth, row));
    }
    let mut trees: Vec<Tree> = by_root
        .into_values()
        .filter_map(|mut members| {
            members.sort_by_key(|(depth, _)| std::cmp::Reverse(*depth));
            let members: Vec<Row> = members.into_iter().map(|(_, row)| row).collect();
            let updated = members.iter().map(|row| row.updated_at).max()?;
            Some(Tree { members, updated })
        })
        .collect();
    trees.sort_by_key(|tree| (tree.updated, tree.members.last().map(|root| root.session_id)));
    trees
}

/// Those that may go, the oldest first, with whether they are too old.
fn candidates(now: Timestamp, limits: Limits, rows: Vec<Row>) -> Vec<(Tree, bool)> {
    let happened: Vec<Timestamp> = rows.iter().flat_map(|row| [row.created_at, row.updated_at]).collect();
    let reckon = |pause| Reckoning::new(now, happened.iter().copied(), pause);
    let fresh = reckon(FRESH_PAUSE);
    let aged = limits.max_age().map(|max| (max, reckon(MAX_PAUSE.min(max / 4))));
    trees(rows)
        .into_iter()
        .filter(|tree| fresh.age(tree.updated) >= FRESH)
        .map(|tree| {
            let old = aged.as_ref().is_some_and(|(max, ages)| ages.age(tree.updated) > *max);
            (tree, old)
        })
        .collect()
}

/// What a round has removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Removed {
    pub(super) handles: Vec<String>,
    pub(super) bytes: u64,
}

impl Removed {
    fn told(&self) -> String {
        let count = self.handles.len();
        let names = self.handles.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
        let more = if count > NAMED { format!(" and {} more", count - NAMED) } else { String::new() };
        let sessions = if count == 1 { "1 session".to_owned() } else { format!("{count} sessions") };
        format!(
            "retention removed {sessions} that nobody had touched for long, {} MiB: {names}{more}",
            self.bytes >> 20
        )
    }
}

impl Registry {
    /// Keeps sessions within these limits until the daemon leaves. After "ready": its cost grows with their number.
    pub fn keep_within(self: &Arc<Self>, limits: Limits) {
        if limits.is_none() {
            return;
        }
        let registry = Arc::clone(self);
        self.tracker.spawn(async move {
            let leave = registry.deps.leave.clone();
            tokio::select! {
                () = leave.cancelled() => {}
                () = registry.rounds(limits) => {}
            }
        });
    }

    async fn rounds(self: &Arc<Self>, limits: Limits) {
        self.resumed.cancelled().await;
        self.swept.cancelled().await;
        let mut pause = FIRST;
        loop {
            let before = (Instant::now(), self.deps.clock.now());
            tokio::time::sleep(pause).await;
            pause = EVERY;
            if !agree(before, (Instant::now(), self.deps.clock.now())) {
                tracing::info!("retention: the clock was set; this round is left out");
                continue;
            }
            if let Err(error) = self.remove_old(limits).await {
                tracing::warn!(%error, "retention: a round was not finished");
            }
        }
    }

    /// One round.
    ///
    /// # Errors
    /// The index or the sessions' folder cannot be read.
    pub(super) async fn remove_old(self: &Arc<Self>, limits: Limits) -> Result<Removed, SessionError> {
        self.want_index();
        self.store.until(|now| matches!(now, Standing::Ready | Standing::Failed(_))).await;
        let registry = Arc::clone(self);
        // What is on its way to the index has just been touched.
        let unsettled = self.store.unsettled();
        let rows = blocking(move || {
            let mut rows = Vec::new();
            registry.store.rows(&Order::Updated { cwd: None }, None, |row| {
                rows.push(row);
                ControlFlow::Continue(())
            })?;
            Ok::<_, crate::store::StoreError>(rows)
        })
        .await
        .map_err(unstored)?;
        let mut weights = self.weights().await?;
        let mut total: u64 = weights.values().sum();
        let mut removed = Removed::default();
        for (tree, old) in candidates(self.deps.clock.now(), limits, rows) {
            if !old && limits.max_bytes().is_none_or(|max| total <= max) {
                continue;
            }
            if tree.members.iter().any(|row| unsettled.contains(&row.session_id)) {
                continue;
            }
            for row in &tree.members {
                if !self.expire(row).await {
                    // Nor what it belongs to.
                    break;
                }
                let bytes = weights.remove(&row.session_id).unwrap_or_default();
                total = total.saturating_sub(bytes);
                removed.bytes += bytes;
                removed.handles.push(row.handle.clone());
            }
        }
        if !removed.handles.is_empty() {
            let told = removed.told();
            tracing::warn!("{told}");
            self.feed.notice("retention", &told);
        }
        Ok(removed)
    }

    /// Asks the session itself, which knows whether it is what the index says, and whether anybody has a use for it.
    async fn expire(self: &Arc<Self>, row: &Row) -> bool {
        if self.is_live(row.session_id) {
            return false;
        }
        let unchanged_since = row.updated_at;
        let asked = self.ask(row.session_id, |reply| Command::Expire { unchanged_since, reply }).await;
        match asked {
            Ok(gone) => gone,
            Err(error) => {
                tracing::info!(session = %row.session_id, %error, "retention: a session stays");
                false
            }
        }
    }

    /// Bytes that each session takes on the disk.
    ///
    /// # Errors
    /// The sessions' folder cannot be read.
    pub async fn weights(&self) -> Result<HashMap<SessionId, u64>, SessionError> {
        let ids = self.session_ids().await?;
        let dirs = ids.iter().map(|id| self.deps.paths.session_dir(*id)).collect();
        let weights = self.deps.journals.weigh(dirs).await.map_err(unstored)?;
        Ok(ids.into_iter().zip(weights).collect())
    }
}

/// Whether the clock moved as time has passed. While the machine sleeps it does not: then the next round counts.
fn agree(before: (Instant, Timestamp), now: (Instant, Timestamp)) -> bool {
    let passed = i64::try_from(now.0.duration_since(before.0).as_millis()).unwrap_or(i64::MAX);
    let clock = now.1.unix_ms().saturating_sub(before.1.unix_ms());
    clock.saturating_sub(passed).abs() <= SET
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_700_000_000_000;

    fn row(id: SessionId, parent: Option<SessionId>, updated: i64) -> Row {
        serde_json::from_value(serde_json::json!({
            "sessionId": id, "handle": id.to_string(), "title": null, "parent": parent, "cwd": "/w", "mode": null,
            "model": {"provider": "p", "model": "m", "reason": "r"},
            "createdAt": Timestamp::from_unix_ms(updated), "updatedAt": Timestamp::from_unix_ms(updated),
            "activity": "idle", "waitingFor": [], "lastOutcome": null, "health": "ok",
        }))
        .unwrap()
    }

    /// A session for each of these ages.
    fn used(days_ago: impl IntoIterator<Item = i64>) -> Vec<Row> {
        days_ago.into_iter().map(|days| row(SessionId::generate(), None, NOW - days * DAY)).collect()
    }

    /// How many are found too old, and how many may go at all.
    fn found(now: i64, days: Option<u64>, rows: Vec<Row>) -> (usize, usize) {
        let limits = Limits { max_age_days: days, max_size_mib: None };
        let found = candidates(Timestamp::from_unix_ms(now), limits, rows);
        (found.iter().filter(|(_, old)| *old).count(), found.len())
    }

    #[test]
    fn what_is_older_than_the_limit_is_found_and_nothing_else() {
        // Used every day, for a hundred days.
        assert_eq!(found(NOW, Some(30), used(0..100)), (69, 99 - 1));
        assert_eq!(found(NOW, None, used(0..100)).0, 0);
        assert_eq!(found(NOW, Some(30), Vec::new()), (0, 0));
        assert_eq!(found(NOW, Some(u64::MAX), used(0..100)).0, 0);
    }

    #[test]
    fn a_clock_that_jumps_far_takes_nothing_that_was_not_old() {
        for days in [1, 7, 30, 365] {
            let limit = i64::try_from(days).unwrap();
            // Nothing of the last three quarters of the limit goes, however far ahead the clock is.
            let ahead = NOW + 40 * 365 * DAY;
            let young = 3 * limit / 4;
            assert_eq!(found(ahead, Some(days), used(0..=young)).0, 0, "{days}");
            // Also once something was touched at that time.
            let mut rows = used(0..=young);
            rows.push(row(SessionId::generate(), None, ahead));
            assert_eq!(found(ahead, Some(days), rows).0, 0, "{days}");
            // Back: everything lies in the future.
            assert_eq!(found(NOW - 40 * 365 * DAY, Some(days), used(0..1_000)), (0, 0), "{days}");
        }
        // What was touched an hour before a jump is fresh right after it, for the size as well.
        let rows = vec![
            row(SessionId::generate(), None, NOW - HOUR),
            row(SessionId::generate(), None, NOW + 400 * DAY),
        ];
        assert_eq!(found(NOW + 400 * DAY + HOUR, Some(1), rows), (0, 0));
    }

    #[test]
    fn a_long_pause_counts_as_a_week() {
        // Back after a year: what was new then is not old now.
        let mut rows = used([0, 365, 366, 367, 400]);
        assert_eq!(found(NOW, Some(60), rows.clone()).0, 0);
        rows.extend(used(366..460));
        assert_eq!(found(NOW, Some(60), rows).0, 460 - (365 + 54));
    }

    #[test]
    fn what_belongs_together_is_as_new_as_its_newest_and_ends_with_the_parent() {
        let [root, child, grandchild] = [(); 3].map(|()| SessionId::generate());
        let rows = vec![
            row(root, None, NOW - 90 * DAY),
            row(child, Some(root), NOW - 80 * DAY),
            row(grandchild, Some(child), NOW - 2 * DAY),
            row(SessionId::generate(), Some(SessionId::generate()), NOW - 3 * DAY),
        ];
        let trees = trees(rows);
        let [orphan, family] = trees.as_slice() else { panic!("{trees:?}") };
        assert_eq!(orphan.members.len(), 1);
        let ids: Vec<_> = family.members.iter().map(|row| row.session_id).collect();
        assert_eq!(
            (ids, family.updated),
            (vec![grandchild, child, root], Timestamp::from_unix_ms(NOW - 2 * DAY))
        );
        // A journal may say anything: a circle ends.
        let circle = super::trees(vec![row(root, Some(child), NOW), row(child, Some(root), NOW)]);
        assert_eq!(circle.iter().map(|tree| tree.members.len()).sum::<usize>(), 2);
    }

    #[test]
    fn a_clock_that_was_set_leaves_a_round_out() {
        let begun = Instant::now();
        let at = |hours: u64, clock: i64| {
            (begun + Duration::from_secs(hours * 3_600), Timestamp::from_unix_ms(clock))
        };
        assert!(agree(at(0, NOW), at(1, NOW + HOUR + 1_000)));
        assert!(!agree(at(0, NOW), at(1, NOW + 400 * DAY)));
        assert!(!agree(at(0, NOW), at(1, NOW - DAY)));
        assert!(!agree(at(0, NOW), at(1, NOW + 9 * HOUR)), "it slept");
    }
}
