//! The index on a real file, without sessions.

mod file;
mod search;
mod updates;

use agentd_protocol::session::{Activity, Health, ModelInfo};
use agentd_protocol::{Mode, turn::Outcome};
use tempfile::TempDir;

use super::*;

struct Bench {
    folder: TempDir,
    store: Store,
}

impl Bench {
    /// An index that is open and, with nothing to compare, ready.
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(folder.path().canonicalize().unwrap().join("index.db"));
        let bench = Self { folder, store };
        bench.open().await;
        bench
    }

    async fn open(&self) {
        self.store.open().await;
        let Work::All { generation } = self.store.work(0).await else { panic!("nothing to compare") };
        self.store.caught_up(generation).await;
        self.store.until(|standing| *standing == Standing::Ready).await;
    }

    fn path(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join("index.db")
    }

    /// Ends the writer, as a daemon that stops does, and opens the file anew.
    async fn reopen(self, meanwhile: impl FnOnce(&std::path::Path)) -> Self {
        self.store.stop().await;
        let path = self.path();
        meanwhile(&path);
        let Self { folder, store } = self;
        drop(store);
        let bench = Self { folder, store: Store::new(path) };
        bench.open().await;
        bench
    }

    /// One session whose only commit has these texts.
    async fn says(&self, row: &Row, texts: &[(SearchRole, &str)]) {
        let texts =
            (1..).zip(texts).filter_map(|(n, (role, said))| Text::new(Seq(n), at(n as i64), *role, said));
        let update = Update { row: row.clone(), from: 0, to: mark(100, 2), texts: texts.collect() };
        self.store.committed(update);
        assert!(self.store.settle().await);
    }

    fn ids(&self) -> Vec<SessionId> {
        let mut ids = Vec::new();
        let all = Order::Created { after: None, cwd: None };
        self.store
            .rows(&all, None, |row| {
                ids.push(row.session_id);
                std::ops::ControlFlow::Continue(())
            })
            .unwrap();
        ids
    }

    /// The texts around what is found, with the matches in brackets.
    fn find(&self, words: &str) -> Vec<String> {
        self.search(&Query::new(words, None, None, 20).unwrap())
    }

    fn search(&self, query: &Query) -> Vec<String> {
        let shown = |found: &Found| {
            let parts = found.snippet.iter();
            parts
                .map(|part| if part.matched { format!("[{}]", part.text) } else { part.text.clone() })
                .collect()
        };
        self.store.search(query).unwrap().iter().map(shown).collect()
    }
}

fn at(ms: i64) -> Timestamp {
    Timestamp::from_unix_ms(1_700_000_000_000 + ms)
}

fn mark(bytes: u64, next: u64) -> Reach {
    Reach { bytes, next: Seq(next) }
}

fn row(cwd: &str) -> Row {
    Row {
        session_id: SessionId::generate(),
        handle: "api-otter".into(),
        title: Some("Paging".into()),
        parent: None,
        cwd: cwd.into(),
        mode: Some(Mode::AcceptEdits),
        model: ModelInfo { provider: "p".into(), model: "m".into(), reason: "asked for".into() },
        created_at: at(0),
        updated_at: at(1),
        activity: Activity::Idle,
        waiting_for: Vec::new(),
        last_outcome: Some(Outcome::Finished),
        health: Health::Ok,
        archived: false,
        last_prompt: Some("add paging".into()),
        held_prompts: 2,
    }
}
