//! Putting files back: byte for byte, and never over what somebody changed.

use std::collections::HashSet;

use super::*;

#[tokio::test]
async fn a_tree_is_put_back_byte_for_byte() {
    let place = Place::new();
    place.write("run.sh", "#!/bin/sh\n");
    fs::set_permissions(place.path("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    place.write("crlf.txt", "a\r\nb\r\n");
    place.write("binary", b"\0\x01\xff");
    place.write("folder/inside", "x\n");
    place.write("file", "was a file\n");
    place.write("untracked only", "u\n");
    symlink("a.txt", place.path("link")).unwrap();
    symlink("folder", place.path("to-folder")).unwrap();
    let before = place.take().await;
    let was = files(&place.root());
    place.write("a.txt", "");
    fs::set_permissions(place.path("run.sh"), fs::Permissions::from_mode(0o644)).unwrap();
    place.write("crlf.txt", "a\nb\n");
    place.write("binary", b"text");
    fs::remove_dir_all(place.path("folder")).unwrap();
    place.write("folder", "now a file\n");
    fs::remove_file(place.path("file")).unwrap();
    place.write("file/now/a/folder", "x\n");
    fs::remove_file(place.path("untracked only")).unwrap();
    fs::remove_file(place.path("link")).unwrap();
    place.write("link", "now a file\n");
    fs::remove_file(place.path("to-folder")).unwrap();
    symlink("src", place.path("to-folder")).unwrap();
    place.write("new/one", "x\n");
    let after = place.take().await;
    let restored = place.restore(&before, &after).await;
    assert_eq!(restored.stays, []);
    assert_eq!(files(&place.root()), was);
    assert!(!place.path("new").exists());
    assert_eq!(place.take().await.tree, before.tree);
}

#[tokio::test]
async fn what_somebody_changed_since_stays_and_is_named() {
    let place = Place::new();
    place.write("b.txt", "b\n");
    place.write("c.txt", "c\n");
    place.write("d.txt", "d\n");
    let before = place.take().await;
    for name in ["a.txt", "b.txt", "c.txt", "new.txt"] {
        place.write(name, "by the turn\n");
    }
    fs::remove_file(place.path("d.txt")).unwrap();
    let after = place.take().await;
    place.write("a.txt", "by a person\n");
    fs::set_permissions(place.path("b.txt"), fs::Permissions::from_mode(0o755)).unwrap();
    place.write("new.txt", "by a person\n");
    place.write("d.txt", "by a person\n");
    let restored = place.restore(&before, &after).await;
    assert_eq!(restored.done, [Path::new("c.txt")]);
    let mut stays: Vec<_> =
        restored.stays.iter().map(|stays| (stays.path.to_str().unwrap(), stays.changed_since)).collect();
    stays.sort_unstable();
    assert_eq!(stays, [("a.txt", true), ("b.txt", true), ("d.txt", true), ("new.txt", true)]);
    assert_eq!(fs::read(place.path("a.txt")).unwrap(), b"by a person\n");
    assert_eq!(fs::read(place.path("new.txt")).unwrap(), b"by a person\n");
    assert_eq!(fs::read(place.path("c.txt")).unwrap(), b"c\n");
}

#[tokio::test]
async fn only_what_is_asked_for_is_put_back() {
    let place = Place::new();
    let before = place.take().await;
    place.write("a.txt", "x\n");
    place.write("src/b.rs", "x\n");
    place.write("src/c.rs", "x\n");
    let after = place.take().await;
    let (session, root) = (place.session(), place.root());
    let kept = Kept { session: &session, root: &root };
    let only = ["src/b.rs", "src/c.rs"].map(PathBuf::from).into_iter().collect();
    let undo = Undo { only: Some(&only), made: &HashSet::new(), stay: &root };
    let restored = place.snapshots.restore(kept, &before.tree, &after.tree, undo).await.unwrap();
    assert_eq!(restored.done, [Path::new("src/c.rs"), Path::new("src/b.rs")]);
    assert_eq!(fs::read(place.path("a.txt")).unwrap(), b"x\n");
}

#[tokio::test]
async fn a_link_on_the_way_leads_nothing_out_of_the_project() {
    let place = Place::new();
    let outside = place.folder.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("b.rs"), "changed\n").unwrap();
    let before = place.take().await;
    place.write("src/b.rs", "changed\n");
    let after = place.take().await;
    fs::remove_dir_all(place.path("src")).unwrap();
    symlink(&outside, place.path("src")).unwrap();
    let restored = place.restore(&before, &after).await;
    assert_eq!((restored.done.len(), restored.stays.len()), (0, 1));
    assert_eq!(fs::read(outside.join("b.rs")).unwrap(), b"changed\n");
}

#[tokio::test]
async fn a_snapshot_that_is_lost_is_an_error_and_changes_nothing() {
    let place = Place::new();
    let before = place.take().await;
    place.write("a.txt", "x\n");
    let after = place.take().await;
    fs::remove_dir_all(place.session().join("snapshots")).unwrap();
    let (session, root) = (place.session(), place.root());
    let kept = Kept { session: &session, root: &root };
    let undo = Undo { only: None, made: &HashSet::new(), stay: &root };
    let error = place.snapshots.restore(kept, &before.tree, &after.tree, undo).await.unwrap_err();
    assert!(matches!(error, SnapshotError::Git(_)), "{error}");
    assert_eq!(fs::read(place.path("a.txt")).unwrap(), b"x\n");
}
