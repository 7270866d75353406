//! Journals on a real file system, with damage and faults made on purpose.

mod blobs;
mod damage;
mod failures;
mod folders;
mod marks;
mod pages;
mod reading;
mod tail;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use agentd_protocol::Timestamp;
use serde_json::value::RawValue;
use tempfile::TempDir;

use super::faults::Faults;
use super::*;

struct Bench {
    root: TempDir,
    faults: Faults,
    service: Arc<JournalService>,
}

impl Bench {
    fn new() -> Self {
        let faults = Faults::default();
        let service = faults.service();
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("sessions")).unwrap();
        Self { root, faults, service }
    }

    fn dir(&self) -> PathBuf {
        self.root.path().join("sessions/one")
    }

    fn file(&self) -> PathBuf {
        self.dir().join(FILE_NAME)
    }

    async fn create(&self) -> Journal {
        self.service.create(self.dir(), []).await.unwrap().0
    }

    async fn open(&self) -> (Journal, Opened) {
        self.service.open(self.dir()).await.unwrap()
    }

    /// A closed journal with commits of one record each.
    async fn with_commits(texts: &[&str]) -> Self {
        let bench = Self::new();
        let mut journal = bench.create().await;
        for text in texts {
            add(&mut journal, &[text], Durability::Synced).await.unwrap();
        }
        bench
    }

    fn content(&self) -> Vec<u8> {
        std::fs::read(self.file()).unwrap()
    }
}

fn at() -> Timestamp {
    Timestamp::from_unix_ms(1_700_000_000_000)
}

fn records(texts: &[&str]) -> Vec<Box<RawValue>> {
    texts.iter().map(|text| serde_json::value::to_raw_value(text).unwrap()).collect()
}

async fn add(journal: &mut Journal, texts: &[&str], durability: Durability) -> Result<Appended, AppendError> {
    journal.append(journal.next_seq(), at(), records(texts), durability).await
}

/// The records as text, each with its number.
fn texts(commits: &[Commit]) -> Vec<(u64, String)> {
    commits
        .iter()
        .flat_map(Commit::numbered)
        .map(|(seq, record)| (seq.0, serde_json::from_str(record.get()).unwrap()))
        .collect()
}

fn pairs(expected: &[(u64, &str)]) -> Vec<(u64, String)> {
    expected.iter().map(|(seq, text)| (*seq, (*text).to_owned())).collect()
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}
