//! Blobs: whole or absent, one file for one content.

use bytes::Bytes;

use super::*;
use crate::ids::digest_of;

#[tokio::test]
async fn the_same_content_is_one_file() {
    let bench = Bench::new();
    let blobs = bench.create().await.blobs().clone();
    let one = blobs.put(Bytes::from_static(b"content")).await.unwrap();
    let two = blobs.put(Bytes::from_static(b"content")).await.unwrap();
    let other = blobs.put(Bytes::from_static(b"")).await.unwrap();
    assert_eq!(one, two);
    assert_eq!(one, digest_of(b"content"));
    let mut expected = vec![one.hex(), other.hex()];
    expected.sort();
    assert_eq!(names(&bench.dir().join("blobs")), expected, "and no temporary file is left");
}

#[tokio::test]
async fn pieces_end_where_the_blob_ends() {
    let bench = Bench::new();
    let blobs = bench.create().await.blobs().clone();
    let digest = blobs.put(Bytes::from_static(b"0123456789")).await.unwrap();
    for (offset, len, expected) in
        [(0, 4, "0123"), (8, 4, "89"), (10, 1, ""), (u64::MAX, u64::MAX, ""), (0, u64::MAX, "0123456789")]
    {
        let part = blobs.get(digest, offset, len).await.unwrap();
        assert_eq!(part, BlobPart { bytes: expected.as_bytes().to_vec(), size: 10 });
    }
    assert_eq!(blobs.whole(digest).await.unwrap(), b"0123456789");
}

#[tokio::test]
async fn a_missing_blob_is_told_apart() {
    let bench = Bench::new();
    let blobs = bench.create().await.blobs().clone();
    let digest = digest_of(b"nobody");
    assert!(!blobs.has(digest).await.unwrap());
    assert!(matches!(blobs.get(digest, 0, 1).await, Err(BlobError::Missing(_))));
    blobs.put(Bytes::from_static(b"nobody")).await.unwrap();
    assert!(blobs.has(digest).await.unwrap());
}

#[tokio::test]
async fn a_damaged_blob_is_never_taken_for_its_content() {
    let bench = Bench::new();
    let blobs = bench.create().await.blobs().clone();
    let digest = blobs.put(Bytes::from_static(b"approved")).await.unwrap();
    let path = bench.dir().join("blobs").join(digest.hex());
    std::fs::write(&path, "tampered").unwrap();
    assert!(matches!(blobs.whole(digest).await, Err(BlobError::Corrupt(_))));

    // Cut short, it is written again.
    std::fs::write(&path, "appr").unwrap();
    blobs.put(Bytes::from_static(b"approved")).await.unwrap();
    assert_eq!(blobs.whole(digest).await.unwrap(), b"approved");
}

#[tokio::test]
async fn what_a_crash_left_behind_does_not_stand_in_the_way() {
    let bench = Bench::new();
    let blobs = bench.create().await.blobs().clone();
    let digest = digest_of(b"content");
    let dir = bench.dir().join("blobs");
    std::fs::write(dir.join(format!(".{}.tmp", digest.hex())), "a longer half of it").unwrap();
    blobs.put(Bytes::from_static(b"content")).await.unwrap();
    assert_eq!(names(&dir), [digest.hex()]);
    assert_eq!(blobs.whole(digest).await.unwrap(), b"content");
}

#[tokio::test]
async fn sessions_that_begin_alike_share_what_they_begin_with_and_lose_nothing_with_each_other() {
    use std::os::unix::fs::MetadataExt as _;

    let bench = Bench::new();
    let dir = |name: &str| bench.root.path().join(name);
    let prefix = || [Bytes::from_static(b"prompt"), Bytes::from_static(b"tools")];
    let (_one, digests) = bench.service.create(dir("one"), prefix()).await.unwrap();
    let (two, same) = bench.service.create(dir("two"), prefix()).await.unwrap();
    assert_eq!(digests, same);
    let file = |name: &str| dir(name).join("blobs").join(digests[0].hex());
    assert_eq!(std::fs::metadata(file("one")).unwrap().ino(), std::fs::metadata(file("two")).unwrap().ino());

    bench.service.remove_session(dir("one")).await.unwrap();
    assert_eq!(two.blobs().whole(digests[0]).await.unwrap(), b"prompt");
    bench.service.remove_session(dir("two")).await.unwrap();
    let (three, _) = bench.service.create(dir("three"), prefix()).await.unwrap();
    assert_eq!(three.blobs().whole(digests[1]).await.unwrap(), b"tools");
}

#[tokio::test]
async fn a_damaged_blob_is_not_handed_on_to_new_sessions() {
    let bench = Bench::new();
    let dir = |name: &str| bench.root.path().join(name);
    let content = || [Bytes::from_static(b"prompt")];
    let (_one, [digest]) = bench.service.create(dir("one"), content()).await.unwrap();
    std::fs::write(dir("one").join("blobs").join(digest.hex()), b"pr0mpt").unwrap();
    let (two, _) = bench.service.create(dir("two"), content()).await.unwrap();
    assert_eq!(two.blobs().whole(digest).await.unwrap(), b"prompt");
}
