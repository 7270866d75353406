//! Folders: their modes, lists of them, and their removal.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn only_the_owner_can_enter_and_read() {
    let bench = Bench::new();
    let journal = bench.create().await;
    let digest = journal.blobs().put(bytes::Bytes::from_static(b"x")).await.unwrap();
    assert_eq!(mode(&bench.dir()), 0o700);
    assert_eq!(mode(&bench.file()), 0o600);
    assert_eq!(mode(&bench.dir().join("blobs")), 0o700);
    assert_eq!(mode(&bench.dir().join("blobs").join(digest.hex())), 0o600);
}

#[tokio::test]
async fn a_journal_is_never_made_over_another() {
    let bench = Bench::with_commits(&["one"]).await;
    let again = bench.service.create(bench.dir(), []).await;
    assert!(matches!(again, Err(BlobError::Journal(JournalError::Exists { .. }))));
    let (_, opened) = bench.open().await;
    assert_eq!(texts(&opened.commits), pairs(&[(1, "one")]));
}

#[tokio::test]
async fn a_missing_journal_is_told_apart_from_an_unreadable_one() {
    let bench = Bench::new();
    let missing = bench.service.open(bench.dir()).await;
    assert!(matches!(missing, Err(JournalError::Missing { .. })));
    std::fs::create_dir_all(bench.file()).unwrap();
    assert!(matches!(bench.service.open(bench.dir()).await, Err(JournalError::Io { .. })));
}

#[tokio::test]
async fn a_link_in_place_of_a_journal_is_not_followed() {
    let bench = Bench::with_commits(&["one"]).await;
    let elsewhere = bench.root.path().join("elsewhere");
    std::fs::rename(bench.file(), &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, bench.file()).unwrap();
    assert!(matches!(bench.service.open(bench.dir()).await, Err(JournalError::Io { .. })));
}

#[tokio::test]
async fn lists_read_both_ends_only() {
    let bench = Bench::with_commits(&["one", "two", "three"]).await;
    let ends = bench.service.first_and_last_line(bench.dir()).await.unwrap();
    assert_eq!(ends.first.unwrap().seq, Seq(1));
    let last = ends.last.unwrap();
    assert_eq!(last.seq, Seq(3));
    assert_eq!(last.place.offset + u64::from(last.place.len), ends.bytes);

    // A torn tail hides nothing.
    let mut content = bench.content();
    content.extend_from_slice(b"{\"v\":1,");
    std::fs::write(bench.file(), &content).unwrap();
    let ends = bench.service.first_and_last_line(bench.dir()).await.unwrap();
    assert_eq!(ends.last.unwrap().seq, Seq(3));
    assert_eq!(bench.content(), content, "a list changes nothing");
}

#[tokio::test]
async fn a_long_last_commit_is_left_out_of_lists() {
    let bench = Bench::with_commits(&["one", &"x".repeat(100 << 10)]).await;
    let ends = bench.service.first_and_last_line(bench.dir()).await.unwrap();
    assert_eq!(ends.first.unwrap().seq, Seq(1));
    assert!(ends.last.is_none());
    let empty = Bench::new();
    drop(empty.create().await);
    let ends = empty.service.first_and_last_line(empty.dir()).await.unwrap();
    assert!(ends.first.is_none() && ends.last.is_none());
}

#[tokio::test]
async fn a_first_line_that_never_ends_is_not_read_through() {
    let bench = Bench::with_commits(&["one"]).await;
    // Longer than anybody could wait for, and it takes no space.
    std::fs::File::create(bench.file()).unwrap().set_len(1 << 38).unwrap();
    let ends = bench.service.first_and_last_line(bench.dir()).await.unwrap();
    assert!(ends.first.is_none() && ends.last.is_none());
    assert!(ends.begun, "its id is not given to another session");
}

#[tokio::test]
async fn no_session_is_made_where_the_folder_of_sessions_was_moved_away() {
    let bench = Bench::new();
    let sessions = bench.root.path().join("sessions");
    std::fs::rename(&sessions, bench.root.path().join("elsewhere")).unwrap();
    assert!(matches!(
        bench.service.create(bench.dir(), []).await,
        Err(BlobError::Journal(JournalError::Io { .. }))
    ));
    assert!(!sessions.exists());
}

#[tokio::test]
async fn removal_takes_everything_of_the_session_and_nothing_else() {
    let bench = Bench::new();
    let mut journal = bench.create().await;
    add(&mut journal, &["one"], Durability::Synced).await.unwrap();
    journal.blobs().put(bytes::Bytes::from_static(b"x")).await.unwrap();
    let outside = bench.root.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("precious"), "").unwrap();
    std::os::unix::fs::symlink(&outside, bench.dir().join("link")).unwrap();

    bench.service.remove_session(bench.dir()).await.unwrap();
    assert_eq!(names(&bench.root.path().join("sessions")), [""; 0]);
    assert!(outside.join("precious").exists());
    assert!(add(&mut journal, &["two"], Durability::Synced).await.unwrap_err().is_read_only());
    assert!(!bench.dir().exists(), "a late commit does not bring it back");
    let again = bench.service.remove_session(bench.dir()).await;
    assert!(matches!(again, Err(JournalError::Missing { .. })));
}

#[tokio::test]
async fn a_removal_that_was_cut_short_is_finished_later() {
    let bench = Bench::with_commits(&["one"]).await;
    let sessions = bench.root.path().join("sessions");
    std::fs::create_dir_all(sessions.join(".removed-other/blobs")).unwrap();
    std::fs::write(sessions.join(".removed-other/blobs/x"), "").unwrap();
    bench.service.sweep_removed(&sessions).await.unwrap();
    assert_eq!(names(&sessions), ["one"]);
    bench.service.sweep_removed(bench.root.path().join("nowhere")).await.unwrap();
}

#[tokio::test]
async fn a_link_in_place_of_a_session_is_not_removed_through() {
    let bench = Bench::with_commits(&["one"]).await;
    let link = bench.root.path().join("link");
    std::os::unix::fs::symlink(bench.dir(), &link).unwrap();
    assert!(bench.service.remove_session(&link).await.is_err());
    assert!(bench.file().exists());
}
