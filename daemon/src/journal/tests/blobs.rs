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
