//! Bundles as files: what is written is read again byte for byte, and nothing else is read at all.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use agentd_protocol::Timestamp;
use serde_json::json;
use serde_json::value::RawValue;

use super::super::folder::BLOBS as BLOBS_DIR;
use super::super::{FILE_NAME, frame, staging};
use super::*;
use crate::ids::digest_of;

struct Place {
    root: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        for dir in ["session/blobs", "out", "in"] {
            fs::create_dir_all(root.path().join(dir)).unwrap();
        }
        Self { root }
    }

    fn at(&self, below: &str) -> PathBuf {
        self.root.path().join(below)
    }

    fn blob(&self, content: &[u8]) -> Digest {
        let digest = digest_of(content);
        fs::write(self.at("session/blobs").join(digest.hex()), content).unwrap();
        digest
    }

    /// A session with one commit and two blobs, and one more commit that is to come.
    fn packing(&self) -> Packing {
        let journal = line(1);
        fs::write(self.at("session").join(FILE_NAME), [journal.as_slice(), b"unacknowledged"].concat())
            .unwrap();
        let plan = self.blob(b"# Plan\n");
        let blobs = BTreeSet::from([plan, self.blob(&[7; 100_000]), digest_of(b"not there")]);
        let raw = RawValue::from_string(r#"{"type":"last"}"#.into()).unwrap();
        Packing {
            source: self.at("session"),
            journal: journal.len() as u64,
            last: Some((Seq(2), Timestamp::from_unix_ms(5), vec![raw])),
            blobs,
            plan: Some(Some(plan)),
            about: about(),
        }
    }

    /// A file that is read as a bundle, made of these entries.
    fn tar(&self, entries: &[Entry]) -> PathBuf {
        let path = self.at("out/made.agentd");
        let mut builder = tar::Builder::new(fs::File::create(&path).unwrap());
        for entry in entries {
            let mut header = tar::Header::new_ustar();
            // Whatever it is, also what `set_path` refuses.
            header.as_old_mut().name[..entry.name.len()].copy_from_slice(entry.name.as_bytes());
            header.set_size(entry.says.unwrap_or(entry.content.len() as u64));
            header.set_entry_type(entry.kind);
            header.set_cksum();
            builder.append(&header, &entry.content[..]).unwrap();
        }
        builder.into_inner().unwrap();
        path
    }

    fn unpack(&self, path: &Path) -> Result<Option<Vec<u8>>, BundleError> {
        let bundle = Bundle::open(path)?;
        staging::staged(&self.at("in/session"), |staged| bundle.unpack(staged)).map(|(_, plan)| plan)
    }
}

#[derive(Clone)]
struct Entry {
    name: String,
    content: Vec<u8>,
    kind: tar::EntryType,
    /// Its size, where the header lies.
    says: Option<u64>,
}

fn entry(name: &str, content: &[u8]) -> Entry {
    Entry { name: name.into(), content: content.into(), kind: tar::EntryType::Regular, says: None }
}

fn line(seq: u64) -> Vec<u8> {
    let raw = RawValue::from_string(format!(r#"{{"type":"t","n":{seq}}}"#)).unwrap();
    frame::encode(Seq(seq), Timestamp::from_unix_ms(1), &[raw])
}

fn about() -> About {
    About {
        format: FORMAT,
        agentd: "1".into(),
        session_id: "0193aaaa-0000-7000-8000-00000000beef".parse().unwrap(),
        owner_epoch: 1,
        copy: false,
        exported_at: Timestamp::from_unix_ms(60_000),
        seq: Seq(2),
        cwd: "/w".into(),
        title: None,
        mode: Mode::Default,
    }
}

fn listed(name: &str, content: &[u8]) -> Listed {
    Listed { name: name.into(), size: content.len() as u64, sha256: digest_of(content) }
}

fn manifest(files: Vec<Listed>) -> Entry {
    entry(MANIFEST, &serde_json::to_vec(&Manifest { about: about(), files }).unwrap())
}

#[test]
fn what_is_packed_is_unpacked_byte_for_byte_and_closed_to_others() {
    let place = Place::new();
    let (temporary, target) = (place.at("out/.tmp"), place.at("out/a.agentd"));
    // Left by a crash.
    fs::write(&temporary, "half").unwrap();
    let packed = pack(&place.packing(), &temporary).unwrap();
    assert!(!target.exists());
    name(&temporary, &target, false).unwrap();
    assert!(!temporary.exists());
    let found = fs::metadata(&target).unwrap();
    assert_eq!((found.permissions().mode() & 0o7777, found.len()), (0o600, packed.bytes));

    let bundle = Bundle::open(&target).unwrap();
    assert_eq!((bundle.manifest().about.clone(), bundle.digest()), (about(), packed.digest));
    let names: Vec<&str> = bundle.manifest().files.iter().map(|listed| listed.name.as_str()).collect();
    assert_eq!(
        (names[0], names[1], names.len()),
        ("journal.jsonl", "plan.md", 4),
        "a missing blob is passed over"
    );
    let (staged, plan) = staging::staged(&place.at("in/session"), |staged| bundle.unpack(staged)).unwrap();
    assert_eq!(plan.unwrap(), b"# Plan\n");
    let last = RawValue::from_string(r#"{"type":"last"}"#.into()).unwrap();
    let last = frame::encode(Seq(2), Timestamp::from_unix_ms(5), &[last]);
    assert_eq!(fs::read(staged.join(FILE_NAME)).unwrap(), [line(1), last].concat());
    for dir in [&staged, &staged.join(BLOBS_DIR)] {
        assert_eq!(fs::metadata(dir).unwrap().permissions().mode() & 0o7777, 0o700);
        for entry in fs::read_dir(dir).unwrap().flatten().filter(|entry| entry.path().is_file()) {
            assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o7777, 0o600, "{entry:?}");
        }
    }
    let big = staged.join(BLOBS_DIR).join(digest_of(&[7; 100_000]).hex());
    assert_eq!(fs::read(big).unwrap(), [7; 100_000]);

    // The same session gives the same file; any tar program can look into it.
    let again = pack(&place.packing(), &temporary).unwrap();
    assert_eq!((fs::read(&temporary).unwrap(), again.digest), (fs::read(&target).unwrap(), packed.digest));
}

#[test]
fn nothing_is_overwritten_unless_asked_and_then_only_a_file() {
    let place = Place::new();
    let temporary = place.at("out/.tmp");
    let packed = || pack(&place.packing(), &temporary).unwrap();
    let file = place.at("out/file");
    fs::write(&file, "precious").unwrap();
    let link = place.at("out/link");
    symlink(&file, &link).unwrap();
    for target in [file.clone(), link.clone(), place.at("in")] {
        packed();
        assert!(matches!(is_free(&target, false), Err(BundleError::Exists(_))));
        assert!(
            matches!(name(&temporary, &target, false), Err(BundleError::Exists(_))),
            "{}",
            target.display()
        );
    }
    assert!(is_free(&link, true).is_err() && is_free(&place.at("in"), true).is_err());
    assert!(name(&temporary, &link, true).is_err() && name(&temporary, &place.at("in"), true).is_err());
    assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
    assert!(is_free(&file, true).is_ok());
    name(&temporary, &file, true).unwrap();
    assert!(Bundle::open(&file).is_ok());
    // A link in the place of the temporary name is replaced, not followed.
    fs::write(place.at("in/other"), "other").unwrap();
    symlink(place.at("in/other"), &temporary).unwrap();
    packed();
    assert_eq!(fs::read_to_string(place.at("in/other")).unwrap(), "other");
}

#[test]
fn a_blob_that_is_not_what_its_name_says_is_not_given_away() {
    let place = Place::new();
    let mut packing = place.packing();
    let digest = *packing.blobs.iter().next_back().unwrap();
    fs::write(place.at("session/blobs").join(digest.hex()), "rotten").unwrap();
    let temporary = place.at("out/.tmp");
    assert!(pack(&packing, &temporary).is_err());
    (packing.plan, packing.journal) = (None, packing.journal + 1_000);
    assert!(matches!(pack(&packing, &temporary), Err(BundleError::Shrunk)));
    assert!(!temporary.exists());
}

#[test]
fn hostile_bundles_are_refused_and_leave_nothing() {
    let place = Place::new();
    let journal = line(1);
    let blob = [9; 1_000];
    let hex = digest_of(&blob).hex();
    let blob_name = format!("{BLOBS}{hex}");
    let files = || vec![listed(FILE_NAME, &journal), listed(PLAN, b"p"), listed(&blob_name, &blob)];
    let good = [manifest(files()), entry(FILE_NAME, &journal), entry(PLAN, b"p"), entry(&blob_name, &blob)];
    assert_eq!(place.unpack(&place.tar(&good)).unwrap().unwrap(), b"p");
    fs::remove_dir_all(place.at("in/.staged-session")).unwrap();

    let with = |index: usize, change: &dyn Fn(&mut Entry)| {
        let mut entries = good.to_vec();
        change(&mut entries[index]);
        entries
    };
    let listing = |files: Vec<Listed>, rest: &[Entry]| {
        let mut entries = vec![manifest(files)];
        entries.extend_from_slice(rest);
        entries
    };
    let more = |name: &str, content: &[u8]| {
        let mut all = files();
        all.push(listed(name, content));
        let mut entries = listing(all, &good[1..]);
        entries.push(entry(name, content));
        entries
    };
    let mut doubled = files();
    doubled.push(listed(&blob_name, &blob));
    let mut unsorted = files();
    unsorted.swap(0, 1);
    let mut lies = files();
    lies[0].sha256 = digest_of(b"other");
    let mut huge = files();
    huge[0].size = u64::MAX / 2;
    let text = |value: serde_json::Value| vec![entry(MANIFEST, value.to_string().as_bytes())];
    let twice = || [&good[..], &good[3..]].concat();

    let cases: Vec<(&str, Vec<Entry>)> = vec![
        ("nothing in it", vec![]),
        ("no list", good[1..].to_vec()),
        ("a list that is no JSON", vec![entry(MANIFEST, b"{")]),
        ("a list without files", text(json!({"format": 1}))),
        ("a list of a later format", text(json!({"format": 2}))),
        ("no journal", listing(vec![listed(PLAN, b"p")], &good[2..3])),
        ("the plan first", listing(unsorted, &[good[2].clone(), good[1].clone(), good[3].clone()])),
        ("a blob twice", listing(doubled, &twice()[1..])),
        ("a way out", more("../evil", b"x")),
        ("a way out of the blobs", more(&format!("blobs/../{hex}"), &blob)),
        ("an absolute name", more("/etc/evil", b"x")),
        ("an environment", more("env", b"{}")),
        ("a checkpoint", more("state.json", b"{}")),
        ("a blob under another name", more(&format!("{BLOBS}{}", digest_of(b"?").hex()), b"x")),
        ("a blob in capitals", more(&format!("{BLOBS}{}", hex.to_uppercase()), &blob)),
        ("other content", with(1, &|entry| entry.content[3] ^= 1)),
        ("another digest", listing(lies, &good[1..])),
        ("more than there is", listing(huge, &good[1..])),
        ("a longer file", with(3, &|entry| entry.content.push(9))),
        ("a shorter file", with(3, &|entry| entry.content.truncate(10))),
        ("a link", with(3, &|entry| entry.kind = tar::EntryType::Symlink)),
        ("a hard link", with(3, &|entry| entry.kind = tar::EntryType::Link)),
        ("a device", with(3, &|entry| entry.kind = tar::EntryType::Char)),
        ("a folder", with(2, &|entry| entry.kind = tar::EntryType::Directory)),
        ("a long name that follows", with(1, &|entry| entry.kind = tar::EntryType::GNULongName)),
        ("a size that follows", with(1, &|entry| entry.kind = tar::EntryType::XHeader)),
        ("a sparse file", with(3, &|entry| entry.kind = tar::EntryType::GNUSparse)),
        ("one that is not listed", [&good[..], &[entry("env", b"{}")]].concat()),
        ("a blob once more", twice()),
        ("one that is missing", good[..3].to_vec()),
        ("a size beyond the end", with(3, &|entry| entry.says = Some(1 << 40))),
        ("a list beyond the end", with(0, &|entry| entry.says = Some(1 << 40))),
    ];
    for (what, entries) in cases {
        let path = place.tar(&entries);
        let refused = place.unpack(&path).expect_err(what);
        let is_later = matches!(refused, BundleError::Newer { format: 2, .. });
        assert!(is_later == (what == "a list of a later format"), "{what}: {refused}");
        assert!(is_later || matches!(refused, BundleError::NotOne { .. }), "{what}: {refused:?}");
        assert_eq!(fs::read_dir(place.at("in")).unwrap().count(), 0, "{what}");
    }
    for cut in [1, 511, 512, 513, 2_000] {
        let path = place.tar(&good);
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..cut]).unwrap();
        assert!(matches!(place.unpack(&path), Err(BundleError::NotOne { .. })), "cut at {cut}");
    }
    fs::write(place.at("out/made.agentd"), "no tar at all".repeat(100)).unwrap();
    assert!(matches!(place.unpack(&place.at("out/made.agentd")), Err(BundleError::NotOne { .. })));
    // What is no file is not opened, nor waited for.
    assert!(matches!(place.unpack(&place.at("out")), Err(BundleError::Io { .. })));
    assert!(matches!(place.unpack(&place.at("out/nothing")), Err(BundleError::Io { .. })));
}
